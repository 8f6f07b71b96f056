"""The alerts that a key without a state takes over: those that were firing when its checkpoint was lost. Pure."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.alerts import AlertEntry
from policies.decisions import Alert, Severity
from policies.observations import LONGEST_NAME, LONGEST_SUBJECT, Outcome, Reading
from policies.units import Instant, to_millis

MOST_OPEN = 1000
"""The most alerts of one policy and cluster that are taken over; each policy gathers far fewer."""


class OpenAlert(BaseModel):
    """A firing alert, as it was last published."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    alert: str = Field(max_length=LONGEST_NAME)
    subject: str = Field(max_length=LONGEST_SUBJECT)
    severity: Severity
    reason: str
    summary: str
    labels: dict[str, str] = Field(default_factory=dict)
    started_at: Instant
    decided_at: Instant = Field(description="When it was last published.")

    def entry(self) -> AlertEntry:
        """Return it as a book has it."""
        since_ms, said_ms = to_millis(self.started_at), to_millis(self.decided_at)
        return AlertEntry(
            self.alert, self.subject, self.severity.value, self.reason, self.summary, self.labels, since_ms, said_ms
        )


class OpenAlerts(Reading):
    """The alerts of one policy and cluster that fire while the query has no state of them. The last one counts."""

    event_type: ClassVar[str] = "headgate.open-alerts.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="Always `ok`.")
    policy: str = Field(min_length=1, max_length=LONGEST_NAME, description="The policy.")
    alerts: tuple[OpenAlert, ...] = Field(default=(), max_length=MOST_OPEN, description="The firing alerts.")

    @classmethod
    def build(cls, policy: str, cluster: str, alerts: list[Alert]) -> "OpenAlerts":
        """Make it of the alerts' last records."""
        open_alerts = [OpenAlert.model_validate(alert, from_attributes=True) for alert in alerts[:MOST_OPEN]]
        return cls(cluster=cluster, policy=policy, alerts=tuple(open_alerts))

    def subject(self) -> str:
        """``<cluster>/open-alerts/<policy>``."""
        return f"{self.cluster}/open-alerts/{self.policy}"
