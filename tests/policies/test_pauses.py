"""When a policy only watches: a pause by command."""

from datetime import UTC, datetime, timedelta

from policies.pauses import PauseCommand, PolicyPause, commanded, describe, open_at
from policies.units import to_millis
from tests.cases import for_each

SATURDAY = datetime(2026, 11, 21, tzinfo=UTC)


def hours(number: float) -> datetime:
    return SATURDAY + timedelta(hours=number)


def command(until: float | None, **more: str) -> PauseCommand:
    return PauseCommand(cluster="c", policy="throttle", until=None if until is None else hours(until), **more)


@for_each(
    ("commands", "until"),
    [
        ([(0, command(2))], 2),
        ([(0, command(2)), (1, command(None))], None),
        ([(0, command(2)), (1, command(5))], 5),
        ([(0, command(5)), (1, command(2))], 2),
        ([(3, command(2))], None),
        ([(0, command(10_000))], 30 * 24),
    ],
    ids=["paused", "resumed", "longer", "shorter", "over when it came", "thirty days at most"],
)
def test_the_last_command_counts(commands: list[tuple[float, PauseCommand]], until: float | None) -> None:
    pause = commanded(None, [(hours(at), each) for at, each in commands])
    assert pause == (None if until is None else PolicyPause(to_millis(hours(until)), "", "", keeps=True))


def test_who_paused_it_and_why_is_said() -> None:
    pause = commanded(None, [(hours(0), command(2, actor="alice@bastion", reason="disks swapped"))])
    quiet = open_at(pause, hours(1))
    assert quiet is not None
    assert "(paused by alice@bastion: disks swapped)" in describe(quiet, "throttle", "c")
    assert open_at(pause, hours(2)) is None
