"""Follows the decisions of the bookie-disks policy, and the groups of namespaces."""

from collections.abc import Mapping
from datetime import timedelta

from connectors.actuation.actuator import Actuator, LoopTopics, read_data
from connectors.bookie_disks.publishing.worker import PublishWorker
from connectors.kafka.tail import Record
from policies.bookie_disks.decisions import BookieThrottle
from policies.bookie_readings import BookieAffinity
from policies.free_space.orders import FactorOrder
from policies.observations import Outcome
from policies.wire import EventReader

_AFFINITY_HISTORY = timedelta(hours=1)


class PublishActuator(Actuator[FactorOrder]):
    """Passes each decision to its cluster's worker.

    Args:
        bookies: the topic with the readings of the namespaces' groups.
    """

    def __init__(self, topics: LoopTopics, bookies: str, workers: Mapping[str, PublishWorker]) -> None:
        super().__init__("publish actuator", "headgate-publish-actuator", topics, workers, BookieThrottle)
        self._bookies = bookies
        self._publishing = workers
        self._affinities = EventReader((BookieAffinity,))

    def _read_decision(self, record: Record) -> FactorOrder | None:
        decision = read_data(self._decisions, record)
        return None if decision is None else FactorOrder.build(decision, decision.factor, decision.valid_until)

    def _histories(self) -> dict[str, timedelta | None]:
        return {**super()._histories(), self._bookies: _AFFINITY_HISTORY}

    def _recall(self, record: Record) -> None:
        if record.topic != self._bookies:
            super()._recall(record)
        else:
            self._place(record)

    def _receive(self, record: Record) -> None:
        if record.topic != self._bookies:
            super()._receive(record)
        else:
            self._place(record)

    def _place(self, record: Record) -> None:
        affinity = read_data(self._affinities, record)
        if affinity is not None and affinity.outcome is Outcome.OK and affinity.cluster in self._publishing:
            self._publishing[affinity.cluster].place(affinity)
