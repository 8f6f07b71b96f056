"""Reads past records: all of a time range, or the last reading of each subject."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from threading import Event

import structlog

from connectors.collection import Kind
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail, read_past
from connectors.kafka.topic_admin import reach
from policies.units import UserError, to_millis
from policies.wire import BadRecordError, EventReader

_TIMES_DIFFER = timedelta(minutes=1)
"""A history begins so much earlier: its first instant is later by the time that connecting takes."""

_log = structlog.get_logger(__name__)


def read_history(connection: KafkaConnection, topics: Sequence[str], since: datetime, to: datetime) -> Iterator[Record]:
    """Yield the records appended from `since` up to `to`, by append time.

    Raises UserError if the cluster does not answer, or a topic does not exist.
    """
    reach(connection)
    history = max(timedelta(0), datetime.now(UTC) - since) + _TIMES_DIFFER
    with Tail(connection, dict.fromkeys(topics, history), "headgate-replay", until=to) as tail:
        first_ms, end_ms = to_millis(since), to_millis(to)
        found = [record for record in read_past(tail) if first_ms <= record.appended_ms < end_ms]
        if tail.missing:
            raise UserError(f"{tail.missing[0]}: Kafka has no such topic")
    yield from sorted(found, key=lambda each: (each.appended_ms, each.topic, each.partition, each.offset))


def last_readings(
    connection: KafkaConnection, topic: str, kind: type[Kind], history: timedelta, stop: Event
) -> list[Kind]:
    """Return the last reading of each subject from before this start; fewer, or none, if Kafka does not answer.

    A collector that learns of things only by seeing them starts from these readings, so a restart forgets nothing.
    `history` is the maximum age of a reading; `stop` ends the read early.
    """
    last: dict[str, Kind] = {}
    reader = EventReader((kind,))
    try:
        with Tail(connection, {topic: history}, "headgate-recall") as tail:
            for record in read_past(tail, stop):
                try:
                    reading = reader.read(record.value or b"").data
                except BadRecordError:
                    continue  # another kind, or a record that the query publishes as a dead letter
                last[reading.subject()] = reading
    except UserError as error:
        _log.warning("readings from before this start are incomplete", topic=topic, detail=str(error))
    return list(last.values())
