"""When a policy publishes a decision, and under which number.

A decision is published if there is none in force, if it differs from the one in force, or if the repeat of that is due.
A policy keeps in its state the content, the number and the time of the last publication.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from policies.succession import LONGEST_VALIDITY, ends_at, next_sequence
from policies.units import millis_of


@dataclass(frozen=True)
class RepeatSchedule:
    """When a decision that does not change is repeated, and how long it is valid.

    Args:
        interval: from one repeat to the next, by the settings. It is shortened if the validity would exceed a day.
        valid_for: the validity, in intervals: all repeats but one within it may be late.
    """

    interval: timedelta
    valid_for: int

    @cached_property
    def _interval_ms(self) -> int:
        return max(1, millis_of(min(self.interval, LONGEST_VALIDITY / self.valid_for)))

    def due_ms(self, published_ms: int, repeat_at_ms: int | None = None) -> int:
        """Return when a decision is due to be repeated.

        Args:
            repeat_at_ms: the due time by the settings of that time, if it was stored. Later settings never postpone it.
        """
        due_ms = published_ms + self._interval_ms
        return due_ms if repeat_at_ms is None else min(due_ms, repeat_at_ms)

    def ends_at(self, now: datetime) -> datetime:
        """Return until when a decision that is published now is valid."""
        return ends_at(now, self.valid_for * self.interval)


@dataclass(slots=True)
class Publication:
    """Decides what one step publishes about a cluster, and numbers it.

    Args:
        sequence: the last number of the counter, which one subject has for itself or several share; 0 before the first.
    """

    now_ms: int
    sequence: int

    def is_needed(self, content: object, in_force: object | None, due_ms: int | None) -> bool:
        """Return whether to publish now.

        Args:
            content: the content of the decision, as far as a change of it is published at once.
            in_force: the same of the decision in force; None if there is none.
            due_ms: when that is due to be repeated; None if it is not repeated.
        """
        return in_force is None or content != in_force or (due_ms is not None and self.now_ms >= due_ms)

    def next(self, *, is_first: bool) -> int:
        """Return the next number; `is_first` if its subject has had none."""
        self.sequence = next_sequence(self.sequence, self.now_ms, is_first=is_first)
        return self.sequence
