"""The alerts that a key without a state takes over: those that were firing when its checkpoint was lost. Pure."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, ValidationError

from policies.alerts import AlertEntry
from policies.decisions import Alert, Severity
from policies.observations import LONGEST_NAME, LONGEST_SUBJECT, Detail, Observed, Outcome, Reading
from policies.units import Instant, to_millis

MOST_OPEN = 1000
"""The most alerts of one policy and cluster that are taken over; each policy gathers far fewer."""


_Label = Annotated[str, Field(max_length=LONGEST_SUBJECT)]


class OpenAlert(Observed):
    """A firing alert, as it was last published."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    alert: str = Field(max_length=LONGEST_NAME)
    subject: str = Field(max_length=LONGEST_SUBJECT)
    severity: Severity
    reason: str = Field(max_length=LONGEST_NAME)
    summary: Detail
    labels: dict[_Label, _Label] = Field(default_factory=dict, max_length=100)
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
    def build(cls, policy: str, cluster: str, alerts: Sequence[Alert]) -> "OpenAlerts":
        """Make it of the alerts' last records, without those that no policy can have published."""
        taken: list[OpenAlert] = []
        for alert in alerts[:MOST_OPEN]:
            with suppress(ValidationError):
                taken.append(OpenAlert.model_validate(alert, from_attributes=True))
        return cls(cluster=cluster, policy=policy, alerts=tuple(taken))

    def subject(self) -> str:
        """``<cluster>/open-alerts/<policy>``."""
        return f"{self.cluster}/open-alerts/{self.policy}"
