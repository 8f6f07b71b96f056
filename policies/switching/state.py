"""The state of the switching policy for one broker cluster: immutable and sorted, so equal states are equal bytes.

Instants are milliseconds since the epoch. Fields that a reading has, too, are described in `readings.py`. Rules:
docs/design/switching.md, Stages.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import Field

from policies.switching.ledgers import (
    ClusterSnapshot,
    Count,
    Epoch,
    FindingReason,
    IdMark,
    LedgerId,
    LedgerKind,
    Name,
    Shared,
    StayingLedgers,
    Text,
)
from policies.units import MAX_INT64, ClosedEnum, InstantMs

NEVER = -1


class SwitchStage(ClosedEnum):
    """The stage of a switch."""

    NONE = "none", "The target is not registered; in a record: no switch began."
    REGISTERED = "registered", "The target is registered."
    PRECHECKED = "prechecked", "A fresh precheck of the target exists."
    TRIGGERED = "triggered", "Brokers are directed to write to the target."
    LIVE_DUAL_READ = "live_dual_read", "All brokers write to the target and read from both; the inventory is taken."
    BUILD = "build", "Ledgers are being copied."
    PROMOTE = "promote", "Copied ledgers are being attributed to the target."
    HOLD = "hold", "Every ledger that can move has moved; a rollback is possible until `rollback_until`."
    CLEANUP = "cleanup", "Promoted ledgers are being deleted from the source."
    DONE = "done", "The target is active, and no ledger stays behind."
    DONE_WITH_FAILURES = (
        "done_with_failures",
        "The target is active, and some ledgers stay in the source, or a status is not written.",
    )
    REJECTED = "rejected", "No broker moved, because the target could not be reached."
    ROLLBACK = "rollback", "Promotions are being reverted."
    ROLLED_BACK = "rolled_back", "Promotions are reverted; Headgate's copies are being deleted."
    ROLLED_BACK_WITH_FAILURES = (
        "rolled_back_with_failures",
        "Some promotions could not be taken back; `rollback` tries them again.",
    )
    ABORTED = "aborted", "An operator ended it; the record names everything that was not taken back."


WAY = (
    SwitchStage.TRIGGERED, SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.HOLD,
    SwitchStage.CLEANUP, SwitchStage.DONE,
)  # fmt: skip
"""The stages of a switch without failures, in order."""

REVERSIBLE = frozenset({SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.HOLD})
"""Live stages at which promotions can be taken back, within the rollback window."""
PLANNING = REVERSIBLE - {SwitchStage.HOLD}
"""Live stages at which an inventory may plan further ledgers."""
MOVING = REVERSIBLE | {SwitchStage.CLEANUP}
"""Live stages, clean-up included."""
LIVE = MOVING | {SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES}
"""Stages that a switch reaches only after every broker has followed: a broker that deviates then is not just late."""
UNDONE = frozenset({SwitchStage.ROLLED_BACK, SwitchStage.ROLLED_BACK_WITH_FAILURES, SwitchStage.ABORTED})
"""Stages at which promotions were taken back."""
ENDED = UNDONE | {SwitchStage.DONE, SwitchStage.REJECTED}
"""Stages at which a switch is over and another may begin. A switch with failures is not over: it can be driven on."""


class LedgerStage(ClosedEnum):
    """The stage of a ledger. Only `delete_intent` cannot be undone."""

    PENDING = "pending", "It is to be copied."
    COPYING = "copying", "It is being copied."
    BUILT = "built", "Its copy is complete."
    PROMOTING = "promoting", "Its references are being attributed to the target."
    PROMOTED = "promoted", "Its references name the target."
    PROMOTED_VIA_ROLLOVER = "promoted_via_rollover", "Its cursor has a new ledger in the target."
    PROMOTE_DEFERRED = "promote_deferred", "It could not be promoted: it stays in the source."
    BUILD_FAILED = "build_failed", "It could not be copied: it stays in the source."
    FOREIGN_CONFLICT = "foreign_conflict", "Its id is taken in the target: it stays in the source."
    DELETE_INTENT = "delete_intent", "It is being deleted from the source: this cannot be undone."
    CLEANED = "cleaned", "It is deleted from the source."
    REVERTED = "reverted", "Its references name the source again."


FAILED = frozenset({LedgerStage.PROMOTE_DEFERRED, LedgerStage.BUILD_FAILED, LedgerStage.FOREIGN_CONFLICT})
"""Stages in which a ledger stays behind in the source."""
DELETING = frozenset({LedgerStage.DELETE_INTENT, LedgerStage.CLEANED})
UNDELETED = frozenset({LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT})
"""Stages of a ledger whose references name the target, and that may still exist in the source."""
UNREVERTED = frozenset({LedgerStage.PROMOTING, LedgerStage.PROMOTED})
"""Stages of a ledger whose references name the target, or may: a rollback takes them back."""
IN_TARGET = UNREVERTED | {LedgerStage.COPYING, LedgerStage.BUILT}
"""Stages of a ledger that needs its copy in the target."""
MOVED = DELETING | {LedgerStage.PROMOTED, LedgerStage.PROMOTED_VIA_ROLLOVER}
"""Stages of a ledger whose references name the target."""


class SwitchAction(StrEnum):
    """An order that an executor has not yet answered."""

    NONE = ""
    COPY = "copy"
    DELETE_COPY = "delete_copy"
    INVENTORY = "inventory"
    PROMOTE = "promote"
    ROLL_OVER = "roll_over"
    REVERT = "revert"
    DELETE_OLD = "delete_old"
    STATUS_NEW = "status_new"
    GIVEN_UP = "given_up"
    """No order any more: it failed too often and is left for an operator, or nothing is left to do."""


IDLE = frozenset({SwitchAction.NONE, SwitchAction.GIVEN_UP})
ORDERED = frozenset(SwitchAction) - IDLE - {SwitchAction.INVENTORY}
"""The orders about a ledger, or for the registry."""


class ClusterStatus(ClosedEnum):
    """The status of a BookKeeper cluster for the brokers."""

    ACTIVE = "active", "Brokers write to it."
    STANDBY = "standby", "It is registered, and may be the target of a switch."
    DEPRECATED = "deprecated", "Brokers wrote to it before; its topics' ledgers age out there."


class RegistryEntry(Shared, frozen=True):
    """A BookKeeper cluster by its znode in the registry."""

    name: Annotated[Name, Field(description="Its name in commands and references.")]
    uri: Annotated[Text, Field(description="Its metadata service URI.")]
    instance_id: Annotated[Text, Field(description="Its INSTANCEID when it was registered.")]
    root: Annotated[Text, Field(description="The path of its ledgers.")]
    status: ClusterStatus
    version: Annotated[Count | None, Field(description="The znode's version.")] = None


class LedgerTask(Struct, array_like=True, frozen=True):
    """One ledger of the plan."""

    ledger_id: int
    kind: LedgerKind
    paths: tuple[str, ...]
    stage: LedgerStage = LedgerStage.PENDING
    awaiting: SwitchAction = SwitchAction.NONE
    op: int = 0
    """The number of its last order; a result of an earlier one is late."""
    tries: int = 0
    """Consecutive failures of the present action."""
    remap: bool = False
    target_id: int | None = None
    cleared: bool = False
    """Whether the target is known to lack it, or to have our own copy (INV-1)."""
    promoted: bool = False
    """Whether its promotion is on record, and was not taken back (INV-7)."""
    copied: bool = False
    """Whether a copy was ordered or found, and not deleted since: the target may have it."""

    @property
    def key(self) -> int:
        """Its key in the plan."""
        return plan_key(self.ledger_id, self.kind)


def plan_key(ledger_id: int, kind: LedgerKind) -> int:
    """Return the key of a ledger in the plan; a ledger named by a cursor and by a schema is there twice."""
    return 2 * ledger_id + (kind is LedgerKind.SCHEMA)


class Directive(Shared, frozen=True):
    """The order to all brokers to write to a cluster from an epoch on."""

    epoch: Annotated[Epoch, Field(description="Only grows; an earlier directive is void.")]
    target: Annotated[Name, Field(description="The cluster that brokers must write to.")]


def committed_cluster(entries: Iterable[RegistryEntry]) -> str | None:
    """Return the cluster that is active in the registry, from which a switch begins."""
    return next((each.name for each in entries if each.status is ClusterStatus.ACTIVE), None)


def active_cluster(entries: Iterable[RegistryEntry], directive: Directive | None, committed_epoch: int) -> str | None:
    """Return the cluster that brokers write to: an uncommitted directive's target, else the registry's."""
    is_open = directive is not None and directive.epoch > committed_epoch
    return directive.target if directive is not None and is_open else committed_cluster(entries)


class OrchestratorLease(Struct, array_like=True, frozen=True):
    """The lease of the orchestrator; its token only grows."""

    token: int
    holder: str
    valid_until_ms: InstantMs


class LiveBrokers(Struct, array_like=True, frozen=True):
    """The live brokers as last read."""

    since_ms: dict[str, InstantMs]
    """When each was first read, by its name, sorted."""
    at_ms: InstantMs
    epoch: int = NEVER
    is_unread: bool = False
    """Whether a later attempt to read them failed: then it is unknown which brokers are alive."""

    @property
    def brokers(self) -> tuple[str, ...]:
        """Their names, sorted."""
        return tuple(self.since_ms)


class BrokerReport(Struct, array_like=True, frozen=True):
    """The last report of a broker."""

    name: str
    sequence: int
    at_ms: InstantMs
    acked_epoch: int = NEVER
    failed_epoch: int = NEVER
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    since_ms: InstantMs = NEVER
    """When it first reported its present ack or failure."""
    strayed_ms: InstantMs = NEVER
    """When it last reported that it follows the directive and writes to another cluster."""
    client_epoch: int | None = None


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
    bypassed: bool = False


class InventorySummary(Struct, array_like=True, frozen=True):
    """The last complete inventory, reduced to what the policy needs once the plan is made."""

    at_ms: InstantMs
    counts: dict[str, int]
    """The number of references by cluster, including those to ledgers that stay."""
    old_ids: tuple[int, ...]
    """Ledgers that are still attributed to the switch's source, sorted; kept from `hold` on, when they are few."""
    greatest_id: int
    staying: tuple[StayingLedgers, ...] = ()
    valid_ms: int = 1_200_000
    epoch: int = NEVER
    attempt: int = 1


Stamp = Annotated[int, Field(ge=-1, le=MAX_INT64)]


class SwitchProgress(Shared, frozen=True, kw_only=True):
    """The progress of a switch, which the executor keeps beside the registry. Instants: ms since 1970, -1: none."""

    source: Annotated[Name, Field(description="The cluster that brokers leave.")]
    target: Annotated[Name, Field(description="The cluster that they move to.")]
    stage: SwitchStage
    epoch: Annotated[Epoch, Field(description="The epoch of its directive.")]
    attempt: Annotated[Count, Field(description="The number of the attempt, from 1 on.")] = 1
    target_floor: Annotated[LedgerId, Field(description="The target's next id at the start.")]
    brokers_from: Annotated[
        str, Field(max_length=249, description="The cluster that brokers wrote to before; empty: the source.")
    ] = ""
    started_ms: Annotated[Stamp, Field(description="When it began.")]
    stage_ms: Annotated[Stamp, Field(description="When it reached its stage.")] = NEVER
    live_ms: Annotated[Stamp, Field(description="When every broker had moved.")] = NEVER
    hold_ms: Annotated[Stamp, Field(description="When it reached `hold`.")] = NEVER
    cleanup_ms: Annotated[Stamp, Field(description="When its clean-up began.")] = NEVER
    ended_ms: Annotated[Stamp, Field(description="When it ended.")] = NEVER
    rollback_until_ms: Annotated[Stamp, Field(description="The end of the rollback window.")] = NEVER
    cleanup_from_ms: Annotated[Stamp, Field(description="The earliest time of a clean-up.")] = NEVER
    attribution_only: Annotated[bool, Field(description="Whether a rollback leaves the brokers on the target.")] = True
    moved: Annotated[bool, Field(description="Whether any broker ever reported that it follows to the target.")] = False
    paused: Annotated[bool, Field(description="Whether an operator paused it.")] = False
    kept: Annotated[bool, Field(description="Whether no further ledger of the source is deleted.")] = False
    bypassed: Annotated[bool, Field(description="Whether it began on a bypassed precheck.")] = False
    status_failed: Annotated[bool, Field(description="Whether a status could not be written.")] = False
    halted: Annotated[Text, Field(description="Why nothing is ordered; empty if it goes on.")] = ""
    commanded_ms: Annotated[Stamp, Field(description="The time of the last command that was judged.")] = NEVER
    ledgers: Annotated[
        dict[LedgerStage, Count],
        Field(max_length=len(LedgerStage), description="The number of ledgers by stage."),
    ] = field(default_factory=dict)


class Switch(SwitchProgress, frozen=True, kw_only=True):
    """A move from one BookKeeper cluster to another. `ledgers` is empty until the plan is dropped, once it is over."""

    tasks: tuple[LedgerTask, ...] = ()
    awaiting: SwitchAction = SwitchAction.NONE
    op: int = 0
    blocked: str = ""
    """Why it does not go live, clean up or go back; empty if nothing blocks it."""
    confirm_ms: InstantMs = NEVER
    """A rollback ends with an inventory begun after this instant; -1: references are still being reverted."""
    unplanned: tuple[str, ...] = ()
    """Some paths that should no longer name their cluster, and that no ledger of the plan is for."""
    unplanned_count: int = 0
    paused_ms: InstantMs = NEVER
    progress_ms: InstantMs = NEVER
    """When an executor last answered an order of this switch."""
    recovering_ms: InstantMs = NEVER
    """After a lost checkpoint: an inventory begun after this instant shows its plan. -1: the plan is known."""

    @property
    def home(self) -> str:
        """The cluster that brokers go back to when the switch is undone."""
        return self.brokers_from or self.source


def stage_counts(switch: Switch) -> Mapping[LedgerStage, int]:
    """Count a switch's ledgers by stage. Of a switch that is over, only these counts are kept."""
    return switch.ledgers or Counter(task.stage for task in switch.tasks)


# The progress of a switch beside the registry, from which a switch goes on after a lost checkpoint.
#
# The executor writes it from the record. The ledgers of the plan are not part of it: an inventory shows them, and the
# executor's journal shows which of the target's ledgers are Headgate's copies.

_FIELDS = tuple(name for name in SwitchProgress.__struct_fields__ if name not in ("ledgers", "commanded_ms"))
_PLANNED_AGAIN = frozenset({SwitchStage.BUILD, SwitchStage.PROMOTE})
_OVER = frozenset({SwitchStage.REJECTED, SwitchStage.DONE, SwitchStage.ROLLED_BACK})
"""Stages at which nothing depends on the plan any more, except copies that are to be deleted: these stay."""


def make_progress(switch: Switch, commanded_ms: InstantMs = NEVER) -> SwitchProgress:
    """Return the progress of a switch, with the time of the last command that was judged."""
    fields = {name: getattr(switch, name) for name in _FIELDS}
    return SwitchProgress(ledgers=dict(stage_counts(switch)), commanded_ms=commanded_ms, **fields)


def take_up(progress: SwitchProgress | None, directive: Directive | None, read_ms: InstantMs) -> Switch | None:
    """Return the switch to go on with; None if the directive in force is not one of this switch.

    Nothing is ordered before an inventory has shown the plan. The copies of a switch that was at `build` or `promote`
    are planned again. A clean-up goes back to `hold`, because each deletion needs a command from now on.

    The executor writes the directive before the progress, so it may be later. It is earlier if its order was lost,
    because the executor lost its lease: once brokers were directed to the target, another one follows.
    """
    if progress is None or directive is None:
        return None
    switch = Switch(**{name: getattr(progress, name) for name in _FIELDS})
    if directive.epoch < progress.epoch:
        if switch.stage is SwitchStage.TRIGGERED or directive.target != switch.target:
            return None
    elif directive.epoch > progress.epoch:
        if switch.stage in ENDED or directive.target != switch.home:
            return None
        switch = replace(switch, stage=SwitchStage.ROLLBACK, attribution_only=False, epoch=directive.epoch)
    if switch.stage in _PLANNED_AGAIN:
        switch = replace(switch, stage=SwitchStage.LIVE_DUAL_READ)
    elif switch.stage is SwitchStage.CLEANUP and not switch.kept:
        switch = replace(switch, stage=SwitchStage.HOLD)
    if switch.stage is SwitchStage.TRIGGERED:
        return switch
    if switch.stage in _OVER:
        return replace(switch, ledgers=dict(sorted(progress.ledgers.items())))
    return replace(switch, confirm_ms=NEVER, recovering_ms=read_ms)


class InventoryAssembly(Struct, array_like=True, frozen=True):
    """The parts of an inventory that have arrived; it counts once its manifest and all its parts have."""

    inventory: str
    at_ms: InstantMs
    parts: dict[int, bytes] = field(default_factory=dict)
    """By number: references and ledgers as msgpack, decoded only once all parts have arrived."""
    manifest: str = ""
    """As JSON; empty before it has arrived."""
    began_ms: InstantMs = NEVER
    complete: bool = False
    """Whether it was complete; parts that arrive again are dropped."""


class SwitchingState(Struct, array_like=True, frozen=True, kw_only=True):
    """The state of one broker cluster."""

    bootstrap: str | None = None
    entries: tuple[RegistryEntry, ...] = ()
    epoch: int = 0
    """The greatest epoch of all directives."""
    committed_epoch: int = 0
    directive: Directive | None = None
    lease: OrchestratorLease | None = None
    members: LiveBrokers | None = None
    brokers: tuple[BrokerReport, ...] = ()
    clusters: tuple[ClusterSnapshot, ...] = ()
    checks: tuple[PrecheckResult, ...] = ()
    inventory: InventorySummary | None = None
    switch: Switch | None = None
    deleted: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By instance id, the sorted ids that were deleted from a cluster and must never be created there again (INV-6)."""
    commands: tuple[str, ...] = ()
    """The idempotency keys of the last commands, oldest first."""
    ops: int = 0
    sequence: int = 0
    assembly: InventoryAssembly | None = None
    """The last inventory, in parts until it is complete."""
    record: str = ""
    removed: tuple[str, ...] = ()
    """Names that were unregistered and are still in the registry, sorted."""
    marks: dict[str, IdMark] = field(default_factory=dict)
    """The highest ids of each cluster by its instance id, sorted."""
    directed_ms: InstantMs = NEVER
    registry_ms: InstantMs = NEVER
    contested: str = ""
    """What the registry shows that Headgate did not order; empty if nothing."""
    contested_by: Directive | None = None
    """The foreign directive, if that contests the registry."""
    recorded_ms: InstantMs = NEVER
    """When the record was last published; it is repeated before it expires."""
    bypassed: bool = False
    """Whether a switch ever began on a bypassed precheck: since then, ids of topics may collide."""
    impostors: tuple[str, ...] = ()
    """Names at whose address another cluster answers than was registered, sorted."""
    commanded_ms: InstantMs = NEVER
    judged_ms: InstantMs = NEVER
    """After a lost checkpoint: commands up to this time were judged before, and come again from their topic."""
    written_unread: tuple[str, ...] = ()
    """Clusters that brokers reported to write to, and that were not read yet, so they have no mark; sorted."""
    renewed: bool = False
    """Whether the directive only renews the one before it, so that brokers open new clients of an advanced cluster."""

    def entry(self, name: str) -> RegistryEntry | None:
        """Return a registered cluster by its name."""
        return next((e for e in self.entries if e.name == name), None)

    def cluster(self, name: str) -> ClusterSnapshot | None:
        """Return a cluster as last read."""
        return next((c for c in self.clusters if c.name == name), None)

    def check(self, target: str) -> PrecheckResult | None:
        """Return the last precheck of a target."""
        return next((c for c in self.checks if c.target == target), None)

    def active(self) -> str | None:
        """Return the cluster that brokers write to."""
        return active_cluster(self.entries, self.directive, self.committed_epoch)

    def committed(self) -> str | None:
        """Return the cluster that is active in the registry."""
        return committed_cluster(self.entries)

    def leaderless(self) -> str:
        """Return why brokers have no registered cluster to write to; empty if they have one, or none is registered."""
        active = self.active()
        if not self.entries or (active is not None and self.entry(active) is not None):
            return ""
        if active is not None:
            return f"brokers are directed to {active}, which is not registered: `register` it"
        return "no registered cluster is active: `register` the one that brokers write to with `--status active`"

    def stage(self, target: str, now_ms: int) -> SwitchStage:
        """Return the stage of the switch to a target. Once a switch is over, its target is registered again."""
        if self.switch and self.switch.target == target and self.switch.stage not in ENDED:
            return self.switch.stage
        check = self.check(target)
        if self.entry(target) is None:
            return SwitchStage.NONE
        return SwitchStage.PRECHECKED if check and now_ms < check.expires_ms else SwitchStage.REGISTERED

    def live_switch(self) -> "Switch | None":
        """Return the switch if it is not over."""
        return self.switch if self.switch and self.switch.stage not in ENDED else None


def put(known: Iterable[object], new: object, key: str = "name") -> tuple:  # type: ignore[type-arg]
    """Insert or replace a struct among others, sorted by a key."""
    by_key: Mapping[str, object] = {getattr(k, key): k for k in known} | {getattr(new, key): new}
    return tuple(by_key[k] for k in sorted(by_key))
