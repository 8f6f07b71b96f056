"""The conclusions of the judge: each change is plain data, which `transition` applies and `emit` puts into words.

The simplest one is a `DecisionDraft`: a decision that changes no state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.state import LedgerTask, RegistryEntry, Switch, SwitchAction, SwitchStage


@dataclass(frozen=True, slots=True)
class DecisionDraft:
    """A decision before it is numbered and dated."""

    verdict: SwitchVerdict
    reason: SwitchReason
    sentence: str
    subject: str = ""
    """Below the cluster: empty for the switch itself, ``ledgers/5``, ``commands/<key>``."""
    code: RejectCode | None = None
    task: LedgerTask | None = None
    op: int = 0
    details: Mapping[str, object] = field(default_factory=dict)
    """What an executor needs beyond the ledger, and what it must find."""
    cause: int = -1
    """Which of the events of the step it follows from."""


@dataclass(frozen=True, slots=True)
class Count:
    """Something was heard that changes nothing: one more in this field of `IgnoredCounts`."""

    what: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Nothing is done, and this is why."""

    code: RejectCode
    sentence: str
    subject: str


# --- the state


@dataclass(frozen=True, slots=True)
class Update:
    """Fields of the state change."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class UpdateSwitch:
    """Fields of the switch change."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Begin:
    """A new switch takes the place of the old one."""

    switch: Switch


@dataclass(frozen=True, slots=True)
class Advance:
    """The switch moves to another stage."""

    stage: SwitchStage
    reason: SwitchReason
    sentence: str
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """The switch is done: of its plan only the counts are kept, and its copies are the target's own."""


# --- single ledgers


@dataclass(frozen=True, slots=True)
class PutTask:
    """A ledger comes into the plan, or in place of what was known of it."""

    task: LedgerTask
    numbered: bool = False
    """Whether it gets the next number, so that results to what was asked before are late."""


@dataclass(frozen=True, slots=True)
class DropTask:
    """A ledger leaves the plan."""

    key: int


@dataclass(frozen=True, slots=True)
class JournalIntent:
    """The intent to copy a ledger is noted, before anyone creates the copy."""

    task: LedgerTask


@dataclass(frozen=True, slots=True)
class ForgetIntent:
    """Our copy is gone: whatever appears under its id from now on is not ours."""

    task: LedgerTask


# --- orders


@dataclass(frozen=True, slots=True)
class AskExecutor:
    """An executor is asked to do something with a ledger; its result quotes the number."""

    task: LedgerTask
    action: SwitchAction
    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class AskAgain:
    """What was asked of a ledger is asked again, under the same number."""

    task: LedgerTask
    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class DirectBrokers:
    """Brokers are told, by the next epoch, where to write."""

    target: str
    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class DirectAgain:
    """The directive that is not committed is told again."""

    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class WriteRegistry:
    """A cluster is to be written into the registry; it is seen there, or it is asked again."""

    entry: RegistryEntry
    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class RemoveRegistry:
    """A cluster is to be taken out of the registry; it is not seen there any more, or it is asked again."""

    name: str
    version: int | None
    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class TakeInventory:
    """All references are to be listed, from now on, and which of their ledgers the target has."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """A cluster's status is to be written: first the source's, then the target's."""

    action: SwitchAction


@dataclass(frozen=True, slots=True)
class WriteStatusAgain:
    """The status that was not answered is asked for again."""

    reason: SwitchReason


Change = (
    DecisionDraft | Count | Reject | Update | UpdateSwitch | Begin | Advance | SettlePlan | PutTask | DropTask
    | JournalIntent | ForgetIntent | AskExecutor | AskAgain | DirectBrokers | DirectAgain | WriteRegistry
    | RemoveRegistry | TakeInventory | WriteStatus | WriteStatusAgain
)  # fmt: skip


def of_ledger(
    task: LedgerTask, verdict: SwitchVerdict, reason: SwitchReason, sentence: str, code: RejectCode | None = None
) -> DecisionDraft:
    """Something to say of a ledger."""
    return DecisionDraft(verdict, reason, sentence, f"ledgers/{task.ledger_id}", code, task, task.op)
