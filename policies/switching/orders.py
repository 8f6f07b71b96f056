"""What the machine says: orders to executors, changes of stage, rejections and alarms, from closed enums."""

from dataclasses import dataclass, field
from enum import StrEnum

from policies.switching.state import Unit


class Verdict(StrEnum):
    """What is decided."""

    WRITE_REGISTRY = "write-registry"
    REMOVE_REGISTRY = "remove-registry"
    RUN_PRECHECK = "run-precheck"
    WRITE_DIRECTIVE = "write-directive"
    TAKE_INVENTORY = "take-inventory"
    START_COPY = "start-copy"
    DELETE_OWN_COPY = "delete-own-copy"
    PROMOTE = "promote"
    REQUEST_ROLLOVER = "request-rollover"
    REVERT = "revert"
    DELETE_OLD = "delete-old"
    WRITE_STATUS = "write-status"
    CLOSE_CLIENT = "close-client"
    ADVANCE = "advance"
    """The switch is at another stage now."""
    LEDGER = "ledger"
    """A ledger came to its end, or to another stage, without an order."""
    REMAP_REQUIRED = "remap-required"
    DEGRADED = "degraded"
    BLOCKED = "blocked"
    PREVIEW = "preview"
    """What a dry run would have said."""
    REJECT = "reject"
    HALT = "halt"
    """An alarm: nothing more is ordered until a person drives the switch on."""


ORDERS = frozenset(
    {
        Verdict.WRITE_REGISTRY, Verdict.REMOVE_REGISTRY, Verdict.RUN_PRECHECK, Verdict.WRITE_DIRECTIVE,
        Verdict.TAKE_INVENTORY, Verdict.START_COPY, Verdict.DELETE_OWN_COPY, Verdict.PROMOTE,
        Verdict.REQUEST_ROLLOVER, Verdict.REVERT, Verdict.DELETE_OLD, Verdict.WRITE_STATUS, Verdict.CLOSE_CLIENT,
    }
)  # fmt: skip
"""What executors carry out."""


class Code(StrEnum):
    """Why a command or event was rejected."""

    URI_DUPLICATE = "URI_DUPLICATE"
    NAME_CONFLICT = "NAME_CONFLICT"
    IN_USE = "IN_USE"
    PRECHECK_FAILED = "PRECHECK_FAILED"
    COLLISION = "COLLISION"
    SWITCH_IN_PROGRESS = "SWITCH_IN_PROGRESS"
    NOT_FOUND = "NOT_FOUND"
    WINDOW_EXPIRED = "WINDOW_EXPIRED"
    CLEANUP_STARTED = "CLEANUP_STARTED"
    WINDOW_NOT_ELAPSED = "WINDOW_NOT_ELAPSED"
    CLIENT_IN_USE = "CLIENT_IN_USE"
    INVALID_TRANSITION = "INVALID_TRANSITION"


class Why(StrEnum):
    """Why something is decided."""

    COMMANDED = "commanded"
    REJECTED = "rejected"
    REDRIVEN = "redriven"
    NOT_SEEN = "not_seen"
    LEASE_TAKEN = "lease_taken"
    ALL_ACKED = "all_acked"
    NOT_READY = "not_ready"
    CLIENT_INIT_FAILED = "client_init_failed"
    INVENTORY_NEEDED = "inventory_needed"
    INVENTORY_COMPLETE = "inventory_complete"
    NEXT_IN_PLAN = "next_in_plan"
    COPIED = "copied"
    COPY_DIFFERS = "copy_differs"
    OURS_COMPLETE = "ours_complete"
    OURS_PARTIAL = "ours_partial"
    FOREIGN_ID = "foreign_id"
    DELETED_ID = "deleted_id"
    SOURCE_UNREADABLE = "source_unreadable"
    VERSION_CONFLICT = "version_conflict"
    ROLLED_OVER = "rolled_over"
    CURSOR_ADVANCED = "cursor_advanced"
    WIDE_CHANGE = "wide_change"
    ATTRIBUTED = "attributed"
    REVERTED = "reverted"
    DELETED = "deleted"
    EXECUTOR_FAILED = "executor_failed"
    RETRIES_EXHAUSTED = "retries_exhausted"
    ALL_TERMINAL = "all_terminal"
    STATUS_WRITTEN = "status_written"
    STATUS_FAILED = "status_failed"
    WINDOW_ELAPSED = "window_elapsed"
    INVARIANT = "invariant"


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
