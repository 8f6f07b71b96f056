"""Follows the throttle decisions, and has each cluster's carried out on a thread of its own."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Event, Timer

import structlog

from connectors.actuation.actuator import Actuator, LoopTopics, Publish, parsed, parsed_event
from connectors.actuation.reports import PublishAudit
from connectors.kafka.tail import Record
from connectors.throttle.quotas.journal import QuotaJournal
from connectors.throttle.quotas.records import Write
from connectors.throttle.quotas.reports import QuotaMetrics
from connectors.throttle.quotas.worker import QuotaWorker, WatchedQuotas
from policies.errors import UserError
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_orders import QuotaOrder, order_of
from policies.units import from_millis
from policies.wire import EventReader

_CATCH_UP_SECONDS = 30.0
_AT_ONCE = 16
"""So many clusters are asked: one that does not answer holds the others up no longer than it must."""

_log = structlog.get_logger(__name__)


class QuotaActuator(Actuator[QuotaOrder]):
    """Carries out the decisions for some clusters. One at a time should do so for a cluster.

    When it stops, quotas stay as they are: a restart must not open a gate.

    Args:
        topics: where the decisions are.
        applied: the topic (with its prefix) of what must not be forgotten.
        clusters: whose.
        publish: takes what is said.
        metrics: where it counts.
        worker: makes who does it for one cluster.
        elsewhere: clusters whose quotas other processes see to.
    """

    def __init__(
        self,
        topics: LoopTopics,
        applied: str,
        clusters: Sequence[WatchedQuotas],
        publish: Publish,
        metrics: QuotaMetrics,
        worker: Callable[[WatchedQuotas, Write, PublishAudit, QuotaMetrics], QuotaWorker] = QuotaWorker,
        elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        audit = partial(publish, topics.audit)
        self._own = {
            w.cluster: worker(w, QuotaJournal(topics.connection, applied).write, audit, metrics) for w in clusters
        }
        super().__init__("quota actuator", "headgate-actuator", topics, self._own)
        self._applied = applied
        self._decisions = EventReader((ThrottleFactor,))
        self._notes = EventReader((AppliedQuota,))
        self._seen_to_elsewhere = elsewhere
        self._unwatched: defaultdict[str, set[str]] = defaultdict(set)
        """The entities of clusters that are not watched (any more) whose quota may be one of ours."""

    def release(self) -> None:
        """Put back all that was there before Headgate, on all clusters, and return.

        Raises:
            UserError: some of it could not be put back; the rest was.
        """
        gave_up = Event()
        with self._tail(self._followed()) as tail:
            watchdog = Timer(_CATCH_UP_SECONDS, gave_up.set)
            watchdog.start()
            self._catch_up(tail, gave_up, self._recall)
            watchdog.cancel()
            if gave_up.is_set():
                raise UserError(f"kafka: {tail.problem or tail.backlog}.")
        left = [f"{cluster}: it is not watched any more" for cluster, held in self._unwatched.items() if held]
        for cluster, worker in self._own.items():
            if entities := worker.release(gave_up):
                left.append(f"{cluster}: {', '.join(map(str, entities))} (the log says why)")
        if left:
            raise UserError("\n".join(f"Quotas were not put back on {place}." for place in left))

    def _decision(self, record: Record) -> QuotaOrder | None:
        decision = parsed(self._decisions, record)
        return None if decision is None else order_of(decision)

    def _followed(self) -> dict[str, timedelta | None]:
        return {**super()._followed(), self._applied: None}

    def _recall(self, record: Record) -> None:
        if record.topic != self._applied:
            super()._recall(record)
        elif (note := parsed(self._notes, record)) is None:
            return
        elif note.cluster in self._own:
            self._own[note.cluster].recall_record(note, from_millis(record.appended_ms))
        elif note.cluster not in self._seen_to_elsewhere:
            (set.add if note.held else set.discard)(self._unwatched[note.cluster], str(note.entity))

    def _arrived(self, record: Record) -> None:
        if record.topic != self._applied:
            super()._arrived(record)
        elif (event := parsed_event(self._notes, record)) is not None and event.data.cluster in self._own:
            self._own[event.data.cluster].learned(event.id, event.data)

    def _prepare(self, stop: Event) -> None:  # noqa: ARG002 - it does not take long
        """Refuse settings that do not fit a cluster, all at once."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=self._client_id) as pool:
            problems = [problem for problem in pool.map(_problem, self._own.values()) if problem]
        if problems:
            raise UserError("\n".join(problems))
        for cluster, entities in self._unwatched.items():
            if entities:
                _log.warning("quotas are held on a cluster without any set", cluster=cluster, entities=sorted(entities))


def _problem(worker: QuotaWorker) -> str | None:
    try:
        worker.preflight()
    except UserError as error:
        return str(error)
    return None
