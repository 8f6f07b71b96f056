"""Readings of the switching policy (topic ``observed.switches``), and operators' commands (topic ``commands``).

Ages count from the record's append time. A reading that takes long carries its duration, so only one clock is involved.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from policies.observations import Outcome, Reading
from policies.switching.ledgers import (
    MAX_HOB,
    MOST_LISTED,
    Count,
    Epoch,
    FindingReason,
    HitClass,
    IdGenerator,
    Layout,
    Ledger,
    LedgerId,
    Name,
    Part,
    Reference,
    StayingLedgers,
    Text,
    Texts,
)
from policies.switching.state import (
    ClusterStatus,
    Directive,
    RegistryEntry,
    SwitchProgress,
    active_cluster,
    committed_cluster,
)
from policies.units import ClosedEnum

ShownEpoch = Annotated[
    Epoch | None,
    Field(description="The epoch of the directive that ZooKeeper showed before this reading; null: it was not read."),
]
Millis = Annotated[int, Field(ge=0, le=36_500 * 86_400_000)]
Names = Annotated[tuple[Name, ...], Field(max_length=MOST_LISTED)]
Samples = Annotated[tuple[int, ...], Field(max_length=MOST_LISTED)]


class CommandName(ClosedEnum):
    """The commands of an operator."""

    REGISTER = "register", "Register a BookKeeper cluster for the brokers of a cluster."
    UNREGISTER = "unregister", "Remove a BookKeeper cluster that no reference names."
    PRECHECK = "precheck", "Check whether a switch to a target is safe."
    START = "start", "Begin a switch to a target, or drive its live switch on."
    ROLLBACK = "rollback", "Take the promotions back, within the rollback window."
    ABORT = "abort", "End the switch and take back what can be taken back; before it is live, brokers are sent back."
    PAUSE = "pause", "Order nothing more until `resume`; open orders may still be carried out."
    RESUME = "resume", "Go on after a pause, a halt, or a foreign directive."
    CLEANUP = "cleanup", "Delete promoted ledgers from the source; a dry run by default."
    END = "end", "Leave hold at once: the copied ledgers stay in the source, or are deleted."
    CLOSE_CLIENT = "close-client", "Let brokers close their client of a cluster that is no longer needed."


class CommandArgs(Part):
    """The arguments of a command; each command uses some of them."""

    name: Name | None = Field(default=None, description="register, unregister, close-client: the BookKeeper cluster.")
    uri: Text | None = Field(default=None, description="register: its metadata service URI.")
    instance_id: Text | None = Field(default=None, description="register: the INSTANCEID read there; null: unreadable.")
    root: Text | None = Field(default=None, description="register: the path of its ledgers, such as `/ledgers`.")
    status: ClusterStatus | None = Field(
        default=None, description="register: the wanted status; null: unchanged, or standby."
    )
    target: Name | None = Field(default=None, description="precheck, start: the cluster to move to.")
    attribution_only: bool = Field(default=True, description="rollback: leave the brokers on the target.")
    delete: bool = Field(default=False, description="end: delete the copied ledgers from the source.")


class SwitchCommand(Reading):
    """A command of an operator."""

    event_type: ClassVar[str] = "headgate.switch-command.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="Always `ok`, because a command is not read.")
    command: CommandName
    args: CommandArgs = Field(default=CommandArgs())
    actor: str = Field(default="", max_length=249, description="The operator who sent it.")
    reason: str = Field(default="", max_length=2000, description="The operator's reason.")
    idempotency_key: str = Field(min_length=1, max_length=249, description="A repeated key is the same command.")
    dry_run: bool | None = Field(default=None, description="Preview only; null: only for `cleanup`.")
    expected_epoch: Epoch | None = Field(default=None, description="Reject at any other epoch.")
    precheck_digest: Text | None = Field(default=None, description="start: the digest of the report that was read.")

    def subject(self) -> str:
        """``<cluster>/commands/<idempotency key>``."""
        return f"{self.cluster}/commands/{self.idempotency_key}"

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing is to be changed; for `cleanup` that is the default."""
        return self.command is CommandName.CLEANUP if self.dry_run is None else self.dry_run


class SwitchLease(Reading):
    """The lease of the orchestrator that may give orders."""

    event_type: ClassVar[str] = "headgate.switch-lease.v1"

    token: Epoch = Field(default=0, description="Only grows: each new holder takes the next one.")
    holder: str = Field(default="", max_length=249, description="The holder: host and process.")
    valid_ms: Millis = Field(default=0, description="How long it is valid from the record's time.")


class SwitchRegistry(Reading):
    """The complete registry of a broker cluster."""

    event_type: ClassVar[str] = "headgate.switch-registry.v1"

    clusters: tuple[RegistryEntry, ...] = Field(
        default=(), max_length=MOST_LISTED, description="All registered clusters."
    )
    bootstrap: Name | None = Field(default=None, description="The cluster of references without attribution.")
    directive: Directive | None = Field(default=None, description="The last directive; null: none.")
    committed_epoch: Epoch = Field(
        default=0, description="The epoch of the directive whose target became the active cluster."
    )
    progress: SwitchProgress | None = Field(default=None, description="The last switch; null: none is kept.")

    def active(self) -> str | None:
        """Return the cluster that brokers write to."""
        return active_cluster(self.clusters, self.directive, self.committed_epoch)

    def committed(self) -> str | None:
        """Return the cluster that is active in the registry."""
        return committed_cluster(self.clusters)


class SwitchBrokers(Reading):
    """The complete list of live brokers."""

    event_type: ClassVar[str] = "headgate.switch-brokers.v1"

    brokers: Names = Field(default=(), description="Their names, as in their agents' reports.")
    epoch: ShownEpoch = None


class SwitchBroker(Reading):
    """A report of a broker's agent."""

    event_type: ClassVar[str] = "headgate.switch-broker.v1"

    broker: Name = Field(description="Its name in the list of live brokers.")
    sequence: Count = Field(default=0, description="The report's number; only grows, also across restarts.")
    epoch: Epoch = Field(default=0, description="The epoch of the directive that it reports on.")
    client_init_failed: bool = Field(default=False, description="Whether it failed to make a client of the target.")
    writes: Names = Field(default=(), description="Clusters that it wrote to since its ack.")
    reads: Names = Field(default=(), description="Clusters that it has open readers on.")
    client_epoch: Epoch | None = Field(
        default=None,
        description="The epoch at which it opened the client that it writes with, because an open client remembers the "
        "cluster's `HOB`; null: not reported.",
    )

    def subject(self) -> str:
        """``<cluster>/<broker>``."""
        return f"{self.cluster}/{self.broker}"


class LowerCounter(Part):
    """A counter below the one from which a cluster takes ids: only a client that remembers it still uses it."""

    hob: int | None = Field(default=None, ge=0, le=MAX_HOB, description="The k of its `HOB-k`; null: `idgen`.")
    given: Count = Field(description="The number of ids that it gave.")


class SwitchCluster(Reading):
    """A BookKeeper cluster: its identity and its id generator."""

    event_type: ClassVar[str] = "headgate.switch-cluster.v1"

    name: Name = Field(description="Its name in the registry or the settings.")
    instance_id: Text | None = Field(default=None, description="Its INSTANCEID; null: not readable.")
    root: Text | None = Field(default=None, description="The path of its ledgers; null: not readable.")
    layout: Layout | None = Field(default=None, description="Null: unknown, or not able to hold every id.")
    generator: IdGenerator | None = Field(default=None, description="Null: not readable.")
    lower: tuple[LowerCounter, ...] = Field(
        default=(), max_length=MOST_LISTED, description="The counters below: `idgen` and every lower `HOB`."
    )
    took_ms: Millis = Field(default=0, description="The duration of the reading, up to the record's time.")
    epoch: ShownEpoch = None

    def subject(self) -> str:
        """``<cluster>/<name>``."""
        return f"{self.cluster}/{self.name}"


class HitCount(Part):
    """Ledgers of one class that exist in the target."""

    count: Count = Field(description="The number of ledgers.")
    samples: Samples = Field(default=(), description="Some of their ids.")


class FindingReading(Part):
    """A reason why a target is not ready."""

    reason: FindingReason
    detail: Text = Field(description="The finding in one sentence.")
    count: Count = Field(default=0, description="The number of ledgers or references concerned.")
    samples: Samples = Field(default=(), description="Some of their ids.")
    hob: int | None = Field(default=None, description="idgen_behind: the `HOB-k` to advance the target to.")
    remedy: Text = Field(default="", description="The remedy.")


class SwitchPrecheck(Reading):
    """The report of a precheck."""

    event_type: ClassVar[str] = "headgate.switch-precheck.v1"

    source: Name = Field(description="The cluster that brokers would leave.")
    target: Name = Field(description="The cluster that they would move to.")
    ready: bool = Field(default=False, description="Whether there is no finding; an unknown value is a finding.")
    digest: Text = Field(default="", description="The digest of the findings, independent of time; quoted by `start`.")
    source_next_id: LedgerId | None = Field(default=None, description="The id the source gives next; null: unknown.")
    target_next_id: LedgerId | None = Field(default=None, description="The id the target gives next; null: unknown.")
    to_import: Count = Field(default=0, description="The number of ledgers to copy under their own id.")
    greatest_id: LedgerId = Field(default=-1, description="The greatest id named outside the target.")
    hits: dict[HitClass, HitCount] = Field(
        max_length=100, default_factory=dict, description="The target's ledgers at ids to import, by class."
    )
    findings: tuple[FindingReading, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Why it is not ready; empty if it is."
    )
    valid_ms: Millis = Field(default=0, description="Its validity from the record's time on.")
    staying: tuple[StayingLedgers, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Ledgers that stay in their cluster."
    )
    left_out: Texts = Field(default=(), description="Znodes that the settings exclude from reading.")
    bypassed: bool = Field(default=False, description="Whether only a lab's settings make it ready.")

    @property
    def reasons(self) -> tuple[FindingReason, ...]:
        """The reasons of the findings, each once."""
        return tuple(dict.fromkeys(f.reason for f in self.findings))

    def subject(self) -> str:
        """``<cluster>/<target>``."""
        return f"{self.cluster}/{self.target}"


class SwitchInventoryPart(Reading):
    """A part of the references, with those of their ledgers that exist in the target."""

    event_type: ClassVar[str] = "headgate.switch-inventory-part.v1"

    inventory: Name = Field(description="The inventory's name; its manifest has the number of parts.")
    part: int = Field(ge=0, le=100_000, description="Its number, from 0 on.")
    references: tuple[Reference, ...] = Field(
        default=(), max_length=MOST_LISTED, description="The references of this part."
    )
    existing: tuple[Ledger, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Ledgers found in the target under these ids."
    )

    def subject(self) -> str:
        """``<cluster>/<inventory>/<part>``."""
        return f"{self.cluster}/{self.inventory}/{self.part}"


class SwitchInventory(Reading):
    """The manifest of an inventory, which counts once all its parts have arrived."""

    event_type: ClassVar[str] = "headgate.switch-inventory.v1"

    inventory: Name = Field(description="The inventory's name.")
    parts: int = Field(default=0, ge=0, le=100_001, description="The number of its parts.")
    references: Count = Field(default=0, description="The number of references in all parts.")
    target: Text = Field(default="", description="The cluster in which each ledger was looked up; empty: none.")
    staying: tuple[StayingLedgers, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Ledgers that stay in their cluster."
    )
    left_out: Texts = Field(default=(), description="Znodes that the settings exclude from reading.")
    took_ms: Millis = Field(default=0, description="The duration of the reading, up to the record's time.")
    valid_ms: Millis = Field(
        default=1_200_000, description="How long it permits what deletes or forgets: two intervals of inventories."
    )
    moved_too: bool = Field(
        default=False, description="Whether ledgers of references in the target were looked up there, too."
    )
    attempt: Count | None = Field(default=None, description="The switch's attempt when this began; null: not known.")
    epoch: ShownEpoch = None

    def subject(self) -> str:
        """``<cluster>/<inventory>``."""
        return f"{self.cluster}/{self.inventory}"


class LedgerOutcome(ClosedEnum):
    """The result of an order about a ledger."""

    COPIED = "copied", "The copy is made; `source` and `target` have both ledgers."
    EXISTS = "exists", "The target has a ledger of this id, in `target`."
    SOURCE_UNREADABLE = "source_unreadable", "The source's ledger cannot be read."
    COPY_DELETED = "copy_deleted", "Headgate's own copy is deleted."
    PROMOTED = "promoted", "The reference is attributed to the target; `changed` lists the differences."
    CONFLICT = "conflict", "The reference changed before the write: nothing was written."
    ROLLED_OVER = "rolled_over", "The cursor has a new ledger: `new_id` in the cluster `attribution`."
    ADVANCED = "advanced", "The cursor moved on since it was copied."
    REVERTED = "reverted", "The reference is attributed to the source again."
    DELETED = "deleted", "The ledger is gone from the source, or was gone before."
    FAILED = "failed", "Not possible now, for the reason in `detail`; it is tried again."


class SwitchLedger(Reading):
    """An executor's result for one ledger: copy, promote, delete, or any other order."""

    event_type: ClassVar[str] = "headgate.switch-ledger.v1"

    ledger_id: LedgerId = Field(description="Its id in the source, as in the order.")
    op: Count = Field(description="The number of the order that it answers.")
    result: LedgerOutcome = Field(description="The result; `failed` is tried again.")
    source: Ledger | None = Field(default=None, description="copied, exists: the source's ledger.")
    target: Ledger | None = Field(default=None, description="copied, exists: the target's ledger.")
    changed: Texts = Field(
        default=(),
        description="The fields that differ between before and after: `attribution`, `ledger_id`, `other`.",
    )
    new_id: LedgerId | None = Field(default=None, description="rolled_over: the cursor's present ledger.")
    attribution: Name | None = Field(default=None, description="rolled_over: the cluster of that ledger.")

    def subject(self) -> str:
        """``<cluster>/ledgers/<ledger id>``."""
        return f"{self.cluster}/ledgers/{self.ledger_id}"


class StatusAction(ClosedEnum):
    """The status to write."""

    STATUS_NEW = "status_new", "The target becomes active and the source deprecated, in one transaction."


class SwitchStatus(Reading):
    """An executor's result for a status in the registry."""

    event_type: ClassVar[str] = "headgate.switch-status.v1"

    action: StatusAction
    op: Count = Field(description="The number of the order that it answers.")
    written: bool = Field(default=False, description="Whether it is written to the registry.")


OBSERVED = (
    SwitchLease, SwitchRegistry, SwitchBrokers, SwitchBroker, SwitchCluster, SwitchPrecheck,
    SwitchInventoryPart, SwitchInventory, SwitchLedger, SwitchStatus,
)  # fmt: skip
