"""Dead letters: for a record that cannot be read, its first bytes, its position and the reason are kept.

A dead letter is small whatever the record was (Kafka counts compressed bytes, so 20 MB may arrive), so none is refused.
"""

import base64
import hashlib
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from policies.decisions import deterministic_id
from policies.registry import DEAD_LETTERS
from policies.units import Instant, from_millis, to_millis
from policies.wire import DEAD_LETTER_TYPE, LETTERS_COUNTED_TYPE, BadRecordError, DeadLetterReason, Event
from streaming.output import Output

KEPT_BYTES = 16 * 1024
"""So much of the record is kept."""

_LONGEST_DETAIL = 500
_LAST_MS = to_millis(datetime.max.replace(tzinfo=UTC))


class Cut(NamedTuple):
    """What is known of a record of which only the head is here."""

    bytes: int
    sha256: str


class ObservedRecord(NamedTuple):
    """An observed record as it lies in Kafka."""

    topic: str
    partition: int
    offset: int
    appended_ms: int
    value: bytes | None
    cut: Cut | None = None
    """None: `value` is whole."""
    key: bytes | None = None
    """Given where records are signed."""
    signature: str | None = None
    """The header as it came, where records are signed; None: there was none."""

    def appended_at(self) -> datetime:
        """When it was appended.

        Raises:
            BadRecordError: that is no time. Kafka takes any number from a producer where a topic was not created as
                it should be, such as microseconds.
        """
        if not 0 <= self.appended_ms <= _LAST_MS:
            raise BadRecordError(DeadLetterReason.INVALID, f"timestamp: {self.appended_ms} ms is no time")
        return from_millis(self.appended_ms)

    def place(self) -> str:
        """Where it lies: ``topic/partition/offset``."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class DeadLetter(BaseModel):
    """An observed record that could not be read: why, where it lies, and how it begins."""

    model_config = ConfigDict(frozen=True)

    reason: DeadLetterReason
    detail: str = Field(description="Where in the record the fault is, and what was expected there.")
    topic: str = Field(description="Where the record lies, with the prefix.")
    partition: int
    offset: int
    appended_at: Instant = Field(
        description="When Kafka appended the record; the nearest time there is, where its timestamp is none."
    )
    value_base64: str = Field(description="The record's value, as far as its first 16 KiB.")
    value_bytes: int = Field(ge=0, description="How long the whole value is.")
    value_sha256: str = Field(description="Of the whole value, in hexadecimal: the same garbage is known again.")


class DeadLettersCounted(BaseModel):
    """Records that could not be read either, and of which no letter was written, because too many came."""

    model_config = ConfigDict(frozen=True)

    reason: DeadLetterReason
    topic: str = Field(description="Where the records lie, with the prefix.")
    cluster: str | None = Field(
        description="The cluster they were taken for; for `unknown-cluster` the name they give, null for many names."
    )
    count: int = Field(ge=1, description="How many there were beside those that have a letter.")
    since: Instant = Field(description="When the first batch with such a record began.")
    until: Instant = Field(description="Up to when they were counted.")
    last: str = Field(description="Where the last one lies: `topic/partition/offset`.")


def dead_letter(record: ObservedRecord, error: BadRecordError) -> Output:
    """Wrap a record; a repeated batch gives the same letter.

    Its id depends on where the record lies, on the record, and on what is said of it: read again after a lost
    checkpoint it may be refused for another reason, and on a topic that was made anew another one lies there.
    """
    value = record.value or b""
    whole = record.cut or Cut(len(value), hashlib.sha256(value).hexdigest())
    letter = DeadLetter(
        reason=error.reason,
        detail=error.detail[:_LONGEST_DETAIL],
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        appended_at=from_millis(min(max(0, record.appended_ms), _LAST_MS)),
        value_base64=base64.b64encode(value[:KEPT_BYTES]).decode(),
        value_bytes=whole.bytes,
        value_sha256=whole.sha256,
    )
    event = Event[DeadLetter](
        id=deterministic_id(
            DEAD_LETTERS, record.place(), record.appended_ms, whole.sha256, error.reason, letter.detail
        ),
        source="headgate/query",
        type=DEAD_LETTER_TYPE,
        subject=record.topic,
        time=letter.appended_at,
        data=letter,
    )
    return Output(DEAD_LETTERS, record.topic, event.model_dump_json().encode())


def letters_counted(counted: DeadLettersCounted, *key: str) -> Output:
    """What says how many were left out; `key` is that of the state that counted them.

    After a lost checkpoint the same last one may end another count: it has another beginning, and so another id.
    """
    named = (*key, counted.topic, counted.reason, counted.cluster, counted.last, to_millis(counted.since))
    event = Event[DeadLettersCounted](
        id=deterministic_id(LETTERS_COUNTED_TYPE, *named),
        source="headgate/query",
        type=LETTERS_COUNTED_TYPE,
        subject=counted.topic,
        time=counted.until,
        data=counted,
    )
    return Output(DEAD_LETTERS, counted.topic, event.model_dump_json().encode())
