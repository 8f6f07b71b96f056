"""The executor's results for the policy, sent again until a decision acknowledges them.

A publisher drops a record if Kafka is away for too long, and an order with a lost result would stay open. A repeated
result is harmless, because it contains the number of its order.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock

from policies.observations import Reading
from policies.switching.decisions import SwitchDecision
from policies.wire import observation_event

SOURCE = "headgate/switch-executor"

_GATHER_SECONDS = 1.0
"""Interval of sending gathered results while the executor is busy. One batch of the query takes them all, which leaves
more processor time to the copies."""
_RESEND_SECONDS = 15.0
_GIVE_UP_SECONDS = 600.0
"""Time after which a result is dropped; the policy repeats the order."""

Send = Callable[[str, bytes], None]
"""Publishes a record (key, value)."""


@dataclass(slots=True)
class _Unacknowledged:
    key: str
    event: bytes
    first_sent_seconds: float
    last_sent_seconds: float


class ResultOutbox:
    """The results of one broker cluster's executor. Thread-safe.

    Args:
        send: publishes to the loop's Kafka; must not block.
    """

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._lock = Lock()
        self._unacknowledged: dict[str, _Unacknowledged] = {}
        self._gathered: list[tuple[str, bytes]] = []
        self._gathered_since = clock()

    def send(self, reading: Reading, *, more_to_come: bool = False) -> None:
        """Send the result of an order; with `more_to_come`, gather it with the next ones."""
        event_id, now = str(uuid.uuid4()), self._clock()
        event = observation_event(reading, id=event_id, source=SOURCE, time=datetime.now(UTC))
        with self._lock:
            self._unacknowledged[event_id] = _Unacknowledged(reading.cluster, event, now, now)
            if not self._gathered:
                self._gathered_since = now
            self._gathered.append((reading.cluster, event))
            if not more_to_come or self._is_due(now):
                self._send_gathered()

    def acknowledge(self, decision: SwitchDecision) -> None:
        """Drop the results that are a decision's evidence: they have arrived."""
        with self._lock:
            for event_id in decision.evidence:
                self._unacknowledged.pop(event_id, None)

    def clear(self) -> None:
        """Drop all results: another executor has the lease."""
        with self._lock:
            self._unacknowledged.clear()
            self._gathered.clear()

    def resend_due(self) -> None:
        """Send gathered results that are due, and repeat those without an acknowledgement."""
        now = self._clock()
        with self._lock:
            if self._is_due(now):
                self._send_gathered()
            for event_id, result in list(self._unacknowledged.items()):
                if now - result.first_sent_seconds >= _GIVE_UP_SECONDS:
                    del self._unacknowledged[event_id]
                elif now - result.last_sent_seconds >= _RESEND_SECONDS:
                    result.last_sent_seconds = now
                    self._send(result.key, result.event)

    def _is_due(self, now: float) -> bool:
        return now - self._gathered_since >= _GATHER_SECONDS

    def _send_gathered(self) -> None:
        for key, event in self._gathered:
            self._send(key, event)
        self._gathered.clear()
