"""How timers fire without records: the query publishes each timer, and a follower appends a tick when it is due.

The query runs no micro-batch without records, so a timer of a silent cluster would never fire. So each timer it sets is
published to a compacted topic; a follower of that topic appends a tick to a topic that the query reads, when the timer
is due. A tick only causes a batch (and, after a clock was set back, names a key whose timer must be set again); which
timers fire is decided by the query's own state and clock. So a forged tick costs one batch and changes no decision, and
a lost one delays a timer until the next.
"""

from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.closed_enum import ClosedEnum
from policies.decisions import deterministic_id
from policies.units import AnyInstant, to_millis
from policies.wire import encode_event

TIMERS = "timers"
"""The topic (without its prefix) of timers; keyed by a digest of policy and cluster, the latest is the earliest due."""
TICKS = "ticks"
"""The topic (without its prefix) of ticks."""


class TickReason(ClosedEnum):
    """Why a tick was appended."""

    START = "start", "The query is being started: timers may have come due while it was away."
    TIMER = "timer", "A timer is due."
    SILENCE = "silence", "No micro-batch for a while: one shows that the query lives, and fires lost timers."
    CLOCK = "clock", "The query's clock was set back: a cluster's timer is set again by the new clock."


class Timer(BaseModel):
    """A timer of the query: it steps the cluster at `due_at`, even without a reading."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str] = "headgate.timer.v1"

    policy: str = Field(description="The policy of the timer.")
    due_at: AnyInstant = Field(description="When it fires.")


class Tick(BaseModel):
    """Makes the query run a micro-batch, in which every timer fires that is due.

    A tick that names a cluster makes the query step it and set its timer again; it decides no more than is due.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str] = "headgate.tick.v1"

    reason: TickReason = Field(description="Why it was appended.")
    policy: str | None = Field(default=None, description="The policy whose timer is set again; null: none.")
    cluster: str | None = Field(default=None, description="The cluster whose timer is set again; null: none.")


def timer_key(policy: str, cluster: str) -> str:
    """The key of a timer's record: short, however long a cluster's name is."""
    return deterministic_id(TIMERS, policy, cluster)


def timer_record(policy: str, cluster: str, due_at: datetime, *, now: datetime) -> tuple[str, bytes]:
    """Return a timer's key and its event; a repeated batch gives the same bytes."""
    key = timer_key(policy, cluster)
    timer, id_ = Timer(policy=policy, due_at=due_at), f"{key}/{to_millis(due_at)}"
    return key, encode_event(Timer.event_type, id_, "headgate/query", TIMERS, now, timer)


def tick_event(tick: Tick, *, id: str, at: datetime) -> bytes:  # noqa: A002
    """Encode a tick."""
    return encode_event(Tick.event_type, id, "headgate/ticker", TIMERS, at, tick)
