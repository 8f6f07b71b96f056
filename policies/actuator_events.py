"""The vocabulary that all actuators share to report what they did, refused or failed to do."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.closed_enum import ClosedEnum


class ReportResult(ClosedEnum):
    """The results that all actuators have in common."""

    APPLIED = "applied", "The watched system has accepted it."
    UNCHANGED = "unchanged", "Nothing had to be done; published when it is new."
    REFUSED = "refused", "Nothing was done, on purpose; published when it is new."
    FAILED = "failed", "The watched system did not accept it; `detail` says why, and it is retried."


@dataclass(frozen=True, slots=True)
class ReportedEffect:
    """A report in the terms that all actuators share, for page, status, metrics and alerts."""

    target: str
    """The thing that was changed, such as a quota's entity or a bookie; empty: the whole cluster."""
    by: str
    """The actuator in words, such as ``the quota actuator``."""
    result: ReportResult
    value: str | None
    """The value in words; after a failure or refusal, the value that is not set."""
    is_held: bool = True
    """Whether Headgate has set the value. It has not, once it put the original back."""
    number: float | None = None
    """The value as a number, if it is one."""
    detail: str | None = None
    """Why it was refused or failed."""
    confirmed_brokers: int | None = None
    """Number of brokers that show the value; None: not checked one by one."""
    broker_count: int | None = None
    since: datetime | None = None
    """The time from which the value holds, if it is not the time of the report."""
    subject: str | None = None
    """The subject that the decision is about; the cluster for all decisions about it; None: the report's subject."""


class ActuatorEvent(BaseModel, ABC):
    """An actuator's report about one cluster; each kind is a subclass with further fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str]
    """The CloudEvents ``type``."""
    source: ClassVar[str]
    """The CloudEvents ``source``: the actuator."""

    cluster: str = Field(description="The watched cluster.")

    @abstractmethod
    def subject(self) -> str:
        """The CloudEvents ``subject``."""

    def effect(self) -> ReportedEffect | None:
        """Return the report in the shared terms; None if it is not about a value that is set."""
        return None
