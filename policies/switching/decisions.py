"""Decisions of the switching policy (topic ``decided.switches``): orders, refusals and the record of each switch."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.closed_enum import ClosedEnum
from policies.decisions import Decision
from policies.switching.references import LedgerKind
from policies.switching.state import LedgerStage, SwitchStage
from policies.units import Instant


class SwitchVerdict(ClosedEnum):
    """What is decided."""

    WRITE_REGISTRY = "write-registry", "Order: write a BookKeeper cluster into the registry."
    REMOVE_REGISTRY = "remove-registry", "Order: take one out of it."
    RUN_PRECHECK = "run-precheck", "Order: read both clusters and report."
    WRITE_DIRECTIVE = "write-directive", "Order: tell the brokers, by a new epoch, where to write."
    TAKE_INVENTORY = "take-inventory", "Order: list every reference, and which of their ledgers the target has."
    START_COPY = "start-copy", "Order: copy a ledger under its id (where `remap`, under a new one)."
    DELETE_OWN_COPY = "delete-own-copy", "Order: delete a copy that Headgate's journal says is its own."
    PROMOTE = "promote", "Order: attribute a ledger's references to the target."
    REQUEST_ROLLOVER = "request-rollover", "Order: ask a cursor's owner to begin a new ledger in the target."
    REVERT = "revert", "Order: attribute a ledger's references to the source again."
    DELETE_OLD = "delete-old", "Order: delete a promoted ledger from the source."
    WRITE_STATUS = "write-status", "Order: write a cluster's status into the registry."
    CLOSE_CLIENT = "close-client", "Order: let brokers close their client of a cluster."
    ADVANCE = "advance", "The switch, or a precheck, is at another stage."
    LEDGER = "ledger", "A ledger is at another stage, without an order."
    REMAP_REQUIRED = (
        "remap-required",
        "A ledger cannot have its id in the target: it stays in the source until it gets another.",
    )
    DEGRADED = "degraded", "A broker cannot reach the target while others already write there: a person must decide."
    BLOCKED = "blocked", "The switch does not go live, clean up or go back, for a reason that a person should know."
    PREVIEW = "preview", "What a dry run would have ordered."
    REJECT = "reject", "Nothing is done; `code` says why."
    HALT = "halt", "An alarm: nothing more is ordered until a person drives the switch on."


ORDERS = frozenset(
    {
        SwitchVerdict.WRITE_REGISTRY, SwitchVerdict.REMOVE_REGISTRY, SwitchVerdict.RUN_PRECHECK,
        SwitchVerdict.WRITE_DIRECTIVE, SwitchVerdict.TAKE_INVENTORY, SwitchVerdict.START_COPY,
        SwitchVerdict.DELETE_OWN_COPY, SwitchVerdict.PROMOTE, SwitchVerdict.REQUEST_ROLLOVER, SwitchVerdict.REVERT,
        SwitchVerdict.DELETE_OLD, SwitchVerdict.WRITE_STATUS, SwitchVerdict.CLOSE_CLIENT,
    }
)  # fmt: skip
"""What executors carry out."""


class RejectCode(ClosedEnum):
    """Why a command or event was rejected."""

    URI_DUPLICATE = "URI_DUPLICATE", "The cluster is registered under another name."
    NAME_CONFLICT = "NAME_CONFLICT", "The name stands for another cluster."
    IN_USE = "IN_USE", "It is active, part of a switch, or still referred to."
    PRECHECK_FAILED = "PRECHECK_FAILED", "No fresh precheck says ready, or its digest was not quoted."
    COLLISION = "COLLISION", "Ids would collide, or did."
    SWITCH_IN_PROGRESS = "SWITCH_IN_PROGRESS", "Another switch is under way."
    NOT_FOUND = "NOT_FOUND", "There is no such cluster or switch."
    WINDOW_EXPIRED = "WINDOW_EXPIRED", "The rollback window is over."
    CLEANUP_STARTED = "CLEANUP_STARTED", "Ledgers were deleted, or are about to be."
    WINDOW_NOT_ELAPSED = "WINDOW_NOT_ELAPSED", "It is too early to clean up."
    ALREADY_ACTIVE = "ALREADY_ACTIVE", "The cluster is the active one by the registry, so it is no target."
    BROKERS_BEHIND = "BROKERS_BEHIND", "A live broker does not follow the directive, or writes elsewhere."
    CONTESTED = "CONTESTED", "The registry says what nobody here ordered: a person must resolve that first."
    CLIENT_IN_USE = "CLIENT_IN_USE", "A broker reads from it, or something refers to it."
    INVALID_TRANSITION = "INVALID_TRANSITION", "It does not fit the state, or comes too late."


class SwitchReason(ClosedEnum):
    """Why something is decided."""

    COMMANDED = "commanded", "A person asked for it."
    REJECTED = "rejected", "A rule forbids it; `code` says which."
    REDRIVEN = "redriven", "A person drove the switch on."
    NOT_SEEN = "not_seen", "It was ordered, and the registry does not show it."
    LEASE_TAKEN = "lease_taken", "A new orchestrator asks again for what was not answered."
    ALL_ACKED = "all_acked", "Every live broker follows the directive."
    NOT_READY = "not_ready", "The target's next ids, the clusters' identities, a broker or a late write are in the way."
    PAUSED = "paused", "A person holds the switch: nothing is ordered until it is resumed."
    RESUMED = "resumed", "A person lets the switch go on."
    ABORTED = "aborted", "A person ended the switch."
    AUTOMATIC = "automatic", "`automatic_rollback` undoes a switch that its brokers cannot follow."
    CONTESTED = "contested", "Somebody else wrote into the registry."
    WRONG_LEDGER = "wrong_ledger", "The answer names another ledger than the one that was asked about."
    CLIENT_INIT_FAILED = "client_init_failed", "A broker could not make a client of the target."
    INVENTORY_NEEDED = "inventory_needed", "What refers to which ledger must be known first."
    INVENTORY_COMPLETE = "inventory_complete", "All parts of the inventory are there."
    NEXT_IN_PLAN = "next_in_plan", "It is its turn, by ledger id."
    COPIED = "copied", "The copy holds exactly what the source has."
    COPY_DIFFERS = "copy_differs", "The copy does not hold what the source has."
    OURS_COMPLETE = "ours_complete", "An earlier copy of ours is complete."
    OURS_PARTIAL = "ours_partial", "An earlier copy of ours is not complete."
    FOREIGN_ID = "foreign_id", "The target has somebody else's ledger of this id."
    DELETED_ID = "deleted_id", "The id was deleted from the target before."
    SOURCE_UNREADABLE = "source_unreadable", "The source's ledger cannot be read."
    VERSION_CONFLICT = "version_conflict", "The reference changed while it was to be written."
    ROLLED_OVER = "rolled_over", "The cursor has a new ledger."
    CURSOR_ADVANCED = "cursor_advanced", "The cursor moved on since it was copied."
    WIDE_CHANGE = "wide_change", "More than the attribution changed."
    ATTRIBUTED = "attributed", "Its references name the target."
    REVERTED = "reverted", "Its references name the source again."
    DELETED = "deleted", "It is deleted."
    EXECUTOR_FAILED = "executor_failed", "The executor could not do it, and is asked again."
    RETRIES_EXHAUSTED = "retries_exhausted", "It failed too often: it is left for a person."
    ALL_TERMINAL = "all_terminal", "Every ledger has come to its end at this stage."
    STATUS_FAILED = "status_failed", "The registry could not be written."
    WINDOW_ELAPSED = "window_elapsed", "The time for it has come."
    INVARIANT = "invariant", "An invariant does not hold."


class LedgerRef(BaseModel):
    """The ledger a decision is about, and its place in the plan."""

    model_config = ConfigDict(frozen=True)

    ledger_id: int = Field(description="In the source.")
    target_id: int | None = Field(description="In the target, where it is another one.")
    kind: LedgerKind
    paths: tuple[str, ...] = Field(description="Of the znodes that name it.")
    stage: LedgerStage
    remap: bool = Field(description="Whether it gets a new id in the target.")
    place: int = Field(ge=1, description="Its place in the plan, by ledger id.")
    of: int = Field(ge=1, description="How many ledgers the plan has.")


class SwitchDecision(Decision):
    """One step of a switch: an order that an executor carries out by conditional writes only, or why there is none.

    An executor drops an order whose lease token or `op` is lower than one it has seen for the same subject.
    """

    event_type: ClassVar[str] = "headgate.switch-decision.v1"
    topic: ClassVar[str] = "decided.switches"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason", "code", "op", "epoch", "lease_token")
    is_kept_up: ClassVar[bool] = False
    is_step: ClassVar[bool] = True

    verdict: SwitchVerdict
    reason: SwitchReason
    code: RejectCode | None = Field(default=None, description="Of a rejection.")
    stage: SwitchStage = Field(description="Of the switch, once this is decided.")
    epoch: int = Field(ge=0, description="Of the directive in force.")
    lease_token: int = Field(ge=0, description="Under which it is ordered; 0: under none.")
    op: int = Field(ge=0, description="The number that an answer quotes; 0 where none is expected.")
    source: str | None = Field(description="The cluster that brokers leave.")
    target: str | None = Field(description="The cluster that brokers move to.")
    ledger: LedgerRef | None = Field(default=None, description="The ledger it is about.")
    expects: Mapping[str, str | int | None] = Field(
        default_factory=dict, description="What an executor must find, or else change nothing and say so."
    )
    args: Mapping[str, str | int | bool | None] = Field(default_factory=dict, description="What the order says more.")
    valid_until: Instant | None = Field(
        description="When the lease ends under which it is ordered: an executor does not begin after this, unless it "
        "renewed that very lease. Null: no limit."
    )


class BrokerCounts(BaseModel):
    """How far the brokers have moved."""

    model_config = ConfigDict(frozen=True)

    live: int | None = Field(description="Null: not known.")
    acked: int = Field(description="Those that follow the directive in force.")
    awaited: dict[str, Instant] = Field(
        default_factory=dict, description="Live brokers that do not follow it, each with since when it should."
    )
    astray: dict[str, str] = Field(
        default_factory=dict, description="Live brokers that follow it and write elsewhere all the same, and where."
    )


class SwitchRecord(Decision):
    """Where a broker cluster's switch stands: one compacted record, for status and dashboards."""

    event_type: ClassVar[str] = "headgate.switch-state.v1"
    topic: ClassVar[str] = "decided.switches"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "ledgers", "active", "epoch", "brokers", "halted", "blocked")

    verdict: SwitchStage
    reason: SwitchReason
    active: str | None = Field(description="The one cluster brokers write to.")
    source: str | None = Field(description="The cluster that brokers leave; null: no switch began.")
    target: str | None = Field(description="The cluster that they move to; null: no switch began.")
    epoch: int = Field(description="The greatest ever directed.")
    committed_epoch: int = Field(description="Of the directive whose target became the active cluster.")
    attempt: int = Field(description="How often the switch was driven on; 1 at first, 0 when there is none.")
    ledgers: dict[LedgerStage, int] = Field(description="How many ledgers stand where; stages without any left out.")
    brokers: BrokerCounts
    degraded: bool = Field(description="Whether a broker could not reach the target after others had moved.")
    blocked: str = Field(description="Why it does not go live; empty when nothing is in the way.")
    halted: str = Field(description="Why nothing is ordered; empty when it goes on.")
    paused: bool = Field(default=False, description="Whether a person holds it.")
    contested: str = Field(default="", description="What somebody else wrote into the registry; empty: nothing.")
    unplanned: tuple[str, ...] = Field(
        default=(), description="Some references that name what should no longer be named, and that nobody planned for."
    )
    unplanned_count: int = Field(default=0, description="All of these.")
    rollback_until: Instant | None = Field(description="Until when it can be taken back; null: it is not live yet.")
    cleanup_from: Instant | None = Field(description="From when the source may be cleaned up; null: not live yet.")
    prechecks: dict[str, str] = Field(description="Digest of the last precheck by target.")
    registry: dict[str, str] = Field(description="Status by registered BookKeeper cluster.")
    stage_since: Instant | None = Field(default=None, description="Since when it is at its stage; null: not known.")
    copy_bytes_per_second: int | None = Field(default=None, description="At most so much is copied; null: no limit.")
    bypassed: bool = Field(
        default=False, description="A switch began although ids might collide: those of topics cannot be relied on."
    )
    valid_until: Instant | None = Field(
        default=None, description="Without a newer one by then, nobody knows where it stands; repeated in time."
    )
