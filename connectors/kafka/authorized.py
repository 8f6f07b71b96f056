"""Whether this principal may write a topic, asked of the cluster instead of found out by failing."""

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.librdkafka import LOGGER

_TIMEOUT_SECONDS = 10.0


def why_not_writable(connection: KafkaConnection, topic: str) -> str | None:
    """Why a topic cannot be written, in a sentence; None where it can, or where the cluster does not say."""
    admin = AdminClient(connection.for_confluent(), logger=LOGGER)
    asked = admin.describe_topics(
        TopicCollection([topic]), include_authorized_operations=True, request_timeout=_TIMEOUT_SECONDS
    )
    try:
        allowed = asked[topic].result(timeout=_TIMEOUT_SECONDS).authorized_operations
    except (KafkaException, TimeoutError):
        return None  # it is away, which passes
    if allowed is None or AclOperation.WRITE in allowed or AclOperation.ALL in allowed:
        return None
    return f"this principal may not write {topic}: `headgate topics acls canary` names what it needs"
