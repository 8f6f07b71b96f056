"""How one cluster's quotas stand: the decision in force, and what is written down of each entity."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from queue import Empty, SimpleQueue
from threading import Event

import structlog

from connectors.quotas.journal import Journal
from connectors.quotas.reports import Reports
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_orders import QuotaOrder, succeeds, wanted_of
from policies.throttle.quota_plan import QuotaRecord, Wanted, same_but_for_order
from policies.throttle.quota_settings import Entity

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Arrived:
    order: QuotaOrder
    appended_ms: int


@dataclass(frozen=True, slots=True)
class _Written:
    event_id: str
    note: AppliedQuota


class Standing:
    """What is known of one cluster. `arrived` and `learned` may be called from any thread, the rest from one.

    Args:
        cluster: its name.
        journal: where what must not be forgotten is written.
        reports: told of decisions that come too late.
        clock: the time.
    """

    def __init__(self, cluster: str, journal: Journal, reports: Reports, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._journal = journal
        self._reports = reports
        self._clock = clock
        self._inbox: SimpleQueue[_Arrived | _Written] = SimpleQueue()
        self._records: dict[Entity, QuotaRecord] = {}
        self.news = Event()
        """Set when something has come in; cleared by `read`."""
        self.order: QuotaOrder | None = None
        """The decision in force."""
        self.appended_ms: int | None = None
        """When it was appended; null when it is not to be measured."""

    def remember(self, note: AppliedQuota) -> None:
        """What was written down before this start; the earliest first, before any `recall`."""
        self._records[note.entity] = note.record()
        self.order = note.order() or self.order

    def recall(self, order: QuotaOrder) -> None:
        """A decision made before this start, in order."""
        if succeeds(order, self.order, self._clock()):
            self.order = order

    def arrived(self, order: QuotaOrder, appended_ms: int) -> None:
        """A new decision."""
        self._inbox.put(_Arrived(order, appended_ms))
        self.news.set()

    def learned(self, event_id: str, note: AppliedQuota) -> None:
        """Something was written down, by this actuator or by another that should not run beside it."""
        self._inbox.put(_Written(event_id, note))
        self.news.set()

    def read(self) -> None:
        """Take in what has come."""
        self.news.clear()
        while True:
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(item, _Arrived):
                self._take(item)
            elif not self._journal.is_own(item.event_id):
                self._records[item.note.entity] = item.note.record()
                _log.warning("another actuator is at work on this cluster", cluster=self._cluster)

    def _take(self, item: _Arrived) -> None:
        if succeeds(item.order, self.order, self._clock()):
            self.order, self.appended_ms = item.order, item.appended_ms
        elif self.order is not None and item.order.decision_id != self.order.decision_id:
            self._reports.fenced(item.order, self.order, self._clock())

    def wanted(self, fallback_factor: float) -> Wanted | None:
        """What the decision in force means now; null when there has never been one."""
        return None if self.order is None else wanted_of(self.order, self._clock(), fallback_factor)

    def expires_in_seconds(self) -> float | None:
        """How long the decision in force is valid; null when it is not."""
        now = self._clock()
        if self.order is None or self.order.is_stale(now):
            return None
        return (self.order.valid_until - now).total_seconds()

    def record(self, entity: Entity) -> QuotaRecord | None:
        """What is written down of an entity."""
        return self._records.get(entity)

    @property
    def held(self) -> list[Entity]:
        """The entities whose quota may be one of ours."""
        return [entity for entity, record in self._records.items() if record.held]

    def write(self, records: Mapping[Entity, QuotaRecord | None]) -> None:
        """Write down what is not written down yet, and only then know it.

        Raises:
            JournalError: it could not be written.
        """
        given = {entity: record for entity, record in records.items() if record is not None}
        new = {
            entity: record
            for entity, record in given.items()
            if not same_but_for_order(self._records.get(entity), record)
        }
        notes = [AppliedQuota.of(self._cluster, entity, record, self.order) for entity, record in new.items()]
        self._journal.write(notes, self._clock())
        self._records |= given
