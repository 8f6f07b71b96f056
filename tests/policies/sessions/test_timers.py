"""When the next step may have something to say, without a reading."""

from datetime import datetime
from typing import Any

from policies.book import find_wake_at
from policies.observations import Observation
from policies.sessions.policy import list_timers
from tests.cases import for_each
from tests.policies.sessions.course import at, health, owned, session, tree, unregistered
from tests.policies.sessions.joined import after, connected, expired, joined


def wake_at(*readings: Observation, until: float, review_at: datetime | None = None, **block: Any) -> float | None:
    """The second of the next step."""
    facts = after(joined(*readings, until=until, **block))
    moment = find_wake_at((ms for ms in list_timers(facts) if ms is not None), review_at, facts.now_ms)
    return None if moment is None else (moment - at(0)).total_seconds()


@for_each(
    ("readings", "until", "expected"),
    [
        ([], 0, None),
        (connected("b1"), 1, 300.001),
        ([*connected("b1"), session(5, "b1", "disconnected", "0xb1")], 6, 30),
        ([*connected("b1", "b2", "b3"), *expired("b1", seconds=10)], 11, 30),
        ([*connected("b1", "b2", "b3"), *expired("b1", seconds=10)], 31, 40),
        ([*connected("b1"), owned(1, "b1", "0xb1"), tree(10)], 12, 70),
    ],
    ids=[
        "nothing is known", "a reading ceases to count", "a session lapses", "a shutdown is confirmed",
        "a loss of the fleet is a while ago", "an orphan",
    ],
)  # fmt: skip
def test_the_next_step_is_when_something_may_change(
    readings: list[Observation], until: float, expected: float | None
) -> None:
    assert wake_at(*readings, until=until) == expected


def test_a_zombie_is_looked_at_when_it_is_one() -> None:
    readings = [*connected("b1"), unregistered(10, "b1"), health(11, "b1")]
    assert wake_at(*readings, until=12, zombie_after="1m") == 70


def test_a_due_alert_wakes_as_well_and_what_is_past_does_not() -> None:
    assert wake_at(*connected("b1"), until=1, review_at=at(7)) == 7
    assert wake_at(*connected("b1"), until=8, review_at=at(7)) == 300.001


def test_a_plan_that_is_carried_out_when_it_is_published_is_looked_at_again_at_once() -> None:
    lost = [*connected("b1", "b2"), owned(1, "b1", "0xb1"), *expired("b1", seconds=10)]
    back = [session(20, "b1", "connected", "0xnew"), owned(20, "b1", "0xnew")]
    assert wake_at(*lost, *back, until=20) == 20.001
