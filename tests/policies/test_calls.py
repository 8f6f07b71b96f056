"""Recorded calls of the pure functions that actuators and the precheck call return what they returned."""

from tests.cases import case
from tests.policies.calls import RECORDED, read_calls, repeat


def test_each_recorded_call_returns_what_it_returned() -> None:
    calls = read_calls()
    assert {call.function for call in calls} == set(RECORDED)
    for call in calls:
        with case(call):
            assert repeat(call) == call.result
