"""The effective time of an observation: its append time, unless the order of offsets proves that wrong.

Offsets of a partition grow in the order of appending and depend on no clock. So of two records the one with the higher
offset is newer, whatever their times are; times that tie or run backwards are moved up. Everything in a batch was
appended before the batch was made, so no effective time lies after it.

Invariant: within a partition, times grow with offsets, up to `FARTHEST_MS` after the batch.
"""

from collections.abc import Iterable

from msgspec import Struct

from policies.signatures import REPEATED_MS, Signatures
from policies.units import InstantMs, from_millis
from policies.wire import BadRecordError, DeadLetterReason
from streaming.clocks import CLOCK_JUMP_MS
from streaming.records import ObservedRecord

FARTHEST_MS = 60_000
"""Where thousands of times tie, an effective time may lie this far after its batch."""
_AFTER_BATCH_MS = 1000
"""A batch takes in records that are appended while it is planned."""
_MOST_POSITIONS = 64


class ReadPosition(Struct, array_like=True, frozen=True):
    """The last record of a partition that was read for a key, and its effective time."""

    topic: str
    partition: int
    offset: int
    at_ms: InstantMs
    signed_ms: InstantMs = 0
    """The newest signing time in the partition, never after its append time; 0 if signatures are not checked."""


class Order:
    """Determines the effective times of one key's observations, batch by batch.

    Args:
        positions: as the last batch left them.
        now_ms: the time of the batch.
        signatures: verifies records; None: records are not signed.
    """

    def __init__(self, positions: Iterable[ReadPosition], now_ms: int, signatures: Signatures | None = None) -> None:
        self._now_ms = now_ms
        self._signatures = signatures
        self._positions = {(each.topic, each.partition): each for each in positions}

    def require_past(self, record: ObservedRecord) -> None:
        """Refuse a record that was appended in the future.

        Raises:
            BadRecordError: it was.
        """
        ahead_ms = record.appended_ms - self._now_ms
        if ahead_ms > CLOCK_JUMP_MS:
            at, now = (f"{from_millis(ms):%Y-%m-%dT%H:%M:%SZ}" for ms in (record.appended_ms, self._now_ms))
            raise BadRecordError(
                DeadLetterReason.FROM_THE_FUTURE, f"timestamp: appended at {at}, {ahead_ms / 1000:.0f} s after {now}"
            )

    def require_signed(self, record: ObservedRecord) -> None:
        """Refuse a record without a valid signature, and one that was signed before records already read.

        All records of a batch are checked before the first of them gets its time, and in any order. So they are
        compared with the positions that the last batch left.

        Raises:
            BadRecordError: the record is refused.
        """
        if self._signatures is None:
            return
        why = self._signatures.refusal(record.topic, record.key, record.value, record.signature, record.appended_ms)
        if why is None:
            why = self._find_repetition(record)
        if why is not None:
            raise BadRecordError(DeadLetterReason.UNSIGNED, f"signature: {why}")

    def _find_repetition(self, record: ObservedRecord) -> str | None:
        last = self._positions.get((record.topic, record.partition))
        behind_ms = (last.signed_ms if last else 0) - self._signed_ms(record)
        if behind_ms <= REPEATED_MS:
            return None
        return f"signed {behind_ms / 1000:.0f} s before one that came earlier: repeated, or by a clock that is behind"

    def effective_ms(self, record: ObservedRecord) -> int:
        """Return the observation's effective time; call it for the records of a partition in the order of offsets."""
        key = (record.topic, record.partition)
        last, claimed_ms = self._positions.get(key), min(record.appended_ms, self._now_ms + _AFTER_BATCH_MS)
        at_ms = claimed_ms
        if last is not None and record.offset > last.offset and claimed_ms <= last.at_ms:
            # Further back than clocks differ: its time says nothing, but it is newer than the record before it.
            has_jumped = claimed_ms < last.at_ms - CLOCK_JUMP_MS
            at_ms = min(max(last.at_ms + 1, self._now_ms if has_jumped else 0), self._now_ms + FARTHEST_MS)
        signed_ms = max(self._signed_ms(record), last.signed_ms if last else 0)
        self._positions[key] = ReadPosition(record.topic, record.partition, record.offset, at_ms, signed_ms)
        return at_ms

    def _signed_ms(self, record: ObservedRecord) -> int:
        # A signer whose clock is ahead must not make the records of others look repeated.
        signed_ms = self._signatures.signed_ms(record.topic, record.signature) if self._signatures is not None else 0
        return min(signed_ms, record.appended_ms)

    def positions(self) -> tuple[ReadPosition, ...]:
        """The positions to store: the most recent ones."""
        latest = sorted(self._positions.values(), key=lambda each: (each.at_ms, each.topic, each.partition))
        return tuple(latest[-_MOST_POSITIONS:])
