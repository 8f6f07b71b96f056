"""The state: small, immutable, the same after a trip through the store; and bounded, as the work is."""

import weakref
from itertools import cycle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decisions import Alert
from policies.throttle.policy import ThrottlePolicy
from tests.calls import count_calls
from tests.examples import examples
from tests.policies.scenario import CLUSTER, GB, HARD, SOFT_AND_HARD, Run, at, log_dirs, members, throttle
from tests.policies.throttle.test_properties import Batch, courses, run_of, settings_blocks
from tests.policies.virtual_run import NEVER_STEPPED, Kept, step_hosted


@pytest.mark.parametrize("preset", [None, "strimzi"])
def test_a_reading_that_comes_after_a_later_membership_ages_by_its_own_time(preset: str | None) -> None:
    """The broker has no volume whose age would be looked at."""
    settings = throttle(HARD, preset=preset, fallback_factor=0.5)
    run = Run(settings).see(members(100, 1, 2)).see(log_dirs(20, 1, {}), seconds=100).until(350)
    counted = [(d.decided_at, d.brokers.counted) for d in run.decisions]
    assert counted[-1][1] == 0
    assert all(count == 0 for when, count in counted if when >= at(320))
    kept = NEVER_STEPPED
    for now, step in run.steps:
        seen = [members(100, 1, 2)] if kept is NEVER_STEPPED else [log_dirs(20, 1, {})] if now == at(100) else []
        kept, again = step_hosted(ThrottlePolicy(CLUSTER, settings), kept, seen, now)
        assert (again.decisions, again.wake_at) == (step.decisions, step.wake_at)
        kept = kept.stored()


@given(courses, settings_blocks, st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=50, max_size=50))
def test_processes_that_take_turns_decide_as_one_does(
    course: list[Batch], block: dict[str, object], turns: list[tuple[int, bool]]
) -> None:
    """Each goes on from what it knew when it was last asked; some steps are lost and repeated, here or elsewhere."""
    plain = run_of(course, throttle(block))
    processes, kept = [ThrottlePolicy(CLUSTER, throttle(block)) for _ in range(3)], NEVER_STEPPED
    for (now, observations), (_, alone), (turn, is_lost) in zip(plain.inputs, plain.steps, cycle(turns), strict=False):
        if is_lost:
            processes[turn].step(kept.state, observations, now)
        kept, step = step_hosted(processes[turn if now.second % 2 else 0], kept, observations, now)
        assert (step.decisions, step.notes, step.wake_at) == (alone.decisions, alone.notes, alone.wake_at)
        assert msgspec.msgpack.encode(step.state) == msgspec.msgpack.encode(alone.state)
        kept = kept.stored()
    assert kept == Kept(plain.state, plain.book)


def test_verdicts_are_kept_no_longer_than_the_state_they_belong_to() -> None:
    policy = ThrottlePolicy(CLUSTER, throttle(HARD))
    step = policy.step(None, [log_dirs(0, 1, 9 * GB)], at(0))
    kept = weakref.ref(step.state)
    assert policy._verdicts.keys() == {1}
    del step
    assert kept() is None
    assert not policy._verdicts


@given(courses, settings_blocks, settings_blocks)
@examples(1.5)
def test_a_state_of_other_settings_is_taken_over(
    course: list[Batch], before: dict[str, object], after: dict[str, object]
) -> None:
    first = run_of(course, throttle(before))
    second = Run(throttle(after), first.state)
    last = first.steps[-1][0]
    second.step((), last)
    assert 0.0 <= second.factor <= 1.0


@pytest.mark.parametrize(
    ("brokers", "polls", "bytes_per_volume"), [(100, 1, 86), (20, 13, 320)], ids=["read once", "with trends"]
)
def test_the_state_is_small(brokers: int, polls: int, bytes_per_volume: int) -> None:
    """12,000 volumes take 1 MB when they are read first and 3.7 MB with all samples of their trends."""
    policy, state = ThrottlePolicy(CLUSTER, throttle(SOFT_AND_HARD)), None
    for poll in range(polls):
        free = {f"/var/lib/kafka/data-{d}": 50 * GB - poll * 10**6 for d in range(12)}
        batch = [log_dirs(poll * 10, b, free, id=f"0190b3f0-0000-7000-8000-{poll:04}{b:08}") for b in range(brokers)]
        state = policy.step(state, [members(poll * 10, *range(brokers)), *batch], at(poll * 10)).state
    assert state is not None
    assert len(msgspec.msgpack.encode(state)) < brokers * 12 * bytes_per_volume


# A cluster with more than anybody has, or that somebody made up, holds no other up.

DIRS = 1000


def full(broker: int, free: int = 0, name: str = "d") -> dict[str, int | None]:
    return {f"/data/{name}-{number}": free for number in range(DIRS)}


def alerts(run: Run) -> list[Alert]:
    return [d for _, step in run.steps for d in step.decisions if isinstance(d, Alert)]


def test_thousands_of_full_volumes_are_stopped_for_at_once_and_told_of_in_one_alert() -> None:
    run = Run(throttle(HARD))
    run.step([log_dirs(0, broker, full(broker)) for broker in range(3)], at(0))
    assert run.last.factor == 0.0
    (told,) = alerts(run)
    assert told.explanation.startswith("3000 volumes of payments are at their hard limit: 0/data/d-0, 0/data/d-1, ")
    run.step([log_dirs(60, broker, full(broker, 50 * GB)) for broker in range(3)], at(60))
    _, over = alerts(run)
    assert (over.alert_id, over.status.value) == (told.alert_id, "resolved")
    assert not run.book.alerts.entries


def test_the_work_for_a_reading_grows_with_its_volumes_and_no_faster() -> None:
    def work_for(brokers: int) -> int:
        run = Run(throttle(HARD))
        batch = [log_dirs(0, broker, full(broker, 50 * GB)) for broker in range(brokers)]
        return count_calls(lambda: run.step(batch, at(0)))

    assert work_for(8) < 4 * work_for(2) * 1.2
