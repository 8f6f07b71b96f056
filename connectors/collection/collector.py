"""The base of all collectors: polls one cluster periodically, and publishes its readings, failures included."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from datetime import timedelta

from connectors.collection.outcome_log import OutcomeLog
from connectors.collection.poll_metrics import PollMetrics
from policies.observations import Reading


class Collector(ABC):
    """Reads one cluster periodically.

    Args:
        publish: called with each reading, perhaps from several threads; must not block.
    """

    def __init__(
        self, cluster: str, poll_interval: timedelta, publish: Callable[[Reading], None], metrics: PollMetrics
    ) -> None:
        self._cluster = cluster
        self._poll_seconds = poll_interval.total_seconds()
        self._publish = publish
        self._metrics = metrics
        self._outcome_log = OutcomeLog()
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set, whatever goes wrong in a poll."""
        self._stop = stop
        try:
            self._metrics.run_polls(self._cluster, self._poll_seconds, stop, self.poll_once)
        finally:
            self.close()

    def poll_once(self) -> None:
        """Poll, and measure how long it takes."""
        self._measure(self._poll)

    @abstractmethod
    def _poll(self) -> None:
        """Read the cluster, and publish the readings."""

    def close(self) -> None:  # noqa: B027 - some use shared connections only
        """Close the connections that the collector has opened; the next poll opens new ones."""

    def _measure(self, poll: Callable[[], None]) -> None:
        started = time.monotonic()
        poll()
        self._metrics.seconds.labels(self._cluster).observe(time.monotonic() - started)

    def _publish_reading(self, reading: Reading, /, **subject: Hashable) -> None:
        """Publish a reading, count it, and log a change of the outcome for its subject."""
        if self._stop.is_set():
            return  # the reading was interrupted
        self._publish(reading)
        self._metrics.polls.labels(self._cluster, reading.outcome.value).inc()
        self._outcome_log.note(tuple(subject.values()), reading, **subject)
