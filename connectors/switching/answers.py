"""The executor's answers to orders, gathered while it is busy.

One batch of the query then takes many of them, which leaves more processor time to the copies.
"""

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock

from policies.observations import Reading
from policies.wire import observation_event

SOURCE = "headgate/switch-executor"

_GATHER_SECONDS = 1.0

Send = Callable[[str, bytes], None]
"""Publishes a record (key, value)."""


class GatheredAnswers:
    """The answers of one broker cluster's executor. Thread-safe.

    Args:
        send: publishes to the loop's Kafka, and keeps a record until Kafka takes it; must not block.
    """

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._lock = Lock()
        self._gathered: list[tuple[str, bytes]] = []
        self._gathered_since = clock()

    def send(self, reading: Reading, *, more_to_come: bool = False) -> None:
        """Send the answer to an order; with `more_to_come`, gather it with the next ones."""
        event = observation_event(reading, id=str(uuid.uuid4()), source=SOURCE, time=datetime.now(UTC))
        with self._lock:
            if not self._gathered:
                self._gathered_since = self._clock()
            self._gathered.append((reading.cluster, event))
        if more_to_come:
            self.send_due()
        else:
            self._send_all()

    def send_due(self) -> None:
        """Send the gathered answers, if the first one has waited for a second."""
        if self._clock() - self._gathered_since >= _GATHER_SECONDS:
            self._send_all()

    def clear(self) -> None:
        """Drop the gathered answers: another executor has the lease."""
        with self._lock:
            self._gathered.clear()

    def _send_all(self) -> None:
        with self._lock:
            for key, event in self._gathered:
                self._send(key, event)
            self._gathered.clear()
