"""Another who sets the same quota is expected when it is due."""

import pytest

from policies.throttle.quota_plan import CLOSE_LOOK_SECONDS, Contest, note_put_back
from tests.cases import for_each


def contest(*at: float) -> Contest:
    return Contest(at, 3_000_000)


def test_three_times_the_same_value_are_a_contest_and_another_value_begins_again() -> None:
    found: Contest | None = None
    for at in (0.0, 24.0, 48.0):
        assert found is None or not found.is_contested
        found = note_put_back(found, at, 3_000_000)
    assert found is not None
    assert (found.is_contested, found.period_seconds) == (True, 24.0)
    assert note_put_back(found, 50.0, None) == Contest((50.0,), None)


@for_each(
    ("known", "now", "expected"),
    [
        pytest.param(contest(0.0), 1.0, CLOSE_LOOK_SECONDS, id="often at first"),
        pytest.param(contest(0.0), 50.0, 2.0, id="a share of the time while the period is not known"),
        pytest.param(contest(0.0), 300.0, 5.0, id="as usual after a long time"),
        pytest.param(contest(0.0, 24.0), 74.0, 2.0, id="one period may be chance"),
        pytest.param(contest(0.0, 40.0, 64.0), 114.0, 2.0, id="uneven periods"),
        pytest.param(contest(-27.0, 0.0, 24.0), 30.0, 5.0, id="three seconds apart are even"),
        pytest.param(contest(-27.5, 0.0, 24.0), 30.0, CLOSE_LOOK_SECONDS, id="more are uneven"),
        pytest.param(contest(-24.0, 0.0, 24.0), 30.0, 5.0, id="even periods: as usual in between"),
        pytest.param(contest(-24.0, 0.0, 24.0), 43.0, 2.5, id="in time for the next"),
        pytest.param(contest(-24.0, 0.0, 24.0), 46.0, CLOSE_LOOK_SECONDS, id="often when it is due"),
        pytest.param(contest(-24.0, 0.0, 24.0), 50.0, CLOSE_LOOK_SECONDS, id="or late"),
        pytest.param(contest(-3.0, 0.0, 3.0), 4.0, CLOSE_LOOK_SECONDS, id="always, if the period is short"),
    ],
)
def test_when_to_look(known: Contest, now: float, expected: float) -> None:
    assert known.look_seconds(now, 5.0) == expected


@pytest.mark.parametrize(
    ("known", "now", "expected"),
    [(contest(0.0), 800.0, False), (contest(0.0), 901.0, True), (contest(0.0, 24.0), 90.0, False),
     (contest(0.0, 24.0), 100.0, True)],
)  # fmt: skip
def test_when_it_is_over(known: Contest, now: float, expected: bool) -> None:
    assert known.is_over(now) is expected
