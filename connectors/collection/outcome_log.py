"""Logs the outcome of readings when it changes, not at each poll."""

from collections.abc import Hashable, Iterable

import structlog

from policies.observations import Outcome, Reading

_log = structlog.get_logger(__name__)


class OutcomeLog:
    """The outcome of the last reading of each key. Several threads may share it if each has its own keys."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[Outcome, str | None]] = {}

    def note(self, key: Hashable, reading: Reading, /, **what: object) -> None:
        """Log a reading whose outcome differs from the one before.

        `what` has further fields of the log line.
        """
        is_ok = reading.outcome is Outcome.OK
        # The detail of a failed reading may vary each time, so it does not count; the detail of a good reading does.
        now = (reading.outcome, reading.detail if is_ok else None)
        before, self._last[key] = self._last.get(key), now
        if before == now:
            return
        good = _log.debug if before is None else _log.info
        log = good if is_ok and reading.detail is None else _log.warning
        ended = {"outcome": reading.outcome.value, "before": before and before[0].value, "detail": reading.detail}
        log("reading changed", cluster=reading.cluster, **what, **ended)

    def keep_only(self, keys: Iterable[Hashable]) -> None:
        """Drop all other keys."""
        wanted = set(keys)
        self._last = {key: value for key, value in self._last.items() if key in wanted}
