"""What is recorded for each entity of one cluster, so that its original quota can always be restored."""

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from queue import SimpleQueue

import structlog

from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_orders import QuotaOrder
from policies.throttle.quota_plan import QuotaRecord, same_but_for_order
from policies.throttle.quota_settings import Entity
from policies.wire import actuator_event

_OWN_IDS = 1000

Write = Callable[[Sequence[tuple[str, bytes]]], None]
"""Writes entries (key, value) down and waits; raises QuotaJournalError when not all of them were taken."""

_log = structlog.get_logger(__name__)


class QuotaRecords:
    """What is known of one cluster's entities. `learned` may be called from any thread, the rest from one.

    Args:
        cluster: its name.
        write: where it is written down.
    """

    def __init__(self, cluster: str, write: Write) -> None:
        self._cluster = cluster
        self._write = write
        self._records: dict[Entity, QuotaRecord] = {}
        self._own_ids: deque[str] = deque(maxlen=_OWN_IDS)
        self._inbox: SimpleQueue[tuple[str, AppliedQuota]] = SimpleQueue()

    def recall(self, note: AppliedQuota) -> None:
        """Learn what was written down before this start, in order."""
        self._records[note.entity] = note.record()

    def learned(self, event_id: str, note: AppliedQuota) -> None:
        """Something was written down, by this actuator or by another that should not run beside it."""
        self._inbox.put((event_id, note))

    def read(self) -> None:
        """Take in what has come."""
        while not self._inbox.empty():
            event_id, note = self._inbox.get()
            if event_id not in self._own_ids:
                self.recall(note)
                _log.warning("another actuator is at work on this cluster", cluster=self._cluster)

    def of(self, entity: Entity) -> QuotaRecord | None:
        """What is written down of an entity."""
        return self._records.get(entity)

    @property
    def held(self) -> list[Entity]:
        """The entities whose quota may be one of ours."""
        return [entity for entity, record in self._records.items() if record.held]

    def write(self, records: Mapping[Entity, QuotaRecord | None], order: QuotaOrder | None, at: datetime) -> None:
        """Write down what is not written down yet, and only then know it.

        Args:
            records: by entity; None: there is nothing to remember.
            order: the decision in force.
            at: the time.

        Raises:
            QuotaJournalError: it could not be written.
        """
        given = {e: record for e, record in records.items() if record is not None}
        new = {e: record for e, record in given.items() if not same_but_for_order(self._records.get(e), record)}
        self._write([self._entry(AppliedQuota.of(self._cluster, e, record, order), at) for e, record in new.items()])
        self._records |= given

    def _entry(self, note: AppliedQuota, at: datetime) -> tuple[str, bytes]:
        self._own_ids.append(str(uuid.uuid4()))
        return note.subject(), actuator_event(note, id=self._own_ids[-1], at=at)
