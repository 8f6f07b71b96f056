"""The reading of an actuator is published when it is new, and repeated."""

from datetime import timedelta

import pytest

from connectors.actuation.reports import RepeatedReading
from policies.bookie_disks.publish_state import PublishState
from policies.observations import Outcome
from tests.connectors.actuation.virtual_clock import NOON


@pytest.mark.parametrize(
    ("seconds", "rate", "is_published"),
    [(30, 1, False), (30, 2, True), (60, 1, True), (-3600, 1, True)],
    ids=["the same, soon", "another one", "a minute later", "by a clock that was set back"],
)
def test_a_reading_is_published_if_it_is_new_or_a_minute_old(seconds: int, rate: int, *, is_published: bool) -> None:
    published: list[PublishState] = []
    readings = RepeatedReading(published.append)
    for each, at in ((1, NOON), (rate, NOON + timedelta(seconds=seconds))):
        state = PublishState(cluster="c1", outcome=Outcome.OK, let_through_bytes_per_second=each)
        readings.publish(state, at)
    assert len(published) == 1 + is_published
