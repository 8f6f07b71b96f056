"""The loop's decisions in force for one member, fenced by sequence, session and time."""

import threading
from datetime import datetime

from policies.decisions import Mode
from policies.sessions.decisions import OwnershipDecision, OwnershipVerdict, SessionDecision, SessionVerdict
from policies.sessions.judge.ownership_table import BundleRuling, NodeNow
from policies.sessions.settings import RecoveryStep
from policies.succession import has_expired, succeeds
from policies.wire import BadRecordError, EventReader

_DOWN = (SessionVerdict.SHUTDOWN, SessionVerdict.RESTART)
_OVERDUE_MS = 1000
"""When the node is read again once a wait is over, and the loop has not decided what follows."""


class MemberDecisions:
    """The loop's latest decisions about one member and its bundles. Thread-safe."""

    def __init__(self, cluster: str, member: str) -> None:
        self._cluster = cluster
        self._member = member
        self._reader: EventReader[SessionDecision | OwnershipDecision] = EventReader(
            (SessionDecision, OwnershipDecision)
        )
        self._lock = threading.Lock()
        self._in_force: dict[str | None, SessionDecision | OwnershipDecision] = {}
        """The decision about each bundle, by its path, and under None the one about the member itself."""
        self._carried_out: set[str] = set()

    def fold(self, record: bytes, appended_at: datetime) -> bool:
        """Fold one record of the topic.

        Args:
            appended_at: its Kafka timestamp.

        Returns:
            Whether it is a new active decision about this member.
        """
        try:
            decision = self._reader.read(record).data
        except BadRecordError:
            return False  # of another type, or malformed, which the loop's dead letters report
        if (decision.cluster, decision.member) != (self._cluster, self._member):
            return False
        key = decision.path if isinstance(decision, OwnershipDecision) else None
        with self._lock:
            # Expiry is judged at the append time, so that reading the history gives the same result as reading it live.
            if not succeeds(decision, self._in_force.get(key), now=appended_at, appended_at=appended_at):
                return False
            self._in_force[key] = decision
        return decision.mode is Mode.ACTIVE

    def ruling(self, path: str, session: str | None, node: NodeNow, now: datetime) -> BundleRuling | None:
        """Return the decision about a bundle for this session and this state of its node; None if there is none."""
        decision = self._find_active(path, session, now)
        if not isinstance(decision, OwnershipDecision):
            return None
        if (decision.owner, decision.node_session) != (node.owner, node.session):
            return None  # the node has changed since
        if decision.verdict is OwnershipVerdict.KEEP:
            return None  # the agent itself sees whether it may keep the bundle
        if decision.delete_first and decision.expected_version is None:
            return None  # the deletion would be unconditional
        left_ms = None
        if decision.seconds_left is not None:
            passed_seconds = (now - decision.decided_at).total_seconds()
            left_ms = max(_OVERDUE_MS, round((decision.seconds_left - passed_seconds) * 1000))
        return BundleRuling(
            decision.verdict,
            decision.reason,
            expected_version=decision.expected_version,
            delete_first=decision.delete_first,
            retry_ms=decision.retry_ms,
            left_ms=left_ms,
        )

    def plan(self, session: str, now: datetime) -> tuple[RecoveryStep, ...] | None:
        """Return the decided order of recovery for this session; None if there is none."""
        decision = self._find_member_decision(session, now)
        return decision.plan if decision is not None and decision.verdict is SessionVerdict.RECOVER else None

    def has_decision(self, session: str | None, now: datetime) -> bool:
        """Whether a decision about the member with this session is in force."""
        return self._find_member_decision(session, now) is not None

    def shutdown(self, session: str | None, now: datetime) -> SessionDecision | None:
        """Return the decision to shut down or restart for this session, each only once."""
        decision = self._find_member_decision(session, now)
        if decision is None or decision.verdict not in _DOWN or decision.decision_id in self._carried_out:
            return None
        self._carried_out.add(decision.decision_id)
        return decision

    def _find_member_decision(self, session: str | None, now: datetime) -> SessionDecision | None:
        decision = self._find_active(None, session, now)
        return decision if isinstance(decision, SessionDecision) else None

    def _find_active(
        self, path: str | None, session: str | None, now: datetime
    ) -> SessionDecision | OwnershipDecision | None:
        """Return the decision in force if it is active, not expired, and for this session."""
        with self._lock:
            decision = self._in_force.get(path)
        if decision is None or decision.mode is not Mode.ACTIVE or has_expired(decision, now):
            return None
        return None if session is None or decision.session != session else decision
