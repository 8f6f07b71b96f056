"""What is remembered, after a clock was set right: instants go back with it, everything else stays."""

from msgspec import Struct

from policies.alerts import AlertBook, AlertEntry
from policies.succession import FARTHEST_AHEAD
from policies.units import millis_of
from streaming.leap import turned_back

NOW = 1_800_000_000_000
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS


class Inner(Struct, array_like=True, frozen=True):
    at_ms: int
    hold_ms: int = 60_000


class Outer(Struct, array_like=True, frozen=True):
    inner: Inner | None
    samples: tuple[tuple[int, int], ...] = ()
    by_name: dict[str, Inner] = {}
    sequence: int = 0
    usable_bytes: int = 0
    is_known: bool = True
    until_ms: int | None = None


def test_instants_of_the_leap_go_back_with_the_clock_and_nothing_else_changes() -> None:
    leapt = NOW + DAY_MS
    before = Outer(
        Inner(leapt), ((leapt - 5, 17), (NOW - 5, leapt + 10**12)), {"a": Inner(leapt + 60_000)},
        sequence=leapt, usable_bytes=leapt, until_ms=NOW + 1000,
    )  # fmt: skip
    assert turned_back(before, NOW, DAY_MS) == Outer(
        Inner(NOW), ((NOW - 5, 17), (NOW - 5, leapt + 10**12)), {"a": Inner(NOW + 60_000)},
        sequence=leapt, usable_bytes=leapt, until_ms=NOW + 1000,
    )  # fmt: skip


def test_a_state_without_such_instants_is_the_same_object() -> None:
    state = Outer(None, (), {}, sequence=NOW)
    assert turned_back(state, NOW, DAY_MS) == state
    assert turned_back(None, NOW, DAY_MS) is None


def test_alerts_that_fired_in_the_leap_are_repeated_in_time() -> None:
    entry = AlertEntry("a", "s", "warning", "r", "t", {"n": "x"}, NOW + YEAR_MS, NOW + YEAR_MS)
    book = turned_back(AlertBook((entry,), NOW + YEAR_MS), NOW, YEAR_MS)
    assert (book.entries[0].since_ms, book.entries[0].said_ms) == (NOW, NOW)
    assert NOW + DAY_MS < book.sequence < NOW + millis_of(FARTHEST_AHEAD), "as great as consumers believe"
