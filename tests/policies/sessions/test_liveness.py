"""Dead, alive without a registration, not ready: what the readings of a member's health and registration say."""

from typing import Any

import pytest

from policies.observations import Observation
from policies.units import to_millis
from tests.policies.sessions.course import at, health, registered, session, unregistered
from tests.policies.sessions.joined import connected, expired, joined

B1 = connected("b1")


def b1(*readings: Observation, until: float, **settings: Any) -> Any:
    return joined(*B1, *readings, until=until, **settings).members["b1"]


@pytest.mark.parametrize(
    ("readings", "until", "dead"),
    [
        ([health(8, "b1", "unreachable"), *expired("b1", seconds=9)], 10, True),
        ([health(8, "b1", "timeout"), *expired("b1", seconds=9)], 10, True),
        ([health(8, "b1", "error"), *expired("b1", seconds=9)], 10, False),
        ([health(8, "b1", "unreachable")], 10, False),
        ([health(8, "b1", "unreachable"), session(1, "b1", "disconnected", "0xb1")], 40, False),
        ([health(3, "b1", "unreachable"), *connected("b1", seconds=5), *expired("b1", seconds=9)], 10, False),
        ([health(8, "b1", "unreachable"), *expired("b1", seconds=9)], 309, False),
    ],
    ids=["no answer", "too late", "an answer", "a session", "lost by time", "answered since", "long ago"],
)
def test_dead_is_who_is_expired_and_has_not_answered_since(
    readings: list[Observation], until: float, dead: bool
) -> None:
    assert b1(*readings, until=until).liveness.is_dead is dead


@pytest.mark.parametrize(
    ("readings", "since"),
    [
        ([unregistered(10, "b1"), health(12, "b1")], 10),
        ([unregistered(10, "b1"), health(11, "b1", "unreachable"), health(12, "b1")], 11),
        ([unregistered(10, "b1"), health(12, "b1", healthy=False)], None),
        ([unregistered(10, "b1"), health(9, "b1")], None),
        ([registered(10, "b1", "0xb1"), health(12, "b1")], None),
        ([health(12, "b1")], None),
        ([unregistered(10, "b1"), health(12, "b1"), session(13, "b1", "closed", "0xb1")], None),
    ],
    ids=["unregistered", "down in between", "ill", "not asked since", "registered", "never read", "closed"],
)
def test_a_zombie_is_who_is_healthy_and_unregistered_for_two_timeouts(
    readings: list[Observation], since: float | None
) -> None:
    expected = None if since is None else to_millis(at(since)) + 60_000
    assert b1(*readings, until=20).liveness.zombie_ms == expected
    assert b1(*readings, until=400).liveness.zombie_ms is None, "readings past their validity"


@pytest.mark.parametrize(
    ("listed", "asked_at", "until", "not_ready"),
    [
        (False, 22, 30, True),
        (True, 22, 30, False),
        (None, 22, 30, False),
        (False, 19, 30, False),
        (False, 22, 201, False),
    ],
    ids=["not listed", "listed", "not known", "asked before", "settled long ago"],
)
def test_not_ready_is_who_is_back_and_registered_and_not_listed(
    listed: bool | None, asked_at: float, until: float, not_ready: bool
) -> None:
    readings = [*expired("b1", seconds=10), session(20, "b1", "connected", "0xnew"), registered(21, "b1", "0xnew")]
    assert b1(*readings, health(asked_at, "b1", listed=listed), until=until).liveness.is_not_ready is not_ready
