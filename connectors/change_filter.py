"""Publishes a reading when it has changed, and an unchanged one again after a while, so that it does not look stale."""

from collections.abc import Callable, Iterable

from connectors.outcome_log import OutcomeLog
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

    def publish_if_due(self, key: str, reading: Reading) -> None:
        """Publish a reading if it is due, and log it when it ended in another way than the one before.

        Args:
            key: what was read.
            reading: as it was read just now.
        """
        now = self._clock()
        before = self._published.get(key)
        if before is None or before[0] != reading or now - before[1] >= self._republish_seconds:
            self._publish(reading)
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
