"""Carries out the factors of placement groups by Pulsar's own publish limits, of one of two kinds.

Measured on Pulsar 4.2.4: each takes effect within 2 s, and its removal within 0.5 s. Pulsar's admin REST API has no
conditional writes, so a limit is read before it is set, and again afterwards.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from http import HTTPStatus
from typing import Any, ClassVar, NamedTuple

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter
from pydantic import TypeAdapter

from connectors.actuation.level_worker import (
    LONGEST_PAUSE_SECONDS,
    LOOK_SECONDS,
    NONE_SET,
    Attempt,
    LevelMetrics,
    LevelReports,
    LevelWorker,
    NotOursError,
)
from connectors.actuation.worker import SYSTEM_CLOCK, Clock, PublishAudit
from connectors.http.rest import REST_READ_ERRORS, AdminError
from connectors.pulsar.admin import AdminApi, join_path
from policies.bookie_disks.fold import list_affinities, name_primary
from policies.bookie_disks.readings import (
    FoundLimit,
    PublishApplication,
    PublishPlan,
    PublishRecord,
    PublishState,
    plan_publish,
)
from policies.bookie_disks.settings import BookieDisksSettings, PublishBy, PublishSettings
from policies.bookie_disks.state import ALL_BOOKIES, ALL_BOOKIES_BESIDE_DEFAULT
from policies.bookie_readings import BookieAffinity
from policies.free_space.levels import RELEASED, FactorDecision, LevelPlan, LimitReason, LimitVerdict, WantedFactor
from policies.observations import Outcome, ReportResult
from policies.units import MAX_INT64

# The two kinds of limits, and the records of the original ones in properties of namespaces.

BROKERS = "brokers"
"""The one target of the limit of brokers."""
SYSTEM = "pulsar/system"
"""The namespace whose property has the record of the brokers' limit. Its own limit is never changed."""
_SETTING = "brokerPublisherThrottlingMaxByteRate"

_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_TEXTS = TypeAdapter(dict[str, str])
_BYTES, _MESSAGES = "publishThrottlingRateInByte", "publishThrottlingRateInMsg"


class FoundRecords(NamedTuple):
    """The records of all targets of one kind of limit."""

    known: dict[str, PublishRecord]
    damaged: dict[str, AdminError]
    """Targets that must not be touched: their property is not one of ours, so their original limit is not known."""


class PublishAdmin(AdminApi):
    """The part of Pulsar's admin REST API with publish limits. Every method raises as `RestClient.get` does."""

    def read(self, path: str, shape: TypeAdapter[Any] = _ANY) -> Any:
        """Return a document; None if there is none."""
        return self._unless_missing(path, shape, None)

    def send(self, method: str, path: str, body: Any = None) -> None:
        """Send a request."""
        self._rest.send(method, path, json=body)

    def send_unless_missing(self, method: str, path: str) -> None:
        """Send a request to an object that may be gone."""
        try:
            self.send(method, path)
        except AdminError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise


class PublishLimits(ABC):
    """One kind of limit. Targets are names: namespaces, or `BROKERS`."""

    record_name: ClassVar[str]
    """The property with a target's record."""

    def __init__(self, admin: PublishAdmin) -> None:
        self._admin = admin

    def close(self) -> None:
        """Close all connections."""
        self._admin.close()

    def list_all(self) -> Sequence[str]:
        """Return everything that can be a target: all namespaces but the system's."""
        found = (name for tenant in self._admin.tenants() for name in self._admin.namespaces(tenant))
        return sorted(name for name in found if name != SYSTEM)

    def records(self) -> FoundRecords:
        """Find the records of all targets."""
        found = FoundRecords({}, {})
        for target in self.list_all():
            properties = self._admin.read(_path(_record_place(target), "properties"), _TEXTS) or {}
            if self.record_name not in properties:
                continue
            try:
                found.known[target] = msgspec.json.decode(properties[self.record_name], type=PublishRecord)
            except msgspec.MsgspecError as error:
                why = f"property {self.record_name} of {_record_place(target)} is damaged: {error}"
                found.damaged[target] = AdminError(Outcome.ERROR, why)
        return found

    def write_record(self, target: str, record: PublishRecord) -> None:
        """Write the record to a property of the target's namespace."""
        properties = {self.record_name: msgspec.json.encode(record).decode()}
        self._admin.send("PUT", _path(_record_place(target), "properties"), properties)

    def delete_record(self, target: str) -> None:
        """Delete the property; there may be none."""
        self._admin.send_unless_missing("DELETE", _path(_record_place(target), "property", self.record_name))

    def list_targets(self, groups: Mapping[str, str], everywhere: str, slowed: Iterable[str]) -> dict[str, str]:
        """Return the group of each namespace of the groups to slow down; those without affinity are `everywhere`."""
        wanted = set(slowed)
        if not wanted:
            return {}
        placed = {name: groups.get(name, everywhere) for name in self.list_all()}
        return {name: group for name, group in placed.items() if group in wanted}

    @abstractmethod
    def sum_rates(self, plans: Mapping[str, PublishPlan]) -> Mapping[str, int | None]:
        """Return what producers may publish by the plans carried out, as fields of a `PublishState`."""

    @abstractmethod
    def find(self, target: str) -> FoundLimit:
        """Return a target's present limit."""

    @abstractmethod
    def set(self, target: str, rate: int) -> None:
        """Set a target's limit."""

    @abstractmethod
    def restore(self, target: str, original: FoundLimit) -> None:
        """Put a target's original limit back."""


class NamespaceLimits(PublishLimits):
    """The publish rate of namespaces, for each of their topics."""

    record_name = "headgate-publish-rate"

    def sum_rates(self, plans: Mapping[str, PublishPlan]) -> Mapping[str, int | None]:
        """Return the rate of one topic of each namespace: the number of topics is not known."""
        return {"topics_bytes_per_second": min(sum(plan.highest_rate or 0 for plan in plans.values()), MAX_INT64)}

    def find(self, target: str) -> FoundLimit:
        """Return the publish rate; a rate in messages alone limits no bytes."""
        document = self._admin.read(_path(target, "publishRate"))
        if not isinstance(document, dict):
            return FoundLimit(None, None)
        rate = document.get(_BYTES)
        return FoundLimit(rate if isinstance(rate, int) and rate > 0 else None, json.dumps(document, sort_keys=True))

    def set(self, target: str, rate: int) -> None:
        """Set the rate in bytes, and keep that in messages."""
        found = self._admin.read(_path(target, "publishRate"))
        messages = found.get(_MESSAGES, -1) if isinstance(found, dict) else -1
        self._admin.send("POST", _path(target, "publishRate"), {_MESSAGES: messages, _BYTES: rate})

    def restore(self, target: str, original: FoundLimit) -> None:
        """Put back the original document, or none."""
        if original.document is None:
            self._admin.send_unless_missing("DELETE", _path(target, "publishRate"))
        else:
            self._admin.send("POST", _path(target, "publishRate"), json.loads(original.document))


class BrokerLimits(PublishLimits):
    """The dynamic setting of all brokers. Its record is a property of `pulsar/system`."""

    record_name = "headgate-broker-publish-rate"

    def list_all(self) -> Sequence[str]:
        """Return the one target."""
        return (BROKERS,)

    def sum_rates(self, plans: Mapping[str, PublishPlan]) -> Mapping[str, int | None]:
        """Return the dynamic setting times the registered brokers, each of which applies it by itself."""
        rate = plans[BROKERS].highest_rate if BROKERS in plans else None
        let_through = None if rate is None else min(rate * len(self._admin.brokers("local")), MAX_INT64)
        return {"let_through_bytes_per_second": let_through}

    def list_targets(self, groups: Mapping[str, str], everywhere: str, slowed: Iterable[str]) -> dict[str, str]:  # noqa: ARG002
        """Return the brokers, by the first of the groups to slow down; the caller chooses the least factor."""
        first = next(iter(slowed), None)
        return {} if first is None else {BROKERS: first}

    def find(self, target: str) -> FoundLimit:  # noqa: ARG002 - there is one target
        """Return the dynamic setting. Without one, the brokers' own configuration limits, and needs no putting back."""
        dynamic = (self._admin.read("/admin/v2/brokers/configuration/values") or {}).get(_SETTING)
        effective = dynamic
        if dynamic is None:
            effective = self._admin.runtime_configuration().get(_SETTING)
        rate = str(effective)
        return FoundLimit((int(rate) if rate.isdigit() else 0) or None, dynamic)

    def set(self, target: str, rate: int) -> None:  # noqa: ARG002 - there is one target
        """Set the dynamic setting."""
        self._admin.send("POST", f"/admin/v2/brokers/configuration/{_SETTING}/{rate}")

    def restore(self, target: str, original: FoundLimit) -> None:  # noqa: ARG002 - there is one target
        """Put back the original setting, or none."""
        if original.document is None:
            self._admin.send_unless_missing("DELETE", f"/admin/v2/brokers/configuration/{_SETTING}")
        else:
            self._admin.send("POST", f"/admin/v2/brokers/configuration/{_SETTING}/{original.document}")


def _record_place(target: str) -> str:
    return SYSTEM if target == BROKERS else target


def _path(namespace: str, *parts: str) -> str:
    return join_path("/admin/v2/namespaces", *namespace.split("/"), *parts)


# Reports of one cluster's limits.

_UNPLANNED = LevelPlan(LimitVerdict.SET, LimitReason.DECIDED)
"""Stands for the plan of a limit that could not be read."""


class PublishMetrics(LevelMetrics):
    """The metrics of the publish actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.overwritten = Counter(
            "headgate_publish_overwritten",
            "Times that somebody else changed or deleted a publish limit that Headgate had set.",
            ("cluster", "target"),
            registry=registry,
        )
        super().__init__(registry, "headgate_publish", "target", "publish limits", "Pulsar")


class PublishReports(LevelReports[PublishMetrics]):
    """Reports the outcomes of one cluster's limits, all of one kind."""

    action = "publishing"

    def __init__(self, cluster: str, by: PublishBy, publish: PublishAudit, metrics: PublishMetrics) -> None:
        super().__init__(cluster, publish, metrics)
        self._by = by
        self._held: set[str] = set()
        """The targets with a limit of ours."""

    def report_limit(self, target: str, plan: LevelPlan, attempt: Attempt) -> None:
        """Report that one limit is as planned, or was refused by the plan."""
        if plan.holds and plan.rate is not None:
            self._held.add(target)
            self._metrics.show_rate(self._cluster, target, plan.rate)
            self._metrics.overwritten.labels(self._cluster, target)  # from 0 on, or the first change would not count
        else:
            self._held.discard(target)
            self._metrics.show_rate(self._cluster, target, None)
        self.report_done(target, plan, attempt, (plan.verdict.result, plan.rate, plan.reason))

    def report_gone(self, recorded: Set[str], at: datetime) -> None:
        """Report each limit that is gone with its namespace: of those that were set, the ones without a record."""
        for target in sorted(self._held - recorded):
            self._held.discard(target)
            self._metrics.show_rate(self._cluster, target, None)
            self._last.pop(target, None)
            self.emit(target, NONE_SET, ReportResult.UNCHANGED, Attempt(at))

    def _event(self, target: Hashable, attempt: Attempt, **shared: Any) -> PublishApplication:  # noqa: ARG002
        return PublishApplication(target="" if target is None else str(target), by=self._by, **shared)


# Keeps the publish limits of one watched cluster at the values that its decisions in force ask for.

_LEAST_REST = 10
"""The pause between two looks is at least this many times as long as the look: there may be thousands of limits."""

_log = structlog.get_logger(__name__)


class PublishWorker(LevelWorker[Mapping[str, WantedFactor]]):
    """Carries out one cluster's decisions; other kinds of limits are put back if earlier settings used them."""

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
        super().__init__(
            cluster,
            observe,
            clock,
            verify_seconds=settings.verify_interval.total_seconds(),
            retried=REST_READ_ERRORS.expected,
        )
        self._settings, self._policy = settings, policy
        self._limits = limits
        self._others = others
        self._reports, self._metrics = PublishReports(cluster, settings.by, publish, metrics), metrics
        self._groups: Mapping[str, str] | None = None
        """The group of each namespace with affinity; None before the first reading."""
        self._unplaced: Set[str] = frozenset()
        """The namespaces that the last reading shows without affinity, and the one before it with one."""
        self._records: FoundRecords | None = None
        """None: not read yet, or somebody else may have changed them."""
        self._confirmed: dict[str, int] = {}
        """By target, the rate that was set and then read back."""

    # --- incoming decisions and readings

    def place(self, affinity: BookieAffinity) -> None:
        """Note the groups of namespaces; from one thread, which need not be that of `run`."""
        named = ((name, name_primary(each)) for name, each in list_affinities(affinity))
        read = {name: ",".join(primary) for name, primary in named if primary}
        # As for the policy, a single reading proves no absence.
        kept = {n: group for n, group in (self._groups or {}).items() if n not in read and n not in self._unplaced}
        self._groups, self._unplaced = read | kept, kept.keys()

    def _close(self) -> None:
        for limits in (self._limits, *self._others):
            limits.close()

    # --- due work

    def _group_orders(self) -> dict[str, FactorDecision]:
        """Return the decision in force of each group that has not ended."""
        orders = (each for each in self._in_force.values() if each.expires_at is not None)
        return {each.subject.removeprefix(f"{each.cluster}/"): each for each in orders}

    def _wanted(self) -> dict[str, WantedFactor]:
        """Return the factor of each group, without the groups that a pause keeps as they are set."""
        now = self._clock.now()
        orders = {group: each for group, each in self._group_orders().items() if not each.is_frozen(now)}
        return {group: order.choose_factor(now, self._policy) for group, order in orders.items()}

    def _is_due(self) -> bool:
        return bool(self._in_force) and super()._is_due()

    def pause_seconds(self) -> float:
        """Return the time until the next look at the limits, without end before the first decision."""
        return super().pause_seconds() if self._in_force else LONGEST_PAUSE_SECONDS

    def _require_ours(self) -> None:
        try:
            super()._require_ours()
        except NotOursError:
            # Another process may change the limits and their records now.
            self._records = None
            self._confirmed.clear()
            raise

    def _attempt(self, wanted: Mapping[str, WantedFactor], number: int) -> float:  # noqa: ARG002 - there is one
        began = self._clock.monotonic()
        self._require_ours()
        is_right = self._look(wanted)
        if is_right and not any(share.slows for share in wanted.values()):
            return self._verify_seconds
        # Short after a change, and while somebody else may open the gate.
        rest_seconds = _LEAST_REST * (self._clock.monotonic() - began)
        return min(self._verify_seconds, max(LOOK_SECONDS, rest_seconds))

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
            self._carry_out(limits, records, target, RELEASED)
        return records

    # --- attempts

    def _look(self, wanted: Mapping[str, WantedFactor]) -> bool:
        """Bring all limits to their values. Returns whether all were right before."""
        if self._records is None:
            left = [self._release(other) for other in self._others]
            if any(records.known for records in left):
                return False
            self._records = self._limits.records()
        records = self._records
        orders = self._group_orders()
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
            share = slowed.get(targets.get(target, "")) or wanted.get(group, RELEASED)
            plans[target] = self._carry_out(self._limits, records, target, share)
        done = {target: plan for target, plan in plans.items() if plan is not None}
        state = PublishState(cluster=self._cluster, outcome=Outcome.OK, **self._limits.sum_rates(done))
        self._state.publish_if_due(self._cluster, state)
        if len(done) < len(plans):
            self._records = None  # somebody may have repaired a record, or deleted a namespace
            return False
        now = self._clock.now()
        self._reports.report_gone(records.known.keys(), now)
        self._reports.report_success(now)
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
        self, limits: PublishLimits, records: FoundRecords, target: str, share: WantedFactor
    ) -> PublishPlan | None:
        """Bring one limit to its value. Returns the plan that was carried out; None if that failed."""
        settings, plan, attempt = self._settings, None, Attempt(self._clock.now(), share)
        if target in records.damaged:
            self._report_failure(target, records.damaged[target], attempt)
            return None
        try:
            found = limits.find(target)
            base = None if settings.base is None else int(settings.base)
            floor = int(settings.floor_bytes_per_second)
            plan = plan_publish(share, records.known.get(target), found, base, floor)
            if self._confirmed.pop(target, found.rate) != found.rate:
                self._metrics.overwritten.labels(self._cluster, target).inc()
            if plan.verdict is LimitVerdict.KEEP and plan.holds and plan.rate is not None:
                self._confirmed[target] = plan.rate
            if plan.verdict.acts:
                self._require_ours()
                _execute(limits, records.known, target, plan)
        except NotOursError:
            raise
        except Exception as error:
            self._report_failure(target, error, attempt, plan)
            return None
        self._reports.report_limit(target, plan, attempt)
        return plan

    def _fail(self, error: Exception, wanted: object, number: int) -> None:  # noqa: ARG002 - there is one attempt
        self._report_failure(None, error, Attempt(self._clock.now()))

    def _report_failure(
        self, target: str | None, error: Exception, attempt: Attempt, plan: LevelPlan | None = None
    ) -> None:
        if target is not None and not isinstance(error, REST_READ_ERRORS.expected):
            _log.exception("carrying out a decision failed", cluster=self._cluster)
        plan = plan or _UNPLANNED
        self._reports.report_failure(target, plan, attempt, REST_READ_ERRORS.detail_of(error), plan.rate)


def _execute(limits: PublishLimits, records: dict[str, PublishRecord], target: str, plan: PublishPlan) -> None:
    """Carry a plan out, and keep the records as they are on the cluster."""
    if (record := plan.to_write) is not None and plan.rate is not None:
        limits.write_record(target, record)  # it may be gone although it is known
        records[target] = record
        limits.set(target, plan.rate)
        return
    if plan.original is not None and plan.reason is not LimitReason.CHANGED_BY_HAND:  # else it is there
        limits.restore(target, plan.original)
    limits.delete_record(target)
    records.pop(target, None)
