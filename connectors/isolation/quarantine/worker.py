"""Carries out the isolation policy's quarantines.

Each attempt reads everything again and writes only if nothing has changed since the read, so an attempt that was
interrupted anywhere is simply repeated. No bookie is ever removed from a group.
"""

from collections.abc import Callable
from threading import Event

from tenacity import stop_after_attempt, stop_after_delay

from connectors.actuation.decision_worker import DecisionWorker
from connectors.actuation.reports import PublishAudit
from connectors.actuation.worker import SYSTEM_CLOCK, Clock
from connectors.isolation.quarantine.guards import BookiePlacement, QuarantineResult, find_refusal, measure_quarantine
from connectors.isolation.quarantine.racks import RackStore
from connectors.isolation.quarantine.reports import QuarantineMetrics, QuarantineReports
from policies.bookie_readings import BookieAffinity
from policies.isolation import IsolationSettings
from policies.isolation.decisions import BookieQuarantine, QuarantineVerdict


class QuarantineWorker(DecisionWorker[BookieQuarantine, BookiePlacement]):
    """Carries out one cluster's quarantines. Two at a time do no harm, because each write is conditional.

    Args:
        settings: the block `policies.isolation` of this cluster.
        read_affinity: reads the affinity and ensembles of all namespaces; raises ActionError.
    """

    wanted = frozenset({QuarantineVerdict.QUARANTINE})
    series = stop_after_attempt(10) | stop_after_delay(10.0)  # most failures are conflicts with another writer

    def __init__(
        self,
        cluster: str,
        store: RackStore,
        settings: IsolationSettings,
        read_affinity: Callable[[], BookieAffinity],
        publish: PublishAudit,
        metrics: QuarantineMetrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(cluster, QuarantineReports(cluster, publish, metrics), clock)
        self._store = store
        self._settings = settings
        self._read_affinity = read_affinity

    def _close(self) -> None:
        self._store.close()

    def _attempt(self, decision: BookieQuarantine, stop: Event) -> QuarantineResult | None:  # noqa: ARG002 - never waits
        affinity = self._read_affinity()
        snapshot = self._store.read_groups(decision.bookie)
        refused = find_refusal(decision, snapshot, affinity, self._settings)
        if refused is None:
            if self._is_held(decision):
                return None
            return measure_quarantine(decision, snapshot, snapshot.write(decision.group, decision.rack))
        if (
            self._is_unsure(decision)
            and refused.observed is not None
            and refused.observed.found_group == decision.group
        ):
            # Our own earlier write took effect. Others may have written since, so this time is an upper bound.
            return measure_quarantine(decision, snapshot, snapshot.changed_at)
        return refused
