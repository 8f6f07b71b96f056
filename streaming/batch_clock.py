"""What a batch's time is corrected by, where the driver's clock, which gives it, and Kafka's differ."""

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
