"""Events of the Pulsar actuator for the audit topic: each bundle it unloaded or looked up, or refused or failed to."""

from typing import ClassVar

from pydantic import Field

from policies.actuator_events import ActuatorEvent
from policies.closed_enum import ClosedEnum
from policies.units import Instant


class UnloadOutcome(ClosedEnum):
    """What came of a decision about a bundle."""

    DONE = "done", "The brokers did as asked."
    ALREADY_MOVED = "already_moved", "To unload: the member does not serve it (any more)."
    ALREADY_OWNED = "already_owned", "To re-own: a broker serves it already, whichever."
    CONTESTED = (
        "contested",
        "The member serves it, but it is another's too, and ZooKeeper does not say whose, or the member has no "
        "session: an unload could hit the rightful owner.",
    )
    NO_TOPICS = "no_topics", "To re-own: it has no topic that could be looked up, so nobody misses it."
    SUPERSEDED = "superseded", "A decision with a higher sequence is in force."
    EXPIRED = "expired", "The decision is past its `valid_until`."
    SHADOW = "shadow", "The decision is published only: nothing is done."
    FAILED = "failed", "Not possible now, `detail` says why; tried again until the decision expires."


class BundleReport(ActuatorEvent):
    """What came of one decision about one bundle; said when it is new."""

    source: ClassVar[str] = "headgate/actuator/unload"

    member: str = Field(description="The broker that the decision is about, `host:port`.")
    bundle: str = Field(description="`tenant/namespace/range`.")
    decision_id: str = Field(description="The decision it carries out.")
    sequence: int = Field(description="Of that decision.")
    outcome: UnloadOutcome
    served_by: tuple[str, ...] = Field(
        default=(),
        description="The brokers that serve it by their own word, by the last look; empty: none, or no look.",
    )
    attempt: int = Field(ge=1, description="Which attempt this was; several where somebody did not answer.")
    done_at: Instant | None = Field(default=None, description="When it was done, by our clock; null unless done.")
    detail: str | None = Field(default=None, description="What stands in the way, in a few words; never a secret.")

    def subject(self) -> str:
        """The bundle at the broker."""
        return f"{self.cluster}/{self.member}/{self.bundle}"


class BundleUnloaded(BundleReport):
    """What came of one decision to unload a bundle."""

    event_type: ClassVar[str] = "headgate.bundle-unloaded.v1"


class BundleReOwned(BundleReport):
    """What came of one decision to have a bundle owned again."""

    event_type: ClassVar[str] = "headgate.bundle-re-owned.v1"
