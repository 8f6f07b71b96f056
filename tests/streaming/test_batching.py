"""What a batch may merge, and what not: docs/design/architecture.md says it, random cuts hold it."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.observations import Observation
from policies.registry import POLICIES
from policies.throttle import LogDirs
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.policy import ThrottlePolicy
from policies.throttle.state import KafkaClusterState, ThrottleState
from policies.units import to_millis
from policies.wire import ObservedRecord
from streaming.host import PolicyHost
from tests.golden import read_reference
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, at, failed, log_dirs, throttle
from tests.policies.virtual_run import NEVER_STEPPED, step_hosted
from tests.streaming.test_operator import COURSE, SETTINGS, STANDING, TIMERS, UNBROKEN
from tests.streaming.transitions import Transitions
from tests.system.undisturbed import Batch as Planned
from tests.system.undisturbed import Undisturbed

READINGS = st.lists(st.tuples(st.integers(1, 3), st.one_of(st.none(), st.integers(0, 60))), min_size=1, max_size=40)
"""Broker, and gigabytes free; None: it could not be read. One every five seconds."""


def course(readings: Sequence[tuple[int, int | None]]) -> list[Observation]:
    return [
        failed(n * 5, broker) if free is None else log_dirs(n * 5, broker, free * GB)
        for n, (broker, free) in enumerate(readings)
    ]


def cut(observed: Sequence[Observation], places: set[int]) -> list[list[Observation]]:
    bounds = sorted({0, *(place for place in places if 0 < place < len(observed)), len(observed)})
    return [list(observed[start:end]) for start, end in itertools.pairwise(bounds)]


def known_after(observed: Sequence[Observation], cuts: set[int], seed: int) -> KafkaClusterState:
    """What is known after all of it, taken in batches that end before these places, each in any order."""
    policy, state = ThrottlePolicy(CLUSTER, throttle(SOFT_AND_HARD)), None
    for batch in cut(observed, cuts):
        now = max(o.at for o in batch)
        random.Random(seed).shuffle(batch)
        state = policy.step(state, batch, now).state
    assert isinstance(state, ThrottleState)
    return state.cluster


@given(READINGS, st.sets(st.integers(1, 39)), st.integers(0, 3))
def test_what_is_known_depends_on_the_readings_and_not_on_how_they_were_cut(
    readings: list[tuple[int, int | None]], cuts: set[int], seed: int
) -> None:
    observed = course(readings)
    assert known_after(observed, cuts, seed) == known_after(observed, set(range(40)), 0)


def settled(observed: Sequence[Observation], cuts: set[int]) -> float:
    """The factor in force when, after these batches, nothing has changed for five minutes."""
    policy, kept, in_force = ThrottlePolicy(CLUSTER, throttle(SOFT_AND_HARD)), NEVER_STEPPED, 1.0
    batches = cut(observed, cuts)
    last = {o.reading.broker: o.reading for o in observed if isinstance(o.reading, LogDirs)}
    for seconds in range(len(observed) * 5, len(observed) * 5 + 300, 10):
        batches.append([Observation(f"{seconds}-{b}", at(seconds), reading) for b, reading in last.items()])
    for batch in batches:
        kept, step = step_hosted(policy, kept, batch, max(o.at for o in batch))
        for decision in step.decisions:
            if isinstance(decision, ThrottleFactor):
                in_force = decision.factor
    return in_force


@given(READINGS, st.sets(st.integers(1, 39)))
def test_once_nothing_changes_the_factor_does_not_depend_on_how_it_came_about(
    readings: list[tuple[int, int | None]], cuts: set[int]
) -> None:
    observed = course(readings)
    assert settled(observed, cuts) == settled(observed, set(range(40)))


@pytest.mark.parametrize("seed", range(20))
def test_a_live_run_is_reproduced_byte_for_byte_from_its_batches(seed: int) -> None:
    """Whatever order the records of a batch come in."""
    run, replayed = Undisturbed(PolicyHost({"throttle": SETTINGS}), "headgate"), []
    for number, (seconds, taken) in enumerate(COURSE):
        records = [ObservedRecord(r.topic, r.partition, r.offset, r.appended_ms, r.value) for r in taken]
        shuffled = random.Random(seed).sample(records, len(records))
        transitions = run.step(Planned(number, to_millis(at(seconds)), ()), shuffled, begins=number == 0)
        replayed += [tuple(output) for transition in transitions for output in transition.outputs]
    live = [(r.topic.removeprefix("headgate."), r.key, r.value) for out in UNBROKEN for r in out if r.topic != TIMERS]
    assert sorted(replayed) == sorted(live)
    assert STANDING.removeprefix("headgate.") in {topic for topic, _, _ in replayed}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_records_within_a_batch_changes_no_byte(policy: str, seed: int) -> None:
    course = read_reference(policy)
    readings, settings = course.records(), POLICIES[policy].settings.model_validate(course.settings)

    def written(shuffled: bool) -> list[bytes]:
        transitions = Transitions(PolicyHost({policy: settings}), policy, course.cluster)
        numbered = enumerate(readings)
        records = [ObservedRecord(f"headgate.{of}", 0, n, ms + n, value.encode()) for n, (of, ms, value) in numbered]
        if shuffled:
            random.Random(seed).shuffle(records)
        seconds = (readings[0][1] - to_millis(at(0))) / 1000 + 600
        return [value for _, _, value in transitions.take(seconds, *records).outputs]

    assert written(shuffled=True) == written(shuffled=False)
