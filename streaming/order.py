"""The effective time of an observation: its append time, unless the order of offsets proves that wrong.

Offsets of a partition grow in the order of appending and depend on no clock. So of two records the one with the higher
offset is the newer, whatever their times say; times that tie or run backwards are moved up. Everything in a batch was
appended before the batch was made, so no effective time lies after it.

Invariant: within a partition, times grow with offsets, up to `FARTHEST_MS` after the batch.
"""

from collections.abc import Iterable

from msgspec import Struct

from policies.signatures import REPEATED_MS, Signatures
from policies.units import InstantMs, from_millis
from policies.wire import BadRecordError, DeadLetterReason
from streaming.dead_letters import ObservedRecord

LEAP_MS = 300_000
"""What the clocks of two machines may differ by; a time further ahead than that comes of a clock that leapt."""
FARTHEST_MS = 60_000
"""So far after its batch an observation may come to count from, where thousands tie."""
_AFTER_BATCH_MS = 1000
"""A batch takes in what is appended while it is planned."""
_MOST_PLACES = 64


class Place(Struct, array_like=True, frozen=True):
    """How far a partition was read for a key, and when the record there counts from."""

    topic: str
    partition: int
    offset: int
    at_ms: InstantMs
    signed_ms: InstantMs = 0
    """When the newest record there was signed, as far as it was appended by then; 0: nobody asked."""


class Order:
    """Gives the observations of one key their times, batch by batch.

    Args:
        places: as the last batch left them.
        now_ms: the time of the batch.
        signatures: by which records are believed; None: nobody signs.
    """

    def __init__(self, places: Iterable[Place], now_ms: int, signatures: Signatures | None = None) -> None:
        self._now_ms = now_ms
        self._signatures = signatures
        self._places = {(place.topic, place.partition): place for place in places}

    def check(self, record: ObservedRecord) -> None:
        """Refuse what was appended in the future.

        Raises:
            BadRecordError: it was.
        """
        ahead_ms = record.appended_ms - self._now_ms
        if ahead_ms > LEAP_MS:
            at, now = (f"{from_millis(ms):%Y-%m-%dT%H:%M:%SZ}" for ms in (record.appended_ms, self._now_ms))
            raise BadRecordError(
                DeadLetterReason.FROM_THE_FUTURE, f"timestamp: appended at {at}, {ahead_ms / 1000:.0f} s after {now}"
            )

    def believe(self, record: ObservedRecord) -> None:
        """Refuse what is not signed as it should be, and what was signed before what is known already.

        Records of one batch are asked about in any order, and all before the first is given its time: so what is known
        is what the last batch left.

        Raises:
            BadRecordError: the record is not believed.
        """
        if self._signatures is None:
            return
        why = self._signatures.refusal(record.topic, record.key, record.value, record.signature, record.appended_ms)
        if why is None:
            why = self._repetition(record)
        if why is not None:
            raise BadRecordError(DeadLetterReason.UNSIGNED, f"signature: {why}")

    def _repetition(self, record: ObservedRecord) -> str | None:
        last = self._places.get((record.topic, record.partition))
        behind_ms = (last.signed_ms if last else 0) - self._signed_ms(record)
        if behind_ms <= REPEATED_MS:
            return None
        return f"signed {behind_ms / 1000:.0f} s before one that came earlier: repeated, or by a clock that is behind"

    def at_ms(self, record: ObservedRecord) -> int:
        """When the observation counts from; records of a partition are asked for by offset."""
        key = (record.topic, record.partition)
        last, claimed_ms = self._places.get(key), min(record.appended_ms, self._now_ms + _AFTER_BATCH_MS)
        at_ms = claimed_ms
        if last is not None and record.offset > last.offset and claimed_ms <= last.at_ms:
            # Set back by more than clocks differ: its times say nothing, but it is newer than what was there before.
            leapt = claimed_ms < last.at_ms - LEAP_MS
            at_ms = min(max(last.at_ms + 1, self._now_ms if leapt else 0), self._now_ms + FARTHEST_MS)
        signed_ms = max(self._signed_ms(record), last.signed_ms if last else 0)
        self._places[key] = Place(record.topic, record.partition, record.offset, at_ms, signed_ms)
        return at_ms

    def _signed_ms(self, record: ObservedRecord) -> int:
        # One whose clock is ahead must not make those of others old.
        signed_ms = self._signatures.signed_ms(record.topic, record.signature) if self._signatures is not None else 0
        return min(signed_ms, record.appended_ms)

    def places(self) -> tuple[Place, ...]:
        """What is to be kept: the places read last."""
        return tuple(sorted(self._places.values(), key=lambda p: (p.at_ms, p.topic, p.partition))[-_MOST_PLACES:])
