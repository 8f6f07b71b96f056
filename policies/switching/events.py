"""Events that drive a switch: commands of people, and observations of executors, brokers and clusters."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.switching.ledgers import Ledger
from policies.switching.precheck.snapshot import ClusterSnapshot
from policies.switching.readings import LedgerOutcome
from policies.switching.references import Reference, StayingLedgers
from policies.switching.state import (
    ClusterStatus,
    Directive,
    OrchestratorLease,
    PrecheckResult,
    RegistryEntry,
    SwitchAction,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a person asks for."""

    key: str
    """The same key again is the same command again."""
    dry_run: bool = False
    expected_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Register(Command):
    """Make a cluster known; its identity was read at its address. None: it could not be."""

    name: str
    uri: str
    instance_id: str | None
    root: str | None
    status: ClusterStatus | None = None
    """What it is to be; None: as it is, or standby."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregister(Command):
    """Forget a cluster."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Precheck(Command):
    """Have a target checked."""

    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Command):
    """Switch to a target, or drive a switch to it on."""

    target: str
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(Command):
    """Take the promotions back; unless `attribution_only`, send the brokers back as well."""

    attribution_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort(Command):
    """End the switch, and take back what can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Command):
    """Order nothing more, until it is resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(Command):
    """Go on: after a pause, a halt, or somebody else's directive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup(Command):
    """Delete what was promoted from the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseClient(Command):
    """Have brokers close their client of a cluster that nobody needs any more."""

    name: str


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """Who orchestrates now."""

    lease: OrchestratorLease


@dataclass(frozen=True, slots=True)
class RegistrySeen:
    """The registry as ZooKeeper has it."""

    entries: tuple[RegistryEntry, ...]
    bootstrap: str | None
    directive: Directive | None
    committed_epoch: int
    at_ms: int = -1
    """When it was read; -1: not known."""
    also_active: tuple[str, ...] = ()
    """Clusters that somebody else's entry says are active."""


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """The brokers that are alive."""

    brokers: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """What a broker's agent says of it."""

    broker: str
    sequence: int
    """Of this broker's reports; only grows."""
    epoch: int
    """The directive it speaks of."""
    failed: bool
    """Its client of the target could not be made; else it follows the directive."""
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """A BookKeeper cluster as last read."""

    cluster: ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Prechecked:
    """The report that was asked for."""

    check: PrecheckResult


@dataclass(frozen=True, slots=True)
class InventorySeen:
    """All references, and which of their ledgers exist in the target."""

    references: tuple[Reference, ...]
    at_ms: int
    target: str = ""
    """The cluster that was asked for each ledger; empty: none was."""
    existing: Mapping[int, Ledger] = field(default_factory=dict)
    staying: tuple[StayingLedgers, ...] = ()
    """What else names ledgers, counted."""


@dataclass(frozen=True, slots=True)
class LedgerResult:
    """An executor's result about one ledger."""

    ledger_id: int
    op: int
    """The number of the order it is the result of."""
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
    """An executor's result about a status it was to write."""

    action: SwitchAction
    op: int
    ok: bool


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time passed."""


Commands = Register | Unregister | Precheck | Start | Rollback | Abort | Pause | Resume | Cleanup | CloseClient
Event = (
    Commands | LeaseSeen | RegistrySeen | MembersSeen | BrokerSeen | ClusterSeen | Prechecked | InventorySeen
    | LedgerResult | StatusResult | TimePassed
)  # fmt: skip
