"""Which log dirs are cordoned and opened: from alerts, records and what the brokers show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.cordons import CordonStep, CordonVerdict, plan_cordons

V, W = (1, "/a"), (2, "/b")
NONE: frozenset[tuple[int, str]] = frozenset()


@pytest.mark.parametrize(
    ("wanted", "is_recorded", "is_cordoned", "is_confirmed", "step"),
    [
        pytest.param(True, False, False, False, CordonVerdict.CORDON, id="at its limit"),
        pytest.param(True, False, True, False, None, id="cordoned by an operator"),
        pytest.param(True, True, True, True, None, id="cordoned by Headgate"),
        pytest.param(True, True, False, False, CordonVerdict.CORDON, id="recorded, then killed"),
        pytest.param(True, True, False, True, CordonVerdict.FORGET, id="opened by hand"),
        pytest.param(True, False, None, False, None, id="cannot be read"),
        pytest.param(False, True, True, True, CordonVerdict.OPEN, id="recovered"),
        pytest.param(False, True, False, True, CordonVerdict.OPEN, id="recovered, and opened by hand"),
        pytest.param(False, False, True, False, None, id="an operator's cordon stays"),
        pytest.param(None, True, True, True, None, id="no alert is known"),
    ],
)
def test_the_next_operation(
    wanted: bool | None,
    is_recorded: bool,
    is_cordoned: bool | None,
    is_confirmed: bool,
    step: CordonVerdict | None,
) -> None:
    steps = plan_cordons(
        {} if wanted is None else {V: wanted},
        {V} if is_recorded else NONE,
        {} if is_cordoned is None else {V: is_cordoned},
        {V} if is_confirmed else NONE,
        NONE,
    )
    assert list(steps) == ([] if step is None else [CordonStep(V, step)])


def test_what_was_opened_by_hand_stays_open() -> None:
    assert list(plan_cordons({V: True}, NONE, {V: False}, NONE, {V})) == []


volumes = st.sampled_from([V, W])


@given(
    st.dictionaries(volumes, st.booleans()),
    st.sets(volumes),
    st.dictionaries(volumes, st.booleans()),
    st.sets(volumes),
    st.sets(volumes),
)
def test_only_what_headgate_recorded_is_opened_and_only_what_is_open_is_cordoned(
    wanted: dict[tuple[int, str], bool],
    recorded: set[tuple[int, str]],
    cordoned: dict[tuple[int, str], bool],
    confirmed: set[tuple[int, str]],
    by_hand: set[tuple[int, str]],
) -> None:
    for step in plan_cordons(wanted, recorded, cordoned, confirmed, by_hand):
        if step.verdict is CordonVerdict.OPEN:
            assert step.volume in recorded
        else:
            assert cordoned[step.volume] is False
            assert wanted[step.volume]
