"""Triggers a micro-batch when one of the query's timers is due (`policies/timers.py`)."""

import heapq
import threading
import time
import uuid
from collections.abc import Callable, Iterable

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Tail
from connectors.kafka.topics import TopicSettings
from policies.timers import TICKS, TIMERS, Tick, TickReason, Timer, tick_event, timer_key
from policies.units import from_millis, to_millis
from policies.wire import BadRecordError, EventReader

SLOT_MS = 100
"""Timers due within so much of each other share a tick, and a batch."""
MOST_SLOTS = 100_000
"""So many are known at once; of more (forged ones, say) those that are due last are left to the slow tick."""

_LONGEST_WAIT_SECONDS = 0.5
"""A stop is heeded within."""
_UNANSWERED_SECONDS = 5.0
"""A tick that no batch followed by then may have been lost on its way."""


class Schedule:
    """When ticks are due, as milliseconds since the epoch, rounded up to slots."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._known: set[int] = set()

    def add(self, due_ms: int) -> None:
        """Note a timer."""
        slot = -(-due_ms // SLOT_MS) * SLOT_MS
        if slot in self._known:
            return
        self._known.add(slot)
        heapq.heappush(self._slots, slot)
        if len(self._slots) > MOST_SLOTS:
            self._slots = heapq.nsmallest(MOST_SLOTS // 2, self._slots)  # sorted, so a heap
            self._known = set(self._slots)

    @property
    def next_ms(self) -> int | None:
        """When the next tick is due; None: no timer is known."""
        return self._slots[0] if self._slots else None

    def take(self, now_ms: int) -> bool:
        """Whether one is due; all that are due by now share it."""
        taken = False
        while self._slots and self._slots[0] <= now_ms:
            self._known.discard(heapq.heappop(self._slots))
            taken = True
        return taken


class Ticker:
    """Follows the timers' topic from its beginning and appends a tick whenever one is due.

    After a restart it knows all timers again from that topic. What is wrong there (a forged record, a lost one) makes a
    batch too many, or a timer late by `slow_seconds` at the most: then it appends a tick anyhow.

    Args:
        connection: how to reach the loop's own Kafka.
        topics: how its topics are named.
        publish: takes topic, key and value; it must not wait.
        silent_seconds: since when no batch has finished.
        slow_seconds: after so long without one a tick is appended without any timer.
        clock: the wall clock, in seconds since the epoch: timers are instants.
        monotonic: a clock that never jumps, in seconds.
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
        self._schedule = Schedule()
        self._ticked_at: float | None = None

    def start(self) -> None:
        """Tick because the query is being started; from any thread."""
        self._tick(TickReason.START)

    def rearm(self, keys: Iterable[tuple[str, str]]) -> None:
        """The query's clock was set back: have it set the timer of each (policy, cluster) anew; from any thread."""
        for policy, cluster in keys:
            tick = Tick(reason=TickReason.CLOCK, policy=policy, cluster=cluster)
            self._append(timer_key(policy, cluster), tick)

    def run(self, stop: threading.Event) -> None:
        """Tick when it is time, until `stop` is set.

        Raises:
            UserError: the connection's files cannot be used.
        """
        with Tail(self._connection, {self._topics.topic(TIMERS): None}, "headgate-ticker") as tail:
            while not stop.is_set():
                for record in tail.poll(self.wait_seconds()):
                    self.note(record.value)
                self.tick_if_due()

    def note(self, value: bytes | None) -> None:
        """Take a record of the timers' topic; one that cannot be read is nobody's timer."""
        try:
            due_at = self._reader.read(value or b"").data.due_at
        except BadRecordError:
            return
        self._schedule.add(to_millis(due_at))

    def wait_seconds(self) -> float:
        """How long nothing can be due."""
        next_ms = self._schedule.next_ms
        if next_ms is None:
            return _LONGEST_WAIT_SECONDS
        return min(max(0.0, next_ms / 1000 - self._clock()), _LONGEST_WAIT_SECONDS)

    def tick_if_due(self) -> None:
        """Tick if a timer is due, or the query has been silent for long."""
        if self._schedule.take(int(self._clock() * 1000)):
            self._tick(TickReason.TIMER)
        elif self._is_silent():
            self._tick(TickReason.SILENCE)

    def _is_silent(self) -> bool:
        silent = self._silent_seconds()
        if self._ticked_at is None:
            return silent >= self._slow_seconds
        since_tick = self._monotonic() - self._ticked_at
        # No batch has followed the last tick: it may be lost, so the next one does not wait long.
        patience = min(_UNANSWERED_SECONDS, self._slow_seconds) if silent > since_tick else self._slow_seconds
        return silent >= patience and since_tick >= patience

    def _tick(self, reason: TickReason) -> None:
        self._ticked_at = self._monotonic()
        self._append(reason.value, Tick(reason=reason))

    def _append(self, key: str, tick: Tick) -> None:
        at = from_millis(int(self._clock() * 1000))
        self._publish(self._topics.topic(TICKS), key, tick_event(tick, id=str(uuid.uuid4()), at=at))
