"""What the machine says: orders to executors, changes of stage, rejections and alarms, from closed enums."""

from dataclasses import dataclass, field

from policies.closed_enum import ClosedEnum
from policies.switching.state import Unit


class Verdict(ClosedEnum):
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
    BLOCKED = "blocked", "All brokers acked, and the switch does not go live."
    PREVIEW = "preview", "What a dry run would have ordered."
    REJECT = "reject", "Nothing is done; `code` says why."
    HALT = "halt", "An alarm: nothing more is ordered until a person drives the switch on."


ORDERS = frozenset(
    {
        Verdict.WRITE_REGISTRY, Verdict.REMOVE_REGISTRY, Verdict.RUN_PRECHECK, Verdict.WRITE_DIRECTIVE,
        Verdict.TAKE_INVENTORY, Verdict.START_COPY, Verdict.DELETE_OWN_COPY, Verdict.PROMOTE,
        Verdict.REQUEST_ROLLOVER, Verdict.REVERT, Verdict.DELETE_OLD, Verdict.WRITE_STATUS, Verdict.CLOSE_CLIENT,
    }
)  # fmt: skip
"""What executors carry out."""


class Code(ClosedEnum):
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
    CLIENT_IN_USE = "CLIENT_IN_USE", "A broker reads from it, or something refers to it."
    INVALID_TRANSITION = "INVALID_TRANSITION", "It does not fit the state, or comes too late."


class Why(ClosedEnum):
    """Why something is decided."""

    COMMANDED = "commanded", "A person asked for it."
    REJECTED = "rejected", "A rule forbids it; `code` says which."
    REDRIVEN = "redriven", "A person drove the switch on."
    NOT_SEEN = "not_seen", "It was ordered, and the registry does not show it."
    LEASE_TAKEN = "lease_taken", "A new orchestrator asks again for what was not answered."
    ALL_ACKED = "all_acked", "Every live broker follows the directive."
    NOT_READY = "not_ready", "The target's next ids, the clusters' identities or a late write are in the way."
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
    STATUS_WRITTEN = "status_written", "The registry has the new status."
    STATUS_FAILED = "status_failed", "The registry could not be written."
    WINDOW_ELAPSED = "window_elapsed", "The time for it has come."
    INVARIANT = "invariant", "An invariant does not hold."


@dataclass(frozen=True, slots=True)
class Said:
    """One thing the machine says."""

    verdict: Verdict
    reason: Why
    sentence: str
    subject: str = ""
    """Below the cluster: empty for the switch itself, ``ledgers/5``, ``commands/<key>``."""
    code: Code | None = None
    unit: Unit | None = None
    op: int = 0
    details: dict[str, object] = field(default_factory=dict)
    """What an executor needs beyond the ledger, and what it must find."""
    cause: int = -1
    """Which of the events of the step it follows from."""
