"""Follows the throttle decisions, and has those of each cluster carried out on a thread of its own."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event, Timer

import structlog

from connectors.actuation.actuator import Actuator, LoopTopics, Publish, read_data, read_event
from connectors.actuation.reports import PublishAudit
from connectors.kafka.tail import Record
from connectors.throttle.quotas.records import QuotaJournal, Write
from connectors.throttle.quotas.reports import QuotaMetrics
from connectors.throttle.quotas.worker import QuotaWorker, WatchedQuotas
from policies.errors import UserError
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_plan import QuotaOrder, make_order
from policies.units import from_millis
from policies.wire import EventReader

_CATCH_UP_SECONDS = 30.0
_CONCURRENT_CHECKS = 16
"""Clusters are checked in parallel, so that one that does not answer delays the others little."""

_log = structlog.get_logger(__name__)


class QuotaActuator(Actuator[QuotaOrder]):
    """Carries out the decisions of some clusters. Only one may run for a cluster at a time.

    When it stops, quotas stay as they are: a restart must not open a gate.

    Args:
        applied: the topic (with its prefix) of the records of applied quotas.
        worker: makes the worker of a cluster.
        elsewhere: clusters whose quotas other processes set.
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
        audit = topics.reporter(publish)
        self._own = {
            w.cluster: worker(w, QuotaJournal(topics.connection, applied).write, audit, metrics) for w in clusters
        }
        super().__init__("quota actuator", "headgate-actuator", topics, self._own)
        self._applied = applied
        self._decisions = EventReader((ThrottleFactor,))
        self._applied_quotas = EventReader((AppliedQuota,))
        self._elsewhere = elsewhere
        self._unwatched: defaultdict[str, set[str]] = defaultdict(set)
        """By cluster that is not watched (any more): the entities whose quota may be one of ours."""

    def release(self) -> None:
        """Restore the original quotas of all clusters, and return.

        Raises:
            UserError: some could not be restored; the others were.
        """
        gave_up = Event()
        with self._open_tail(self._histories()) as tail:
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

    def _read_decision(self, record: Record) -> QuotaOrder | None:
        decision = read_data(self._decisions, record)
        return None if decision is None else make_order(decision)

    def _histories(self) -> dict[str, timedelta | None]:
        return {**super()._histories(), self._applied: None}

    def _recall(self, record: Record) -> None:
        if record.topic != self._applied:
            super()._recall(record)
        elif (applied := read_data(self._applied_quotas, record)) is None:
            return
        elif applied.cluster in self._own:
            self._own[applied.cluster].recall_applied(applied, from_millis(record.appended_ms))
        elif applied.cluster not in self._elsewhere:
            (set.add if applied.held else set.discard)(self._unwatched[applied.cluster], str(applied.entity))

    def _receive(self, record: Record) -> None:
        if record.topic != self._applied:
            super()._receive(record)
        elif (event := read_event(self._applied_quotas, record)) is not None and event.data.cluster in self._own:
            self._own[event.data.cluster].receive_applied(event.id, event.data)

    def _prepare(self, stop: Event) -> None:  # noqa: ARG002 - it does not take long
        """Refuse settings that do not fit their clusters, with all problems at once."""
        with ThreadPoolExecutor(_CONCURRENT_CHECKS, thread_name_prefix=self._client_id) as pool:
            problems = [problem for problem in pool.map(_check_settings, self._own.values()) if problem]
        if problems:
            raise UserError("\n".join(problems))
        for cluster, entities in self._unwatched.items():
            if entities:
                _log.warning(
                    "a cluster without `quotas` still has our quotas", cluster=cluster, entities=sorted(entities)
                )


def _check_settings(worker: QuotaWorker) -> str | None:
    try:
        worker.preflight()
    except UserError as error:
        return str(error)
    return None
