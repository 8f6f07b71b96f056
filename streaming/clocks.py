"""The times of a key: when its next timer is due, and from when its observations count."""

from collections.abc import Iterable

from msgspec import Struct

from policies.decisions import CLOCKS_APART
from policies.units import InstantMs, millis_of
from policies.wire import ObservedRecord

CLOCK_JUMP_MS = millis_of(CLOCKS_APART)


def next_timer_ms(wake_ms: int | None, timer_ms: int | None, began_ms: int) -> int | None:
    """Return the due time of the timer that a key needs after a step.

    Args:
        wake_ms: when to step the key again; None: only when records come.
        timer_ms: the last timer that was set; it may have fired.
        began_ms: when the batch began.

    Returns:
        `timer_ms` if that timer is pending and early enough, else a timer to set; None if none is needed.
    """
    if wake_ms is None:
        return timer_ms
    due_ms = max(wake_ms, began_ms + 1)
    is_early_enough = timer_ms is not None and began_ms < timer_ms <= due_ms
    return timer_ms if is_early_enough else due_ms


# The effective time of an observation: its append time, unless the order of offsets proves that wrong.
#
# Offsets of a partition grow in the order of appending and depend on no clock. So of two records the one with the
# higher offset is newer, whatever their times are; times that tie or run backwards are moved up. Everything in a
# batch was appended before the batch was made, so no effective time lies after it, even if a broker's clock is an
# hour ahead.
#
# Invariant: within a partition, times grow with offsets, up to `FARTHEST_MS` after the batch.

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


class Order:
    """Determines the effective times of one key's observations, batch by batch.

    Args:
        positions: as the last batch left them.
    """

    def __init__(self, positions: Iterable[ReadPosition], now_ms: int) -> None:
        self._now_ms = now_ms
        self._positions = {(each.topic, each.partition): each for each in positions}

    def effective_ms(self, record: ObservedRecord) -> int:
        """Return the observation's effective time; call it for the records of a partition in the order of offsets."""
        key = (record.topic, record.partition)
        last, claimed_ms = self._positions.get(key), min(record.appended_ms, self._now_ms + _AFTER_BATCH_MS)
        at_ms = claimed_ms
        if last is not None and record.offset > last.offset and claimed_ms <= last.at_ms:
            # Further back than clocks differ: its time says nothing, but it is newer than the record before it.
            has_jumped = claimed_ms < last.at_ms - CLOCK_JUMP_MS
            at_ms = min(max(last.at_ms + 1, self._now_ms if has_jumped else 0), self._now_ms + FARTHEST_MS)
        self._positions[key] = ReadPosition(record.topic, record.partition, record.offset, at_ms)
        return at_ms

    def positions(self) -> tuple[ReadPosition, ...]:
        """The positions to store: the most recent ones."""
        latest = sorted(self._positions.values(), key=lambda each: (each.at_ms, each.topic, each.partition))
        return tuple(latest[-_MOST_POSITIONS:])
