"""Deletes the decisions about clusters that are not watched any more.

It reads the decided topics themselves. So it also deletes what an older version, a forged name or a lost checkpoint
left behind. A firing alert is resolved once; then a tombstone deletes each key.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.alerts import retire
from policies.decisions import Alert, AlertStatus, Decision
from policies.observations import ActuatorEvent
from policies.registry import AUDIT, REPORTS, decided_topics, decision_types, report_policies
from policies.wire import BadRecordError, EventReader, audit_event, decision_event

Publish = Callable[[str, str, bytes | None], None]
"""Publishes a record (topic, key, value or None for a tombstone)."""

_POLL_SECONDS = 0.2

_log = structlog.get_logger(__name__)


class Retirement:
    """Reads the decided topics once, and deletes the decisions about clusters that do not exist."""

    def __init__(
        self,
        connection: KafkaConnection,
        prefix: str,
        clusters: frozenset[str],
        publish: Publish,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._prefix = prefix
        self._clusters = clusters
        self._publish = publish
        self._clock = clock
        self._reader: EventReader[Decision | ActuatorEvent] = EventReader((*decision_types(), *report_policies()))

    def run(self, stop: threading.Event) -> None:
        """Retire the decisions, then wait for `stop`, because the loop expects its components to keep running."""
        topics = dict.fromkeys(f"{self._prefix}.{topic}" for topic in (*decided_topics(), REPORTS))
        left: dict[tuple[str, str], Decision | ActuatorEvent] = {}
        with Tail(self._connection, topics, f"{self._prefix}-retirement") as tail:
            while not stop.is_set() and not tail.caught_up:
                self._note(tail.poll(_POLL_SECONDS), left)
        if not stop.is_set():
            self.retire(left)
            stop.wait()

    def retire(self, left: Mapping[tuple[str, str], Decision | ActuatorEvent]) -> None:
        """Resolve and delete these decisions, and delete these reports, given by topic and key."""
        if left:
            names = sorted({decision.cluster for decision in left.values()})
            _log.info("retiring clusters that the settings do not name", clusters=names[:10], count=len(names))
        for (topic, key), decision in left.items():
            if isinstance(decision, Alert) and decision.status is AlertStatus.FIRING:
                resolved = retire(decision, max(self._clock(), decision.decided_at))
                self._publish(topic, key, decision_event(resolved))
                self._publish(f"{self._prefix}.{AUDIT}", resolved.cluster, audit_event(resolved))
            self._publish(topic, key, None)

    def _note(self, records: list[Record], left: dict[tuple[str, str], Decision | ActuatorEvent]) -> None:
        """Store in `left` the last decision of each key whose cluster does not exist."""
        for record in records:
            place = (record.topic, (record.key or b"").decode(errors="replace"))
            left.pop(place, None)
            decision = self._read(record)
            if decision is not None and decision.cluster not in self._clusters:
                left[place] = decision

    def _read(self, record: Record) -> Decision | ActuatorEvent | None:
        """Return None for a tombstone, and for a record that this version cannot read."""
        try:
            return self._reader.read(record.value).data if record.value is not None else None
        except BadRecordError:
            return None
