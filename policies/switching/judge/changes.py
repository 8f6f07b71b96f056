"""The changes that the judge proposes: plain data, which `machine` applies and `emit.drafts` puts into words.

A `DecisionDraft` is a decision that changes no state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.readings import SwitchCommand
from policies.switching.state import LedgerTask, RegistryEntry, SwitchAction, SwitchStage


@dataclass(frozen=True, slots=True)
class DecisionDraft:
    """A decision before it is numbered and dated."""

    verdict: SwitchVerdict
    reason: SwitchReason
    sentence: str
    subject: str = ""
    """The subject below the cluster: empty for the switch itself, ``ledgers/5``, ``commands/<key>``."""
    code: RejectCode | None = None
    task: LedgerTask | None = None
    op: int = 0
    details: Mapping[str, object] = field(default_factory=dict)
    """Further arguments for the executor."""
    cause: int = -1
    """The index of the event that caused it, among the events of the step."""


@dataclass(frozen=True, slots=True)
class Count:
    """An event changes nothing, and only adds one to this field of `IgnoredCounts`."""

    counter: str


@dataclass(frozen=True, slots=True)
class Reject:
    """A command or event is rejected."""

    code: RejectCode
    sentence: str
    subject: str


@dataclass(frozen=True, slots=True)
class Update:
    """Fields of the state change. With the field `switch` a new switch begins, without a plan."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class UpdateSwitch:
    """Fields of the switch change."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Advance:
    """The switch moves to another stage."""

    stage: SwitchStage
    reason: SwitchReason
    sentence: str
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """The switch is over: its plan shrinks to counts, and its copies now belong to the target."""


@dataclass(frozen=True, slots=True)
class PutTask:
    """A ledger enters the plan, or replaces its previous version there."""

    task: LedgerTask
    numbered: bool = False
    """Whether it gets the next number, so that results of earlier orders are late."""


@dataclass(frozen=True, slots=True)
class DropTask:
    """A ledger leaves the plan."""

    key: int


@dataclass(frozen=True, slots=True)
class OrderLedger:
    """An executor is ordered to do something with a ledger; its result quotes the order's number."""

    task: LedgerTask
    reason: SwitchReason
    action: SwitchAction | None = None
    """None: the open order is repeated under its number."""


@dataclass(frozen=True, slots=True)
class DirectBrokers:
    """Brokers are directed to a cluster by the next epoch."""

    reason: SwitchReason
    target: str | None = None
    """None: the directive in force is repeated, if it is not committed."""


@dataclass(frozen=True, slots=True)
class AdvanceIds:
    """A cluster's ids are to be advanced to a ``HOB``; a reading of the cluster shows it."""

    name: str
    hob: int


@dataclass(frozen=True, slots=True)
class WriteRegistry:
    """A cluster is to be written into the registry; repeated until the registry shows it."""

    entry: RegistryEntry
    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class RemoveRegistry:
    """A cluster is to be removed from the registry; repeated until the registry no longer shows it."""

    name: str
    version: int | None
    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class TakeInventory:
    """All references are to be listed, and which of their ledgers exist in the target."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """The target becomes active and the source deprecated, in one transaction."""

    action: SwitchAction | None
    """None: the open order is repeated."""
    reason: SwitchReason = SwitchReason.ALL_TERMINAL


Change = (
    DecisionDraft | Count | Reject | Update | UpdateSwitch | Advance | SettlePlan | PutTask | DropTask
    | OrderLedger | DirectBrokers | AdvanceIds | WriteRegistry | RemoveRegistry | TakeInventory
    | WriteStatus
)  # fmt: skip


def reject(command: SwitchCommand, code: RejectCode, sentence: str) -> Reject:
    """Reject a command."""
    return Reject(code, sentence, f"commands/{command.idempotency_key}")


def draft_ledger(
    task: LedgerTask, verdict: SwitchVerdict, reason: SwitchReason, sentence: str, code: RejectCode | None = None
) -> DecisionDraft:
    """Draft a decision about a ledger."""
    return DecisionDraft(verdict, reason, sentence, f"ledgers/{task.ledger_id}", code, task, task.op)
