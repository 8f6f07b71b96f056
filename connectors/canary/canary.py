"""Publishes a reading of the canary every 30 seconds, and waits for its decision."""

import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Gauge, Histogram

from connectors.collection import ticks
from connectors.foreign_json import read_json
from connectors.kafka.tail import Record
from connectors.views import AnswersStatus
from policies.canary import CANARY
from policies.observations import Outcome
from policies.registry import observed_topic
from policies.throttle import LogDirs, ThrottleFactor
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event

INTERVAL_SECONDS = 30.0
SILENT_SECONDS = 15.0
"""The time after which a loop without an answer counts as dead or far behind; detected within 45 s."""
_FIRST_ANSWER_SECONDS = 30.0
"""Additional time for the first answer, because the whole loop may be starting."""
_TOTAL_BYTES = 1_000_000
_REMEMBERED = 20
_CHECK_SECONDS = 0.5
_SOURCE = "headgate/canary"
_BOUNDS_SECONDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)

_log = structlog.get_logger(__name__)


class CanaryMetrics:
    """The canary's metrics: one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.latency = Histogram(
            "headgate_loop_latency_seconds",
            "From a reading of the canary, published by this process, to its decision, read by this process.",
            registry=registry,
            buckets=_BOUNDS_SECONDS,
        )
        self.unanswered = Gauge(
            "headgate_loop_unanswered_seconds",
            "Age of the canary's reading that waits for its decision, 0 while none waits: above 15 the loop is dead "
            "or far behind. Absent without a canary.",
            registry=registry,
        )

    def remove(self) -> None:
        """Unregister the metrics, because there is no canary."""
        self._registry.unregister(self.latency)
        self._registry.unregister(self.unanswered)


class _Sent(NamedTuple):
    """A reading that waits for its decision."""

    id: str
    at: float


class Canary:
    """One process's canary. Several processes may have one; all of them publish readings of the same cluster.

    `forbidden` returns why this process may not write a topic, or None. `ready` returns None once the process has
    caught up with the decisions.
    """

    def __init__(
        self,
        prefix: str,
        publish: Callable[[str, str, bytes], None],
        metrics: CanaryMetrics,
        *,
        forbidden: Callable[[str], str | None],
        ready: Callable[[], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic = f"{prefix}.{observed_topic(LogDirs)}"
        self._decided = f"{prefix}.{ThrottleFactor.topic}"
        self._publish = publish
        self._metrics = metrics
        self._forbidden = forbidden
        self._ready = ready
        self._clock = clock
        self._lock = threading.Lock()
        self._ids: deque[str] = deque(maxlen=_REMEMBERED)
        self._waiting: _Sent | None = None
        self._latest_seconds: float | None = None
        self._level = 0
        self._is_off = False
        metrics.unanswered.set_function(self.unanswered_seconds)

    def run(self, stop: threading.Event) -> None:
        """Publish until `stop` is set; if that is forbidden, log it once and do nothing."""
        if (why := self._forbidden(self._topic)) is not None:
            _log.warning("there is no canary: the loop's latency is not measured", why=why)
            self._is_off = True
            self._metrics.remove()
            stop.wait()
            return
        while self._ready() is not None and not stop.wait(_CHECK_SECONDS):
            pass
        for _ in ticks(INTERVAL_SECONDS, stop.wait):
            self.send()

    def send(self) -> None:
        """Publish a reading that differs from the one before."""
        # Random, but no secret: it prevents the same level twice in a row from the canaries of several processes.
        self._level = (self._level + random.randrange(1, _TOTAL_BYTES)) % _TOTAL_BYTES  # noqa: S311
        volume = VolumeReading(log_dir="/canary", total_bytes=_TOTAL_BYTES, usable_bytes=self._level)
        reading = LogDirs(cluster=CANARY, outcome=Outcome.OK, broker=0, volumes=(volume,))
        sent = _Sent(str(uuid.uuid4()), self._clock())
        with self._lock:
            self._ids.append(sent.id)
            # A reading that waits already keeps waiting, because any later decision answers it, too.
            self._waiting = self._waiting or sent
        event = observation_event(reading, id=sent.id, source=_SOURCE, time=datetime.now(UTC))
        self._publish(self._topic, CANARY, event)

    def fold_records(self, records: Iterable[Record]) -> None:
        """Look for the awaited decision."""
        for record in records:
            if record.topic == self._decided and record.key == CANARY.encode() and record.value is not None:
                self._accept(_evidence(record.value))

    def unanswered_seconds(self) -> float:
        """Return the age of the reading that waits for its decision; 0 if none waits."""
        with self._lock:
            waiting, has_answered = self._waiting, self._latest_seconds is not None
        if waiting is None:
            return 0.0
        return max(0.0, self._clock() - waiting.at - (0.0 if has_answered else _FIRST_ANSWER_SECONDS))

    def answers(self) -> AnswersStatus | None:
        """Return the status for the status page; None if there is no canary."""
        if self._is_off:
            return None
        unanswered = self.unanswered_seconds()
        return AnswersStatus(
            latest_seconds=self._latest_seconds,
            unanswered_seconds=round(unanswered),
            silent=unanswered > SILENT_SECONDS,
        )

    def _accept(self, evidence: str | None) -> None:
        with self._lock:
            waiting = self._waiting
            if waiting is None or evidence is None:
                return
            if evidence == waiting.id:
                self._latest_seconds = self._clock() - waiting.at
                self._metrics.latency.observe(self._latest_seconds)
            elif evidence in self._ids:
                # A decision on a later reading answers the waiting one, too.
                self._latest_seconds = self._clock() - waiting.at
            # Otherwise it decides on the canary of another process: the loop answers, and may have merged our reading.
            self._waiting = None


def _evidence(event: bytes) -> str | None:
    """Return the id of the first reading in a decision's evidence, or None."""
    try:
        evidence = read_json(event, dict[str, Any])["data"]["evidence"]
    except (ValueError, KeyError, TypeError):
        return None
    return evidence[0] if isinstance(evidence, list) and evidence and isinstance(evidence[0], str) else None
