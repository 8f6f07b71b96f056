"""The state of the switching policy for one broker cluster: immutable and sorted, so equal knowledge gives equal bytes.

Instants are milliseconds since the epoch. Rules: docs/design/switching.md, Stages.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field

from policies.alerts import AlertBook
from policies.closed_enum import ClosedEnum
from policies.switching.blocks import PackedBlock
from policies.switching.clusters import ClusterSnapshot, IdMark
from policies.switching.ledgers import CopyIntent, Ledger
from policies.switching.precheck.findings import FindingReason
from policies.switching.references import LedgerKind, Reference, StayingLedgers
from policies.units import InstantMs

NEVER = -1


class SwitchStage(ClosedEnum):
    """Where a switch stands."""

    NONE = "none", "The target is not registered; of a record: no switch began."
    REGISTERED = "registered", "The target is known."
    PRECHECKED = "prechecked", "There is a fresh report on the target."
    TRIGGERED = "triggered", "Brokers are told to write to the target."
    LIVE_DUAL_READ = "live_dual_read", "All write to the target, and read from both; the inventory is taken."
    BUILD = "build", "Ledgers are being copied."
    PROMOTE = "promote", "Copied ledgers are being attributed to the target."
    HOLD = "hold", "All is moved that can be; a rollback is possible until `rollback_until`."
    CLEANUP = "cleanup", "What was promoted is being deleted from the source."
    DONE = "done", "The target is active, and nothing is left behind."
    DONE_WITH_FAILURES = (
        "done_with_failures",
        "The target is active, and some ledgers stay in the source, or a status is not written.",
    )
    REJECTED = "rejected", "No broker moved, because the target could not be reached."
    ROLLBACK = "rollback", "Promotions are being taken back."
    ROLLED_BACK = "rolled_back", "They are; our copies are being deleted."
    ABORTED = "aborted", "A person ended it where it stood; what is left as it was is said by name."


WAY = (
    SwitchStage.TRIGGERED,
    SwitchStage.LIVE_DUAL_READ,
    SwitchStage.BUILD,
    SwitchStage.PROMOTE,
    SwitchStage.HOLD,
    SwitchStage.CLEANUP,
    SwitchStage.DONE,
)
"""The way of a switch that goes well."""

ENDED = frozenset({SwitchStage.DONE, SwitchStage.REJECTED, SwitchStage.ROLLED_BACK, SwitchStage.ABORTED})
"""A switch that is over: its target is free for another. One with failures is not over, it can be driven on."""


class LedgerStage(ClosedEnum):
    """Where one ledger stands. Only `delete_intent` cannot be undone."""

    PENDING = "pending", "To be copied."
    COPYING = "copying", "Being copied."
    BUILT = "built", "Its copy is complete."
    PROMOTING = "promoting", "Its references are being attributed to the target."
    PROMOTED = "promoted", "Its references name the target."
    PROMOTED_VIA_ROLLOVER = "promoted_via_rollover", "Its cursor has a new ledger in the target."
    PROMOTE_DEFERRED = "promote_deferred", "It could not be promoted: it stays in the source."
    BUILD_FAILED = "build_failed", "It could not be copied: it stays in the source."
    FOREIGN_CONFLICT = "foreign_conflict", "Its id is taken in the target: it stays in the source."
    DELETE_INTENT = "delete_intent", "Being deleted from the source: this cannot be undone."
    CLEANED = "cleaned", "Deleted from the source."
    REVERTED = "reverted", "Its references name the source again."


FAILED = frozenset({LedgerStage.PROMOTE_DEFERRED, LedgerStage.BUILD_FAILED, LedgerStage.FOREIGN_CONFLICT})
"""Stages in which a ledger stays behind in the source."""
DELETING = frozenset({LedgerStage.DELETE_INTENT, LedgerStage.CLEANED})


class SwitchAction(StrEnum):
    """What an executor was asked to do and has not yet answered."""

    NONE = ""
    COPY = "copy"
    DELETE_COPY = "delete_copy"
    INVENTORY = "inventory"
    PROMOTE = "promote"
    ROLL_OVER = "roll_over"
    REVERT = "revert"
    DELETE_OLD = "delete_old"
    STATUS_OLD = "status_old"
    STATUS_NEW = "status_new"
    GIVEN_UP = "given_up"
    """Nothing: it failed too often, and is left for a person."""


class ClusterStatus(ClosedEnum):
    """What a BookKeeper cluster is to the brokers."""

    ACTIVE = "active", "Brokers write to it."
    STANDBY = "standby", "It is registered, and may be switched to."
    DEPRECATED = "deprecated", "Brokers wrote to it once; its topics' ledgers age out there."


class RegistryEntry(Struct, array_like=True, frozen=True):
    """A registered BookKeeper cluster."""

    name: str
    uri: str
    instance_id: str
    root: str
    status: ClusterStatus
    version: int | None = None
    """Of its znode, where it was read."""


class LedgerTask(Struct, array_like=True, frozen=True):
    """One ledger of the plan."""

    ledger_id: int
    kind: LedgerKind
    paths: tuple[str, ...]
    """Of the znodes that name it."""
    stage: LedgerStage = LedgerStage.PENDING
    awaiting: SwitchAction = SwitchAction.NONE
    op: int = 0
    """The number of the last order about it; an answer to an earlier one is late."""
    tries: int = 0
    """Failures in a row of the present action."""
    remap: bool = False
    """Whether it gets a new id in the target, as its kind's strategy was when it was planned."""
    target_id: int | None = None
    """Its id in the target, where it is another one."""
    cleared: bool = False
    """Whether the target was seen not to have it, or to have our own copy (INV-1)."""
    promoted_op: int = 0
    """The number of the promotion that succeeded; 0: it never was."""
    reverted_op: int = 0
    reason: str = ""
    """Why it is where it is, when something went wrong."""

    @property
    def key(self) -> int:
        """Its place in the plan: by id, and a cursor before a schema that names the same ledger."""
        return key_of(self.ledger_id, self.kind)


PlanTag = tuple[LedgerStage, SwitchAction]
"""What the ledgers of a plan are counted by."""
PlanBlock = PackedBlock[int, PlanTag]
JournalKey = tuple[str, int, bool]
"""Of an intent: instance id of the target, the ledger's id in the source, whether it gets a new one."""
JournalBlock = PackedBlock[JournalKey, str]
"""Counted by the target."""


def key_of(ledger_id: int, kind: LedgerKind) -> int:
    """Of a ledger of the plan: one that a cursor and a schema name is there twice."""
    return 2 * ledger_id + (kind is LedgerKind.SCHEMA)


class Directive(Struct, array_like=True, frozen=True):
    """What brokers are told: from this epoch on write to that cluster."""

    epoch: int
    target: str


class OrchestratorLease(Struct, array_like=True, frozen=True):
    """Which orchestrator may order anything; its token only grows."""

    token: int
    holder: str
    valid_until_ms: InstantMs


class LiveBrokers(Struct, array_like=True, frozen=True):
    """The live brokers as last read."""

    brokers: tuple[str, ...]
    at_ms: InstantMs
    since_ms: tuple[InstantMs, ...] = ()
    """Of each, when it was first read to be alive; empty in what older versions wrote."""


class BrokerReport(Struct, array_like=True, frozen=True):
    """What a broker last said of itself."""

    name: str
    sequence: int
    at_ms: InstantMs
    acked_epoch: int = NEVER
    failed_epoch: int = NEVER
    writes: tuple[str, ...] = ()
    """Clusters it wrote to since its ack."""
    reads: tuple[str, ...] = ()
    """Clusters it has open readers on."""
    since_ms: InstantMs = NEVER
    """Since when it says of the directive what it says now: of its first such report."""
    strayed_ms: InstantMs = NEVER
    """When it last said that it wrote elsewhere than the directive it follows sends it."""


class PrecheckResult(Struct, array_like=True, frozen=True):
    """The last precheck of a target."""

    source: str
    target: str
    ready: bool
    digest: str
    reasons: tuple[FindingReason, ...]
    checked_ms: InstantMs
    expires_ms: InstantMs
    greatest_id: int = NEVER
    """The greatest id that references outside the target named."""
    bypassed: bool = False
    """Whether it is ready only because a lab's settings say so."""


class InventorySummary(Struct, array_like=True, frozen=True):
    """The last complete inventory, as far as it matters once the plan is made."""

    at_ms: InstantMs
    counts: dict[str, int]
    """References by cluster, those to ledgers that stay among them."""
    old_ids: tuple[int, ...]
    """Ledgers still attributed to the switch's source; kept from its hold on, when they should be few. Sorted."""
    greatest_id: int
    """Of the references outside the switch's target."""
    staying: tuple[StayingLedgers, ...] = ()
    """Of the references, those to ledgers that stay where they are."""


class DeletedIds(Struct, array_like=True, frozen=True):
    """Ids that were deleted from a cluster and must never be created there again (INV-6)."""

    instance: str
    ids: tuple[int, ...]


class Switch(Struct, array_like=True, frozen=True, kw_only=True):
    """A move from one BookKeeper cluster to another."""

    source: str
    target: str
    stage: SwitchStage
    epoch: int
    """Of its directive."""
    attempt: int = 1
    started_ms: InstantMs
    target_floor: int
    """The target's next id when it was triggered: all that brokers allocate there is at least this (INV-3)."""
    live_ms: InstantMs = NEVER
    hold_ms: InstantMs = NEVER
    cleanup_ms: InstantMs = NEVER
    ended_ms: InstantMs = NEVER
    rollback_until_ms: InstantMs = NEVER
    cleanup_from_ms: InstantMs = NEVER
    tasks: tuple[LedgerTask, ...] = ()
    """Sorted by id; where they are many, `blocks` has them all."""
    awaiting: SwitchAction = SwitchAction.NONE
    op: int = 0
    attribution_only: bool = True
    """Whether a rollback leaves the brokers on the target."""
    degraded: bool = False
    status_failed: bool = False
    blocked: str = ""
    """Why it does not go live although every broker acked; empty when nothing is in the way."""
    halted: str = ""
    """Why nothing is ordered until a person drives it on; empty when it goes on."""
    settled: dict[LedgerStage, int] = field(default_factory=dict)
    """Once it is over, how many ledgers stand where: the ledgers themselves are of no more use."""
    blocks: tuple[PlanBlock, ...] = ()
    """The ledgers of a plan of many, in the order of their ids."""
    stage_ms: InstantMs = NEVER
    """Since when it is at its stage."""
    paused: bool = False
    """Whether a person holds it: nothing is ordered until it is resumed."""
    brokers_from: str = ""
    """Where brokers wrote when it began, which after a rollback need not be its source; empty: the source."""
    moved: bool = False
    """Whether any broker ever said that it follows the directive to the target."""
    confirm_ms: InstantMs = NEVER
    """A rollback is over when an inventory begun after this shows it; -1: references are still being taken back."""
    unplanned: tuple[str, ...] = ()
    """Paths that name the cluster which nothing should name any more, and that no ledger of the plan is for; some."""
    unplanned_count: int = 0
    """All of them."""
    status_attempt: int = 0
    """The attempt whose statuses the registry has; it is done once every broker follows as well."""
    automatic: str = ""
    """Why it is rolled back although nobody asked for it; empty: somebody did."""
    bypassed: bool = False
    """Whether it began on a precheck that was bypassed: ids may collide, and nothing looks whether they do."""

    @property
    def home(self) -> str:
        """Where brokers go back to when it is undone."""
        return self.brokers_from or self.source


class IgnoredCounts(Struct, array_like=True, frozen=True):
    """What was heard and changed nothing."""

    repeated: int = 0
    stale_acks: int = 0
    rejected: int = 0


class InventoryPart(Struct, array_like=True, frozen=True):
    """One part of an inventory."""

    number: int
    references: tuple[Reference, ...]
    existing: tuple[Ledger, ...]
    packed: bytes = b""
    """Both, msgpack: they are taken apart once all parts are there, and not in each batch until then."""
    count: int = 0
    """Of the packed references."""


class InventoryAssembly(Struct, array_like=True, frozen=True):
    """The parts of an inventory that have arrived; it counts when its manifest and all its parts are there."""

    inventory: str
    at_ms: InstantMs
    """Of what arrived of it last."""
    parts: tuple[InventoryPart, ...] = ()
    """Sorted by number."""
    expected_parts: int | None = None
    """By its manifest; None before that has arrived."""
    expected_references: int = 0
    target: str = ""
    began_ms: InstantMs = NEVER
    """When its reading began: it shows nothing older."""
    complete: bool = False
    """Whether it was taken; what comes of it again is dropped."""
    staying: tuple[StayingLedgers, ...] = ()
    """What else names ledgers, as the manifest counts it."""


class SwitchingState(Struct, array_like=True, frozen=True, kw_only=True):
    """One broker cluster."""

    bootstrap: str | None = None
    """The cluster that references without attribution belong to; written once."""
    entries: tuple[RegistryEntry, ...] = ()
    epoch: int = 0
    """The greatest ever directed."""
    committed_epoch: int = 0
    directive: Directive | None = None
    lease: OrchestratorLease | None = None
    members: LiveBrokers | None = None
    brokers: tuple[BrokerReport, ...] = ()
    clusters: tuple[ClusterSnapshot, ...] = ()
    checks: tuple[PrecheckResult, ...] = ()
    inventory: InventorySummary | None = None
    switch: Switch | None = None
    journal: tuple[CopyIntent, ...] = ()
    """Copies begun and not taken back, sorted by key; where they are many, `journal_blocks` has them all."""
    deleted: tuple[DeletedIds, ...] = ()
    commands: tuple[str, ...] = ()
    """Idempotency keys of the last commands, oldest first."""
    counts: IgnoredCounts = IgnoredCounts()
    ops: int = 0
    """Numbers all that was ever asked of executors."""
    sequence: int = 0
    """Numbers everything said."""
    assembly: InventoryAssembly | None = None
    """The last inventory that arrived, in parts until it is complete."""
    record: str = ""
    """Digest of the record of this state as last published."""
    alerts: AlertBook = AlertBook()
    removed: tuple[str, ...] = ()
    """Names that are no longer registered, until the registry was seen without them. Sorted."""
    journal_blocks: tuple[JournalBlock, ...] = ()
    """The journal of many copies, in the order of its keys."""
    marks: tuple[IdMark, ...] = ()
    """How far each cluster's ids went, sorted by what it is."""
    directed_ms: InstantMs = NEVER
    """Since when the directive in force is so."""
    registry_ms: InstantMs = NEVER
    """When it was last read."""
    contested: str = ""
    """What the registry says that nobody here ordered; empty when it says nothing else."""
    contested_by: Directive | None = None
    """Somebody else's directive, where it is that."""
    recorded_ms: InstantMs = NEVER
    """When `record` was last published: it is repeated before it runs out."""
    bypassed: bool = False
    """Whether a switch ever began on a precheck that was bypassed: ids of topics cannot be relied on since."""
    impostors: tuple[str, ...] = ()
    """Names at whose address another cluster answers than was registered, as last read. Sorted."""

    def entry(self, name: str) -> RegistryEntry | None:
        """A registered cluster by its name."""
        return next((e for e in self.entries if e.name == name), None)

    def cluster(self, name: str) -> ClusterSnapshot | None:
        """What was last read of a cluster."""
        return next((c for c in self.clusters if c.name == name), None)

    def check(self, target: str) -> PrecheckResult | None:
        """The last precheck of a target."""
        return next((c for c in self.checks if c.target == target), None)

    def active(self) -> str | None:
        """The one cluster brokers write to: the directive's while it is not committed, else the registry's."""
        if self.directive is not None and self.directive.epoch > self.committed_epoch:
            return self.directive.target
        return self.committed()

    def committed(self) -> str | None:
        """The cluster that is active by the registry: where a switch begins, also after a rollback of attributions."""
        return next((e.name for e in self.entries if e.status is ClusterStatus.ACTIVE), None)

    def leaderless(self) -> str:
        """Why brokers have no registered cluster to write to; empty when they have one, or nothing is registered."""
        active = self.active()
        if not self.entries or (active is not None and self.entry(active) is not None):
            return ""
        if active is not None:
            return f"brokers are directed to {active}, which is not registered: `register` it"
        return "no registered cluster is active: `register` the one that brokers write to with `--status active`"

    def stage(self, target: str, now_ms: int) -> SwitchStage:
        """Where the switch to a target stands; once a switch is over its target is registered again."""
        if self.switch and self.switch.target == target and self.switch.stage not in ENDED:
            return self.switch.stage
        check = self.check(target)
        if self.entry(target) is None:
            return SwitchStage.NONE
        return SwitchStage.PRECHECKED if check and now_ms < check.expires_ms else SwitchStage.REGISTERED

    def live(self) -> "Switch | None":
        """The switch that is not over."""
        return self.switch if self.switch and self.switch.stage not in ENDED else None


def put(known: Iterable[object], new: object, key: str = "name") -> tuple:  # type: ignore[type-arg]
    """The known structs with one put in or replaced, sorted by its key."""
    by_key: Mapping[str, object] = {getattr(k, key): k for k in known} | {getattr(new, key): new}
    return tuple(by_key[k] for k in sorted(by_key))
