"""Publishes changed readings, and repeats unchanged ones before they look stale."""

import math
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from connectors.collection.outcome_log import OutcomeLog
from policies.observations import Reading

ReadingT = TypeVar("ReadingT", bound=Reading)


class ChangeFilter(Generic[ReadingT]):
    """The last published reading of each subject. Use it from one thread; `publish` must not block."""

    def __init__(
        self, publish: Callable[[ReadingT], None], republish_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._publish = publish
        self._republish_seconds = republish_seconds
        self._clock = clock
        self._published: dict[str, tuple[ReadingT, float]] = {}
        self._outcome_log = OutcomeLog()

    def publish_if_due(
        self, key: str, reading: ReadingT, *, at_least_every: float = math.inf, fetched_at: float | None = None
    ) -> None:
        """Publish a reading if it is due, and log it if its outcome changed.

        `at_least_every` is a shorter interval of repetition in seconds. `fetched_at` is the time of the fetch, for a
        reading with an age.
        """
        now = self._clock()
        before = self._published.get(key)
        due_seconds = min(self._republish_seconds, at_least_every)
        if before is None or before[0] != reading or now - before[1] >= due_seconds:
            age_ms = None if fetched_at is None else max(0, round((now - fetched_at) * 1000))
            self._publish(reading if age_ms is None else reading.model_copy(update={"age_ms": age_ms}))
            self._published[key] = reading, now
        self._outcome_log.note(key, reading, what=key)

    def republish_others(self, key: str) -> None:
        """Publish the next reading of each other key in any case, because their state is unknown for the moment."""
        self._published = {each: value for each, value in self._published.items() if each == key}

    def keep_only(self, keys: Iterable[str]) -> None:
        """Drop all other keys."""
        wanted = set(keys)
        self._published = {key: value for key, value in self._published.items() if key in wanted}
        self._outcome_log.keep_only(wanted)
