"""Triggers a micro-batch when one of the query's timers is due (`policies/policy.py`)."""

import math
import threading
import time
import uuid
from collections.abc import Callable

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Tail
from connectors.kafka.topics import TopicSettings
from policies.policy import TICKS, TIMERS, Tick, TickReason, Timer
from policies.units import from_millis, to_millis
from policies.wire import BadRecordError, EventReader, encode_event

SLOT_MS = 100
"""Timers that are due in the same slot share a tick, and so a batch."""
MOST_SLOTS = 100_000
"""Maximum number of slots. If there are more, say of forged timers, the latest ones wait for the slow tick."""

_LONGEST_WAIT_SECONDS = 0.5
"""Maximum time to react to a stop."""
_UNANSWERED_SECONDS = 5.0
"""A tick without a batch after that time may be lost."""


class Ticker:
    """Follows the timers' topic from its beginning, and appends a tick when a timer is due.

    After a restart it learns all timers from that topic again. A forged record causes one batch too many. A lost record
    delays its timer by `slow_seconds` at most, because then a tick is appended without any timer.

    `silent_seconds` returns the time since the last batch finished; the clock is the wall's, as timers are instants.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topics: TopicSettings,
        publish: Callable[[str, str, bytes], None],
        *,
        silent_seconds: Callable[[], float],
        slow_seconds: float,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._publish = publish
        self._silent_seconds = silent_seconds
        self._slow_seconds = slow_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._reader = EventReader([Timer])
        self._slots: set[int] = set()
        """The due ticks, in milliseconds since the epoch, rounded up to slots."""
        self._ticked_at: float | None = None

    def start(self) -> None:
        """Append a tick for the query's start; may be called from any thread."""
        self._tick(TickReason.START)

    def run(self, stop: threading.Event) -> None:
        """Append due ticks until `stop` is set. Raises UserError if the connection's files cannot be used."""
        with Tail(self._connection, {self._topics.topic(TIMERS): None}, "headgate-ticker") as tail:
            while not stop.is_set():
                for record in tail.poll(self.wait_seconds()):
                    self.note(record.value)
                self.tick_if_due()

    def note(self, value: bytes | None) -> None:
        """Add the timer of a record; a bad record is ignored."""
        try:
            due_at = self._reader.read(value or b"").data.due_at
        except BadRecordError:
            return
        self._slots.add(-(-to_millis(due_at) // SLOT_MS) * SLOT_MS)
        if len(self._slots) > MOST_SLOTS:
            self._slots = set(sorted(self._slots)[: MOST_SLOTS // 2])

    def wait_seconds(self) -> float:
        """Return how long no timer is due, at most 0.5 s."""
        next_seconds = min(self._slots, default=math.inf) / 1000
        return min(max(0.0, next_seconds - self._clock()), _LONGEST_WAIT_SECONDS)

    def tick_if_due(self) -> None:
        """Append a tick if a timer is due, or if the query has been silent for too long."""
        now_ms = int(self._clock() * 1000)
        if due := {slot for slot in self._slots if slot <= now_ms}:
            self._slots -= due
            self._tick(TickReason.TIMER)
        elif self._is_silent():
            self._tick(TickReason.SILENCE)

    def _is_silent(self) -> bool:
        silent = self._silent_seconds()
        if self._ticked_at is None:
            return silent >= self._slow_seconds
        since_tick = self._monotonic() - self._ticked_at
        # If no batch followed the last tick, the tick may be lost, so the next one comes sooner.
        patience = min(_UNANSWERED_SECONDS, self._slow_seconds) if silent > since_tick else self._slow_seconds
        return silent >= patience and since_tick >= patience

    def _tick(self, reason: TickReason) -> None:
        self._ticked_at, at = self._monotonic(), from_millis(int(self._clock() * 1000))
        tick = encode_event(Tick.event_type, str(uuid.uuid4()), "headgate/ticker", TIMERS, at, Tick(reason=reason))
        self._publish(self._topics.topic(TICKS), reason.value, tick)
