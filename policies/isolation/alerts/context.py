"""The names of the isolation alerts, and the data that their conditions read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.alerts import AlertBook, Condition
from policies.decisions import Severity
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge import IsolationJudgement
from policies.isolation.state import QuarantineOrder

UNASSIGNED = "unassigned-bookie"
IDLE = "unassigned-bookie-idle"
MISSING = "group-member-missing"
LEAK = "isolation-leak"
INFEASIBLE = "placement-infeasible"
HEADROOM = "isolation-headroom"
UNREAD = "bookies-unread"
OVERDUE = "quarantine-overdue"
UNCONFIRMED = "bookies-unconfirmed"
NO_GROUPS = "no-bookie-groups"
JOINED = "bookie-joined-in-place"


OF_BOOKIES = frozenset({UNASSIGNED, IDLE, MISSING, OVERDUE, NO_GROUPS, JOINED})
OF_NAMESPACES = frozenset({LEAK, INFEASIBLE, HEADROOM})


@dataclass(frozen=True, slots=True)
class IsolationAlertContext:
    """What the conditions are read from."""

    facts: IsolationFacts
    judgement: IsolationJudgement
    orders: Sequence[QuarantineOrder]
    """In force after this step."""
    book: AlertBook
    started_ms: int

    def subject(self, name: str) -> str:
        """Of a bookie or a namespace."""
        return f"{self.facts.cluster}/{name}"

    def of_bookie(
        self, alert: str, severity: Severity, reason: str, bookie: str, summary: str,
        labels: Mapping[str, str] | None = None,
    ) -> Condition:  # fmt: skip
        """Something that is the case with one bookie."""
        return Condition(
            alert=alert,
            subject=self.subject(bookie),
            severity=severity,
            reason=reason,
            summary=summary,
            labels={"cluster": self.facts.cluster, "bookie": bookie, **(labels or {})},
            evidence=self.facts.evidence,
        )
