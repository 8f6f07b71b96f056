"""The events that drive a switch: commands of operators, and observations of executors, brokers and clusters.

A command needs no event of its own: the judge takes the `SwitchCommand` as it was published.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from policies.observations import Observation, Outcome
from policies.switching.clusters import ClusterSnapshot
from policies.switching.ledgers import IdGenerator, Ledger, Reference, StayingLedgers
from policies.switching.readings import (
    LedgerOutcome,
    LedgerReading,
    SwitchBroker,
    SwitchBrokers,
    SwitchCluster,
    SwitchCommand,
    SwitchLease,
    SwitchLedger,
    SwitchPrecheck,
    SwitchProgress,
    SwitchRegistry,
    SwitchStatus,
)
from policies.switching.state import Directive, OrchestratorLease, PrecheckResult, RegistryEntry, SwitchAction


@dataclass(frozen=True, slots=True)
class RegistrySeen:
    """The registry as ZooKeeper has it. Entries are sorted by name, and no root ends with a slash."""

    entries: tuple[RegistryEntry, ...]
    bootstrap: str | None
    directive: Directive | None
    committed_epoch: int
    at_ms: int = -1
    """When the registry was read; -1 if unknown."""
    also_active: tuple[str, ...] = ()
    """Clusters that are active by an entry that Headgate did not write."""
    progress: SwitchProgress | None = None
    """The progress of the last switch, which counts only after a lost checkpoint."""

    @classmethod
    def from_reading(cls, reading: SwitchRegistry, at_ms: int) -> "RegistrySeen":
        """Convert a registry as it was published."""
        entries = (
            RegistryEntry(c.name, c.uri, c.instance_id, c.root.rstrip("/"), c.status, c.version)
            for c in sorted(reading.clusters, key=lambda c: c.name)
        )
        written = reading.directive
        directive = Directive(written.epoch, written.target) if written else None
        also_active = tuple(sorted(reading.active_as_proposed))
        committed, progress = reading.committed_epoch, reading.progress
        return cls(tuple(entries), reading.bootstrap, directive, committed, at_ms, also_active, progress)


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """The live brokers."""

    brokers: tuple[str, ...] | None
    """None: they could not be read."""
    at_ms: int
    epoch: int | None = None
    """The epoch of the directive that ZooKeeper had before the reading; None: not reported."""


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """A report of a broker's agent."""

    broker: str
    sequence: int
    """The number of the report; it only grows for a broker."""
    epoch: int
    """The epoch of the directive that the report is about."""
    failed: bool
    """True if the broker could not make its client of the target; False if it follows the directive."""
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    at_ms: int
    client_epoch: int | None = None
    """The epoch at which it opened the client that it writes with; None: not reported."""


@dataclass(frozen=True, slots=True)
class InventorySeen:
    """A complete inventory: all references, and which of their ledgers exist in the target."""

    references: tuple[Reference, ...]
    at_ms: int
    target: str = ""
    """The cluster in which each ledger was looked up; empty if none was."""
    existing: Mapping[int, Ledger] = field(default_factory=dict)
    staying: tuple[StayingLedgers, ...] = ()
    """Counts of the ledgers that are neither copied nor attributed."""
    valid_ms: int = 1_200_000
    moved_too: bool = False
    """Whether ledgers of references in the target were looked up, too."""
    epoch: int | None = None
    """The epoch of the directive that ZooKeeper had before the reading; None: not reported."""


@dataclass(frozen=True, slots=True)
class LedgerResult:
    """An executor's result for one ledger."""

    ledger_id: int
    op: int
    """The number of the order that this result answers."""
    outcome: LedgerOutcome
    source: Ledger | None = None
    target: Ledger | None = None
    changed: tuple[str, ...] = ()
    """Fields of the reference that differ between before and after."""
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


def _to_cluster(reading: SwitchCluster, at_ms: int) -> ClusterSnapshot:
    """The snapshot is dated by the beginning of the reading."""
    read = reading.generator
    return ClusterSnapshot(
        name=reading.name,
        instance_id=reading.instance_id,
        root=reading.root,
        layout=reading.layout,
        generator=IdGenerator(read.hob, read.cversion, read.num_children) if read else None,
        read_ms=at_ms - reading.took_ms,
        epoch=reading.epoch,
        lower_counters=len(reading.lower),
        lower_given=sum(each.given for each in reading.lower),
    )


def _to_check(reading: SwitchPrecheck, at_ms: int) -> PrecheckResult:
    """Reduce a report to what a start needs. The validity counts from the record's time."""
    return PrecheckResult(
        source=reading.source,
        target=reading.target,
        ready=reading.ready,
        digest=reading.digest,
        reasons=tuple(dict.fromkeys(f.reason for f in reading.findings)),
        checked_ms=at_ms,
        expires_ms=at_ms + reading.valid_ms,
        greatest_id=reading.greatest_id,
        bypassed=reading.bypassed,
    )


def to_ledger(reading: LedgerReading | None) -> Ledger | None:
    """Convert a ledger as it was published."""
    if reading is None:
        return None
    plain = reading.model_dump(exclude={"custom_metadata"})
    return Ledger(**plain, custom_metadata=tuple(sorted(reading.custom_metadata.items())))


_EVENTS: Mapping[type, Callable[[Any, int], Event]] = {
    SwitchLedger: lambda r, _: LedgerResult(
        r.ledger_id, r.op, r.result, to_ledger(r.source), to_ledger(r.target), r.changed, r.new_id, r.attribution,
        r.detail or "",
    ),
    SwitchStatus: lambda r, _: StatusResult(SwitchAction(r.action.value), r.op, r.written),
    SwitchLease: lambda r, at_ms: OrchestratorLease(r.token, r.holder, at_ms + r.valid_ms),
    SwitchRegistry: RegistrySeen.from_reading,
    SwitchBrokers: lambda r, at_ms: MembersSeen(r.brokers if r.outcome is Outcome.OK else None, at_ms, r.epoch),
    SwitchBroker: lambda r, at_ms: BrokerSeen(
        r.broker, r.sequence, r.epoch, r.client_init_failed, r.writes, r.reads, at_ms, r.client_epoch
    ),
    SwitchCluster: _to_cluster,
    SwitchPrecheck: _to_check,
}  # fmt: skip
"""The event of a reading and its time. Ages and validities count from the record's time."""


def to_event(seen: Observation) -> Event | None:
    """Return the event of an observation; None for a failed reading, and for a part of an inventory."""
    reading = seen.reading
    if isinstance(reading, SwitchCommand):
        return reading
    is_read = reading.outcome is Outcome.OK or isinstance(reading, SwitchBrokers)
    convert = _EVENTS.get(type(reading)) if is_read else None
    return convert(reading, seen.at_ms) if convert else None
