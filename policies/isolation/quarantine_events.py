"""What the quarantine actuator says of each thing it did, refused or could not do: for the audit."""

from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.closed_enum import ClosedEnum
from policies.units import Instant
from policies.wire import Event

SOURCE = "headgate/actuator/quarantine"
"""The CloudEvents `source`."""


class QuarantineOutcome(ClosedEnum):
    """What came of a decision to quarantine a bookie."""

    DONE = "done", "It is in the quarantine group now."
    ALREADY_ASSIGNED = "already_assigned", "It is in a group, by whoever's hand: nothing was touched."
    NOT_REGISTERED = "not_registered", "It is gone, or has registered anew since the decision."
    NO_GROUPS = "no_groups", "The cluster has no groups: a first one would constrain every namespace."
    TOO_MANY = "too_many", "The group holds `max_quarantined` bookies already."
    SUPERSEDED = "superseded", "A decision with a higher sequence is in force."
    EXPIRED = "expired", "The decision is past its `valid_until`."
    SHADOW = "shadow", "The decision is published only: nothing is done."
    FAILED = "failed", "Not possible now, `detail` says why; tried again until the decision expires."


class BookieQuarantined(BaseModel):
    """What came of one decision about one bookie; said when it is new."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str] = "headgate.bookie-quarantined.v1"

    cluster: str = Field(description="The watched cluster.")
    bookie: str = Field(description="Its id as registered.")
    group: str = Field(description="The group the decision wants it in.")
    found_group: str | None = Field(default=None, description="The group it was found in; null: none, or not looked.")
    decision_id: str = Field(description="The decision it carries out.")
    sequence: int = Field(description="Of that decision.")
    outcome: QuarantineOutcome
    leak_window_seconds: float | None = Field(
        default=None, ge=0, description="From the bookie's registration to its quarantine; null unless done."
    )
    quarantined_at: Instant | None = Field(
        default=None, description="When `/bookies` had it, by ZooKeeper's clock where known; null unless done."
    )
    attempt: int = Field(ge=1, description="Which attempt this was; several where others wrote or nobody answered.")
    detail: str | None = Field(default=None, description="What stands in the way, in a few words; never a secret.")


def quarantined_event(said: BookieQuarantined, *, id: str, at: datetime) -> bytes:  # noqa: A002
    """Encode what was done as a record of the audit topic; keyed by cluster."""
    subject = f"{said.cluster}/{said.bookie}"
    event = Event[BookieQuarantined](id=id, source=SOURCE, type=said.event_type, subject=subject, time=at, data=said)
    return event.model_dump_json().encode()
