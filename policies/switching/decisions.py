"""Decisions of the switching policy (topic ``decided.switches``): orders, rejections and the record of each switch."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.decisions import Decision
from policies.observations import ReportedEffect, ReportResult
from policies.switching.ledgers import LedgerKind
from policies.switching.state import LedgerStage, SwitchProgress, SwitchStage
from policies.units import ClosedEnum, Instant


class SwitchVerdict(ClosedEnum):
    """The kind of a decision."""

    WRITE_REGISTRY = "write-registry", "Order: write a BookKeeper cluster into the registry."
    REMOVE_REGISTRY = "remove-registry", "Order: remove a BookKeeper cluster from the registry."
    RUN_PRECHECK = "run-precheck", "Order: read both clusters and publish a report."
    WRITE_DIRECTIVE = "write-directive", "Order: direct the brokers to a cluster, by a new epoch."
    TAKE_INVENTORY = "take-inventory", "Order: list every reference, and which of their ledgers exist in the target."
    START_COPY = "start-copy", "Order: copy a ledger under its id (with `remap`, under a new one)."
    DELETE_OWN_COPY = "delete-own-copy", "Order: delete a copy that is in Headgate's journal."
    PROMOTE = "promote", "Order: attribute a ledger's references to the target."
    REQUEST_ROLLOVER = "request-rollover", "Order: ask a cursor's owner to begin a new ledger in the target."
    REVERT = "revert", "Order: attribute a ledger's references to the source again."
    DELETE_OLD = "delete-old", "Order: delete a promoted ledger from the source."
    WRITE_STATUS = "write-status", "Order: write a cluster's status into the registry."
    CLOSE_CLIENT = "close-client", "Order: let brokers close their client of a cluster."
    ADVANCE = "advance", "The switch, or a precheck, moved to another stage."
    LEDGER = "ledger", "A ledger moved to another stage, without an order."
    REMAP_REQUIRED = (
        "remap-required",
        "A ledger cannot have its id in the target: it stays in the source until it gets another.",
    )
    BLOCKED = "blocked", "The switch does not go live, clean up or go back; the explanation names the reason."
    PREVIEW = "preview", "The orders that a dry run would have given."
    REJECT = "reject", "A command or event is rejected; `code` names the rule."
    HALT = "halt", "Nothing more is ordered until an operator drives the switch on."


ORDERS = frozenset(verdict for verdict in SwitchVerdict if verdict.meaning.startswith("Order: "))
"""The verdicts that an executor carries out."""


class RejectCode(ClosedEnum):
    """Why a command or event was rejected."""

    URI_DUPLICATE = "URI_DUPLICATE", "The cluster is registered under another name."
    NAME_CONFLICT = "NAME_CONFLICT", "The name stands for another cluster."
    IN_USE = "IN_USE", "The cluster is active, part of a switch, or named by a reference."
    PRECHECK_FAILED = "PRECHECK_FAILED", "No fresh precheck found the target ready, or its digest was not quoted."
    COLLISION = "COLLISION", "Ids would collide, or did."
    SWITCH_IN_PROGRESS = "SWITCH_IN_PROGRESS", "Another switch is under way."
    NOT_FOUND = "NOT_FOUND", "There is no such cluster or switch."
    WINDOW_EXPIRED = "WINDOW_EXPIRED", "The rollback window is over."
    CLEANUP_STARTED = "CLEANUP_STARTED", "Ledgers were deleted, or are being deleted."
    WINDOW_NOT_ELAPSED = "WINDOW_NOT_ELAPSED", "It is too early to clean up."
    ALREADY_ACTIVE = "ALREADY_ACTIVE", "The cluster is active in the registry, so it cannot be a target."
    BROKERS_BEHIND = "BROKERS_BEHIND", "A live broker does not follow the directive, or writes to another cluster."
    CONTESTED = (
        "CONTESTED",
        "The registry shows a change that Headgate did not order: an operator must resolve it first.",
    )
    CLIENT_IN_USE = "CLIENT_IN_USE", "A broker reads from the cluster, or a reference names it."
    INVALID_TRANSITION = "INVALID_TRANSITION", "The command or event does not fit the stage, or comes too late."


class SwitchReason(ClosedEnum):
    """The reason of a decision."""

    COMMANDED = "commanded", "An operator asked for it."
    REJECTED = "rejected", "A rule forbids it; `code` names the rule."
    REDRIVEN = "redriven", "An operator drove the switch on."
    NOT_SEEN = "not_seen", "It was ordered, and the registry does not show it."
    LEASE_TAKEN = "lease_taken", "A new orchestrator repeats the open orders."
    ALL_ACKED = "all_acked", "Every live broker follows the directive."
    NOT_READY = "not_ready", "The target's next ids, the clusters' identities, a broker or a late write block it."
    PAUSED = "paused", "An operator paused the switch: nothing is ordered until it is resumed."
    RESUMED = "resumed", "An operator resumed the switch."
    ABORTED = "aborted", "An operator ended the switch."
    CLIENT_INIT_FAILED = "client_init_failed", "A broker could not make a client of the target."
    INVENTORY_NEEDED = "inventory_needed", "The references to ledgers must be listed first."
    INVENTORY_COMPLETE = "inventory_complete", "All parts of the inventory are there."
    NEXT_IN_PLAN = "next_in_plan", "The ledger is next in the plan."
    COPIED = "copied", "The copy is equal to the source's ledger."
    COPY_DIFFERS = "copy_differs", "The copy differs from the source's ledger."
    OURS_COMPLETE = "ours_complete", "An earlier copy by Headgate is complete."
    OURS_PARTIAL = "ours_partial", "An earlier copy by Headgate is not complete."
    FOREIGN_ID = "foreign_id", "The target has a ledger of this id that Headgate did not make."
    DELETED_ID = "deleted_id", "The id was deleted from the target before."
    SOURCE_UNREADABLE = "source_unreadable", "The source's ledger cannot be read."
    ROLLED_OVER = "rolled_over", "The cursor has a new ledger."
    CURSOR_ADVANCED = "cursor_advanced", "The cursor moved on since it was copied."
    WIDE_CHANGE = "wide_change", "More than the attribution changed."
    ATTRIBUTED = "attributed", "Its references name the target."
    REVERTED = "reverted", "Its references name the source again."
    DELETED = "deleted", "The ledger is deleted."
    RETRIES_EXHAUSTED = "retries_exhausted", "It failed more often than `retries` allows: it is left for an operator."
    ALL_TERMINAL = "all_terminal", "Every ledger has finished this stage."
    STATUS_FAILED = "status_failed", "The registry could not be written."
    WINDOW_ELAPSED = "window_elapsed", "The waiting time is over."
    INVARIANT = "invariant", "An invariant does not hold."


class LedgerRef(BaseModel):
    """The ledger a decision is about, and its place in the plan."""

    model_config = ConfigDict(frozen=True)

    ledger_id: int = Field(description="Its id in the source.")
    target_id: int | None = Field(description="Its id in the target, if that differs.")
    kind: LedgerKind
    paths: tuple[str, ...] = Field(description="Paths of the znodes that name it.")
    stage: LedgerStage
    remap: bool = Field(description="Whether it gets a new id in the target.")
    place: int = Field(ge=1, description="Its place in the plan, by ledger id.")
    of: int = Field(ge=1, description="The number of ledgers in the plan.")


class SwitchDecision(Decision):
    """One step of a switch: an order that an executor carries out by conditional writes only, or the reason for none.

    An executor drops an order whose lease token or `op` is lower than one it has seen for the same subject.
    """

    event_type: ClassVar[str] = "headgate.switch-decision.v1"
    topic: ClassVar[str] = "decided.switches"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason", "code", "op", "epoch", "lease_token")
    is_kept_up: ClassVar[bool] = False
    is_step: ClassVar[bool] = True

    verdict: SwitchVerdict
    reason: SwitchReason
    code: RejectCode | None = Field(default=None, description="The rule of a rejection.")
    stage: SwitchStage = Field(description="The stage of the switch after this decision.")
    epoch: int = Field(ge=0, description="The epoch of the directive in force.")
    lease_token: int = Field(ge=0, description="The lease of the order; 0: none.")
    op: int = Field(ge=0, description="The number that a result quotes; 0 if no result is expected.")
    source: str | None = Field(description="The cluster that brokers leave.")
    target: str | None = Field(description="The cluster that brokers move to.")
    ledger: LedgerRef | None = Field(default=None, description="The ledger of the decision.")
    expects: Mapping[str, str | int | None] = Field(
        default_factory=dict, description="The values that an executor must find; else it writes nothing."
    )
    args: Mapping[str, str | int | bool | None] = Field(default_factory=dict, description="More arguments.")
    valid_until: Instant | None = Field(
        description="The end of the lease: an executor does not begin the order after this, unless it renewed that "
        "lease. Null: no limit."
    )


class BrokerCounts(BaseModel):
    """The brokers that have moved, and those that have not."""

    model_config = ConfigDict(frozen=True)

    live: int | None = Field(description="The number of live brokers; null: not known.")
    acked: int = Field(description="The number of brokers that follow the directive in force.")
    awaited: dict[str, Instant] = Field(
        default_factory=dict, description="Live brokers that do not follow it, each with the time since when it should."
    )
    astray: dict[str, str] = Field(
        default_factory=dict,
        description="Live brokers that follow it and write to another cluster all the same, each with its state.",
    )


class SwitchHold(BaseModel):
    """Something that holds the switch up."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="Its name in the runbook, such as `inventory`.")
    why: str = Field(description="What the switch does, as the end of a sentence; or a sentence about brokers.")
    since: Instant | None = Field(description="Since when; null: not known.")
    alert_from: Instant | None = Field(description="When it becomes an alert; null: it is one at once.")
    ends_with: str = Field(description="What ends it, with commands in backticks.")
    alert: str = Field(default="", description="The name of that alert.")


class SwitchRecord(Decision):
    """The state of a broker cluster's switch: one compacted record, for status and dashboards."""

    event_type: ClassVar[str] = "headgate.switch-state.v1"
    topic: ClassVar[str] = "decided.switches"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "ledgers", "active", "epoch", "brokers", "halted", "blocked")

    verdict: SwitchStage
    reason: SwitchReason
    active: str | None = Field(description="The cluster that brokers write to.")
    source: str | None = Field(description="The cluster that brokers leave; null: no switch began.")
    target: str | None = Field(description="The cluster that they move to; null: no switch began.")
    epoch: int = Field(description="The greatest epoch of all directives.")
    committed_epoch: int = Field(description="The epoch of the directive whose target became the active cluster.")
    attempt: int = Field(description="The number of the attempt, from 1 on; 0: no switch.")
    ledgers: dict[LedgerStage, int] = Field(description="The number of ledgers by stage, without empty stages.")
    brokers: BrokerCounts
    degraded: bool = Field(description="Whether a broker could not reach the target after others had moved.")
    blocked: str = Field(description="Why it does not go live, clean up or go back; empty if nothing blocks it.")
    halted: str = Field(description="Why nothing is ordered; empty if it goes on.")
    paused: bool = Field(default=False, description="Whether an operator paused it.")
    kept: bool = Field(default=False, description="Whether no further ledger of the source is deleted.")
    recovering: bool = Field(default=False, description="Whether its plan is read again, after a lost checkpoint.")
    progress: SwitchProgress | None = Field(default=None, description="What the executor keeps beside the registry.")
    contested: str = Field(default="", description="A registry change that Headgate did not order.")
    unplanned: tuple[str, ...] = Field(default=(), description="Some unplanned references to the left cluster.")
    unplanned_count: int = Field(default=0, description="The number of unplanned references.")
    rollback_until: Instant | None = Field(description="The end of the rollback window; null: not live yet.")
    cleanup_from: Instant | None = Field(description="The earliest time of a clean-up; null: not live yet.")
    prechecks: dict[str, str] = Field(description="The digest of the last precheck, by target.")
    registry: dict[str, str] = Field(description="The status of each registered BookKeeper cluster.")
    stage_since: Instant | None = Field(default=None, description="When it reached its stage; null: not known.")
    copy_bytes_per_second: int | None = Field(default=None, description="The limit for copies; null: none.")
    bypassed: bool = Field(
        default=False, description="Whether a switch began on a bypassed precheck, so that ids may collide."
    )
    holds: tuple[SwitchHold, ...] = Field(default=(), description="What holds it up, the most urgent first.")
    valid_until: Instant | None = Field(default=None, description="The end of its validity; it is repeated before.")

    def carried_out(self) -> ReportedEffect | None:
        """Return the cluster that brokers write to, and how many have confirmed it."""
        if self.active is None:
            return None
        return ReportedEffect(
            target=f"the brokers of {self.cluster}",
            by="the switch executor",
            result=ReportResult.APPLIED,
            value=f"cluster {self.active} ({self.verdict})",
            confirmed_brokers=self.brokers.acked if self.brokers.live is not None else None,
            broker_count=self.brokers.live,
            since=self.stage_since,
        )
