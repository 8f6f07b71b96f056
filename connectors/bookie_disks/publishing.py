"""Carries out the factors of placement groups by Pulsar's own publish limits.

`limits` reads and sets one kind of limit, `worker` keeps those of one cluster as decided, `actuator` follows decisions.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from threading import Event

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.actuation.actuator import Actuator, LoopTopics, read_data
from connectors.actuation.order_worker import STATE_REPEATED_SECONDS, AuditLog, FailingMetric, PublishAudit
from connectors.actuation.worker import NOT_OURS_SECONDS, SYSTEM_CLOCK, Clock, Worker
from connectors.bookie_disks.limits import BROKERS, FoundRecords, PublishLimits
from connectors.collection import ChangeFilter
from connectors.kafka.tail import Record
from connectors.pulsar.rest import PULSAR_READ_ERRORS, AdminError
from policies.bookie_disks.decisions import BookieThrottle
from policies.bookie_disks.fold import list_affinities, name_primary
from policies.bookie_disks.publish_plan import (
    RELEASED_SHARE,
    FoundLimit,
    PublishPlan,
    PublishReason,
    PublishRecord,
    WantedShare,
    plan_publish,
)
from policies.bookie_disks.readings import PublishApplication, PublishState
from policies.bookie_disks.settings import BookieDisksSettings, PublishBy, PublishSettings
from policies.bookie_disks.state import ALL_BOOKIES, ALL_BOOKIES_BESIDE_DEFAULT
from policies.bookie_readings import BookieAffinity
from policies.free_space.publication import FactorOrder, LimitVerdict
from policies.observations import Outcome, ReportResult
from policies.wire import EventReader

# Reports the outcome for each publish limit to the audit topic if it is new, and counts it.

_UNPLANNED = PublishPlan(LimitVerdict.SET, PublishReason.DECIDED, None, FoundLimit(None, None), None)
"""Stands for the plan of a limit that could not be read."""
_NONE_SET = PublishPlan(LimitVerdict.KEEP, PublishReason.DECIDED, None, FoundLimit(None, None), None)
"""Stands for the plan of a limit that is gone, or of a cluster on which none is set or put back."""


class PublishMetrics(FailingMetric):
    """The metrics of the publish actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.overwritten = Counter(
            "headgate_publish_overwritten",
            "Times that somebody else changed or deleted a publish limit that Headgate had set.",
            ("cluster", "target"),
            registry=registry,
        )
        super().__init__(
            registry,
            "headgate_publish_failing",
            "1 while publish limits cannot be set as decided because requests to Pulsar fail.",
        )
        self.rate = Gauge(
            "headgate_publish_bytes_per_second",
            "The publish limit that Headgate has set; absent if it has set none.",
            ("cluster", "target"),
            registry=registry,
        )
        self.outcomes = Counter(
            "headgate_publish_applications",
            "Outcomes of decisions for each publish limit: applied, unchanged, refused or failed.",
            ("cluster", "outcome"),
            registry=registry,
        )


class PublishReports(AuditLog[PublishMetrics]):
    """Reports the outcomes of one cluster's limits; an outcome that repeats the target's last one is left out."""

    def __init__(self, cluster: str, publish: PublishAudit, metrics: PublishMetrics) -> None:
        super().__init__(cluster, publish, metrics)
        self._held: set[str] = set()
        """The targets with a limit of ours."""

    def report_done(self, by: str, target: str, plan: PublishPlan, wanted: WantedShare, at: datetime) -> None:
        """Report that one limit is as planned, or was refused by the plan."""
        if plan.record is not None and plan.rate is not None:
            self._held.add(target)
            self._metrics.rate.labels(self._cluster, target).set(plan.rate)
            self._metrics.overwritten.labels(self._cluster, target)  # from 0 on, or the first change would not count
        else:
            self._drop(target)
        outcome = plan.verdict.result
        if self._is_new(target, (outcome, plan.rate, plan.reason)) or outcome is ReportResult.APPLIED:
            self._emit(by, target, outcome, plan, wanted.factor, at)

    def report_gone(self, by: str, recorded: Set[str], at: datetime) -> None:
        """Report each limit that is gone with its namespace: of those that were set, the ones without a record."""
        for target in sorted(self._held - recorded):
            self._drop(target)
            self._last.pop(target, None)
            self._emit(by, target, ReportResult.UNCHANGED, _NONE_SET, None, at)

    def _drop(self, target: str) -> None:
        self._held.discard(target)
        self._metrics.rate.remove(self._cluster, target)

    def report_overwritten(self, target: str) -> None:
        """Count that somebody else changed a limit that was set."""
        self._metrics.overwritten.labels(self._cluster, target).inc()

    def report_failure(
        self, by: str, target: str, detail: str, at: datetime, plan: PublishPlan | None, factor: float | None
    ) -> None:
        """Report that one limit, or all of the cluster's (an empty target), could not be read or set."""
        self.set_failing(yes=True)
        plan = plan or _UNPLANNED
        if self._is_new(target, (ReportResult.FAILED, detail, plan.rate)):
            self._emit(by, target, ReportResult.FAILED, plan, factor, at, detail)
            if not target:
                self._forget_successes()

    def report_success(self, by: str, at: datetime) -> None:
        """Show that all limits of the cluster are right. The next failure is new."""
        self.set_failing(yes=False)
        if self._last.pop("", None) is not None and not self._last:  # no report of a single limit shows it
            self._emit(by, "", ReportResult.UNCHANGED, _NONE_SET, None, at)

    def _emit(
        self,
        by: str,
        target: str,
        outcome: ReportResult,
        plan: PublishPlan,
        factor: float | None,
        at: datetime,
        detail: str | None = None,
    ) -> None:
        self._metrics.outcomes.labels(self._cluster, outcome.value).inc()
        event = PublishApplication(
            cluster=self._cluster,
            target=target,
            by=by,
            factor=factor,
            verdict=plan.verdict,
            reason=plan.reason,
            rate_bytes_per_second=plan.rate,
            previous_bytes_per_second=plan.found.rate,
            outcome=outcome,
            detail=detail,
        )
        self._write("publishing", outcome, event.explained(at), at)


# Keeps the publish limits of one watched cluster at the values that its decisions in force ask for.
#
# Each attempt is planned from the limits found (policies/bookie_disks/publish_plan.py), so an attempt that was
# interrupted anywhere is simply repeated. A rate is set only after it, and the original limit, are recorded on the
# cluster itself.

_AGAIN_SECONDS = 5.0
"""Pause after an attempt that failed, until limits that were just set are verified, and while they slow down."""
_LEAST_REST = 10
"""The pause between two looks is at least this many times as long as the look: there may be thousands of limits."""

_log = structlog.get_logger(__name__)


class PublishWorker(Worker[FactorOrder]):
    """Carries out one cluster's decisions.

    Args:
        others: the other kinds of limits, which are put back if earlier settings used them.
    """

    def __init__(
        self,
        cluster: str,
        settings: PublishSettings,
        policy: BookieDisksSettings,
        limits: PublishLimits,
        publish: PublishAudit,
        observe: Callable[[PublishState], None],
        metrics: PublishMetrics,
        others: Sequence[PublishLimits] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(cluster, clock)
        self._settings, self._policy = settings, policy
        self._limits = limits
        self._others = others
        self._reports = PublishReports(cluster, publish, metrics)
        self._state = ChangeFilter(observe, STATE_REPEATED_SECONDS, clock.monotonic)
        self._subjects: dict[str, str] = {}
        """The group of each subject that has had a decision."""
        self._groups: Mapping[str, str] | None = None
        """The group of each namespace with affinity; None before the first reading."""
        self._unplaced: Set[str] = frozenset()
        """The namespaces that the last reading shows without affinity, and the one before it with one."""
        self._records: FoundRecords | None = None
        """None: not read yet, or somebody else may have changed them."""
        self._carried_out: Mapping[str, WantedShare] | None = None
        self._confirmed: dict[str, int] = {}
        """By target, the rate that was set and then read back."""
        self._look_at = 0.0

    # --- incoming decisions and readings

    def recall(self, decision: FactorOrder, appended_at: datetime) -> None:
        """Process a decision from before this start, in order of the topic."""
        self._note_group(decision)
        super().recall(decision, appended_at)

    def place(self, affinity: BookieAffinity) -> None:
        """Note the groups of namespaces; from one thread, which need not be that of `run`."""
        named = ((name, name_primary(each)) for name, each in list_affinities(affinity))
        read = {name: ",".join(primary) for name, primary in named if primary}
        # As for the policy, a single reading proves no absence.
        kept = {n: group for n, group in (self._groups or {}).items() if n not in read and n not in self._unplaced}
        self._groups, self._unplaced = read | kept, kept.keys()

    def _accept(self, decision: FactorOrder, appended_at: datetime) -> None:  # noqa: ARG002
        self._note_group(decision)

    def _note_group(self, decision: FactorOrder) -> None:
        self._subjects[decision.subject] = decision.subject.removeprefix(f"{decision.cluster}/")

    def _reject(self, decision: FactorOrder, in_force: FactorOrder) -> None:
        _log.warning("a decision came too late", subject=decision.subject, in_force=in_force.sequence)

    def _close(self) -> None:
        for limits in (self._limits, *self._others):
            limits.close()

    # --- due work

    def _orders(self) -> dict[str, FactorOrder]:
        """Return the decision in force of each group that has not ended."""
        found = ((group, self._queue.in_force(subject)) for subject, group in self._subjects.items())
        return {group: order for group, order in found if order is not None and order.expires_at is not None}

    def _wanted(self) -> dict[str, WantedShare]:
        """Return the factor of each group, without the groups that a pause keeps as they are set."""
        now = self._clock.now()
        orders = {group: each for group, each in self._orders().items() if not each.is_frozen(now)}
        return {group: order.choose_factor(now, self._policy, PublishReason) for group, order in orders.items()}

    def _is_due(self) -> bool:
        if not self._subjects:
            return False
        return self._clock.monotonic() >= self._look_at or self._wanted() != self._carried_out

    def pause_seconds(self) -> float | None:
        """Return the time until the next look at the limits, or until a decision in force expires."""
        if not self._subjects:
            return None
        if self._is_due():
            return 0.0
        now = self._clock.now()
        expiries = (o.expires_at for o in self._orders().values() if o.expires_at is not None and o.expires_at > now)
        left_seconds = ((at - now).total_seconds() for at in expiries)
        return min(max(0.0, self._look_at - self._clock.monotonic()), *left_seconds, 3600.0)

    def reconcile(self, stop: Event) -> None:  # noqa: ARG002 - one attempt is short, and the next is another call
        """Process received decisions, and set the limits if that is due."""
        self._queue.read()
        if not self._is_due():
            return
        wanted, began = self._wanted(), self._clock.monotonic()
        self._carried_out = wanted
        if not self.may_act():
            # Another process may change the limits and their records now.
            self._look_at, self._records = began + NOT_OURS_SECONDS, None
            self._confirmed.clear()
            return
        try:
            is_settled = self._attempt(wanted)
        except Exception as error:  # this thread must survive any exception: later decisions need it
            self._fail("", error)
            self._look_at = self._clock.monotonic() + _AGAIN_SECONDS
            return
        is_settled = is_settled and not any(share.slows for share in wanted.values())
        self._look_at = self._clock.monotonic() + self._choose_pause(is_settled=is_settled, since=began)

    def _choose_pause(self, *, is_settled: bool, since: float) -> float:
        """Return the time until the next look: short after a change, and while somebody else may open the gate."""
        verify_seconds = self._settings.verify_interval.total_seconds()
        took_seconds = self._clock.monotonic() - since
        return verify_seconds if is_settled else min(verify_seconds, max(_AGAIN_SECONDS, _LEAST_REST * took_seconds))

    def release(self) -> list[str]:
        """Put all original limits back, of all kinds. Returns the targets for which that failed."""
        try:
            left = [self._release(limits) for limits in (self._limits, *self._others)]
            return [target for records in left for target in sorted({*records.known, *records.damaged})]
        finally:
            self._close()

    def _release(self, limits: PublishLimits) -> FoundRecords:
        """Put the original limits of one kind back. Returns the records for which that failed."""
        records = limits.records()
        for target in sorted({*records.known, *records.damaged}):
            self._carry_out(limits, records, target, RELEASED_SHARE)
        return records

    # --- attempts

    def _attempt(self, wanted: Mapping[str, WantedShare]) -> bool:
        """Bring all limits to their values. Returns whether all were right before."""
        if self._records is None:
            left = [self._release(other) for other in self._others]
            if any(records.known for records in left):
                return False
            self._records = self._limits.records()
        records = self._records
        orders = self._orders()
        frozen = orders.keys() - wanted.keys()
        slowed = {group: share for group, share in wanted.items() if share.slows}
        order = sorted(slowed, key=lambda group: (slowed[group].factor, group))
        everywhere = ALL_BOOKIES_BESIDE_DEFAULT if ALL_BOOKIES_BESIDE_DEFAULT in orders else ALL_BOOKIES
        groups = self._find_groups(orders.keys(), everywhere)
        targets = self._limits.list_targets(groups, everywhere, order)
        plans: dict[str, PublishPlan | None] = {}
        for target in sorted(targets.keys() | records.known.keys() | records.damaged.keys()):
            group = targets.get(target, groups.get(target, everywhere))
            if group in frozen or (frozen and target == BROKERS):
                continue
            share = slowed.get(targets.get(target, "")) or wanted.get(group, RELEASED_SHARE)
            plans[target] = self._carry_out(self._limits, records, target, share)
        done = {target: plan for target, plan in plans.items() if plan is not None}
        state = PublishState(cluster=self._cluster, outcome=Outcome.OK, **self._limits.sum_rates(done))
        self._state.publish_if_due(self._cluster, state)
        if len(done) < len(plans):
            self._records = None  # somebody may have repaired a record, or deleted a namespace
            return False
        by, now = self._settings.by.value, self._clock.now()
        self._reports.report_gone(by, records.known.keys(), now)
        self._reports.report_success(by, now)
        return not any(plan.verdict.acts for plan in done.values())

    def _find_groups(self, orders: Set[str], everywhere: str) -> dict[str, str]:
        """Return the group of each namespace with affinity, by its last reading.

        Raises:
            AdminError: there is no reading, so the namespaces of a group are not known.
        """
        if self._groups is None and orders - {everywhere} and self._settings.by is not PublishBy.BROKER:
            raise AdminError(Outcome.ABSENT, "the groups of namespaces are not known: they were not read for an hour")
        return {name: group if group in orders else everywhere for name, group in (self._groups or {}).items()}

    def _carry_out(
        self, limits: PublishLimits, records: FoundRecords, target: str, share: WantedShare
    ) -> PublishPlan | None:
        """Bring one limit to its value. Returns the plan that was carried out; None if that failed."""
        settings, plan = self._settings, None
        if target in records.damaged:
            self._fail(target, records.damaged[target], None, share.factor)
            return None
        try:
            found = limits.find(target)
            base = None if settings.base is None else int(settings.base)
            floor = int(settings.floor_bytes_per_second)
            plan = plan_publish(share, records.known.get(target), found, base, floor)
            self._note_overwritten(target, plan)
            if plan.verdict.acts:
                if not self.may_act():
                    return None
                _execute(limits, records.known, target, plan)
        except Exception as error:
            self._fail(target, error, plan, share.factor)
            return None
        self._reports.report_done(settings.by.value, target, plan, share, self._clock.now())
        return plan

    def _note_overwritten(self, target: str, plan: PublishPlan) -> None:
        """Count a limit that no longer has the rate with which it was read back."""
        confirmed = self._confirmed.pop(target, None)
        if confirmed is not None and plan.found.rate != confirmed:
            self._reports.report_overwritten(target)
        if plan.verdict is LimitVerdict.KEEP and plan.record is not None and plan.rate is not None:
            self._confirmed[target] = plan.rate

    def _fail(
        self, target: str, error: Exception, plan: PublishPlan | None = None, factor: float | None = None
    ) -> None:
        if not isinstance(error, PULSAR_READ_ERRORS.expected):
            _log.exception("carrying out a decision failed", cluster=self._cluster)
        detail = PULSAR_READ_ERRORS.detail_of(error)
        by, now = self._settings.by.value, self._clock.now()
        self._reports.report_failure(by, target, detail, now, plan, factor)


def _execute(limits: PublishLimits, records: dict[str, PublishRecord], target: str, plan: PublishPlan) -> None:
    """Carry a plan out, and keep the records as they are on the cluster."""
    if plan.verdict is LimitVerdict.SET and plan.record is not None and plan.rate is not None:
        limits.write_record(target, plan.record)  # it may be gone although it is known
        records[target] = plan.record
        limits.set(target, plan.rate)
        return
    if plan.original is not None:
        limits.restore(target, plan.original)
    limits.delete_record(target)
    records.pop(target, None)


# Follows the decisions of the bookie-disks policy, and the groups of namespaces.

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
