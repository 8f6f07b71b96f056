"""The loop's decisions for one member, as far as they are in force: fenced by sequence, session and time."""

import threading
from datetime import datetime

from policies.decisions import Mode
from policies.sessions.bundles import NodeNow, Ruling
from policies.sessions.decision import OwnershipDecision, OwnershipVerdict, SessionDecision, SessionVerdict
from policies.sessions.settings import RecoveryStep
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
        self._passed: dict[str, int] = {}
        self._of_member: SessionDecision | None = None
        self._of_bundles: dict[str, OwnershipDecision] = {}
        self._carried_out: set[str] = set()

    def take(self, record: bytes) -> bool:
        """Note one record of the topic.

        Returns:
            Whether it is news: of this member, active, and not passed by a later one.
        """
        try:
            decision = self._reader.read(record).data
        except BadRecordError:
            return False  # of another kind, or for the loop's own dead letters to tell
        if (decision.cluster, decision.member) != (self._cluster, self._member):
            return False
        with self._lock:
            if decision.sequence <= self._passed.get(decision.subject, 0):
                return False
            self._passed[decision.subject] = decision.sequence
            self._note(decision)
        return decision.mode is Mode.ACTIVE

    def ruling(self, path: str, session: str | None, node: NodeNow, now: datetime) -> Ruling | None:
        """What was decided about a bundle for this session and for its node as it is now; None: nothing."""
        with self._lock:
            decision = self._of_bundles.get(path)
        if decision is None or session is None or decision.session != session or now > decision.valid_until:
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
        decision = self._in_force(session, now)
        return decision.plan if decision is not None and decision.verdict is SessionVerdict.RECOVER else None

    def shutdown(self, session: str | None, now: datetime) -> SessionDecision | None:
        """The decision to go down, if there is one for this session; each only once."""
        decision = self._in_force(session, now)
        if decision is None or decision.verdict not in _DOWN or decision.decision_id in self._carried_out:
            return None
        self._carried_out.add(decision.decision_id)
        return decision

    def _note(self, decision: SessionDecision | OwnershipDecision) -> None:
        # One in shadow is in force for nobody, and takes the place of what was.
        active = decision.mode is Mode.ACTIVE
        if isinstance(decision, SessionDecision):
            self._of_member = decision if active else None
        elif active:
            self._of_bundles[decision.path] = decision
        else:
            self._of_bundles.pop(decision.path, None)

    def _in_force(self, session: str | None, now: datetime) -> SessionDecision | None:
        with self._lock:
            decision = self._of_member
        if decision is None or session is None or decision.session != session or now > decision.valid_until:
            return None
        return decision


def _ruling_of(decision: OwnershipDecision, now: datetime) -> Ruling:
    left_ms = None
    if decision.seconds_left is not None:
        passed_seconds = (now - decision.decided_at).total_seconds()
        left_ms = max(0, round((decision.seconds_left - passed_seconds) * 1000))
    return Ruling(
        decision.verdict,
        decision.reason,
        expected_version=decision.expected_version,
        delete_first=decision.delete_first,
        retry_ms=decision.retry_ms,
        left_ms=left_ms,
    )
