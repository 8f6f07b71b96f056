"""The model's world, with the policy in the machine's place and every event and decision over the wire."""

from datetime import datetime
from typing import Any

import msgspec

from policies.book import Published
from policies.decisions import Alert, Decision
from policies.observations import Observation, Outcome, Reading
from policies.switching.clusters import ClusterSnapshot
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchRecord
from policies.switching.events import (
    BrokerSeen,
    Event,
    InventorySeen,
    LedgerResult,
    MembersSeen,
    RegistrySeen,
    StatusResult,
)
from policies.switching.ledgers import Ledger
from policies.switching.plan import load_plan
from policies.switching.policy import SwitchingPolicy
from policies.switching.readings import (
    FindingReading,
    GeneratorReading,
    LedgerReading,
    LowerCounter,
    ReferenceReading,
    RegisteredCluster,
    StatusAction,
    SwitchBroker,
    SwitchBrokers,
    SwitchCluster,
    SwitchCommand,
    SwitchInventory,
    SwitchInventoryPart,
    SwitchLease,
    SwitchLedger,
    SwitchPrecheck,
    SwitchRegistry,
    SwitchStatus,
    WrittenDirective,
)
from policies.switching.registration import KIND
from policies.switching.settings import SwitchingSettings
from policies.switching.state import OrchestratorLease, PrecheckResult, SwitchingState, plan_key
from policies.switching.transition import DecisionDraft
from policies.units import from_millis
from policies.wire import EventReader, audit_event, decision_event, observation_event
from tests.policies.switching.commands import CLUSTER as CLUSTER
from tests.policies.switching.world import World

SETTINGS = SwitchingSettings.model_validate(
    {"copy_concurrency": 2, "orders_ahead": 0, "max_deletions": 2, "retries": 3, "target_policy": "shared"}
)
READER: EventReader[Any] = EventReader(KIND.readings)
DECIDED: EventReader[Any] = EventReader([*KIND.decisions, Alert])
OK: dict[str, Any] = {"cluster": CLUSTER, "outcome": Outcome.OK}


def readings_of(event: Event, now_ms: int) -> list[Reading]:
    """The readings that a collector, an executor or an operator would publish for an event."""
    if isinstance(event, SwitchCommand):
        return [event]
    return inventory_readings(event, now_ms) if isinstance(event, InventorySeen) else [_sighting(event, now_ms)]


def _sighting(event: Event, now_ms: int) -> Reading:
    match event:
        case OrchestratorLease() as lease:
            return SwitchLease(**OK, token=lease.token, holder=lease.holder, valid_ms=lease.valid_until_ms - now_ms)
        case MembersSeen():
            outcome = Outcome.TIMEOUT if event.brokers is None else Outcome.OK
            return SwitchBrokers(cluster=CLUSTER, outcome=outcome, brokers=event.brokers or (), epoch=event.epoch)
        case BrokerSeen():
            return SwitchBroker(
                **OK, broker=event.broker, sequence=event.sequence, epoch=event.epoch,
                client_init_failed=event.failed, writes=event.writes, reads=event.reads,
                client_epoch=event.client_epoch,
            )  # fmt: skip
        case ClusterSnapshot() as seen:
            generator = (
                GeneratorReading.model_validate(msgspec.structs.asdict(seen.generator)) if seen.generator else None
            )
            return SwitchCluster(
                **OK, name=seen.name, instance_id=seen.instance_id, root=seen.root, layout=seen.layout,
                generator=generator, took_ms=now_ms - seen.read_ms, epoch=seen.epoch,
                lower=(LowerCounter(hob=None, given=seen.lower_given),) if seen.lower_counters else (),
            )  # fmt: skip
        case PrecheckResult() as check:
            return SwitchPrecheck(
                **OK, source=check.source, target=check.target, ready=check.ready, digest=check.digest,
                greatest_id=check.greatest_id, valid_ms=check.expires_ms - check.checked_ms,
                findings=tuple(FindingReading(reason=r, detail="x") for r in check.reasons),
            )  # fmt: skip
        case LedgerResult():
            return SwitchLedger(
                **OK, ledger_id=event.ledger_id, op=event.op, result=event.outcome, source=_ledger(event.source),
                target=_ledger(event.target), changed=event.changed, new_id=event.new_id, attribution=event.attribution,
            )  # fmt: skip
        case RegistrySeen():
            entries = tuple(RegisteredCluster.model_validate(msgspec.structs.asdict(e)) for e in event.entries)
            written = event.directive
            directive = WrittenDirective(epoch=written.epoch, target=written.target) if written else None
            return SwitchRegistry(
                **OK, clusters=entries, bootstrap=event.bootstrap, directive=directive,
                committed_epoch=event.committed_epoch, active_as_proposed=event.also_active, progress=event.progress,
            )  # fmt: skip
        case StatusResult():
            return SwitchStatus(**OK, action=StatusAction(event.action.value), op=event.op, written=event.ok)
    raise AssertionError(event)


def _ledger(ledger: Ledger | None) -> LedgerReading | None:
    if ledger is None:
        return None
    plain = msgspec.structs.asdict(ledger)
    return LedgerReading(**(plain | {"custom_metadata": dict(ledger.custom_metadata)}))


def inventory_readings(event: InventorySeen, now_ms: int) -> list[Reading]:
    """Parts of two references, and the manifest."""
    name = f"inventory-{event.at_ms}"
    parts = [event.references[i : i + 2] for i in range(0, len(event.references), 2)]
    readings: list[Reading] = [
        SwitchInventoryPart(
            **OK, inventory=name, part=number,
            references=tuple(ReferenceReading.model_validate(msgspec.structs.asdict(r)) for r in part),
            existing=tuple(
                found for r in part if (found := _ledger(event.existing.get(r.ledger_id))) is not None
            ),
        )
        for number, part in enumerate(parts)
    ]  # fmt: skip
    manifest = SwitchInventory(
        **OK, inventory=name, parts=len(parts), references=len(event.references), target=event.target,
        took_ms=now_ms - event.at_ms, moved_too=event.moved_too, epoch=event.epoch,
    )  # fmt: skip
    return [*readings, manifest]


class WireWorld(World):
    """As `World`, over the wire."""

    def __init__(self, settings: SwitchingSettings = SETTINGS) -> None:
        super().__init__(settings.limits)
        self.host = SwitchingPolicy(CLUSTER, settings)
        self.hosted: SwitchingState | None = None
        self.published: list[Decision] = []
        self.inputs: list[tuple[datetime, tuple[Observation, ...]]] = []
        self.wake_at: datetime | None = None
        self.seen = 0

    def observation(self, reading: Reading) -> Observation:
        """A reading after encoding and decoding."""
        self.seen += 1
        now = from_millis(self.now_ms)
        record = observation_event(reading, id=f"o{self.seen:06d}", source="test", time=now)
        event = READER.read(record)
        assert event.data == reading
        return Observation(event.id, now, event.data)

    def tell(self, *events: Event) -> list[DecisionDraft]:
        before = len(self.said)
        for event in events:
            self.history.append((self.now_ms, event))
            self.step(*(self.observation(r) for r in readings_of(event, self.now_ms)))
        return self.said[before:]

    def step(self, *observations: Observation) -> Published[SwitchingState]:
        now = from_millis(self.now_ms)
        self.inputs.append((now, observations))
        step: Published[SwitchingState] = self.host.step(self.hosted, observations, now)
        assert step.wake_at is None or step.wake_at > now
        self.hosted = self.state = step.state
        self.wake_at = step.wake_at
        self.published.extend(step.decisions)
        for decision in step.decisions:
            told = decision.model_copy(update={"numbers": {}})
            assert DECIDED.read(decision_event(decision)).data == told
            assert audit_event(decision)
            if isinstance(decision, SwitchDecision):
                self._hear(decision)
        return step

    def _hear(self, decision: SwitchDecision) -> None:
        plan = load_plan(self.state.switch)
        task = plan.get(plan_key(decision.ledger.ledger_id, decision.ledger.kind)) if decision.ledger else None
        said = DecisionDraft(
            decision.verdict, decision.reason, decision.explanation, decision.subject, decision.code, task,
            decision.op, dict(decision.args),
        )  # fmt: skip
        self.said.append(said)
        if decision.verdict in ORDERS:
            self.orders.append(said)

    def records(self) -> list[SwitchRecord]:
        return [d for d in self.published if isinstance(d, SwitchRecord)]

    def alerts(self) -> list[tuple[str, str]]:
        return [(a.alert, a.status.value) for a in self.published if isinstance(a, Alert)]
