"""Follows the loop's decisions for one member, and applies the rules locally where the loop has decided nothing."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
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


def _utc_now() -> datetime:
    return datetime.now(UTC)


class LoopStrategy:
    """The decisions of the loop, where there is one for the present session and for the node as it is now.

    Some things need no decision: a node that is the member's own in its present session is kept, one that is not its
    own to have is let go at once, and a bundle that it has not owned before and nobody owns is taken. Everything else
    waits for the loop, at most `decision_timeout` after the session was established, and is then left to `otherwise`;
    so it is when a decision is past its `valid_until`, was made for another session, for another state of the node, or
    in shadow.

    Args:
        decisions: of the member; `read_from` or a test fills them.
        source: how to read the loop's topic; None: somebody else calls `take` of the decisions, and wakes the agent.
        otherwise: who says what to do without the loop.
        decision_timeout: how long to wait for the loop.
        clock: the time, with its zone.
    """

    def __init__(
        self,
        decisions: MemberDecisions,
        source: "DecisionSource | None" = None,
        *,
        otherwise: RecoveryStrategy | None = None,
        decision_timeout: timedelta = DECISION_TIMEOUT,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._decisions = decisions
        self._source = source
        self._otherwise = otherwise or LocalStrategy()
        self._decision_timeout_ms = millis_of(decision_timeout)
        self._clock = clock

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to read the loop's topic."""
        if self._source is not None:
            self._source.start(self._decisions, wake)

    def close(self) -> None:
        """End reading."""
        if self._source is not None:
            self._source.close()

    def ruling(self, path: str, claimant: Claimant, node: NodeNow | None) -> BundleRuling:
        """By the loop's decision, or without one by the rules at hand, in time."""
        own = self._otherwise.ruling(path, claimant, node)
        if node is None or own.verdict is OwnershipVerdict.KEEP or own.reason in _NEEDS_NO_DECISION:
            return own
        if claimant.is_new and own.reason is OwnershipReason.ABSENT:
            return own
        decided = self._decisions.ruling(path, claimant.session, node, self._clock())
        if decided is not None:
            return decided
        left_ms = self._decision_timeout_ms - claimant.waited_ms
        # A decision that arrives earlier wakes the agent.
        return own if left_ms <= 0 else BundleRuling(OwnershipVerdict.WAIT, own.reason, retry_ms=left_ms)

    def plan(self, session: str) -> tuple[RecoveryStep, ...]:
        """The loop's, or the one at hand."""
        decided = self._decisions.plan(session, self._clock())
        return self._otherwise.plan(session) if decided is None else decided

    def shutdown(self, session: str | None, outage: Outage | None) -> SessionDecision | None:
        """The loop's decision, once; the one at hand while the loop says nothing of this session."""
        now = self._clock()
        if self._decisions.speaks_of(session, now):
            return self._decisions.shutdown(session, now)
        return self._otherwise.shutdown(session, outage)


class DecisionSource:
    """Reads the loop's topic of decisions, in a thread of its own, for as long as it lives.

    Args:
        kafka: how to reach the loop's Kafka.
        topic: the whole name, such as `headgate.decided.sessions`.
        client_id: how the brokers name this client.
    """

    def __init__(self, kafka: KafkaConnection, topic: str, client_id: str = "headgate-ownership") -> None:
        self._kafka = kafka
        self._topic = topic
        self._client_id = client_id
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, decisions: MemberDecisions, wake: Callable[[], None]) -> None:
        """Begin; `wake` is called after news.

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
        """End; bounded by one request to Kafka."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, tail: Tail, decisions: MemberDecisions, wake: Callable[[], None]) -> None:
        problem = None
        with tail:
            while not self._stop.is_set():
                news = [_take(decisions, record) for record in tail.poll(_POLL_SECONDS)]
                if any(news):
                    wake()
                if tail.problem != problem:
                    problem = tail.problem
                    _log.warning("the loop's decisions", problem=problem or "are read again")


def _take(decisions: MemberDecisions, record: Record) -> bool:
    return record.value is not None and decisions.take(record.value, from_millis(record.appended_ms))
