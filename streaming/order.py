"""The effective time of an observation: its append time, unless the order of offsets proves that wrong.

Offsets of a partition grow in the order of appending and depend on no clock. So of two records the one with the higher
offset is newer, whatever their times are; times that tie or run backwards are moved up. Everything in a batch was
appended before the batch was made, so no effective time lies after it, even if a broker's clock is an hour ahead.

Invariant: within a partition, times grow with offsets, up to `FARTHEST_MS` after the batch.

Where records are signed, each counts once: a sender numbers its records, and no number up to the last one that was read
counts again, in whichever partition it lies. A record also counts from shortly after its signing time at the latest. So
a record that is written again, even to a query that lost its checkpoint, makes nothing look newer than it is.
"""

from collections.abc import Iterable

from msgspec import Struct

from policies.records import ObservedRecord
from policies.signatures import REPEATED_MS, Signatures
from policies.units import InstantMs
from policies.wire import BadRecordError, DeadLetterReason
from streaming.clocks import CLOCK_JUMP_MS

FARTHEST_MS = 60_000
"""Where thousands of times tie, an effective time may lie this far after its batch."""
_AFTER_BATCH_MS = 1000
"""A batch takes in records that are appended while it is planned."""
_MOST_POSITIONS = 64
_MOST_SENDERS = 10_000
"""Senders of one key that are remembered: a cluster's largest number of members, each of which may have an agent."""


class ReadPosition(Struct, array_like=True, frozen=True):
    """The last record of a partition that was read for a key, and its effective time."""

    topic: str
    partition: int
    offset: int
    at_ms: InstantMs
    signed_ms: InstantMs = 0
    """The newest signing time in the partition, never after its append time; 0 if signatures are not checked."""


class LastSerial(Struct, array_like=True, frozen=True):
    """The greatest number of a sender on a topic that was read for a key."""

    topic: str
    sender: str
    number: int
    signed_ms: InstantMs
    """The newest signing time among its records, by its own clock, which may be ahead."""


class Order:
    """Determines the effective times of one key's observations, batch by batch.

    Args:
        positions: as the last batch left them.
        signatures: verifies records; None: records are not signed.
        senders: as the last batch left them.
    """

    def __init__(
        self,
        positions: Iterable[ReadPosition],
        now_ms: int,
        signatures: Signatures | None = None,
        senders: Iterable[LastSerial] = (),
    ) -> None:
        self._now_ms = now_ms
        self._signatures = signatures
        self._positions = {(each.topic, each.partition): each for each in positions}
        self._newest_signed_ms = _find_newest(self._positions.values())
        self._senders = {(each.topic, each.sender): each for each in senders}

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
        behind_ms = self._newest_signed_ms.get(record.topic, 0) - self._signed_ms(record)
        if behind_ms <= REPEATED_MS:
            return None
        return f"signed {behind_ms / 1000:.0f} s before one that came earlier: repeated, or by a clock that is behind"

    def require_new(self, record: ObservedRecord) -> None:
        """Refuse a record that its sender has numbered no higher than one already read.

        Call it for the accepted records in the order in which they were appended.

        Raises:
            BadRecordError: the record is a repetition.
        """
        if (last := self.pass_over(record)) is not None:
            why = f"record {last.number} of its sender was read before: this one is repeated"
            raise BadRecordError(DeadLetterReason.UNSIGNED, f"signature: {why}")

    def pass_over(self, record: ObservedRecord) -> LastSerial | None:
        """Count a record as read; return the last one of its sender if this one does not come after it."""
        if self._signatures is None or (serial := self._signatures.serial(record.topic, record.signature)) is None:
            return None
        last = self._senders.get((record.topic, serial.sender))
        if last is not None and serial.number <= last.number:
            return last
        newest_ms = max(self._signatures.signed_ms(record.topic, record.signature), last.signed_ms if last else 0)
        self._senders[record.topic, serial.sender] = LastSerial(record.topic, *serial, newest_ms)
        return None

    def effective_ms(self, record: ObservedRecord) -> int:
        """Return the observation's effective time; call it for the records of a partition in the order of offsets."""
        key, signed_ms = (record.topic, record.partition), self._signed_ms(record)
        last, claimed_ms = self._positions.get(key), min(record.appended_ms, self._now_ms + _AFTER_BATCH_MS)
        if signed_ms:
            claimed_ms = min(claimed_ms, signed_ms + REPEATED_MS)
        at_ms = claimed_ms
        if last is not None and record.offset > last.offset and claimed_ms <= last.at_ms:
            # Further back than clocks differ: its time says nothing, but it is newer than the record before it.
            has_jumped = claimed_ms < last.at_ms - CLOCK_JUMP_MS
            at_ms = min(max(last.at_ms + 1, self._now_ms if has_jumped else 0), self._now_ms + FARTHEST_MS)
        signed_ms = max(signed_ms, last.signed_ms if last else 0)
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

    def senders(self) -> tuple[LastSerial, ...]:
        """The senders to store, the most recent ones.

        A sender is forgotten once its newest record is a repetition by its signing time alone, because then so are all
        its records: none was signed later, and `_signed_ms` is never later than the signing time.
        """
        if self._signatures is None:
            return ()
        newest_ms = _find_newest(self.positions())
        kept = (s for s in self._senders.values() if s.signed_ms >= newest_ms.get(s.topic, 0) - REPEATED_MS)
        return tuple(sorted(kept, key=lambda each: (each.signed_ms, each.topic, each.sender))[-_MOST_SENDERS:])


def _find_newest(positions: Iterable[ReadPosition]) -> dict[str, int]:
    """The newest signing time by topic."""
    newest_ms: dict[str, int] = {}
    for each in positions:
        newest_ms[each.topic] = max(each.signed_ms, newest_ms.get(each.topic, 0))
    return newest_ms
