"""Dead letters: for a record that cannot be read, its first bytes, its position and the reason are kept.

A dead letter is small whatever the record was: Kafka counts compressed bytes, so a record of 20 MB may arrive. Of each
kind a few dead letters per minute are written, and the others are counted. The counts are stored with the key that read
the records, so a repeated batch writes the same dead letters. Their number is bounded, whatever names a writer invents.
"""

import base64
import hashlib
from collections.abc import Iterator
from copy import copy
from datetime import datetime

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from policies.decisions import deterministic_id
from policies.registry import DEAD_LETTERS
from policies.units import Instant, from_millis
from policies.wire import (
    DEAD_LETTER_TYPE,
    KEPT_BYTES,
    LAST_MS,
    LETTERS_COUNTED_TYPE,
    BadRecordError,
    Cut,
    DeadLetterReason,
    ObservedRecord,
    Output,
    encode_event,
)

WINDOW_MS = 60_000
LETTERS_A_WINDOW = 5
"""Dead letters that one key writes of one kind per window. A kind is topic, reason and, for unknown clusters, name."""
MOST_KINDS = 20
"""Kinds that one key counts separately; further names of unknown clusters are counted together."""
_LONGEST_DETAIL = 500


class DeadLetter(BaseModel):
    """An observed record that could not be read: the reason, its position, and its first bytes."""

    model_config = ConfigDict(frozen=True)

    reason: DeadLetterReason
    detail: str = Field(description="Where in the record the fault is, and what was expected there.")
    topic: str = Field(description="The record's topic, with the prefix.")
    partition: int
    offset: int
    appended_at: Instant = Field(
        description="When Kafka appended the record; the nearest valid time if its timestamp is out of range."
    )
    value_base64: str = Field(description="The first 16 KiB of the record's value.")
    value_bytes: int = Field(ge=0, description="The size of the whole value.")
    value_sha256: str = Field(
        description="The SHA-256 of the whole value, in hexadecimal: equal garbage is recognised."
    )


class DeadLettersCounted(BaseModel):
    """The count of unreadable records for which no dead letter was written, because too many came."""

    model_config = ConfigDict(frozen=True)

    reason: DeadLetterReason
    topic: str = Field(description="The records' topic, with the prefix.")
    cluster: str | None = Field(
        description="The cluster for which they were read. For `unknown-cluster` the name in the records, or null for "
        "several names."
    )
    count: int = Field(ge=1, description="The number of records without a dead letter.")
    since: Instant = Field(description="When the first batch with such a record began.")
    until: Instant = Field(description="When the count ended.")
    last: str = Field(description="The position of the last record: `topic/partition/offset`.")


class DeadLetterCount(Struct, array_like=True):
    """How many dead letters of one kind were written and suppressed in this window."""

    topic: str
    reason: str
    name: str | None
    written: int = 0
    suppressed: int = 0
    last: str = ""
    """The position of the last record without a dead letter."""


class DeadLetterCounts(Struct, array_like=True, frozen=True):
    """The counts of one key since its window began."""

    since_ms: int = 0
    kinds: tuple[DeadLetterCount, ...] = ()

    @property
    def due_ms(self) -> int | None:
        """When to publish the count of suppressed dead letters; None if none was suppressed."""
        return self.since_ms + WINDOW_MS if any(kind.suppressed for kind in self.kinds) else None


class DeadLetterLimiter:
    """Writes the dead letters of one key and batch, and counts on those above the limit."""

    def __init__(self, policy: str, cluster: str, counts: DeadLetterCounts, now_ms: int) -> None:
        self._policy, self._cluster, self._now_ms = policy, cluster, now_ms
        # After a clock that was set back, this window would last until the clock is there again.
        is_over = not counts.since_ms <= now_ms < counts.since_ms + WINDOW_MS
        self._ended, open_ = (counts, DeadLetterCounts(now_ms)) if is_over else (DeadLetterCounts(), counts)
        self._since_ms = open_.since_ms
        self._kinds = {(kind.topic, kind.reason, kind.name): copy(kind) for kind in open_.kinds}
        """By topic, reason, and name of an unknown cluster."""

    def counted(self) -> Iterator[Output]:
        """The counts of the window that has ended.

        The beginning of a count is part of its id: after a lost checkpoint another count may end with the same record.
        """
        for kind in self._ended.kinds:
            if kind.suppressed:
                counted = DeadLettersCounted(
                    reason=DeadLetterReason(kind.reason),
                    topic=kind.topic,
                    cluster=kind.name or self._cluster or None,
                    count=kind.suppressed,
                    since=from_millis(self._ended.since_ms),
                    until=from_millis(self._now_ms),
                    last=kind.last,
                )
                place = (kind.topic, counted.reason, counted.cluster, kind.last, self._ended.since_ms)
                named = (LETTERS_COUNTED_TYPE, self._policy, self._cluster, *place)
                yield make_letter(LETTERS_COUNTED_TYPE, named, counted.until, counted)

    def put(self, record: ObservedRecord, error: BadRecordError) -> Iterator[Output]:
        """Return the record's dead letter, or count it if the limit of its kind is reached."""
        named = (record.topic, error.reason.value, error.cluster)
        if named not in self._kinds and error.cluster is not None and len(self._kinds) >= MOST_KINDS:
            named = (record.topic, error.reason.value, None)
        kind = self._kinds.setdefault(named, DeadLetterCount(*named))
        if kind.written < LETTERS_A_WINDOW:
            kind.written += 1
            yield dead_letter(record, error)
        else:
            kind.suppressed += 1
            kind.last = record.position()

    def counts(self) -> DeadLetterCounts:
        """The counts to store."""
        return DeadLetterCounts(self._since_ms, tuple(self._kinds.values())) if self._kinds else DeadLetterCounts()


def dead_letter(record: ObservedRecord, error: BadRecordError) -> Output:
    """Make the dead letter of a record; a repeated batch makes the same one.

    Its id depends on the record's position and content, and on the error. After a lost checkpoint the same record may
    be refused for another reason, and a topic that was created again has another record at the same position.
    """
    value = record.value or b""
    whole = record.cut or Cut(len(value), hashlib.sha256(value).hexdigest())
    letter = DeadLetter(
        reason=error.reason,
        detail=error.detail[:_LONGEST_DETAIL],
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        appended_at=from_millis(min(max(0, record.appended_ms), LAST_MS)),
        value_base64=base64.b64encode(value[:KEPT_BYTES]).decode(),
        value_bytes=whole.bytes,
        value_sha256=whole.sha256,
    )
    place = (record.position(), record.appended_ms, whole.sha256, error.reason, letter.detail)
    return make_letter(DEAD_LETTER_TYPE, (DEAD_LETTERS, *place), letter.appended_at, letter)


def make_letter(kind: str, named: tuple[object, ...], at: datetime, data: DeadLetter | DeadLettersCounted) -> Output:
    """Make the record of a dead letter or a count; `named` makes its id."""
    event = encode_event(kind, deterministic_id(*named), "headgate/query", data.topic, at, data)
    return Output(DEAD_LETTERS, data.topic, event)
