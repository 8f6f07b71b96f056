"""What was read before this start: the last reading of each thing, from the observed topic.

A collector that knows things only by having seen them starts from these readings, so a restart forgets nothing.
"""

import time
from datetime import timedelta
from threading import Event

import structlog

from connectors.collection.history import Kind
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Tail
from policies.errors import UserError
from policies.wire import BadRecordError, EventReader

GIVE_UP_SECONDS = 15.0
"""Longer than an hour of readings takes; without them a collector only begins with less."""
_POLL_SECONDS = 0.2

_log = structlog.get_logger(__name__)


def recall(connection: KafkaConnection, topic: str, kind: type[Kind], history: timedelta, stop: Event) -> list[Kind]:
    """The last reading of each subject; fewer, or none, where they cannot be read in time.

    Args:
        connection: the loop's Kafka.
        topic: of observations.
        kind: of readings; others are left out.
        history: how far back.
        stop: ends it early.
    """
    last: dict[str, Kind] = {}
    reader, give_up_at = EventReader((kind,)), time.monotonic() + GIVE_UP_SECONDS
    try:
        with Tail(connection, {topic: history}, "headgate-recall") as tail:
            while not (tail.caught_up or stop.is_set() or time.monotonic() > give_up_at):
                for record in tail.poll(_POLL_SECONDS):
                    try:
                        reading = reader.read(record.value or b"").data
                    except BadRecordError:
                        continue  # of another kind, or for the loop's own dead letters to tell
                    last[reading.subject()] = reading
            if not (tail.caught_up or stop.is_set()):
                why = tail.problem or tail.backlog
                _log.warning("not all that was read before this start is known", topic=topic, detail=why)
    except UserError as error:
        _log.warning("what was read before this start is not known", topic=topic, detail=str(error))
    return list(last.values())
