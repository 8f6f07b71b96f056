"""When a policy only watches a cluster: while a person has paused it.

The policy then goes on deciding in shadow mode: actuators change nothing, and no alert is published. What they have set
stays as it is, unless the person paused with `--release`: then they take it back. Conditions that still hold at the end
are published then, once. Pure.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from msgspec import Struct
from pydantic import Field

from policies.observations import LONGEST_DETAIL, LONGEST_NAME, Outcome, Reading
from policies.units import Instant, from_millis, parse_duration, to_millis

LONGEST_PAUSE = parse_duration("30d")


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
    actor: str = ""
    reason: str = ""
    keeps: bool = True


def open_at(pause: PolicyPause | None, now: datetime) -> PolicyPause | None:
    """The pause that is in force; None: the policy acts."""
    return pause if pause is not None and to_millis(now) < pause.until_ms else None


def commanded(before: PolicyPause | None, commands: Iterable[tuple[datetime, PauseCommand]]) -> PolicyPause | None:
    """Return the pause after these commands, each with its time; the last one counts."""
    for at, command in commands:
        until = None if command.until is None else min(command.until, at + LONGEST_PAUSE)
        before = None
        if until is not None and until > at:
            before = PolicyPause(to_millis(until), command.actor, command.reason, command.keep)
    return before


def describe(pause: PolicyPause, policy: str, cluster: str) -> str:
    """Return one sentence: the policy only watches, the end, the cause, and the fate of the values that are set."""
    effect = "actuators leave everything as it is set" if pause.keeps else "actuators take back what they have set"
    why = f"paused by {pause.actor or 'nobody named'}: {pause.reason or 'no reason given'}"
    return (
        f"Policy {policy} only watches {cluster} until {from_millis(pause.until_ms):%Y-%m-%d %H:%M:%S} UTC ({why}): "
        f"{effect}, and no alert begins or ends"
    )
