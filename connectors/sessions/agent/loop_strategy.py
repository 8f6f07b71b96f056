"""Follows the loop's decisions for one member, and applies the rules locally where there is no decision."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Tail
from connectors.sessions.agent.decisions import MemberDecisions
from connectors.sessions.agent.strategy import LocalStrategy, Outage, RecoveryStrategy
from policies.sessions.decisions import OwnershipReason, OwnershipVerdict, SessionDecision
from policies.sessions.judge.ownership_table import BundleRuling, Claimant, NodeNow
from policies.sessions.settings import RecoveryStep
from policies.units import from_millis, millis_of, parse_duration

_POLL_SECONDS = 0.2
_NEEDS_NO_DECISION = (OwnershipReason.OTHER_OWNER, OwnershipReason.DOUBLE_OWNERSHIP, OwnershipReason.NOT_EPHEMERAL)
DECISION_TIMEOUT = parse_duration("10s")

_log = structlog.get_logger(__name__)


class LoopStrategy:
    """Uses the loop's decisions, if there is one for the present session and for the present state of the node.

    Three cases need no decision. A node that belongs to the member in its present session is kept. A node that belongs
    to another member is given up at once. A bundle without an owner that this member has not owned before is taken.

    Everything else waits for the loop, at most `decision_timeout` after the session was established, and is then
    decided by `fallback`. The fallback also decides if a decision is past its `valid_until`, in shadow mode, or made
    for another session or state of the node.

    Args:
        source: reads the loop's topic. None: the caller calls `take` of the decisions, and wakes the agent.
        fallback: decides without the loop; by default a `LocalStrategy`.
    """

    def __init__(
        self,
        decisions: MemberDecisions,
        source: "DecisionSource | None" = None,
        *,
        fallback: RecoveryStrategy | None = None,
        decision_timeout: timedelta = DECISION_TIMEOUT,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._decisions = decisions
        self._source = source
        self._fallback = fallback or LocalStrategy()
        self._decision_timeout_ms = millis_of(decision_timeout)
        self._clock = clock

    def start(self, wake: Callable[[], None]) -> None:
        """Start to read the loop's topic."""
        if self._source is not None:
            self._source.start(self._decisions, wake)

    def close(self) -> None:
        """Stop reading."""
        if self._source is not None:
            self._source.close()

    def ruling(self, path: str, claimant: Claimant, node: NodeNow | None) -> BundleRuling:
        """Return the loop's decision; without one in time, the fallback's."""
        local = self._fallback.ruling(path, claimant, node)
        if node is None or local.verdict is OwnershipVerdict.KEEP or local.reason in _NEEDS_NO_DECISION:
            return local
        if claimant.is_new and local.reason is OwnershipReason.ABSENT:
            return local
        decided = self._decisions.ruling(path, claimant.session, node, self._clock())
        if decided is not None:
            return decided
        left_ms = self._decision_timeout_ms - claimant.waited_ms
        # A decision that arrives earlier wakes the agent.
        return local if left_ms <= 0 else BundleRuling(OwnershipVerdict.WAIT, local.reason, retry_ms=left_ms)

    def plan(self, session: str) -> tuple[RecoveryStep, ...]:
        """Return the loop's plan, or the fallback's."""
        decided = self._decisions.plan(session, self._clock())
        return self._fallback.plan(session) if decided is None else decided

    def shutdown(self, session: str | None, outage: Outage | None) -> SessionDecision | None:
        """Return the loop's decision, once; the fallback's while the loop has none for this session."""
        now = self._clock()
        if self._decisions.has_decision(session, now):
            return self._decisions.shutdown(session, now)
        return self._fallback.shutdown(session, outage)


class DecisionSource:
    """Reads the loop's topic of decisions in a thread of its own.

    Args:
        topic: the full name, such as `headgate.decided.sessions`.
    """

    def __init__(self, kafka: KafkaConnection, topic: str, client_id: str = "headgate-ownership") -> None:
        self._kafka = kafka
        self._topic = topic
        self._client_id = client_id
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, decisions: MemberDecisions, wake: Callable[[], None]) -> None:
        """Start the thread; `wake` is called after each new decision.

        Raises:
            UserError: the connection's files cannot be used.
        """
        # The topic is compacted, so all of it is the latest decision for each subject.
        tail = Tail(self._kafka, {self._topic: None}, self._client_id)
        self._thread = threading.Thread(
            target=self._run, args=(tail, decisions, wake), name="ownership decisions", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread; waits for one request to Kafka at most."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, tail: Tail, decisions: MemberDecisions, wake: Callable[[], None]) -> None:
        problem = None
        with tail:
            while not self._stop.is_set():
                new = [
                    decisions.fold(record.value, from_millis(record.appended_ms))
                    for record in tail.poll(_POLL_SECONDS)
                    if record.value is not None
                ]
                if any(new):
                    wake()
                if tail.problem != problem:
                    problem = tail.problem
                    _log.warning("the loop's decisions", problem=problem or "are read again")
