"""What the executor tells the policy, told again until a decision shows that it was heard.

A publisher gives a record up when Kafka is away for too long, and an order whose answer is lost would stay open. A
repeated answer changes nothing: it quotes the number of its order.
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

_AGAIN_SECONDS = 15.0
_MOST_SECONDS = 600.0
"""After that, whoever drives the switch on has the order carried out again."""

Send = Callable[[str, bytes], None]
"""Takes a record's key and value."""


@dataclass(slots=True)
class _Given:
    key: str
    event: bytes
    since: float
    last: float


class Answers:
    """The answers of one broker cluster's executor. Safe to use from many threads.

    Args:
        send: hands a record over to the loop's Kafka; must not block.
        clock: seconds, never going backwards.
    """

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._lock = Lock()
        self._unheard: dict[str, _Given] = {}

    def give(self, reading: Reading) -> None:
        """Answer an order."""
        event_id, now = str(uuid.uuid4()), self._clock()
        event = observation_event(reading, id=event_id, source=SOURCE, time=datetime.now(UTC))
        with self._lock:
            self._unheard[event_id] = _Given(reading.cluster, event, now, now)
        self._send(reading.cluster, event)

    def heard(self, decision: SwitchDecision) -> None:
        """A decision rests on some of the answers."""
        with self._lock:
            for event_id in decision.evidence:
                self._unheard.pop(event_id, None)

    def forget(self) -> None:
        """Another executor answers from now on."""
        with self._lock:
            self._unheard.clear()

    def repeat(self) -> None:
        """Give those again that nobody seems to have heard."""
        now = self._clock()
        with self._lock:
            for event_id, given in list(self._unheard.items()):
                if now - given.since >= _MOST_SECONDS:
                    del self._unheard[event_id]
                elif now - given.last >= _AGAIN_SECONDS:
                    given.last = now
                    self._send(given.key, given.event)
