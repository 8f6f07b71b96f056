"""The policy on random courses: what holds whatever happens, and that it does what a plain model of its rules does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.book import Published
from policies.decisions import EVIDENCE_LIMIT, Alert
from policies.free_space.volumes import Freshness
from policies.observations import Observation, Outcome
from policies.throttle.decisions import ThrottleFactor, ThrottleReason
from policies.throttle.judge import judge_brokers
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ThrottleState
from policies.units import to_millis
from policies.wire import EventReader, audit_event, decision_event
from tests.examples import seeds
from tests.policies.scenario import (
    CLUSTER,
    GB,
    HARD,
    NO_PATIENCE,
    SOFT_AND_HARD,
    TOTAL,
    Run,
    at,
    failed,
    log_dirs,
    members,
    throttle,
)

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

    def step(self, observations: Sequence[Observation], now: datetime) -> Published[ThrottleState]:
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


@given(courses, settings_blocks)
def test_a_course_of_valid_observations_gives_steps_never_an_exception(
    course: list[Batch], block: dict[str, Any]
) -> None:
    """`Run.step` asserts that `wake_at` is after now."""
    settings_ = throttle(block)
    run = run_of(course, settings_, until=4000)
    begun_ms = to_millis(run.decisions[0].decided_at)
    assert [d.sequence for d in run.decisions] == list(range(begun_ms, begun_ms + len(run.decisions)))
    for decided in run.decisions + run.notes:
        assert 0.0 <= decided.factor <= 1.0
        assert 0.0 <= decided.raw_factor <= 1.0
        assert len(decided.evidence) <= EVIDENCE_LIMIT
        assert decided.explanation.startswith(f"Producers of {CLUSTER} ")
        assert (decided.limiting is None) or decided.limiting.total_bytes == TOTAL
        assert decided.valid_until - decided.decided_at == 3 * settings_.heartbeat
        if decided.reason is ThrottleReason.HARD_LIMIT:
            assert decided.factor == decided.raw_factor == 0.0
    for first, second in pairwise(run.decisions):
        assert second.decided_at - first.decided_at <= settings_.heartbeat
        assert second.previous_factor == first.factor


numbers = st.sampled_from([-1, 0, 1, 2**31, 2**63 - 2, 2**63 - 1])


@given(
    st.lists(st.tuples(st.integers(0, 2**31 - 1), numbers, numbers), min_size=3, max_size=6),
    st.sampled_from([0, 1, 2**63 - 1, 0.0, 1e-300, 1.0]),
    st.sampled_from([None, 2**63 - 1, 1.0]),
    st.sampled_from([0.0, 0.1, 10.0]),
)
def test_the_largest_and_smallest_numbers_the_wire_lets_through_are_digested(
    sizes: list[tuple[int, int, int]], hard: float, soft: float | None, margin: float
) -> None:
    def limit(value: float) -> dict[str, float]:
        return {"available_ratio_below" if type(value) is float else "available_bytes_below": value}

    block: dict[str, Any] = {"hard": limit(hard), "recovery_margin": margin}
    same_kind = type(soft) is type(hard)
    if soft is not None and (soft > hard or not same_kind):
        block["soft"] = limit(soft)
    run = Run(throttle(block))
    for poll in range(4):
        seen: list[Observation] = []
        for i, (broker, total, usable) in enumerate(sizes):
            plain = log_dirs(poll * 10, broker, 0, id=f"{poll}-{i}")
            volume = plain.reading.volumes[0].model_copy(  # type: ignore[attr-defined]
                update={"total_bytes": total, "usable_bytes": usable if poll % 2 else max(0, usable - poll)}
            )
            seen.append(Observation(plain.id, plain.at, plain.reading.model_copy(update={"volumes": (volume,)})))
        run.see(*seen)
    run.until(400)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(run.state), type=ThrottleState) == run.state
    reader: EventReader[Any] = EventReader([Alert, ThrottleFactor])
    for decided in run.published:
        told = decided.model_copy(update={"numbers": {}})
        assert reader.read(decision_event(decided)).data == told
        assert audit_event(decided)


@given(courses, settings_blocks, st.data())
def test_order_and_duplicates_within_a_batch_do_not_matter(
    course: list[Batch], block: dict[str, Any], data: st.DataObject
) -> None:
    shuffled = [
        (seconds, tuple(data.draw(st.permutations([*seen, *seen[: data.draw(st.integers(0, 2))]]))))
        for seconds, seen in course
    ]
    plain, other = run_of(course, throttle(block)), run_of(shuffled, throttle(block))
    assert [decision_event(d) for d in plain.published] == [decision_event(d) for d in other.published]
    assert [audit_event(d) for d in plain.notes] == [audit_event(d) for d in other.notes]
    assert msgspec.msgpack.encode(plain.state) == msgspec.msgpack.encode(other.state)


def in_silence(run: Run, seconds: int) -> list[tuple[float, float, bool]]:
    """(factor, raw factor, whether a volume that was ever read counts) of the last step with observations and after it.

    Leaves out the cases documented as exceptions: it ends where a departed volume is forgotten.
    """
    last, before = run.steps[-1][0], len(run.steps) - 1
    run.until((last - at(0)).total_seconds() + seconds)
    found: list[tuple[float, float, bool]] = []
    held: set[tuple[int, str]] = set()
    for now, step in run.steps[before:]:
        volumes = [*judge_brokers(step.state.cluster, run.settings, to_millis(now)).volumes()]
        departed = {v.key for v in volumes if v.freshness is Freshness.DEPARTED}
        if held - departed:
            break
        held = departed
        raw = min((v.factor for v in volumes), default=run.settings.fallback)
        was_read = any(v.freshness is not Freshness.NEVER_READ for v in volumes)
        assert step.state.gate is not None
        found.append((step.state.gate.factor, raw, was_read))
    return found


@given(courses, settings_blocks.filter(lambda block: "preset" not in block))
def test_silence_never_raises_the_factor(course: list[Batch], block: dict[str, Any]) -> None:
    """Without observations the raw factor only falls, so the factor rises no higher than readings had granted.

    A rise in silence is the end of `min_hold`, to the raw factor of the last readings or less. The exceptions are
    documented: a departed volume that limited is forgotten after its hold, where no volume counts the fallback
    holds, and the strimzi preset forgets unread volumes on purpose.
    """
    steps = in_silence(run_of(course, throttle(block)), 9000)
    for (first, raw, counted), (second, raw_then, counts_then) in pairwise(steps):
        assert counted == counts_then
        if counted:
            assert raw_then <= raw
            assert second <= max(first, raw)


@given(courses, settings_blocks, st.lists(st.integers(1, 8_000_000), max_size=30))
def test_idle_steps_are_harmless(course: list[Batch], block: dict[str, Any], extra: list[int]) -> None:
    """Steps at other moments, without observations, change no factor that is in force at any later moment."""
    begin, end = course[0][0], course[-1][0] + 4000
    plain = run_of(course, throttle(block), until=4000)
    moments = sorted(m for ms in extra if (m := begin + ms / 1000) < end)
    other = Run(throttle(block))
    steps: list[tuple[float, tuple[Observation, ...]]] = [*((m, ()) for m in moments), *course]
    first = True
    for seconds, seen in sorted(steps, key=lambda it: it[0]):
        if first and not seen and seconds < begin:
            continue
        other.see(*seen, seconds=seconds)
        first = False
    other.until(end)
    checked = sorted({begin, end, *moments, *((now - at(0)).total_seconds() for now, _ in plain.steps + other.steps)})
    for seconds in checked:
        if begin <= seconds <= end:
            assert plain.factor_at(seconds) == other.factor_at(seconds), seconds


@given(courses, st.sampled_from([0.0, 0.25, 1.0]))
def test_the_strimzi_preset_equals_the_plain_rule(course: list[Batch], fallback: float) -> None:
    """0 if any volume of a valid reading is at its limit, else 1; without any valid reading the fallback.

    Each reading in its own step: a dir that is missing and back, unreadable, within one batch is not forgotten.
    """
    only_dirs = [(s, tuple(o for o in seen if o.id.startswith("dirs-"))) for s, seen in course]
    run = Run(throttle(HARD, preset="strimzi", fallback_factor=fallback))
    latest: dict[int, Observation] = {}
    readable: dict[tuple[int, str], tuple[datetime, int]] = {}
    started: datetime | None = None
    for seconds, seen in only_dirs:
        now = at(seconds)
        started = started or now
        run.see(seconds=seconds)
        for observation in sorted(seen, key=lambda o: (o.at, o.id)):
            run.see(observation, seconds=seconds)
            reading: Any = observation.reading
            known = latest.get(reading.broker)
            if known and (observation.at, observation.id) <= (known.at, known.id):
                continue
            latest[reading.broker] = observation
            listed = {v.log_dir for v in reading.volumes}
            readable = {k: v for k, v in readable.items() if k[0] != reading.broker or k[1] in listed}
            readable |= {
                (reading.broker, v.log_dir): (observation.at, v.usable_bytes) for v in reading.volumes if v.readable
            }
        valid = [free for when, free in readable.values() if now - when < timedelta(minutes=5)]
        if valid:
            expected = 0.0 if any(free <= GB for free in valid) else 1.0
        elif any(now - o.at < timedelta(minutes=5) for o in latest.values()):
            expected = 1.0
        else:
            never = not latest and now - started < timedelta(minutes=5)
            expected = 1.0 if never else fallback
        assert run.factor == expected


# A plain model of the rules, written from their text: one broker that is read all the time.

MARGIN, MIN_HOLD, MIN_CHANGE = 0.1, 30.0, 0.05
LEVELS = (GB, GB + 1, 5 * GB, 5 * GB + 1, int(1.1 * GB), int(1.1 * GB) + 1, 60 * GB)
"""Where rules change their mind."""


@dataclass
class Model:
    """What is in force, and since when."""

    factor: float = 1.0
    changed_at: float = float("-inf")
    free: list[int] = field(default_factory=list)
    stopped_by: set[int] = field(default_factory=set)

    def read(self, at: float, free: list[int]) -> None:
        """Lower at once; higher when it has been held for long enough."""
        self.wait(at)
        self.free = free
        if self._raw() == 0.0 or self.factor == 0.0:
            self.stopped_by |= {n for n, each in enumerate(free) if each <= GB}
        if self._raw() < self.factor or at >= self.changed_at + MIN_HOLD:
            self._move(at)

    def wait(self, until: float) -> None:
        """A hold that ends meanwhile."""
        ends = self.changed_at + MIN_HOLD
        if self.free and ends < until and self._raw() > self.factor:
            self._move(ends)

    def _move(self, at: float) -> None:
        raw = self._raw()
        blocked = raw > self.factor == 0.0 and any(self.free[n] <= GB * (1 + MARGIN) for n in self.stopped_by)
        if not blocked and raw != self.factor and (abs(raw - self.factor) >= MIN_CHANGE or raw in (0.0, 1.0)):
            self.factor, self.changed_at = raw, at
        if self.factor > 0.0:
            self.stopped_by.clear()

    def _raw(self) -> float:
        return min(_factor(each) for each in self.free)


def _factor(free: int) -> float:
    if free <= GB:
        return 0.0
    return 1.0 if free > 5 * GB else (free - GB) / (4 * GB)


def levels(draw: Random) -> list[tuple[float, list[int]]]:
    """When what is free; never at the very instant at which a hold ends."""
    at, free = 0.0, [draw.choice((50 * GB, 6 * GB, 3 * GB, GB)) for _ in range(draw.randint(1, 3))]
    found = []
    for _ in range(40):
        free = [max(0, each + draw.choice((0, draw.randint(-GB, GB), draw.randint(-4 * GB, 4 * GB)))) for each in free]
        free = [draw.choice(LEVELS) if draw.random() < 0.1 else min(each, 100 * GB) for each in free]
        found.append((at, free))
        at = round(at + draw.choice((1, 5, 10, 20, 40)) + draw.randint(1, 997) / 1000, 3)
    return found


@pytest.mark.parametrize("seed", seeds(1.5))
def test_it_does_what_the_rules_say(seed: int) -> None:
    run, model = Run(throttle(SOFT_AND_HARD)), Model()
    run.see(members(0, 1))
    for (second, free), (following, _) in pairwise(levels(Random(seed))):
        run.see(log_dirs(second, 1, {f"/{n}": each for n, each in enumerate(free)}))
        model.read(second, free)
        assert run.factor == pytest.approx(model.factor), second
        run.until(following - 0.002)
        model.wait(following - 0.002)
        assert run.factor == pytest.approx(model.factor), following
