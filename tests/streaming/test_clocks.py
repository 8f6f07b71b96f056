"""What is remembered, after a clock was set right: instants go back with it, everything else stays."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from msgspec import Struct

from policies.alerts import AlertBook, AlertEntry
from policies.policy import PolicyKind
from policies.registry import POLICIES
from policies.units import InstantMs
from streaming.clocks import move_instants_back

NOW = 1_800_000_000_000
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
LENGTHS = {"timeout_ms", "interval_ms", "valid_ms"}


class Inner(Struct, array_like=True, frozen=True):
    at: InstantMs
    hold_ms: int = 60_000


class Outer(Struct, array_like=True, frozen=True):
    inner: Inner | None
    samples: tuple[tuple[InstantMs, int], ...] = ()
    by_name: dict[str, Inner] = {}
    attempted: tuple[InstantMs, str] | None = None
    lost: tuple[InstantMs, ...] = ()
    ended: dict[str, InstantMs] = {}
    sequence: int = 0
    usable_bytes: int = 0
    is_known: bool = True
    until: InstantMs | None = None
    length_ms: int = 0


def test_instants_of_the_leap_go_back_with_the_clock_and_nothing_else_changes() -> None:
    leapt = NOW + DAY_MS
    before = Outer(
        Inner(leapt), ((leapt - 5, leapt), (NOW - 5, leapt + 10**12)), {"a": Inner(leapt + 60_000)},
        (leapt, "id"), (NOW, leapt), {"b": leapt},
        sequence=leapt, usable_bytes=leapt, until=NOW + 1000, length_ms=leapt,
    )  # fmt: skip
    assert move_instants_back(before, NOW, DAY_MS) == Outer(
        Inner(NOW), ((NOW - 5, leapt), (NOW - 5, leapt + 10**12)), {"a": Inner(NOW + 60_000)},
        (NOW, "id"), (NOW, NOW), {"b": NOW},
        sequence=leapt, usable_bytes=leapt, until=NOW + 1000, length_ms=leapt,
    )  # fmt: skip


def structs_in(hint: Any) -> Iterator[type[Struct]]:
    """The structs that a value of a type may hold."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
        for each in get_type_hints(hint).values():
            yield from structs_in(each)
    for each in get_args(hint):
        yield from structs_in(each)


@pytest.mark.parametrize("kind", POLICIES.values())
def test_every_instant_of_a_policys_state_is_declared_as_one(kind: PolicyKind) -> None:
    """By their names all of them end in `_ms`; a length of time is named here."""
    for struct in set(structs_in(kind.state)):
        for name, hint in get_type_hints(struct, include_extras=True).items():
            if name.endswith("_ms") and name not in LENGTHS:
                assert "InstantMs" in str(hint) or "An instant" in str(hint), f"{struct.__name__}.{name}"


def test_a_state_without_such_instants_is_the_same_object() -> None:
    state = Outer(None, (), {}, sequence=NOW)
    assert move_instants_back(state, NOW, DAY_MS) == state
    assert move_instants_back(None, NOW, DAY_MS) is None


def test_alerts_that_fired_in_the_leap_are_repeated_in_time() -> None:
    entry = AlertEntry("a", "s", "warning", "r", "t", {"n": "x"}, NOW + YEAR_MS, NOW + YEAR_MS)
    book = move_instants_back(AlertBook((entry,), NOW + YEAR_MS), NOW, YEAR_MS)
    assert (book.entries[0].since_ms, book.entries[0].said_ms) == (NOW, NOW)
    assert book.sequence == NOW + YEAR_MS, "consumers have seen it"
