"""Logs records of other writers on a topic that only one part of the loop writes."""

import time

import structlog

_LOG_AGAIN_SECONDS = 60.0

_log = structlog.get_logger(__name__)


class RefusedRecordLog:
    """Logs records that cannot be read: the first one of a topic at once, then a count every minute."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._log_at: dict[str, float] = {}

    def note(self, topic: str, detail: str) -> None:
        """Count a record; `detail` is the reason."""
        self._counts[topic], now = self._counts.get(topic, 0) + 1, time.monotonic()
        if now >= self._log_at.get(topic, now):
            _log.warning(
                "records are ignored, another process writes to this topic: `headgate doctor` lists the writers",
                topic=topic,
                count=self._counts[topic],
                last=detail,
            )
            self._counts[topic], self._log_at[topic] = 0, now + _LOG_AGAIN_SECONDS
