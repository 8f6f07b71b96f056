"""Records of a topic in memory."""

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from policies.units import to_millis
from tests.connectors.actuation.virtual_clock import NOON

CONNECTION = KafkaConnection(bootstrap_servers="nowhere:9092")


def record(topic: str, value: bytes | None, appended_ms: int = to_millis(NOON)) -> Record:
    return Record(topic, b"key", value, appended_ms)
