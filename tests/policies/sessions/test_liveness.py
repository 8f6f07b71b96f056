"""Dead, alive without a registration, not ready: what the readings of a member's health and registration say."""

from typing import Any

import pytest

from policies.observations import Observation
from policies.sessions.fleet import Certainty
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.sessions.course import at, health, registered, session, unregistered
from tests.policies.sessions.joined import connected, expired, joined

B1 = connected("b1")
REFUSED = "unreachable"
LOST = expired("b1", seconds=9)


def b1(*readings: Observation, until: float, **settings: Any) -> Any:
    return joined(*B1, *readings, until=until, **settings).members["b1"]


@for_each(
    ("readings", "until", "dead"),
    [
        ([health(7, "b1", REFUSED), health(8, "b1", REFUSED), *expired("b1", seconds=9)], 10, True),
        ([health(8, "b1", REFUSED), *expired("b1", seconds=9)], 10, False),
        ([health(6, "b1", REFUSED), health(7, "b1"), health(8, "b1", REFUSED), *expired("b1", seconds=9)], 10, False),
        ([health(7, "b1", REFUSED), health(8, "b1", "timeout"), *expired("b1", seconds=9)], 10, False),
        ([health(7, "b1", "timeout"), health(8, "b1", "timeout"), *expired("b1", seconds=9)], 10, False),
        ([health(7, "b1", "error"), health(8, "b1", "error"), *expired("b1", seconds=9)], 10, False),
        ([health(7, "b1", REFUSED), health(8, "b1", REFUSED)], 10, False),
        (
            [health(7, "b1", REFUSED), health(8, "b1", REFUSED), session(1, "b1", "disconnected", "0xb1")],
            40,
            False,
        ),
        (
            [health(3, "b1", REFUSED), *connected("b1", seconds=5), health(8, "b1", REFUSED), *LOST],
            10,
            False,
        ),
        ([health(7, "b1", REFUSED), health(8, "b1", REFUSED), *expired("b1", seconds=9)], 309, False),
    ],
    ids=[
        "refused twice", "refused once", "answered in between", "slow at last", "slow", "an answer", "a session",
        "lost by time", "connected since", "long ago",
    ],
)  # fmt: skip
def test_dead_is_who_is_expired_and_has_refused_twice_since(
    readings: list[Observation], until: float, dead: bool
) -> None:
    assert b1(*readings, until=until).liveness.is_dead is dead


@for_each(
    ("readings", "since"),
    [
        ([unregistered(10, "b1"), health(12, "b1")], 10),
        ([*expired("b1", seconds=9), unregistered(10, "b1"), health(12, "b1")], 10),
        (
            [
                *expired("b1", seconds=9),
                unregistered(10, "b1"),
                session(15, "b1", "connected", "0xnew"),
                health(16, "b1"),
            ],
            15,
        ),
        ([unregistered(10, "b1"), health(11, "b1", "unreachable"), health(12, "b1")], 12),
        ([unregistered(10, "b1"), health(11, "b1", "timeout"), health(12, "b1")], 11),
        ([unregistered(10, "b1"), health(12, "b1", healthy=False)], None),
        ([unregistered(10, "b1"), health(9, "b1")], None),
        ([registered(10, "b1", "0xb1"), health(12, "b1")], None),
        ([health(12, "b1")], None),
        ([unregistered(10, "b1"), health(12, "b1"), session(13, "b1", "closed", "0xb1")], None),
    ],
    ids=[
        "unregistered",
        "without a session",
        "a session since",
        "down in between",
        "slow in between",
        "ill",
        "not asked since",
        "registered",
        "never read",
        "closed",
    ],
)
def test_a_zombie_is_who_is_healthy_and_unregistered_for_long_enough(
    readings: list[Observation], since: float | None
) -> None:
    absence = b1(*readings, until=20).liveness.unregistered
    expected = None if since is None else (to_millis(at(since)), to_millis(at(since)) + 300_000)
    assert (absence and (absence.gone_ms, absence.due_ms)) == expected
    assert b1(*readings, until=400).liveness.unregistered is None, "readings past their validity"


@for_each(
    ("readings", "until", "certainty"),
    [
        ([unregistered(10, "b1"), health(12, "b1")], 14, Certainty.ONCE),
        ([unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1")], 16, Certainty.ONCE),
        ([unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1"), health(17, "b1")], 18, Certainty.SURE),
        ([unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1"), health(17, "b1")], 24.9, Certainty.SURE),
        ([unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1"), health(17, "b1")], 25, Certainty.STALE),
        ([health(9, "b1"), unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1")], 16, Certainty.ONCE),
    ],
    ids=["one of each", "health once", "two of each", "just fresh", "too old", "healthy before it was gone"],
)
def test_it_is_certain_by_two_fresh_readings_of_each_after_it_was_gone(
    readings: list[Observation], until: float, certainty: Certainty
) -> None:
    absence = b1(*readings, until=until).liveness.unregistered
    assert absence is not None
    assert absence.certainty is certainty


@pytest.mark.parametrize(
    ("listed", "asked_at", "until", "since"),
    [
        (False, 22, 30, 22),
        (True, 22, 30, None),
        (None, 22, 30, None),
        (False, 19, 30, None),
        (False, 22, 330, None),
    ],
    ids=["not listed", "listed", "not known", "asked before", "asked long ago"],
)
def test_not_ready_may_be_who_is_back_and_registered_and_not_listed(
    listed: bool | None, asked_at: float, until: float, since: float | None
) -> None:
    readings = [*expired("b1", seconds=10), session(20, "b1", "connected", "0xnew"), registered(21, "b1", "0xnew")]
    absence = b1(*readings, health(asked_at, "b1", listed=listed), until=until).liveness.unlisted
    assert (absence and absence.gone_ms) == (None if since is None else to_millis(at(since)))
