"""What a test lets happen, in few words, and the readings that would be published for it."""

from dataclasses import dataclass
from itertools import count
from typing import Any

from policies.observations import Observation, Outcome, Reading
from policies.switching.fold import InventorySeen
from policies.switching.ledgers import ClusterSnapshot, Ledger
from policies.switching.readings import (
    CommandArgs,
    CommandName,
    FindingReading,
    LedgerOutcome,
    LowerCounter,
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
)
from policies.switching.state import (
    Directive,
    OrchestratorLease,
    PrecheckResult,
    RegistryEntry,
    SwitchAction,
    SwitchProgress,
)
from policies.units import from_millis

CLUSTER = "pulsar-1"


def command(
    which: str,
    key: str,
    *,
    dry_run: bool = False,
    expected_epoch: int | None = None,
    digest: str | None = None,
    **args: Any,
) -> SwitchCommand:
    """A command; an empty name or URI is left out, since no operator can send one."""
    return SwitchCommand(
        cluster=CLUSTER,
        command=CommandName(which),
        args=CommandArgs(**{k: None if v == "" else v for k, v in args.items()}),
        actor="a test",
        idempotency_key=key,
        dry_run=dry_run,
        expected_epoch=expected_epoch,
        precheck_digest=digest,
    )


OK: dict[str, Any] = {"cluster": CLUSTER, "outcome": Outcome.OK}
_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class RegistrySeen:
    """The registry as ZooKeeper has it."""

    entries: tuple[RegistryEntry, ...]
    bootstrap: str | None
    directive: Directive | None
    committed_epoch: int
    at_ms: int = -1
    """When it was read; -1: now."""
    progress: SwitchProgress | None = None


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """The live brokers; None: they could not be read."""

    brokers: tuple[str, ...] | None
    at_ms: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """A report of a broker's agent."""

    broker: str
    sequence: int
    epoch: int
    failed: bool
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    at_ms: int
    client_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerResult:
    """An executor's result for one ledger."""

    ledger_id: int
    op: int
    outcome: LedgerOutcome
    source: Ledger | None = None
    target: Ledger | None = None
    changed: tuple[str, ...] = ()
    new_id: int | None = None
    attribution: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StatusResult:
    """An executor's result for a status that it was ordered to write."""

    action: SwitchAction
    op: int
    ok: bool


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time passed without an observation."""


Event = (
    SwitchCommand | OrchestratorLease | RegistrySeen | MembersSeen | BrokerSeen | ClusterSnapshot | PrecheckResult
    | InventorySeen | LedgerResult | StatusResult | TimePassed
)  # fmt: skip


def observations_of(event: Event, now_ms: int) -> list[Observation | None]:
    """The observations of an event, each dated by when it was made."""
    if isinstance(event, TimePassed):
        return [None]
    at_ms = now_ms
    match event:
        case OrchestratorLease():
            at_ms = min(now_ms, event.valid_until_ms)
        case PrecheckResult():
            at_ms = event.checked_ms
        case ClusterSnapshot():
            at_ms = event.read_ms
        case RegistrySeen() | MembersSeen() | BrokerSeen() | InventorySeen():
            at_ms = now_ms if event.at_ms < 0 else event.at_ms
    readings = readings_of(event, at_ms)
    return [Observation(f"o{next(_NUMBERS):09d}", from_millis(at_ms), reading) for reading in readings]


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
            return SwitchCluster(
                **OK, name=seen.name, instance_id=seen.instance_id, root=seen.root, layout=seen.layout,
                generator=seen.generator, took_ms=now_ms - seen.read_ms, epoch=_shown(seen.epoch),
                lower=tuple(
                    LowerCounter(hob=n or None, given=0 if n else seen.lower_given) for n in range(seen.lower_counters)
                ),
            )  # fmt: skip
        case PrecheckResult() as check:
            return SwitchPrecheck(
                **OK, source=check.source, target=check.target, ready=check.ready, digest=check.digest,
                greatest_id=check.greatest_id, valid_ms=check.expires_ms - check.checked_ms,
                findings=tuple(FindingReading(reason=r, detail="x") for r in check.reasons),
                bypassed=check.bypassed,
            )  # fmt: skip
        case LedgerResult():
            return SwitchLedger(
                **OK, ledger_id=event.ledger_id, op=event.op, result=event.outcome, source=event.source,
                target=event.target, changed=event.changed, new_id=event.new_id, attribution=event.attribution,
                detail=event.detail or None,
            )  # fmt: skip
        case RegistrySeen():
            return SwitchRegistry(
                **OK, clusters=event.entries, bootstrap=event.bootstrap, directive=event.directive,
                committed_epoch=event.committed_epoch, progress=event.progress,
            )  # fmt: skip
        case StatusResult():
            return SwitchStatus(**OK, action=StatusAction.STATUS_NEW, op=event.op, written=event.ok)
    raise AssertionError(event)


def _shown(epoch: int) -> int | None:
    return None if epoch < 0 else epoch


def inventory_readings(event: InventorySeen, now_ms: int) -> list[Reading]:
    """Parts of two references, and the manifest."""
    name = f"inventory-{event.at_ms}-{event.target}-{len(event.existing)}"
    parts = [event.references[i : i + 2] for i in range(0, len(event.references), 2)]
    readings: list[Reading] = [
        SwitchInventoryPart(
            **OK, inventory=name, part=number,
            references=part,
            existing=tuple(found for r in part if (found := event.existing.get(r.ledger_id)) is not None),
        )
        for number, part in enumerate(parts)
    ]  # fmt: skip
    manifest = SwitchInventory(
        **OK, inventory=name, parts=len(parts), references=len(event.references), target=event.target,
        took_ms=now_ms - event.at_ms, moved_too=event.moved_too, epoch=_shown(event.epoch), valid_ms=event.valid_ms,
        attempt=event.attempt, staying=event.staying,
    )  # fmt: skip
    return [*readings, manifest]
