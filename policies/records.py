"""Kafka's records: those that the query reads, and those that it writes."""

from datetime import UTC, datetime
from typing import NamedTuple

from policies.units import from_millis, to_millis
from policies.wire import BadRecordError, DeadLetterReason

KEPT_BYTES = 16 * 1024
"""A record that cannot be read, or is too large, is kept up to this many bytes."""

LAST_MS = to_millis(datetime.max.replace(tzinfo=UTC))
"""The latest instant that can be written."""


class Output(NamedTuple):
    """A record to write. `topic` has no prefix yet."""

    topic: str
    key: str
    value: bytes


class Cut(NamedTuple):
    """The size and the hash of a record of which only the first bytes were read."""

    bytes: int
    sha256: str


class ObservedRecord(NamedTuple):
    """A record of an observed topic or another one of the loop, as Kafka stores it."""

    topic: str
    """The full name, with the prefix."""
    partition: int
    offset: int
    appended_ms: int
    value: bytes | None
    cut: Cut | None = None
    """Set if `value` holds only the first bytes."""
    key: bytes | None = None
    """Of a record that was read from a recording; the query reads none."""

    def appended_at(self) -> datetime:
        """The time at which Kafka appended the record.

        Raises:
            BadRecordError: the timestamp is out of range. Where a topic was created without append times, Kafka accepts
                any number from a producer, such as microseconds.
        """
        if not 0 <= self.appended_ms <= LAST_MS:
            raise BadRecordError(DeadLetterReason.INVALID, f"timestamp: {self.appended_ms} ms is no time")
        return from_millis(self.appended_ms)

    def position(self) -> str:
        """``topic/partition/offset``."""
        return f"{self.topic}/{self.partition}/{self.offset}"
