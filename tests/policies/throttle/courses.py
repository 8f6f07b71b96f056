"""Arbitrary courses of readings and settings, for the property tests."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from hypothesis import strategies as st

from policies.observations import Observation, Outcome
from policies.policy import Step
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ThrottleState
from tests.policies.scenario import GB, HARD, NO_PATIENCE, SOFT_AND_HARD, Run, at, failed, log_dirs, members

Batch = tuple[int, tuple[Observation, ...]]
"""(second of the step, what it sees)"""

LOG_DIRS = ("/data/a", "/data/b")
brokers = st.integers(1, 3)
free_bytes = st.sampled_from(
    [0, GB, GB + 1, 1_100_000_000, 1_100_000_001, 2 * GB, 3 * GB, 4 * GB, 5 * GB, 5 * GB + 1, 50 * GB]
)


Read = Callable[[int], Observation]
"""Takes a reading at a second. To make a strategy takes longer than to draw from it, so each is made once."""

_dirs = st.dictionaries(st.sampled_from(LOG_DIRS), st.none() | free_bytes, max_size=2)
_good: st.SearchStrategy[Read] = st.builds(lambda broker, dirs: lambda at: log_dirs(at, broker, dirs), brokers, _dirs)
_bad: st.SearchStrategy[Read] = st.builds(
    lambda broker, outcome: lambda at: failed(at, broker, outcome),
    brokers,
    st.sampled_from([o for o in Outcome if o is not Outcome.OK]),
)
_membership: st.SearchStrategy[Read] = st.builds(
    lambda listed, outcome: lambda at: members(at, *listed, outcome=outcome),
    st.lists(brokers, max_size=3, unique=True),
    st.sampled_from([Outcome.OK, Outcome.OK, Outcome.TIMEOUT]),
)
_batches = st.tuples(
    # Around every length that matters: a poll, min_hold, a heartbeat, validity, departed_hold.
    st.sampled_from([0, 1, 10, 30, 31, 60, 299, 300, 301, 3600]),
    st.sampled_from([0, 0, 0, 5, 80, 300]),
    st.lists(st.one_of(_good, _good, _bad, _membership), max_size=4),
)
"""Seconds since the batch before, the age of its readings, and the readings."""


def _course(batches: list[tuple[int, int, list[Read]]]) -> list[Batch]:
    course: list[Batch] = []
    seconds = 0
    for pause, age, reads in batches:
        seconds += pause
        seen = {o.id: o for o in (read(seconds - age) for read in reads)}
        course.append((seconds, tuple(seen.values())))
    return course


courses = st.lists(_batches, min_size=1, max_size=8).map(_course)
"""Steps with readings, some of them late, in virtual time that never goes backwards."""

settings_blocks: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda limits, patience, more: {**limits, **patience, **more},
    st.sampled_from(
        [HARD, SOFT_AND_HARD, {"hard": {"available_ratio_below": 0.01}, "soft": SOFT_AND_HARD["soft"]}, {}]
    ),
    st.sampled_from([{}, NO_PATIENCE, {"min_hold": "5m", "departed_hold": "0s"}, {"preset": "strimzi"}]),
    st.fixed_dictionaries(
        {"fallback_factor": st.sampled_from([0.0, 0.5, 1.0]), "heartbeat": st.sampled_from(["10m", "90m"])},
        optional={"alert_grace": st.just("20s"), "validity": st.just("45s"), "alert_repeat": st.just("11m")},
    ),
)


class Recorded(Run):
    """A run that remembers what each step was given."""

    def __init__(self, settings: ThrottleSettings) -> None:
        super().__init__(settings)
        self.inputs: list[tuple[datetime, tuple[Observation, ...]]] = []

    def step(self, observations: Sequence[Observation], now: datetime) -> Step[ThrottleState]:
        self.inputs.append((now, tuple(observations)))
        return super().step(observations, now)


def run_of(course: list[Batch], settings: ThrottleSettings, until: int = 0) -> Recorded:
    """Run the policy over a course as a replay would, and the clock on for `until` seconds."""
    run = Recorded(settings)
    for seconds, seen in course:
        run.see(*seen, seconds=seconds)
    if until:
        run.until((run.steps[-1][0] - at(0)).total_seconds() + until)
    return run
