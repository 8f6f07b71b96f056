"""When a policy only watches a cluster: while a person has paused it, or in a maintenance window of the settings.

The policy then goes on deciding in shadow mode: actuators change nothing, and no alert is published. What they have set
stays as it is, unless a person paused with `--release`: then they take it back. Conditions that still hold at the end
are published then, once. Pure.
"""

import re
from collections.abc import Iterable
from datetime import datetime, time, timedelta
from typing import ClassVar, Literal, Self

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.observations import LONGEST_DETAIL, LONGEST_NAME, Outcome, Reading
from policies.units import Instant, PositiveDuration, from_millis, parse_duration, to_millis

LONGEST_PAUSE = parse_duration("30d")
_LONGEST_WINDOW = parse_duration("7d")
_DAY = timedelta(days=1)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class PauseCommand(Reading):
    """A person's command that a policy only watches a cluster, or acts again."""

    event_type: ClassVar[str] = "headgate.pause-command.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="Always `ok`, as a command is not read from a system.")
    policy: str = Field(min_length=1, max_length=LONGEST_NAME, description="The policy.")
    until: Instant | None = Field(description="When the pause ends by itself, 30 days ahead at most; null: resume now.")
    actor: str = Field(default="", max_length=LONGEST_NAME, description="The person who asks.")
    reason: str = Field(default="", max_length=LONGEST_DETAIL, description="Why, in the actor's words.")
    keep: bool = Field(
        default=True, description="Whether actuators leave what they have set; otherwise they take it back."
    )

    def subject(self) -> str:
        """``<cluster>/pauses/<policy>``."""
        return f"{self.cluster}/pauses/{self.policy}"


class PolicyPause(Struct, array_like=True, frozen=True):
    """A stored pause: its end, the person, the reason, and whether actuators leave what they have set."""

    until_ms: int
    actor: str
    reason: str
    keeps: bool = False


class MaintenanceWindow(BaseModel):
    """A time in which a policy only watches: `start: 02:00` on `weekdays` (UTC), or once from an instant on."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    start: str = Field(description="`HH:MM` in UTC, each week on `weekdays`; or an instant: `2026-12-01T02:00:00Z`.")
    length: PositiveDuration = Field(description="How long it lasts, a week at most.")
    weekdays: tuple[Weekday, ...] = Field(default=(), description="With `HH:MM`: on which days; default: each.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.length > _LONGEST_WINDOW:
            raise ValueError("length: a window lasts 7d at most; for longer use mode: shadow")
        if _TIME.fullmatch(self.start) is None:
            if self._once() is None:
                raise ValueError(f"start: '{self.start}' is neither HH:MM nor an instant such as 2026-12-01T02:00:00Z")
            if self.weekdays:
                raise ValueError("weekdays: has no meaning with an instant: write start as HH:MM, or leave it out")
        return self

    def until(self, now: datetime) -> datetime | None:
        """The end of the window that is open now; None if none is open."""
        ends = [start + self.length for start in self._starts(now) if start <= now < start + self.length]
        return max(ends, default=None)

    def next_start(self, now: datetime) -> datetime | None:
        """When the window opens next; None: never again."""
        return min((start for start in self._starts(now) if start > now), default=None)

    def _once(self) -> datetime | None:
        try:
            instant = datetime.fromisoformat(self.start)
        except ValueError:
            return None
        return instant if instant.tzinfo is not None else None

    def _starts(self, now: datetime) -> Iterable[datetime]:
        """The starts of all windows that may be open now, or will open in the coming week."""
        once = self._once() if _TIME.fullmatch(self.start) is None else None
        if once is not None:
            return (once,)
        hour, minute = map(int, self.start.split(":"))
        today = datetime.combine(now.date(), time(hour, minute), now.tzinfo)
        days = (today + n * _DAY for n in range(-8, 9))
        return tuple(day for day in days if not self.weekdays or _WEEKDAYS[day.weekday()] in self.weekdays)


class Quiet(Struct, array_like=True, frozen=True):
    """A pause or maintenance window in which a policy only watches."""

    until_ms: int
    keeps: bool = True
    """Whether actuators leave what they have set."""
    actor: str | None = None
    """The person who paused the policy; None: a maintenance window of the settings is open."""
    reason: str = ""

    @property
    def why(self) -> str:
        """``paused by alice@host: upgrade``, or ``a maintenance window of the settings``."""
        if self.actor is None:
            return "a maintenance window of the settings"
        return f"paused by {self.actor or 'nobody named'}: {self.reason or 'no reason given'}"


def quiet_at(pause: PolicyPause | None, windows: Iterable[MaintenanceWindow], now: datetime) -> Quiet | None:
    """The pause that is in force, or else the window that is open longest; None: the policy acts."""
    if pause is not None and to_millis(now) < pause.until_ms:
        return Quiet(pause.until_ms, pause.keeps, pause.actor, pause.reason)
    ends = [until for window in windows if (until := window.until(now)) is not None]
    return Quiet(to_millis(max(ends))) if ends else None


def next_edge_ms(pause: PolicyPause | None, windows: Iterable[MaintenanceWindow], now: datetime) -> int | None:
    """When a pause or window begins or ends next, in milliseconds since the epoch; None: never by itself."""
    edges = [
        to_millis(at) for window in windows for at in (window.until(now), window.next_start(now)) if at is not None
    ]
    if pause is not None and to_millis(now) < pause.until_ms:
        edges.append(pause.until_ms)
    return min(edges, default=None)


def commanded(before: PolicyPause | None, commands: Iterable[tuple[datetime, PauseCommand]]) -> PolicyPause | None:
    """Return the pause after these commands, each with its time; the last one counts."""
    for at, command in commands:
        until = None if command.until is None else min(command.until, at + LONGEST_PAUSE)
        before = None
        if until is not None and until > at:
            before = PolicyPause(to_millis(until), command.actor, command.reason, command.keep)
    return before


def describe(quiet: Quiet, policy: str, cluster: str) -> str:
    """Return one sentence: the policy only watches, the end, the cause, and the fate of the values that are set."""
    effect = "actuators leave everything as it is set" if quiet.keeps else "actuators take back what they have set"
    return (
        f"Policy {policy} only watches {cluster} until {from_millis(quiet.until_ms):%Y-%m-%d %H:%M:%S} UTC "
        f"({quiet.why}): {effect}, and no alert begins or ends"
    )
