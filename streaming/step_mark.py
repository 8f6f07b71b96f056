"""A mark of the query's last step, in a file that its supervisor reads.

A batch of many large clusters may take longer than the time after which a silent query counts as stalled. Each of its
steps is bounded, so a query that hangs shows in its steps. Spark itself reports only whole batches.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_EVERY_SECONDS = 1.0
_marked_at = 0.0


@dataclass(frozen=True)
class StepMark:
    """The time of the last step, by the machine's monotonic clock, which its processes share.

    Args:
        file: holds the time in seconds.
    """

    file: Path

    def mark(self) -> None:
        """Note that a step begins; at most once a second. A mark that cannot be written is left out."""
        global _marked_at
        now = time.monotonic()
        if now - _marked_at >= _EVERY_SECONDS:
            _marked_at = now
            with suppress(OSError):
                self.file.write_text(str(now))

    def seconds_ago(self) -> float:
        """Return the seconds since the last mark; infinite if there is none."""
        try:
            marked_at = float(self.file.read_text())
        except (OSError, ValueError):
            return float("inf")
        ago = time.monotonic() - marked_at
        return ago if ago >= 0 else float("inf")  # the machine was started again
