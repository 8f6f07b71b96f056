"""Follows the isolation decisions, and has each cluster's quarantines carried out on a thread of its own."""

from collections.abc import Sequence
from functools import partial

from connectors.actuation.actuator import Actuator, LoopTopics, Publish, parsed
from connectors.isolation.quarantine.reports import QuarantineMetrics
from connectors.isolation.quarantine.worker import QuarantineWorker, WatchedRacks
from connectors.kafka.tail import Record
from policies.isolation.decisions import BookieQuarantine
from policies.wire import EventReader


class QuarantineActuator(Actuator[BookieQuarantine]):
    """Carries out the decisions for some clusters. Two at a time do no harm: each write counts on what it has read.

    Args:
        topics: where the decisions are.
        clusters: whose.
        publish: takes what is said.
        metrics: where it counts.
    """

    def __init__(
        self, topics: LoopTopics, clusters: Sequence[WatchedRacks], publish: Publish, metrics: QuarantineMetrics
    ) -> None:
        audit = partial(publish, topics.audit)
        workers = {w.cluster: QuarantineWorker(w, audit, metrics) for w in clusters}
        super().__init__("quarantine actuator", "headgate-quarantine", topics, workers)
        self._decisions = EventReader((BookieQuarantine,))

    def _decision(self, record: Record) -> BookieQuarantine | None:
        return parsed(self._decisions, record)
