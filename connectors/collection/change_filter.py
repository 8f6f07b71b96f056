"""Publishes a reading when it changed, and repeats an unchanged one after a while so that it does not look stale."""

import math
from collections.abc import Callable, Iterable

from connectors.collection.outcome_log import OutcomeLog
from policies.observations import Reading


class ChangeFilter:
    """What was published last, by subject. For one thread.

    Args:
        publish: takes each reading that is due; must not block.
        republish_seconds: after this, a reading that has not changed is published all the same.
        clock: seconds, never going backwards.
    """

    def __init__(
        self, publish: Callable[[Reading], None], republish_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._publish = publish
        self._republish_seconds = republish_seconds
        self._clock = clock
        self._published: dict[str, tuple[Reading, float]] = {}
        self._outcome_log = OutcomeLog()

    def publish_if_due(
        self, key: str, reading: Reading, *, at_least_every: float = math.inf, fetched_at: float | None = None
    ) -> None:
        """Publish a reading if it is due, and log it when it ended in another way than the one before.

        Args:
            key: what was read.
            reading: as it was read just now.
            at_least_every: seconds after which it is published again, if that is sooner than for all.
            fetched_at: when it was fetched, by the clock, for a reading that says how old it is.
        """
        now = self._clock()
        before = self._published.get(key)
        due_seconds = min(self._republish_seconds, at_least_every)
        if before is None or before[0] != reading or now - before[1] >= due_seconds:
            self._publish(reading if fetched_at is None else _aged(reading, now - fetched_at))
            self._published[key] = reading, now
        self._outcome_log.note(key, reading, what=key)

    def republish_others(self, key: str) -> None:
        """Publish the next reading of each other key whatever it says: for the moment nothing is known of them."""
        self._published = {each: value for each, value in self._published.items() if each == key}

    def keep_only(self, keys: Iterable[str]) -> None:
        """Forget all others."""
        wanted = set(keys)
        self._published = {key: value for key, value in self._published.items() if key in wanted}
        self._outcome_log.keep_only(wanted)


def _aged(reading: Reading, age_seconds: float) -> Reading:
    return reading.model_copy(update={"age_ms": max(0, round(age_seconds * 1000))})
