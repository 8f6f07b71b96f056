"""Deletes the decisions about clusters that are not watched any more.

It reads the decided topics themselves. So it also deletes what an older version, a forged name or a lost checkpoint
left behind. A firing alert is resolved once; then a tombstone deletes each key.
"""

import math
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail, read_past
from policies.alerts import retire
from policies.decisions import Alert, AlertStatus, Decision
from policies.observations import ActuatorEvent
from policies.registry import AUDIT, REPORTS, decided_topics, decision_types, report_policies
from policies.wire import BadRecordError, EventReader, audit_event, decision_event

Publish = Callable[[str, str, bytes | None], None]
"""Publishes a record (topic, key, value or None for a tombstone)."""
Left = dict[tuple[str, str], Decision | ActuatorEvent]
"""By topic and key, the last decision or report about a cluster that is not watched."""

_log = structlog.get_logger(__name__)


def retire_clusters(
    connection: KafkaConnection, prefix: str, clusters: frozenset[str], publish: Publish, stop: threading.Event
) -> None:
    """Delete the decisions about other clusters, then wait for `stop`: the loop expects its components to run on."""
    topics = dict.fromkeys(f"{prefix}.{topic}" for topic in (*decided_topics(), REPORTS))
    with Tail(connection, topics, f"{prefix}-retirement") as tail:
        left = find_left(read_past(tail, stop, patience_seconds=math.inf), clusters)
    if not stop.is_set():
        delete_left(left, prefix, publish, datetime.now(UTC))
        stop.wait()


def find_left(records: Iterable[Record], clusters: frozenset[str]) -> Left:
    """Return the last decision or report of each key whose cluster does not exist."""
    left: Left = {}
    reader: EventReader[Decision | ActuatorEvent] = EventReader((*decision_types(), *report_policies()))
    for record in records:
        place = (record.topic, (record.key or b"").decode(errors="replace"))
        left.pop(place, None)
        try:
            decision = None if record.value is None else reader.read(record.value).data
        except BadRecordError:
            continue  # of another version or writer
        if decision is not None and decision.cluster not in clusters:
            left[place] = decision
    return left


def delete_left(left: Left, prefix: str, publish: Publish, now: datetime) -> None:
    """Resolve and delete these decisions, and delete these reports, given by topic and key."""
    if left:
        names = sorted({decision.cluster for decision in left.values()})
        _log.info("retiring clusters that the settings do not name", clusters=names[:10], count=len(names))
    for (topic, key), decision in left.items():
        if isinstance(decision, Alert) and decision.status is AlertStatus.FIRING:
            resolved = retire(decision, max(now, decision.decided_at))
            publish(topic, key, decision_event(resolved))
            publish(f"{prefix}.{AUDIT}", resolved.cluster, audit_event(resolved))
        publish(topic, key, None)
