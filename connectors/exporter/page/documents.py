"""The response models of the API under `/api/v1`, from which OpenAPI is generated."""

from functools import cache, reduce
from operator import or_
from types import GenericAlias
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from connectors.loop_snapshot import MAX_RECENT_DECISIONS
from connectors.policy_view import PolicyDetail
from connectors.registration import connectors_of
from policies.closed_enum import ClosedEnum
from policies.decisions import Mode, Severity
from policies.registry import POLICIES
from policies.units import Instant

SHOWN_ALERTS = 200
"""More than anybody reads on one page."""


class Document(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(frozen=True)


class Concern(ClosedEnum):
    """Whether somebody should look, by the alerts that fire and by what is stale."""

    CRITICAL = "critical", "A critical alert fires: to be looked at now."
    STALE = "stale", "What was decided has run out without a successor: the loop is dead or far behind."
    WARNING = "warning", "A warning fires: to be looked at within the day."
    INFO = "info", "Something is good to know."
    CALM = "calm", "Nothing fires, and all that was decided is current."


class DecisionLine(Document):
    """A decision, or an alert, as a line to read."""

    decision_id: str
    policy: str
    cluster: str
    subject: str = Field(description="What it is about.")
    verdict: str
    reason: str
    sentence: str = Field(description="Why, with the numbers that decided.")
    decided_at: Instant
    mode: Mode
    stale: bool = Field(description="Whether it should have had a successor by now.")
    alert: str | None = Field(description="The alert's name; null for a decision.")
    severity: Severity | None = Field(description="Of an alert.")


class AlertLine(Document):
    """An alert that fires."""

    alert: str
    severity: Severity
    policy: str
    cluster: str
    subject: str
    reason: str
    summary: str
    started_at: Instant
    stale: bool = Field(description="Whether nobody has repeated it in time: it may have ended.")


class PolicyStatus(Document):
    """What one policy says of a cluster. Every policy has this; `detail` is its own."""

    policy: str
    stale: bool = Field(description="Whether any of its decisions should have had a successor by now.")
    decision_count: int = Field(description="How many of its decisions are in force for the cluster.")
    verdicts: dict[str, int] = Field(description="These by verdict.")
    latest: DecisionLine | None = Field(
        description="The newest of them, of those that tell of the whole where there are such; null: there is none."
    )
    numbers: dict[str, float] = Field(description="The numbers of the newest, by the names of its fields.")


class ClusterStatusBase(Document):
    """A cluster, as every policy has it."""

    cluster: str
    concern: Concern
    alert_count: int = Field(description="Alerts that fire about it.")


class AnswersStatus(Document):
    """Whether and how soon the loop answers the canary: from a reading to its decision."""

    latest_seconds: float | None = Field(description="Of the last answer; null: there was none yet.")
    unanswered_seconds: float = Field(description="For how long one has been waited for; 0: for none.")
    silent: bool = Field(description="Whether that is too long: the loop is dead or far behind.")


class LoopStatusBase(Document):
    """The whole loop."""

    version: str
    settings_hash: str
    complete: bool = Field(description="False while the history is still read: then nothing is shown of it.")
    problem: str | None = Field(description="Why it is not complete, or why nothing new can be read.")
    answers: AnswersStatus | None = Field(description="Null: there is no canary.")
    cluster_counts: dict[Concern, int] = Field(description="Clusters by whether somebody should look.")
    alert_count: int = Field(description="Alerts that fire.")


class AlertsDocument(Document):
    """The alerts that fire, the gravest and newest first."""

    alert_count: int
    alerts: tuple[AlertLine, ...] = Field(description=f"At most {SHOWN_ALERTS} of them.")


class DecisionsDocument(Document):
    """The last decisions and alerts that changed anything, the newest first; what is only repeated is left out."""

    decisions: tuple[DecisionLine, ...] = Field(description=f"At most {MAX_RECENT_DECISIONS}.")


class HistoryDocument(Document):
    """Numbers of the last hour, as long as this process has run."""

    interval_seconds: float = Field(description="From one point to the next.")
    ends_at: Instant | None = Field(description="Of the last point; null: there is none yet.")
    loop: dict[str, tuple[float | None, ...]] = Field(description="Of the loop itself; as those of clusters.")
    clusters: dict[str, dict[str, tuple[float | None, ...]]] = Field(
        description="By cluster and by what is drawn, oldest first; null: not known then. All end at `ends_at`."
    )


@cache
def detail_models() -> dict[str, type[PolicyDetail]]:
    """Each policy's own model, where it has one."""
    found = {name: connectors_of(kind).detail for name, kind in POLICIES.items()}
    return {name: detail.model for name, detail in found.items() if detail is not None}


@cache
def policy_status_model() -> Any:
    """A policy's status with the details of the registered policies."""
    kinds: Any = reduce(or_, detail_models().values(), type(None))
    detail: Any = (kinds, Field(description="The policy's own numbers; null: it has none, or knows nothing yet."))
    return create_model("PolicyStatus", __base__=PolicyStatus, __doc__=PolicyStatus.__doc__, detail=detail)


@cache
def cluster_model() -> Any:
    """A cluster with its policies."""
    policies: Any = (_many(policy_status_model()), Field(description="Those that know anything of it."))
    base = ClusterStatusBase
    return create_model("ClusterStatus", __base__=base, __doc__=base.__doc__, policies=policies)


@cache
def loop_model() -> Any:
    """The loop with its clusters."""
    clusters: Any = (_many(cluster_model()), Field(description="By name."))
    return create_model("LoopStatus", __base__=LoopStatusBase, __doc__=LoopStatusBase.__doc__, clusters=clusters)


@cache
def clusters_model() -> Any:
    """All clusters."""
    clusters: Any = (_many(cluster_model()), Field(description="By name."))
    return create_model("ClustersDocument", __base__=Document, __doc__="All clusters.", clusters=clusters)


def _many(kind: Any) -> Any:
    return GenericAlias(tuple, (kind, ...))
