"""What counts as bounded in a soak."""

from collections.abc import Callable

import pytest

from bench.growth import LIMITS, Life, growth, table, verdict

HOUR = 3600.0
NAME = "JVM: resident, MiB"


def life(value: Callable[[float], float], *, seconds: float = 1800.0, began: float = 0.0) -> Life:
    times = [began + each for each in range(15, int(seconds), 15)]
    return Life(began, [(at, {NAME: value(at - began)}) for at in times])


@pytest.mark.parametrize(
    ("value", "is_bounded"),
    [
        pytest.param(lambda _: 1000.0, True, id="level"),
        pytest.param(lambda s: 1000.0 - s / 10, True, id="falling"),
        pytest.param(lambda s: 1000.0 + 140 * s / HOUR, True, id="14 % an hour"),
        pytest.param(lambda s: 1000.0 + 160 * s / HOUR, False, id="16 % an hour"),
        pytest.param(lambda s: 10.0 + 30 * s / HOUR, True, id="a little of what is small"),
        pytest.param(lambda s: min(1000.0, 5 * s), True, id="it grows in the warm-up alone"),
        pytest.param(lambda s: 1000.0 + s % 300, True, id="a saw-tooth"),
        pytest.param(lambda s: 1000.0 + s % 300 + s / 4, False, id="a saw-tooth whose floor rises"),
        pytest.param(lambda s: 5000.0 if s == 1785 else 1000.0, True, id="one peak at the end"),
    ],
)
def test_growth_beyond_a_share_an_hour_is_not_bounded(value: Callable[[float], float], is_bounded: bool) -> None:
    assert growth(life(value), NAME).is_bounded is is_bounded


def test_every_name_has_one_limit() -> None:
    names = [f"JVM: {end}" for end in LIMITS]
    assert [sum(name.endswith(end) for end in LIMITS) for name in names] == [1] * len(names)


def test_the_slope_is_that_of_an_hour_whatever_the_span() -> None:
    found = growth(life(lambda s: 500 + s / 60, seconds=1200.0, began=4000.0), NAME)
    assert found.an_hour == pytest.approx(60.0)


@pytest.mark.parametrize(("first", "status"), [(1.0, 1), (0.0, 0)], ids=["in both lives", "in one alone"])
def test_what_grows_in_each_life_grows_and_fails_the_run(
    first: float, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    lives = [life(lambda s: 1000.0 + first * s), life(lambda s: 1000.0 + s, began=1800.0)]
    growths = {NAME: [growth(each, NAME) for each in lives]}
    assert ("**grows**" in list(table(growths))[-1]) is (status == 1)
    assert verdict(growths, lives) == status
    assert (NAME in capsys.readouterr().out) is (status == 1)


def test_a_short_run_judges_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    lives = [life(lambda s: 1000.0 + s, seconds=120.0), life(lambda _: 1000.0, seconds=120.0, began=120.0)]
    growths = {NAME: [growth(each, NAME) for each in lives]}
    assert verdict(growths, lives) == 0
    assert "too short to judge" in capsys.readouterr().out
