"""What becomes of a record that cannot be read: it is kept whole, with the place it came from and the reason."""

import base64
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from policies.decisions import deterministic_id
from policies.registry import DEAD_LETTERS
from policies.units import Instant, from_millis, to_millis
from policies.wire import DEAD_LETTER_TYPE, BadRecordError, DeadLetterReason, Event
from streaming.host import Output

_LAST_MS = to_millis(datetime.max.replace(tzinfo=UTC))


class ObservedRecord(NamedTuple):
    """An observed record as it lies in Kafka."""

    topic: str
    partition: int
    offset: int
    appended_ms: int
    value: bytes | None

    def appended_at(self) -> datetime:
        """When it was appended.

        Raises:
            BadRecordError: that is no time. Kafka takes any number from a producer where a topic was not created as
                it should be, such as microseconds.
        """
        if not 0 <= self.appended_ms <= _LAST_MS:
            raise BadRecordError(DeadLetterReason.INVALID, f"timestamp: {self.appended_ms} ms is no time")
        return from_millis(self.appended_ms)


class DeadLetter(BaseModel):
    """An observed record that could not be read: why, where it lies, and the record itself."""

    model_config = ConfigDict(frozen=True)

    reason: DeadLetterReason
    detail: str = Field(description="Where in the record the fault is, and what was expected there.")
    topic: str = Field(description="Where the record lies, with the prefix.")
    partition: int
    offset: int
    appended_at: Instant = Field(
        description="When Kafka appended the record; the nearest time there is, where its timestamp is none."
    )
    value_base64: str = Field(description="The record's value, whole.")


def dead_letter(record: ObservedRecord, error: BadRecordError) -> Output:
    """Wrap a record; its id depends on where it lies, so that a repeated batch gives the same letter."""
    letter = DeadLetter(
        reason=error.reason,
        detail=error.detail,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        appended_at=from_millis(min(max(0, record.appended_ms), _LAST_MS)),
        value_base64=base64.b64encode(record.value or b"").decode(),
    )
    event = Event[DeadLetter](
        id=deterministic_id(DEAD_LETTERS, record.topic, record.partition, record.offset),
        source="headgate/query",
        type=DEAD_LETTER_TYPE,
        subject=record.topic,
        time=letter.appended_at,
        data=letter,
    )
    return Output(DEAD_LETTERS, record.topic, event.model_dump_json().encode())
