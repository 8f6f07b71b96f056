"""What passes from the tail to the picture."""

from typing import NamedTuple


class Record(NamedTuple):
    """A record as it lies in Kafka."""

    topic: str
    key: bytes | None
    value: bytes | None
    appended_ms: int
    """Its Kafka timestamp, in milliseconds since the epoch."""
