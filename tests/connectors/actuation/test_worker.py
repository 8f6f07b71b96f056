"""However actions come, no minute has more than it may."""

from hypothesis import given
from hypothesis import strategies as st

from connectors.actuation.worker import ActionRate


@given(st.integers(1, 5), st.lists(st.floats(0, 40), max_size=60))
def test_no_minute_has_more_actions_than_allowed_and_waiting_as_told_is_enough(most: int, pauses: list[float]) -> None:
    now = 0.0
    rate = ActionRate(most, lambda: now)
    done: list[float] = []
    for pause in pauses:
        now += pause
        now += rate.wait_seconds()
        assert rate.wait_seconds() < 1e-6
        rate.count_action()
        done.append(now)
    assert all(later - earlier >= 60 - 1e-6 for earlier, later in zip(done, done[most:], strict=False))
