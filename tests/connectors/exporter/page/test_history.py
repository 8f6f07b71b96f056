"""The fills of the last day: nothing that mattered is lost between points, and memory is bounded."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.exporter.page import history
from connectors.exporter.page.history import HOUR, POINTS, WINDOWS, Course, History
from connectors.views import Fill
from tests.connectors.exporter.page.world import START

KEY = ("payments", "throttle")
STEP = timedelta(seconds=history.INTERVAL_SECONDS)


def fill(free: float, place: str = "broker 1 /a", factor: float | None = 1.0) -> Fill:
    return Fill(place, free, 200.0, 50.0, factor)


def recorded(fills: list[Fill | None]) -> History:
    kept = History()
    for step, each in enumerate(fills):
        kept.add(START + step * STEP, {} if each is None else {KEY: each})
    return kept


def course(kept: History, window: str = "1h") -> Course:
    found = kept.course(KEY, WINDOWS[window])
    assert found is not None
    return found


FILLS = st.lists(st.none() | st.builds(fill, st.integers(0, 1000)), min_size=1, max_size=300)


@given(FILLS)
def test_every_window_ends_now_and_shows_the_least_free_space_of_each_stretch(fills: list[Fill | None]) -> None:
    kept = recorded(fills)
    for window in WINDOWS.values():
        stretches = [fills[begin : begin + window.every] for begin in range(0, len(fills), window.every)]
        least = [min((f.free_bytes for f in each if f is not None), default=None) for each in stretches]
        if len(stretches[-1]) < window.every and least[-1] is None:
            least.pop()  # a stretch that is not over, and of which nothing is known
        while least and least[0] is None:
            del least[0]  # before the first moment
        expected = least[-POINTS:]
        found = kept.course(KEY, window)
        if not any(each is not None for each in expected):
            assert found is None
            continue
        assert found is not None
        assert [None if m is None else m.fill.free_bytes for m in found.moments] == expected
        assert found.moments[-1] is None or found.moments[-1].at == START + (len(fills) - 1) * STEP


def test_a_course_has_the_disk_the_limits_and_the_factor_of_each_moment() -> None:
    seen = [fill(900.0, "broker 1 /a"), None, Fill("broker 2 /b", 5.0, None, 7.0, None)]
    moments = course(recorded(seen)).moments
    assert [None if each is None else each.fill for each in moments] == seen


@pytest.mark.parametrize(("window", "expected"), [("1h", 10.0), ("6h", 10.0), ("1d", 10.0)])
def test_the_rate_is_what_the_disk_takes_and_deletions_are_below_zero(window: str, expected: float) -> None:
    """150 bytes in each 15 s, then as many come back."""
    down = [fill(1e6 - 150 * step) for step in range(240)]
    assert course(recorded(list(down)), window).moments[-1].bytes_per_second == pytest.approx(expected)  # type: ignore[union-attr]
    back = course(recorded([*down, *down[::-1]]), "1h").moments[-1]
    assert back is not None
    assert back.bytes_per_second == pytest.approx(-expected)


def test_another_disk_or_a_gap_gives_no_rate() -> None:
    before = [fill(100.0)] * 5
    for seen in ([*before, fill(50.0, "broker 2 /b")], [fill(100.0), *[None] * 20, fill(90.0)]):
        last = course(recorded([*seen])).moments[-1]
        assert last is not None
        assert last.bytes_per_second is None


def test_disks_that_limit_in_turn_have_rates() -> None:
    """Each loses 150 bytes in 15 s."""
    seen = [fill(1e6 - 150 * step, f"broker {step % 3} /a") for step in range(60)]
    rates = [None if each is None else each.bytes_per_second for each in course(recorded([*seen])).moments[6:]]
    assert rates == [pytest.approx(10.0)] * 54


def test_a_fill_is_forgotten_a_day_after_it_was_seen_last() -> None:
    kept = recorded([fill(1.0), *[None] * (POINTS * 24)])
    assert kept.document().clusters.keys() == {"payments"}
    kept.add(START, {})
    assert kept.document().clusters == {}


def test_memory_is_bounded_for_however_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_FILLS", 3)
    kept = History()
    for step in range(POINTS + 70):
        kept.add(START, {(f"c{number}", "throttle"): fill(1.0, f"broker {step} /a") for number in range(10)})
    document = kept.document()
    assert document.clusters.keys() == {"c0", "c1", "c2"}
    assert {len(values) for named in document.clusters.values() for values in named.values()} == {POINTS}
    shown = kept.course(("c0", "throttle"), HOUR)
    assert shown is not None
    assert shown.moments[-1] is not None
    assert shown.moments[-1].fill.place == "another disk"
    assert kept.course(("c9", "throttle"), HOUR) is None
