"""Publishes the readings of a command (pause, promise) to the running loop, and waits for their delivery."""

import getpass
import os
import socket
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import DELIVERY_TIMEOUT_SECONDS, Publisher, PublisherMetrics
from policies.errors import UserError
from policies.observations import Reading
from policies.wire import observation_event

_GRACE_SECONDS = 2.0


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


def send(connection: KafkaConnection, topic: str, readings: Sequence[Reading], *, what: str, client_id: str) -> None:
    """Publish readings and wait until Kafka has accepted all of them.

    Args:
        topic: the topic's full name.
        what: their name in the message: ``the promise``.

    Raises:
        UserError: Kafka has not accepted all of them.
    """
    registry = CollectorRegistry()
    with Publisher(connection, PublisherMetrics(registry), client_id=client_id) as publisher:
        for reading in readings:
            event = observation_event(reading, id=str(uuid.uuid4()), source="headgate/cli", time=datetime.now(UTC))
            publisher.publish(topic, reading.cluster, event)
        publisher.flush(DELIVERY_TIMEOUT_SECONDS + _GRACE_SECONDS)
    if registry.get_sample_value("headgate_records_published_total", {"topic": topic}) != len(readings):
        raise UserError(f"{what} could not be sent to {topic}: check that Kafka is up and the topic exists")
