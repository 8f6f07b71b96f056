"""A decision before it is numbered and dated: what one change of the machine gives, in its order."""

from dataclasses import dataclass, field

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.state import LedgerTask


@dataclass(frozen=True, slots=True)
class DecisionDraft:
    """One thing the machine says."""

    verdict: SwitchVerdict
    reason: SwitchReason
    sentence: str
    subject: str = ""
    """Below the cluster: empty for the switch itself, ``ledgers/5``, ``commands/<key>``."""
    code: RejectCode | None = None
    task: LedgerTask | None = None
    op: int = 0
    details: dict[str, object] = field(default_factory=dict)
    """What an executor needs beyond the ledger, and what it must find."""
    cause: int = -1
    """Which of the events of the step it follows from."""
