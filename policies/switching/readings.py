"""Readings of the switching policy (topic ``observed.switches``), and people's commands (topic ``commands``).

Ages count from the record's append time. Where an earlier instant matters, because a reading takes long, the reading
says how long it took; so only one clock is involved.
"""

from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from policies.closed_enum import ClosedEnum
from policies.observations import Observed, Outcome, Reading
from policies.switching.id_generators import MAX_HOB
from policies.switching.ledger_paths import Layout
from policies.switching.ledgers import HitClass, LedgerState
from policies.switching.precheck.findings import FindingReason
from policies.switching.references import LedgerKind, StayingKind
from policies.switching.state import ClusterStatus
from policies.units import MAX_INT64

Name = Annotated[str, Field(min_length=1, max_length=249)]
Text = Annotated[str, Field(max_length=4096)]
Metadata = Annotated[str, Field(max_length=1_500_000)]
"""A ledger's: a znode takes a mebibyte, which base64 makes a third more."""
MOST_LISTED = 100_000
"""Of anything in one record; the record's own limit is reached before in most cases."""
Epoch = Annotated[int, Field(ge=0, le=MAX_INT64)]
LedgerId = Annotated[int, Field(ge=-1, le=MAX_INT64)]
Millis = Annotated[int, Field(ge=0, le=36_500 * 86_400_000)]
Count = Annotated[int, Field(ge=0, le=MAX_INT64)]


class _Value(Observed):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CommandName(ClosedEnum):
    """What may be asked."""

    REGISTER = "register", "Make a BookKeeper cluster known to the brokers of a cluster."
    UNREGISTER = "unregister", "Forget one that nothing refers to."
    PRECHECK = "precheck", "Find out whether a switch to a target is safe."
    START = "start", "Switch to a target, or drive a switch to it on."
    ROLLBACK = "rollback", "Take the promotions back, within the rollback window."
    ABORT = "abort", "End the switch, and take back what can be; brokers that were sent off only are sent back."
    PAUSE = "pause", "Order nothing more until it is resumed; what was ordered may still be answered."
    RESUME = "resume", "Go on after a pause, a halt, or somebody else's directive."
    CLEANUP = "cleanup", "Delete from the source what was promoted; a dry run unless it says otherwise."
    CLOSE_CLIENT = "close-client", "Have brokers close their client of a cluster that nobody needs any more."


class CommandArgs(_Value):
    """What a command is about; each uses some of these."""

    name: Name | None = Field(default=None, description="register, unregister, close-client: the BookKeeper cluster.")
    uri: Text | None = Field(default=None, description="register: its metadata service URI.")
    instance_id: Text | None = Field(default=None, description="register: the INSTANCEID read there; null: unreadable.")
    root: Text | None = Field(default=None, description="register: the path of its ledgers, such as `/ledgers`.")
    status: ClusterStatus | None = Field(
        default=None, description="register: what it is to be; null: as it is, or standby."
    )
    target: Name | None = Field(default=None, description="precheck, start: the cluster to move to.")
    attribution_only: bool = Field(default=True, description="rollback: leave the brokers on the target.")


class SwitchCommand(Reading):
    """A command of a person."""

    event_type: ClassVar[str] = "headgate.switch-command.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="Always `ok`: a command is not read, it is given.")
    command: CommandName
    args: CommandArgs = Field(default=CommandArgs())
    actor: str = Field(default="", max_length=249, description="Who asks.")
    reason: str = Field(default="", max_length=2000, description="Why, in the actor's words.")
    idempotency_key: str = Field(min_length=1, max_length=249, description="The same key is the same command.")
    dry_run: bool | None = Field(default=None, description="Say what would happen; null: only for `cleanup`.")
    expected_epoch: Epoch | None = Field(default=None, description="Refuse at any other epoch.")
    precheck_digest: Text | None = Field(default=None, description="start: of the report that was read.")

    def subject(self) -> str:
        """``<cluster>/commands/<idempotency key>``."""
        return f"{self.cluster}/commands/{self.idempotency_key}"

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing is to be changed; for `cleanup` that is the default."""
        return self.command is CommandName.CLEANUP if self.dry_run is None else self.dry_run


class SwitchLease(Reading):
    """Which orchestrator may order anything."""

    event_type: ClassVar[str] = "headgate.switch-lease.v1"

    token: Epoch = Field(default=0, description="Only grows: whoever takes the lease takes the next one.")
    holder: str = Field(default="", max_length=249, description="Who has it: host and process.")
    valid_ms: Millis = Field(default=0, description="How long it is valid from the record's time.")


class RegisteredCluster(_Value):
    """A BookKeeper cluster as its znode in the registry has it."""

    name: Name = Field(description="As commands and references name it.")
    uri: Text = Field(description="Its metadata service URI.")
    instance_id: Text = Field(description="Its INSTANCEID, as it was when it was registered.")
    root: Text = Field(description="The path of its ledgers.")
    status: ClusterStatus
    version: int | None = Field(default=None, ge=0, le=MAX_INT64, description="Of the znode.")


class WrittenDirective(_Value):
    """The directive as its znode has it."""

    epoch: Epoch = Field(description="Only grows: an earlier one is void.")
    target: Name = Field(description="The cluster that brokers are to write to.")


class SwitchRegistry(Reading):
    """The registry of a broker cluster, whole."""

    event_type: ClassVar[str] = "headgate.switch-registry.v1"

    clusters: tuple[RegisteredCluster, ...] = Field(
        default=(), max_length=MOST_LISTED, description="All that are registered."
    )
    bootstrap: Name | None = Field(default=None, description="The cluster legacy references belong to.")
    directive: WrittenDirective | None = Field(default=None, description="The last one; null: there was none.")
    committed_epoch: Epoch = Field(default=0, description="Of the directive whose target became the active cluster.")
    active_as_proposed: tuple[Name, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Active by the entries where PIP-477 has them."
    )


class SwitchBrokers(Reading):
    """The live brokers, whole."""

    event_type: ClassVar[str] = "headgate.switch-brokers.v1"

    brokers: tuple[Name, ...] = Field(
        default=(), max_length=MOST_LISTED, description="By the names under which their agents report."
    )


class SwitchBroker(Reading):
    """What the agent of one broker says of it."""

    event_type: ClassVar[str] = "headgate.switch-broker.v1"

    broker: Name = Field(description="Its name among the live brokers.")
    sequence: Count = Field(default=0, description="Of this broker's reports; only grows, also over restarts.")
    epoch: Epoch = Field(default=0, description="The directive it speaks of.")
    client_init_failed: bool = Field(default=False, description="It could not make a client of the target.")
    writes: tuple[Name, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Clusters it wrote to since it acked."
    )
    reads: tuple[Name, ...] = Field(default=(), max_length=MOST_LISTED, description="Clusters it has open readers on.")

    def subject(self) -> str:
        """``<cluster>/<broker>``."""
        return f"{self.cluster}/{self.broker}"


class GeneratorReading(_Value):
    """The counters of the znode below which ids are made."""

    hob: int | None = Field(default=None, ge=0, le=MAX_HOB, description="k of the largest `HOB-k`; null: none.")
    cversion: int = Field(ge=-(2**31), le=2**31 - 1, description="How often its children changed.")
    num_children: int = Field(ge=0, le=2**31 - 1, description="How many it has.")


class SwitchCluster(Reading):
    """A BookKeeper cluster: what it is, and which id it gives next."""

    event_type: ClassVar[str] = "headgate.switch-cluster.v1"

    name: Name = Field(description="In the registry, or in the settings.")
    instance_id: Text | None = Field(default=None, description="Its INSTANCEID; null: it could not be read.")
    root: Text | None = Field(default=None, description="The path of its ledgers; null: it could not be read.")
    layout: Layout | None = Field(default=None, description="Null: unknown, or one that can't hold every id.")
    generator: GeneratorReading | None = Field(default=None, description="Null: it could not be read.")
    took_ms: Millis = Field(default=0, description="How long before the record's time the reading began.")

    def subject(self) -> str:
        """``<cluster>/<name>``."""
        return f"{self.cluster}/{self.name}"


class HitCount(_Value):
    """Ledgers of one class that exist in the target."""

    count: Count = Field(description="How many.")
    samples: tuple[int, ...] = Field(default=(), max_length=MOST_LISTED, description="Some of their ids.")


class FindingReading(_Value):
    """One reason why a target is not ready."""

    reason: FindingReason
    detail: Text = Field(description="What was found, in one sentence.")
    count: Count = Field(default=0, description="Of the ledgers or references it concerns.")
    samples: tuple[int, ...] = Field(default=(), max_length=MOST_LISTED, description="Some of their ids.")
    hob: int | None = Field(default=None, description="idgen_behind: the `HOB-k` to advance the target to.")
    remedy: Text = Field(default="", description="What to do about it.")


class StayingReading(_Value):
    """Ledgers of one kind in one cluster that stay where they are."""

    kind: StayingKind
    cluster: str = Field(default="", max_length=249, description="That holds them; empty: only their owner knows.")
    count: Count = Field(description="How many.")
    greatest_id: LedgerId = Field(default=-1, description="The greatest of their ids; -1: none is known.")
    samples: tuple[Text, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Some of the znodes that name them."
    )


class SwitchPrecheck(Reading):
    """The report of a precheck."""

    event_type: ClassVar[str] = "headgate.switch-precheck.v1"

    source: Name = Field(description="The cluster that brokers would leave.")
    target: Name = Field(description="The cluster that they would move to.")
    ready: bool = Field(default=False, description="Whether nothing is in the way; what is unknown is.")
    digest: Text = Field(default="", description="Of all that was found, whenever that was; quoted to start.")
    source_next_id: LedgerId | None = Field(default=None, description="The id the source gives next; null: unknown.")
    target_next_id: LedgerId | None = Field(default=None, description="The id the target gives next; null: unknown.")
    to_import: Count = Field(default=0, description="How many ledgers are to be copied.")
    greatest_id: LedgerId = Field(default=-1, description="The greatest id named outside the target.")
    hits: dict[HitClass, HitCount] = Field(
        max_length=100, default_factory=dict, description="Ledgers of the target in the way, by class."
    )
    findings: tuple[FindingReading, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Why it is not ready; empty when it is."
    )
    valid_ms: Millis = Field(default=0, description="How long it counts from the record's time.")
    staying: tuple[StayingReading, ...] = Field(
        default=(), max_length=MOST_LISTED, description="What else names ledgers, and stays."
    )
    left_out: tuple[Text, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Znodes not read, as the settings say."
    )
    bypassed: bool = Field(default=False, description="Ready only because a lab's settings say so.")

    def subject(self) -> str:
        """``<cluster>/<target>``."""
        return f"{self.cluster}/{self.target}"


class LedgerReading(_Value):
    """A ledger as its metadata and its entries have it."""

    ledger_id: LedgerId = Field(description="Its id in the cluster where it was read.")
    state: LedgerState
    last_entry_id: int = Field(ge=-1, le=MAX_INT64, description="-1: it is empty or open.")
    length_bytes: Count = Field(description="Of all its entries.")
    custom_metadata: dict[Text, Metadata] = Field(
        default_factory=dict, max_length=1000, description="Values in base64."
    )
    ensemble_size: int | None = Field(default=None, ge=0, le=2**31 - 1, description="Over how many bookies it lies.")
    write_quorum: int | None = Field(default=None, ge=0, le=2**31 - 1, description="How many have each entry.")
    ack_quorum: int | None = Field(default=None, ge=0, le=2**31 - 1, description="How many must have acked each.")
    entries_digest: Text | None = Field(default=None, description="Of all entries, in order; null: not read.")
    created_ms: int | None = Field(
        default=None, ge=0, le=MAX_INT64, description="When ZooKeeper made its metadata, by its clock."
    )
    provenance: str | None = Field(
        default=None,
        max_length=249,
        description="Instance id of the cluster an executor copied it from, as its own journal confirms; empty: it did "
        "not; null: it has not looked.",
    )


class ReferenceReading(_Value):
    """One place that names a ledger."""

    kind: LedgerKind
    path: Text = Field(min_length=1, description="Of the znode, in the brokers' ZooKeeper.")
    ledger_id: LedgerId = Field(description="-1: it names none.")
    attribution: Name | None = Field(default=None, description="Its property `_pulsar.bookieClusterName`.")
    position: Text = Field(default="", description="Where in the znode: `info`, `index/3`; empty for a cursor.")


class SwitchInventoryPart(Reading):
    """Some of the references, and those of their ledgers that exist in the target."""

    event_type: ClassVar[str] = "headgate.switch-inventory-part.v1"

    inventory: Name = Field(description="Names the inventory; its manifest says how many parts it has.")
    part: int = Field(ge=0, le=100_000, description="Its number, from 0 on.")
    references: tuple[ReferenceReading, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Those of this part."
    )
    existing: tuple[LedgerReading, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Found in the target under these ids."
    )
    target_ids: tuple[LedgerId, ...] | None = Field(
        max_length=MOST_LISTED,
        default=None,
        description="Of all ledgers of the target, these; null in all parts: it was not listed.",
    )

    def subject(self) -> str:
        """``<cluster>/<inventory>/<part>``."""
        return f"{self.cluster}/{self.inventory}/{self.part}"


class SwitchInventory(Reading):
    """The manifest of an inventory: it counts only when all of its parts are there."""

    event_type: ClassVar[str] = "headgate.switch-inventory.v1"

    inventory: Name = Field(description="As its parts name it.")
    parts: int = Field(default=0, ge=0, le=100_001, description="How many parts it has.")
    references: Count = Field(default=0, description="In all parts together.")
    target: Text = Field(default="", description="The cluster that was asked for each ledger; empty: none.")
    staying: tuple[StayingReading, ...] = Field(
        default=(), max_length=MOST_LISTED, description="What else names ledgers, and stays."
    )
    left_out: tuple[Text, ...] = Field(
        default=(), max_length=MOST_LISTED, description="Znodes not read, as the settings say."
    )
    took_ms: Millis = Field(default=0, description="How long before the record's time the reading began.")

    def subject(self) -> str:
        """``<cluster>/<inventory>``."""
        return f"{self.cluster}/{self.inventory}"


class LedgerOutcome(ClosedEnum):
    """How an executor's work on a ledger ended."""

    COPIED = "copied", "The copy is made; `source` and `target` say what was found of both."
    EXISTS = "exists", "The target has a ledger of this id; `target` says which."
    SOURCE_UNREADABLE = "source_unreadable", "The source's ledger cannot be read."
    COPY_DELETED = "copy_deleted", "Headgate's own copy is deleted."
    PROMOTED = "promoted", "The reference is attributed to the target; `changed` says what differs."
    CONFLICT = "conflict", "The reference changed meanwhile: nothing was written."
    ROLLED_OVER = "rolled_over", "The cursor's owner made it a new ledger: `new_id` in `attribution`."
    ADVANCED = "advanced", "The cursor moved on since it was copied."
    REVERTED = "reverted", "The reference is attributed to the source again."
    DELETED = "deleted", "The ledger is gone from the source, or was gone already."
    FAILED = "failed", "Not possible now, `detail` says why; it is tried again."


class SwitchLedger(Reading):
    """An executor's answer about one ledger: copy, promote, delete, or any other order."""

    event_type: ClassVar[str] = "headgate.switch-ledger.v1"

    ledger_id: LedgerId = Field(description="As the order names it: its id in the source.")
    op: Count = Field(description="The number of the order it answers.")
    result: LedgerOutcome = Field(description="How it ended; `failed` is tried again.")
    source: LedgerReading | None = Field(default=None, description="copied, exists: the source's ledger.")
    target: LedgerReading | None = Field(default=None, description="copied, exists: the target's ledger.")
    changed: tuple[Text, ...] = Field(
        max_length=MOST_LISTED,
        default=(),
        description="What differs between before and after: `attribution`, `ledger_id`, `entry_id` …",
    )
    new_id: LedgerId | None = Field(default=None, description="rolled_over: the cursor's ledger now.")
    attribution: Name | None = Field(default=None, description="rolled_over: the cluster of that ledger.")

    def subject(self) -> str:
        """``<cluster>/ledgers/<ledger id>``."""
        return f"{self.cluster}/ledgers/{self.ledger_id}"


class StatusAction(ClosedEnum):
    """Which status was to be written."""

    STATUS_OLD = "status_old", "The source becomes deprecated."
    STATUS_NEW = "status_new", "The target becomes active."


class SwitchStatus(Reading):
    """An executor's answer about a status in the registry."""

    event_type: ClassVar[str] = "headgate.switch-status.v1"

    action: StatusAction
    op: Count = Field(description="The number of the order it answers.")
    written: bool = Field(default=False, description="Whether the registry has it now.")
