"""Rules 1 to 3 of the specification: what one volume lets producers write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.free_space.limits import Limit, LimitHit, as_settings, assess
from tests.cases import for_each

GB = 10**9


def below(value: float | str) -> Limit:
    """A share of the volume when it is a float, else bytes."""
    if isinstance(value, float):
        return Limit(available_ratio_below=value)
    return Limit.model_validate({"available_bytes_below": value})


@for_each(
    ("free", "total", "soft", "hard", "factor", "hit"),
    [
        pytest.param(4 * GB, 100 * GB, "5GB", 0.01, 0.75, LimitHit.SOFT, id="the example of the specification"),
        pytest.param(4 * GB, 100 * GB, "5GB", "1GB", 0.75, LimitHit.SOFT, id="both in bytes"),
        pytest.param(4 * GB, 100 * GB, 0.05, 0.01, 0.75, LimitHit.SOFT, id="both shares"),
        pytest.param(4 * GB, 100 * GB, 0.05, "1GB", 0.75, LimitHit.SOFT, id="soft share, hard bytes"),
        pytest.param(4 * GB, 100 * GB, "5GB", None, 0.8, LimitHit.SOFT, id="soft alone reaches down to nothing"),
        pytest.param(0, 100 * GB, "5GB", None, 0.0, LimitHit.SOFT, id="soft alone, nothing free"),
        pytest.param(4 * GB, 100 * GB, None, None, 1.0, LimitHit.NONE, id="no limits"),
        pytest.param(0, 100 * GB, None, None, 1.0, LimitHit.NONE, id="no limits, nothing free"),
        pytest.param(GB, 100 * GB, None, "1GB", 0.0, LimitHit.HARD, id="exactly at hard bytes"),
        pytest.param(GB + 1, 100 * GB, None, "1GB", 1.0, LimitHit.NONE, id="one byte above hard bytes"),
        pytest.param(GB, 100 * GB, None, 0.01, 0.0, LimitHit.HARD, id="exactly at hard share"),
        pytest.param(GB + 1, 100 * GB, None, 0.01, 1.0, LimitHit.NONE, id="one byte above hard share"),
        pytest.param(5 * GB, 100 * GB, "5GB", "1GB", 1.0, LimitHit.SOFT, id="exactly at soft"),
        pytest.param(5 * GB + 1, 100 * GB, "5GB", "1GB", 1.0, LimitHit.NONE, id="one byte above soft"),
        pytest.param(
            5 * GB - 1, 100 * GB, "5GB", "1GB", (4 * GB - 1) / (4 * GB), LimitHit.SOFT, id="one byte below soft"
        ),
        pytest.param(GB, 100 * GB, "5GB", "1GB", 0.0, LimitHit.HARD, id="hard goes before soft"),
        pytest.param(3, 10, None, 0.3, 0.0, LimitHit.HARD, id="double division: 3/10 <= 0.3"),
        pytest.param(1, 3, None, 0.3333333333333333, 0.0, LimitHit.HARD, id="double division: 1/3"),
        pytest.param(0, 0, None, 0.0, 0.0, LimitHit.HARD, id="no size: ratio is 0, at a limit of 0"),
        pytest.param(5, 0, None, 0.1, 0.0, LimitHit.HARD, id="no size: ratio is 0 whatever is free"),
        pytest.param(5, 0, 0.1, None, 1.0, LimitHit.SOFT, id="no size, soft share alone"),
        pytest.param(5, 0, None, "4B", 1.0, LimitHit.NONE, id="no size, bytes"),
        pytest.param(0, 100, None, 0, 0.0, LimitHit.HARD, id="hard 0 bytes, nothing free"),
        pytest.param(1, 100, None, 0, 1.0, LimitHit.NONE, id="hard 0 bytes, one free"),
        pytest.param(100, 100, None, 1.0, 0.0, LimitHit.HARD, id="hard 1.0 is always reached"),
        pytest.param(120, 100, None, 1.0, 1.0, LimitHit.NONE, id="more free than there is"),
        pytest.param(2**63 - 1, 2**63 - 1, "5GB", 0.01, 1.0, LimitHit.NONE, id="largest"),
        pytest.param(3, 10, 0.3, "3B", 0.0, LimitHit.HARD, id="equal in bytes: hard is reached first"),
        pytest.param(50, 100, "10B", 0.5, 0.0, LimitHit.HARD, id="soft below hard, at hard"),
        pytest.param(9, 100, "10B", 0.5, 0.0, LimitHit.HARD, id="soft below hard, at both"),
        # A share of 0.1 + 0.2 is 0.30000000000000004, so 3 of 10 bytes are at or below it.
        pytest.param(3, 10, 0.1 + 0.2, "2B", 1.0, LimitHit.SOFT, id="not crossing: soft is 3 bytes"),
        pytest.param(7, 10, 0.9, "6B", 1 / 3, LimitHit.SOFT, id="not crossing: soft is 9 bytes"),
        # The ratio is 0, so soft is reached; its bytes are 0, not above hard.
        pytest.param(8, 0, 0.1, "5B", 1.0, LimitHit.SOFT, id="no size: limits that cross slow nobody down"),
    ],
)
def test_the_factor_of_a_volume(
    free: int, total: int, soft: float | str | None, hard: float | str | None, factor: float, hit: LimitHit
) -> None:
    found = assess(free, total, None if hard is None else below(hard), None if soft is None else below(soft))
    assert found[0] is hit
    assert found[1] == pytest.approx(factor, abs=1e-15)


sizes = st.integers(0, 200) | st.integers(0, 2**63 - 1)
limits = st.builds(below, st.floats(0, 1) | st.sampled_from([0.1, 0.3, 0.5]) | st.integers(0, 200))


@given(sizes, sizes, sizes, st.none() | limits, st.none() | limits)
def test_more_free_bytes_never_give_a_lower_factor(
    free: int, more: int, total: int, hard: Limit | None, soft: Limit | None
) -> None:
    free, more = sorted((free, more))
    first, second = assess(free, total, hard, soft), assess(more, total, hard, soft)
    assert 0.0 <= first[1] <= second[1] <= 1.0


@given(sizes, sizes, limits, limits)
def test_a_factor_of_0_at_hard_of_1_above_both_and_in_between_between(
    free: int, total: int, hard: Limit, soft: Limit
) -> None:
    found = assess(free, total, hard, soft)
    assert (found[0] is LimitHit.HARD) == hard.reached(free, total)
    assert (found[0] is LimitHit.NONE) == (not hard.reached(free, total) and not soft.reached(free, total))
    if found[0] is LimitHit.SOFT and found[1] < 1.0:
        assert soft.in_bytes(total) > hard.in_bytes(total)


@for_each(
    ("limit", "free", "total", "margin", "reached"),
    [
        (below("1000B"), 1000, 9, 0.0, True),
        (below("1000B"), 1001, 9, 0.0, False),
        (below("1000B"), 1100, 9, 0.1, True),
        (below("1000B"), 1101, 9, 0.1, False),
        (below(0.25), 25, 100, 0.0, True),
        (below(0.25), 50, 100, 1.0, True),
        (below(0.25), 51, 100, 1.0, False),
    ],
)
def test_a_limit_is_left_when_it_is_clear_by_the_margin(
    limit: Limit, free: int, total: int, margin: float, reached: bool
) -> None:
    assert limit.reached(free, total, margin=margin) is reached


def test_a_limit_is_audited_as_the_settings_have_it() -> None:
    assert as_settings(below("5GB")) == {"available_bytes_below": 5 * GB}
    assert as_settings(below(0.0)) == {"available_ratio_below": 0.0}
    assert as_settings(None) is None
