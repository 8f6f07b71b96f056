"""The correction of a batch's time, where the driver's clock (its source) and Kafka's clock differ."""

from typing import NamedTuple


class BatchClock(NamedTuple):
    """A batch that is repeated has the time it had, and so the correction it had: else it would say something else."""

    ahead_ms: int = 0
    """How far the driver's clock is ahead of Kafka's; 0 while they agree well enough."""
    repeated_at_ms: int | None = None
    """When the last batch of an earlier run began, by the driver's clock; None where its correction was the same."""
    repeated_ahead_ms: int = 0
    """What it was corrected by."""

    def ahead_ms_at(self, began_ms: int) -> int:
        """What the time of the batch that began then is corrected by."""
        return self.repeated_ahead_ms if began_ms == self.repeated_at_ms else self.ahead_ms


def next_timer_ms(wake_ms: int | None, timer_ms: int | None, began_ms: int, ahead_ms: int) -> int | None:
    """When the timer is due, by the driver's clock, that a key needs after a step.

    Args:
        wake_ms: when it is to be stepped again, by Kafka's clock; None: that was not said.
        timer_ms: the last timer that was set; it may have fired.
        began_ms: when the batch began, by the driver's clock.
        ahead_ms: what that is corrected by.

    Returns:
        `timer_ms` where that one is pending and soon enough, else a timer to be set; None where none is needed.
    """
    if wake_ms is None:
        return timer_ms
    due_ms = max(wake_ms + ahead_ms, began_ms + 1)
    is_soon_enough = timer_ms is not None and began_ms < timer_ms <= due_ms
    return timer_ms if is_soon_enough else due_ms
