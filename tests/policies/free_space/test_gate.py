"""From the raw factor to the published one: down at once, up with patience."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.free_space.alerts import render_factor
from policies.free_space.gate import FactorVerdict, Gate, HoldReason, is_misleading, move
from policies.units import millis_of, to_millis
from tests.cases import for_each
from tests.policies.scenario import HARD, NO_PATIENCE, at, throttle

A, B = (1, "/data/a"), (2, "/data/b")
NOW = to_millis(at(1000))


def gate(factor: float, changed_ago: float | None = None, *stopped_by: tuple[int, str]) -> Gate[tuple[int, str]]:
    """A gate that changed so many seconds ago."""
    return Gate(factor, None if changed_ago is None else to_millis(at(1000 - changed_ago)), stopped_by)


@for_each(
    ("before", "raw", "stopping", "recovered", "verdict", "factor", "hold"),
    [
        pytest.param(gate(1.0), 1.0, set(), set(), "no_change", 1.0, None, id="open stays open"),
        pytest.param(gate(1.0), 0.5, set(), set(), "lower", 0.5, None, id="lowers at once"),
        pytest.param(gate(1.0, 1), 0.5, set(), set(), "lower", 0.5, None, id="lowers at once after a change"),
        pytest.param(gate(0.5, 1), 0.0, {A}, set(), "lower", 0.0, None, id="stops at once after a change"),
        pytest.param(gate(0.5), 0.8, set(), set(), "raise", 0.8, None, id="rises freely if it never changed"),
        pytest.param(gate(0.5, 29.9), 0.8, set(), set(), "hold", 0.5, "min_hold", id="waits for min_hold"),
        pytest.param(gate(0.5, 30), 0.8, set(), set(), "raise", 0.8, None, id="rises exactly at min_hold"),
        pytest.param(gate(0.5, 29.9), 1.0, set(), set(), "hold", 0.5, "min_hold", id="opening waits too"),
        pytest.param(gate(0.5, 99), 0.549, set(), set(), "no_change", 0.5, None, id="a rise too small"),
        pytest.param(gate(0.5, 99), 0.55, set(), set(), "raise", 0.55, None, id="a rise of exactly min_change"),
        pytest.param(gate(0.3, 99), 0.25, set(), set(), "lower", 0.25, None, id="a fall of exactly min_change"),
        pytest.param(gate(0.5, 99), 0.451, set(), set(), "no_change", 0.5, None, id="a fall too small"),
        pytest.param(gate(0.97, 99), 1.0, set(), set(), "raise", 1.0, None, id="a small rise to 1"),
        pytest.param(gate(0.03, 99), 0.0, {A}, set(), "lower", 0.0, None, id="a small fall to 0"),
        pytest.param(gate(0.0, 99, A), 0.0, {A}, set(), "no_change", 0.0, None, id="stopped stays stopped"),
        pytest.param(gate(0.0, 99, A), 1.0, set(), set(), "hold", 0.0, "recovery_margin", id="waits for the margin"),
        pytest.param(gate(0.0, 99, A), 1.0, set(), {A}, "raise", 1.0, None, id="opens when recovered"),
        pytest.param(gate(0.0, 1, A), 1.0, set(), {A}, "hold", 0.0, "min_hold", id="recovered, but too soon"),
        pytest.param(gate(0.0, 99, A, B), 1.0, set(), {A}, "hold", 0.0, "recovery_margin", id="all must recover"),
        pytest.param(gate(0.0, 99, A, B), 1.0, set(), {A, B}, "raise", 1.0, None, id="all have recovered"),
        pytest.param(gate(0.0, 99), 0.03, set(), set(), "no_change", 0.0, None, id="a rise from 0 too small"),
        pytest.param(gate(0.0, 99), 0.5, set(), set(), "raise", 0.5, None, id="stopped by no volume"),
    ],
)
def test_moves(
    before: Any, raw: float, stopping: set[Any], recovered: set[Any], verdict: str, factor: float, hold: str | None
) -> None:
    after = move(before, raw, stopping, recovered, NOW, throttle(HARD))
    assert (after.verdict, after.gate.factor, after.hold) == (
        FactorVerdict(verdict), factor, HoldReason(hold) if hold else None,
    )  # fmt: skip


def test_what_stops_a_stopped_cluster_is_added_and_must_be_recovered_when_it_opens() -> None:
    assert move(gate(0.0, 9, A), 0.0, {B}, set(), NOW, throttle(HARD)).gate.stopped_by == (A, B)
    held = move(gate(0.0, 9, A, B), 1.0, set(), {A, B}, NOW, throttle(HARD))
    assert (held.hold, held.gate.stopped_by) == (HoldReason.MIN_HOLD, (A, B))
    again = move(held.gate, 1.0, set(), {B}, NOW + 60_000, throttle(HARD))
    assert (again.hold, again.gate.factor) == (HoldReason.RECOVERY_MARGIN, 0.0), "within the margin again"


def test_a_hold_by_time_says_when_it_ends_and_one_by_the_margin_ends_by_no_time() -> None:
    assert move(gate(0.5, 10), 1.0, set(), set(), NOW, throttle(HARD)).rises_at_ms == to_millis(at(1020))
    assert move(gate(0.0, 10, A), 1.0, set(), set(), NOW, throttle(HARD)).rises_at_ms is None


@pytest.mark.parametrize("raw", [0.001, 0.4999, 0.5001, 0.9999])
def test_without_patience_the_gate_follows_at_once(raw: float) -> None:
    assert move(gate(0.5, 0), raw, set(), set(), NOW, throttle(HARD, NO_PATIENCE)).gate.factor == raw


factors = st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]) | st.floats(0, 1)
volumes = st.sets(st.sampled_from([A, B]))
patience = st.fixed_dictionaries(
    {"min_hold": st.sampled_from(["0s", "30s", "5m"]), "min_change": st.sampled_from([0.0, 0.05, 1.0])}
)


@given(factors, st.none() | st.integers(0, 400), volumes, factors, volumes, volumes, patience)
def test_invariants_of_every_move_and_moving_again_at_once_changes_nothing(
    factor: float,
    changed_ago: int | None,
    stopped_by: set[tuple[int, str]],
    raw: float,
    stopping: set[tuple[int, str]],
    recovered: set[tuple[int, str]],
    block: dict[str, Any],
) -> None:
    settings = throttle(HARD, block)
    before = gate(factor, changed_ago, *(sorted(stopped_by) if factor == 0.0 else ()))
    after = move(before, raw, stopping, recovered - stopping, NOW, settings)
    moved = after.gate.factor
    assert moved in (factor, raw)
    assert (moved < factor) == (after.verdict is FactorVerdict.LOWER)
    assert (moved > factor) == (after.verdict is FactorVerdict.RAISE)
    assert (after.verdict is FactorVerdict.HOLD) == (after.hold is not None)
    if moved != factor:
        assert after.gate.changed_ms == NOW
    else:
        assert after.gate.changed_ms == before.changed_ms
    if raw in (0.0, 1.0) or abs(raw - factor) > settings.min_change:
        assert moved <= raw, "lowering is never delayed"
    if moved > factor and changed_ago is not None:
        assert changed_ago * 1000 >= millis_of(settings.min_hold)
    if moved > factor == 0.0:
        assert not set(before.stopped_by) - recovered
    assert moved == 0.0 or not after.gate.stopped_by
    if after.rises_at_ms is not None:
        assert after.rises_at_ms > NOW
    assert move(after.gate, raw, stopping, recovered - stopping, NOW, settings).gate == after.gate


@for_each(
    ("published", "left", "expected"),
    [
        (None, 29, True), (None, 31, False), (29, None, True), (31, 29, True), (30, 30, False), (29, 30, True),
        (300, 40, False), (20, 9, True), (20, 10, False), (9, 20, True), (None, None, False),
    ],
)  # fmt: skip
def test_a_published_time_to_full_misleads_by_a_factor_of_two_once_either_is_soon(
    published: int | None, left: int | None, *, expected: bool
) -> None:
    """In minutes; the alert begins below 30."""
    at, full = (None if minutes is None else NOW + 60_000 * minutes for minutes in (published, left))
    assert is_misleading(at, full, NOW, throttle(HARD)) is expected


@for_each(
    ("factor", "text"),
    [(0.0, "0.00"), (0.004, "less than 0.01"), (0.5, "0.50"), (0.996, "more than 0.99"), (1.0, "1.00")],
)
def test_a_factor_that_is_neither_0_nor_1_looks_like_neither(factor: float, text: str) -> None:
    assert render_factor(factor) == text
