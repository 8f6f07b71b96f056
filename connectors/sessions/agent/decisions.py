"""The loop's decisions for one member that are in force: fenced by sequence, session and time."""

import threading
from datetime import datetime

from policies.decisions import Mode
from policies.sessions.decisions import OwnershipDecision, OwnershipVerdict, SessionDecision, SessionVerdict
from policies.sessions.judge.ownership_table import BundleRuling, NodeNow
from policies.sessions.settings import RecoveryStep
from policies.succession import has_expired, succeeds
from policies.wire import BadRecordError, EventReader

_DOWN = (SessionVerdict.SHUTDOWN, SessionVerdict.RESTART)


class MemberDecisions:
    """What the loop last said about one member and its bundles. Safe to use from several threads.

    Args:
        cluster: its name in the loop's settings.
        member: as it registers itself.
    """

    def __init__(self, cluster: str, member: str) -> None:
        self._cluster = cluster
        self._member = member
        self._reader: EventReader[SessionDecision | OwnershipDecision] = EventReader(
            (SessionDecision, OwnershipDecision)
        )
        self._lock = threading.Lock()
        self._in_force: dict[str | None, SessionDecision | OwnershipDecision] = {}
        """By the path of a bundle; None: about the member itself."""
        self._carried_out: set[str] = set()

    def take(self, record: bytes, appended_at: datetime) -> bool:
        """Note one record of the topic.

        Args:
            record: its value.
            appended_at: its Kafka timestamp.

        Returns:
            Whether it is news: of this member, active, and the successor of what was in force.
        """
        try:
            decision = self._reader.read(record).data
        except BadRecordError:
            return False  # of another kind, or for the loop's own dead letters to tell
        if (decision.cluster, decision.member) != (self._cluster, self._member):
            return False
        key = decision.path if isinstance(decision, OwnershipDecision) else None
        with self._lock:
            # What had expired when this one was appended is judged by that time, so that a history ends as it did live.
            if not succeeds(decision, self._in_force.get(key), now=appended_at, appended_at=appended_at):
                return False
            self._in_force[key] = decision
        return decision.mode is Mode.ACTIVE

    def ruling(self, path: str, session: str | None, node: NodeNow, now: datetime) -> BundleRuling | None:
        """What was decided about a bundle for this session and for its node as it is now; None: nothing."""
        decision = self._followed(path, session, now)
        if not isinstance(decision, OwnershipDecision):
            return None
        if (decision.owner, decision.node_session) != (node.owner, node.session):
            return None  # the node has changed since
        if decision.verdict is OwnershipVerdict.KEEP:
            return None  # what may be kept is seen here, or not at all
        if decision.delete_first and decision.expected_version is None:
            return None  # the deletion would hit whatever is there by then
        return _ruling_of(decision, now)

    def plan(self, session: str, now: datetime) -> tuple[RecoveryStep, ...] | None:
        """The order in which to come back, as decided for this session; None: nothing."""
        decision = self._of_member(session, now)
        return decision.plan if decision is not None and decision.verdict is SessionVerdict.RECOVER else None

    def speaks_of(self, session: str | None, now: datetime) -> bool:
        """Whether anything about the member with this session is in force."""
        return self._of_member(session, now) is not None

    def shutdown(self, session: str | None, now: datetime) -> SessionDecision | None:
        """The decision to go down, if there is one for this session; each only once."""
        decision = self._of_member(session, now)
        if decision is None or decision.verdict not in _DOWN or decision.decision_id in self._carried_out:
            return None
        self._carried_out.add(decision.decision_id)
        return decision

    def _of_member(self, session: str | None, now: datetime) -> SessionDecision | None:
        decision = self._followed(None, session, now)
        return decision if isinstance(decision, SessionDecision) else None

    def _followed(
        self, path: str | None, session: str | None, now: datetime
    ) -> SessionDecision | OwnershipDecision | None:
        """What is in force, when it is for this session and has not expired; one in shadow is followed by nobody."""
        with self._lock:
            decision = self._in_force.get(path)
        if decision is None or decision.mode is not Mode.ACTIVE or has_expired(decision, now):
            return None
        return None if session is None or decision.session != session else decision


def _ruling_of(decision: OwnershipDecision, now: datetime) -> BundleRuling:
    left_ms = None
    if decision.seconds_left is not None:
        passed_seconds = (now - decision.decided_at).total_seconds()
        left_ms = max(0, round((decision.seconds_left - passed_seconds) * 1000))
    return BundleRuling(
        decision.verdict,
        decision.reason,
        expected_version=decision.expected_version,
        delete_first=decision.delete_first,
        retry_ms=decision.retry_ms,
        left_ms=left_ms,
    )
