"""The quarantine actuator: moves unassigned bookies into a group of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from threading import Event
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from tenacity import stop_after_attempt, stop_after_delay

from connectors.actuation.order_worker import ActionResult, OrderWorker
from connectors.actuation.worker import SYSTEM_CLOCK, ActuatorMetrics, Clock, CommonOutcome, PublishAudit
from connectors.isolation.groups import RacksSnapshot, RackStore, find_group
from policies.bookie_readings import BookieAffinity, BookieRegistration
from policies.isolation.decisions import BookieQuarantine, QuarantineVerdict
from policies.isolation.placement import BookieMembership
from policies.isolation.quarantine import find_starved_now
from policies.isolation.readings import BookieQuarantined, QuarantineOutcome
from policies.isolation.settings import IsolationSettings

# The conditions that must hold at the moment a bookie is put into quarantine.


@dataclass(frozen=True, slots=True)
class BookiePlacement:
    """The group in which a bookie was found, or the time and leak window of its quarantine."""

    found_group: str | None = None
    quarantined_at: datetime | None = None
    leak_window_seconds: float | None = None


QuarantineResult = ActionResult[BookiePlacement]


def find_refusal(
    decision: BookieQuarantine, snapshot: RacksSnapshot, affinity: BookieAffinity, settings: IsolationSettings
) -> QuarantineResult | None:
    """Return the reason not to carry the decision out on this snapshot; None if it may be carried out.

    The policy's guards are asked again: what it read may be many seconds older.
    """
    found_group = find_group(snapshot.groups, decision.bookie)
    if found_group is not None:
        return ActionResult(QuarantineOutcome.ALREADY_ASSIGNED, observed=BookiePlacement(found_group))
    if not snapshot.groups:
        return ActionResult(QuarantineOutcome.NO_GROUPS)
    if snapshot.registration is None:
        return ActionResult(QuarantineOutcome.NOT_REGISTERED, "it is not registered")
    if not _is_same_registration(decision, snapshot.registration):
        return ActionResult(QuarantineOutcome.NOT_REGISTERED, "it has registered anew since the decision")
    held = len(snapshot.groups.get(decision.group, ()))
    if held >= settings.max_quarantined:
        detail = f"{held} are in group {decision.group}, and max_quarantined is {settings.max_quarantined}"
        return ActionResult(QuarantineOutcome.TOO_MANY, detail)
    groups = {group: frozenset(members) for group, members in snapshot.groups.items()}
    starved = find_starved_now(decision.bookie, BookieMembership(snapshot.writable, groups), affinity, settings)
    return None if starved is None else ActionResult(QuarantineOutcome.NEEDED, f"{starved} needs it to place data")


def measure_quarantine(decision: BookieQuarantine, snapshot: RacksSnapshot, at: datetime) -> QuarantineResult:
    """Return the result of a quarantine that took effect at `at`, with its leak window.

    Both ends of the window are by ZooKeeper's clock where the store provides it.
    """
    known = snapshot.registration.registered_at if snapshot.registration else None
    seconds = (at - (known or decision.registered_at)).total_seconds()
    # Not negative: two clocks may disagree, and ZooKeeper's own goes back when another server leads.
    return ActionResult(
        CommonOutcome.DONE, observed=BookiePlacement(quarantined_at=at, leak_window_seconds=max(0.0, seconds))
    )


def _is_same_registration(decision: BookieQuarantine, found: BookieRegistration) -> bool:
    """Whether the registration is the one of the decision, as far as both identify it."""
    pairs = ((decision.czxid, found.czxid), (decision.session, found.session))
    return all(decided == now for decided, now in pairs if None not in (decided, now))


_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class QuarantineMetrics(ActuatorMetrics):
    """The metrics of the quarantine actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leak_window_seconds = Histogram(
            "headgate_bookie_leak_window_seconds",
            "Time from a bookie's registration to its quarantine, by ZooKeeper's clock where it is known.",
            ("cluster",),
            buckets=_SECONDS,
            registry=registry,
        )
        super().__init__(
            registry,
            "headgate_quarantine_failing",
            "1 while a bookie that should be in quarantine cannot be put there.",
            is_paced=True,
        )
        self.outcomes = Counter(
            "headgate_quarantines",
            "Outcomes of decisions to quarantine a bookie: done, failed, or the reason not to.",
            ("cluster", "outcome"),
            registry=registry,
        )


# Carries out the isolation policy's quarantines.
#
# Each attempt reads everything again and writes only if nothing has changed since the read, so an attempt that was
# interrupted anywhere is simply repeated. No bookie is ever removed from a group.


class QuarantineWorker(OrderWorker[BookieQuarantine, BookiePlacement, QuarantineMetrics]):
    """Carries out one cluster's quarantines. Two at a time do no harm, because each write is conditional.

    Args:
        settings: the block `policies.isolation` of this cluster.
        read_affinity: reads the affinity and ensembles of all namespaces; raises ActionError.
    """

    wanted = frozenset({QuarantineVerdict.QUARANTINE})
    series = stop_after_attempt(10) | stop_after_delay(10.0)  # most failures are conflicts with another writer
    levels: ClassVar = {QuarantineOutcome.TOO_MANY: "warning", QuarantineOutcome.NEEDED: "warning"}

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
        super().__init__(cluster, publish, metrics, clock)
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

    def _content(self, decision: BookieQuarantine, result: QuarantineResult) -> object:
        # The decision is repeated while it holds, and then finds the bookie where we have put it: nothing new.
        is_done = result.outcome == QuarantineOutcome.DONE
        group = decision.group if is_done else result.observed and result.observed.found_group
        return ("in", group) if group is not None else (result.outcome, result.detail)

    def _count(self, decision: BookieQuarantine, result: QuarantineResult) -> None:  # noqa: ARG002
        self._metrics.outcomes.labels(self._cluster, result.outcome.value).inc()
        if result.observed is not None and result.observed.leak_window_seconds is not None:
            self._metrics.leak_window_seconds.labels(self._cluster).observe(result.observed.leak_window_seconds)

    def _event(
        self,
        decision: BookieQuarantine,
        result: QuarantineResult,
        attempt: int,
        at: datetime,  # noqa: ARG002
    ) -> BookieQuarantined:
        placement = result.observed or BookiePlacement()
        return BookieQuarantined(
            cluster=self._cluster,
            bookie=decision.bookie,
            group=decision.group,
            found_group=placement.found_group,
            decision_id=decision.decision_id,
            sequence=decision.sequence,
            outcome=QuarantineOutcome(result.outcome),
            leak_window_seconds=placement.leak_window_seconds,
            quarantined_at=placement.quarantined_at,
            attempt=attempt,
            detail=result.detail,
        )
