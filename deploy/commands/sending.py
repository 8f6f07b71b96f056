"""Publishes the readings of a command (pause, promise, switch) to the running loop, and waits for their delivery."""

import getpass
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import DELIVERY_TIMEOUT_SECONDS, Publisher, PublisherMetrics
from policies.errors import UserError
from policies.observations import Reading
from policies.wire import observation_event

_GRACE_SECONDS = 2.0
"""The time that the Kafka client needs to report why it gave up a record."""


def actor() -> str:
    """Return user@host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container, a user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def option_error(error: ValidationError) -> UserError:
    """Convert the refusal of a value that is too long for a record; name the option that has it."""
    first = error.errors(include_url=False, include_input=False)[0]
    return UserError(f"--{str(first['loc'][-1]).replace('_', '-')}: {first['msg']}")


def send(
    connection: KafkaConnection, topic: str, readings: Mapping[str, Reading], *, what: str, client_id: str
) -> None:
    """Publish readings and wait until Kafka has accepted all of them.

    Args:
        topic: the topic's full name.
        readings: by the id of their event.
        what: their name in the message: ``the promise``.

    Raises:
        UserError: Kafka has not accepted all of them.
    """
    registry = CollectorRegistry()
    with Publisher(connection, PublisherMetrics(registry), client_id=client_id) as publisher:
        for event_id, reading in readings.items():
            event = observation_event(reading, id=event_id, source="headgate/cli", time=datetime.now(UTC))
            publisher.publish(topic, reading.cluster, event)
        publisher.flush(DELIVERY_TIMEOUT_SECONDS + _GRACE_SECONDS)
    if registry.get_sample_value("headgate_records_published_total", {"topic": topic}) != len(readings):
        samples = (sample for family in registry.collect() for sample in family.samples)
        errors = [s.labels["error"] for s in samples if s.name == "headgate_records_unpublished_total" and s.value]
        raise UserError(
            f"{what} could not be sent to {topic} ({', '.join(errors) or 'no answer'}): check that Kafka at "
            f"{','.join(connection.servers())} is up, and that the topic exists (`headgate topics create`)"
        )
