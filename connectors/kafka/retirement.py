"""Ends the decisions about clusters that are no longer watched.

The decided topics themselves show what exists. So this also ends what an older version or a forged name left behind,
and what a lost checkpoint forgot. An alert that fires is resolved, once; then each key is deleted by a tombstone.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.alerts import retired
from policies.decisions import Alert, AlertStatus, Decision
from policies.registry import AUDIT, decided_topics, decision_types
from policies.wire import BadRecordError, EventReader, audit_event, decision_event

Publish = Callable[[str, str, bytes | None], None]
"""Hands a record (topic, key, value or a tombstone) over."""

_POLL_SECONDS = 0.2

_log = structlog.get_logger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Retirement:
    """Looks through the decided topics once, and retires what is of no cluster there is.

    Args:
        connection: how to reach the loop's own Kafka.
        prefix: of all topics.
        clusters: those there are.
        publish: where resolutions and tombstones go.
        clock: for when an alert ended.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        prefix: str,
        clusters: frozenset[str],
        publish: Publish,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._connection = connection
        self._prefix = prefix
        self._clusters = clusters
        self._publish = publish
        self._clock = clock
        self._reader: EventReader[Decision] = EventReader(decision_types())

    def run(self, stop: threading.Event) -> None:
        """Retire what there is, then wait for the end: it is a part of the loop."""
        topics = dict.fromkeys(f"{self._prefix}.{topic}" for topic in decided_topics())
        left: dict[tuple[str, str], Decision] = {}
        with Tail(self._connection, topics, f"{self._prefix}-retirement") as tail:
            while not stop.is_set() and not tail.caught_up:
                self._note(tail.poll(_POLL_SECONDS), left)
        if not stop.is_set():
            self.retire(left)
            stop.wait()

    def retire(self, left: Mapping[tuple[str, str], Decision]) -> None:
        """Publish what ends these decisions, by topic and key."""
        if left:
            names = sorted({decision.cluster for decision in left.values()})
            _log.info("retiring clusters that the settings do not name", clusters=names[:10], count=len(names))
        for (topic, key), decision in left.items():
            for resolved in self._resolved(decision):
                self._publish(topic, key, decision_event(resolved))
                self._publish(f"{self._prefix}.{AUDIT}", resolved.cluster, audit_event(resolved))
            self._publish(topic, key, None)

    def _resolved(self, decision: Decision) -> Iterator[Alert]:
        if isinstance(decision, Alert) and decision.status is AlertStatus.FIRING:
            yield retired(decision, max(self._clock(), decision.decided_at))

    def _note(self, records: list[Record], left: dict[tuple[str, str], Decision]) -> None:
        """Keep the last decision of each key that is of no cluster there is."""
        for record in records:
            place = (record.topic, (record.key or b"").decode(errors="replace"))
            left.pop(place, None)
            decision = self._read(record)
            if decision is not None and decision.cluster not in self._clusters:
                left[place] = decision

    def _read(self, record: Record) -> Decision | None:
        """None for a tombstone, and for what some other version wrote."""
        try:
            return self._reader.read(record.value).data if record.value is not None else None
        except BadRecordError:
            return None
