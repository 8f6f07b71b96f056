"""Carries out the quarantines of one watched cluster.

An attempt reads everything anew and writes only if nothing has changed meanwhile, so an attempt that was cut short
anywhere is simply repeated. No bookie is ever removed from a group.
"""

from dataclasses import dataclass
from threading import Event

from tenacity import stop_after_attempt, stop_after_delay

from connectors.actuation.decision_worker import DecisionWorker
from connectors.actuation.reports import PublishAudit
from connectors.actuation.worker import SYSTEM_CLOCK, Clock
from connectors.isolation.quarantine.guards import BookiePlacement, QuarantineResult, done, refusal
from connectors.isolation.quarantine.reports import QuarantineMetrics, QuarantineReports
from connectors.isolation.quarantine.store import RackStore
from policies.isolation.decisions import BookieQuarantine, QuarantineVerdict


@dataclass(frozen=True)
class WatchedRacks:
    """One cluster whose decisions are carried out."""

    cluster: str
    store: RackStore
    max_quarantined: int
    """Of `policies.isolation`: with so many in the group, no more are put there."""


class QuarantineWorker(DecisionWorker[BookieQuarantine, BookiePlacement]):
    """Carries out one cluster's quarantines.

    Args:
        watched: the cluster, and where its groups are kept.
        publish: takes what is said for the audit.
        metrics: shared by all clusters.
        clock: the time.
    """

    wanted = frozenset({QuarantineVerdict.QUARANTINE})
    series = stop_after_attempt(10) | stop_after_delay(10.0)  # what stands in the way is most often another's write

    def __init__(
        self,
        watched: WatchedRacks,
        publish: PublishAudit,
        metrics: QuarantineMetrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(watched.cluster, QuarantineReports(watched.cluster, publish, metrics), clock)
        self._watched = watched

    def _close(self) -> None:
        self._watched.store.close()

    def _attempt(self, decision: BookieQuarantine, stop: Event) -> QuarantineResult | None:  # noqa: ARG002 - does not wait
        snapshot = self._watched.store.look(decision.bookie)
        refused = refusal(decision, snapshot, self._watched.max_quarantined)
        if refused is None:
            if self._is_held(decision):
                return None
            return done(decision, snapshot, snapshot.write(decision.group, decision.rack))
        if (
            self._is_unsure(decision)
            and refused.observed is not None
            and refused.observed.found_group == decision.group
        ):
            # It is our own write's doing; others may have written since, so the window is at most so long.
            return done(decision, snapshot, snapshot.changed_at)
        return refused
