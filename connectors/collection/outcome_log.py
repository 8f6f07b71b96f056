"""Logs the outcome of readings when it changes, not at each poll."""

from collections.abc import Hashable, Iterable

import structlog

from policies.observations import Outcome, Reading

_log = structlog.get_logger(__name__)


class OutcomeLog:
    """How the last reading of each thing ended. Several threads may share it, as long as each has keys of its own."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[Outcome, str | None]] = {}

    def note(self, key: Hashable, reading: Reading, /, **what: object) -> None:
        """Log a reading that ended in another way than the one before.

        Args:
            key: what was read.
            reading: as it was read just now.
            what: names it in the log, beside its cluster.
        """
        is_ok = reading.outcome is Outcome.OK
        # Why a reading failed may be worded otherwise each time; what is amiss in one that did not is news.
        now = (reading.outcome, reading.detail if is_ok else None)
        before, self._last[key] = self._last.get(key), now
        if before == now:
            return
        good = _log.debug if before is None else _log.info
        say = good if is_ok and reading.detail is None else _log.warning
        ended = {"outcome": reading.outcome.value, "before": before and before[0].value, "detail": reading.detail}
        say("reading changed", cluster=reading.cluster, **what, **ended)

    def keep_only(self, keys: Iterable[Hashable]) -> None:
        """Forget all others: if one comes back, it is new."""
        wanted = set(keys)
        self._last = {key: value for key, value in self._last.items() if key in wanted}
