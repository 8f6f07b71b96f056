"""A leap of time blinds nobody: both clocks, both ways, every policy; a minute later all is as if it had not been."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from deploy.query.clock import ClockWatch
from policies.decisions import Alert, Decision, Fence
from policies.policy import PolicyKind
from policies.registry import POLICIES
from policies.units import to_millis
from policies.wire import ObservedRecord
from streaming.host import PolicyHost
from streaming.operator import KeyTransition
from streaming.progress import BatchProgress
from tests.examples import combined
from tests.golden import read_reference
from tests.policies.scenario import GB, SOFT_AND_HARD, at, log_dirs, throttle
from tests.streaming.records import event
from tests.streaming.transitions import Transitions, reasons, told

DAY = 86_400.0
RESTART_SECONDS = 10.0
LEAPS = {
    "an hour ahead": 3600.0,
    "a day ahead": DAY,
    "a year ahead": 365 * DAY,
    "a day back": -DAY,
    "an hour back": -3600.0,
}
BATCH_SECONDS = 5.0

Observed = tuple[str, int, str]
"""Topic, milliseconds of its append, and event."""


@dataclass
class World:
    """A query, its Kafka, and a clock each. `now` is the true time, which neither knows."""

    transitions: Transitions
    now: float = 0.0
    kafka_ahead: float = 0.0
    driver_ahead: float = 0.0

    def __post_init__(self) -> None:
        self.watch = ClockWatch(CollectorRegistry(), lambda: self.now)
        self.in_force_ahead_ms = 0
        self.restart_at: float | None = None

    def batch(self, *readings: Observed) -> KeyTransition | None:
        """A batch five seconds later; None while the query is being started again."""
        self.now += BATCH_SECONDS
        records = [self._record(reading) for reading in readings]
        self.pending = [*getattr(self, "pending", []), *records]
        if self.watch.ahead_ms != self.in_force_ahead_ms and self.restart_at is None:
            self.restart_at = self.now + RESTART_SECONDS
        if self.restart_at is not None:
            if self.now < self.restart_at:
                return None
            self.restart_at, self.in_force_ahead_ms = None, self.watch.ahead_ms
        began = self.now + self.driver_ahead
        taken, self.pending = self.pending, []
        transition = self.transitions.take(began - self.in_force_ahead_ms / 1000, *taken)
        if taken:
            self.watch.on_batch(progress(to_millis(at(began)), max(record.appended_ms for record in taken)))
        return transition

    def _record(self, reading: Observed) -> ObservedRecord:
        topic, _, value = reading
        parsed = json.loads(value)
        value = json.dumps({**parsed, "id": f"{parsed['id']}@{self.now}"})
        return self.transitions.record(
            value.encode(), appended=self.now + self.kafka_ahead - 0.1, topic=f"headgate.{topic}"
        )


def progress(began_ms: int, newest_ms: int | None, lag: int = 0) -> BatchProgress:
    return BatchProgress(1, 0.1, 1, 1.0, lag, 0.0, 1, 1, began_ms, newest_ms)


def scenario(kind: PolicyKind) -> tuple[Transitions, list[Sequence[Observed]]]:
    """The policy's reference course, in the order of its times; one moment after the other."""
    course = read_reference(kind.name)
    host = PolicyHost({kind.name: kind.settings.model_validate(course.settings)}, frozenset({course.cluster}))
    moments = groupby(course.records(), key=lambda record: record[1])
    return Transitions(host, kind.name, course.cluster), [list(records) for _, records in moments]


def decided(
    kind: PolicyKind, *, disturb: Callable[[World, float], None], from_the_start: bool
) -> dict[tuple[str, str], str]:
    """What is in force in the end about each subject, alerts aside, when a clock leaps within the scenario.

    The leap begins before or after its first moment and lasts for two minutes, in which the levels are read again and
    again.
    """
    transitions, moments = scenario(kind)
    world, in_force = World(transitions), dict[tuple[str, str], Decision]()
    fence = Fence[tuple[str, str]]()

    def batch(*readings: Observed) -> None:
        """A batch, and a consumer with a true clock, who knows the fence alone."""
        transition = world.batch(*readings)
        appended_at = at(world.now + world.kafka_ahead)
        for d in transition.decisions if transition is not None else ():
            key = (d.topic, d.record_key())
            if fence.passes(key, d, appended_at):
                in_force[key] = d

    if not from_the_start:
        batch(*moments[0])
    disturb(world, 1.0)
    for _ in range(24):
        batch(*moments[0])
    disturb(world, 0.0)
    for _ in range(12):
        batch(*moments[0])
    for moment in moments[1:]:
        for _ in range(12):
            batch(*moment)
    return {key: d.verdict for key, d in in_force.items() if not isinstance(d, Alert)}


def undisturbed(world: World, share: float) -> None:
    pass


@cache
def undisturbed_course(policy: str, *, from_the_start: bool) -> dict[tuple[str, str], str]:
    return decided(POLICIES[policy], disturb=undisturbed, from_the_start=from_the_start)


@pytest.mark.parametrize(
    ("policy", "clock", "leap", "when"),
    combined(POLICIES, ["kafka_ahead", "driver_ahead"], LEAPS, ["later", "from the start"], one_of=7),
)
def test_a_minute_after_a_leap_everything_is_decided_as_if_it_had_not_been(
    policy: str, clock: str, leap: str, when: str
) -> None:
    def leaps(world: World, share: float) -> None:
        setattr(world, clock, share * LEAPS[leap])

    from_the_start = when == "from the start"
    disturbed = decided(POLICIES[policy], disturb=leaps, from_the_start=from_the_start)
    assert disturbed == undisturbed_course(policy, from_the_start=from_the_start)


@pytest.mark.parametrize(("clock", "leap"), list(product(["kafka_ahead", "driver_ahead"], LEAPS)))
@pytest.mark.parametrize("stays", [True, False], ids=["stays", "passes"])
def test_a_disk_that_fills_during_or_after_a_leap_stops_its_cluster_within_a_minute(
    clock: str, leap: str, stays: bool
) -> None:
    world = World(Transitions(PolicyHost({"throttle": throttle(SOFT_AND_HARD)}, frozenset({"payments"}))))
    roomy = ("observed.log-dirs", 0, event(log_dirs(0, 3, 50 * GB)).decode())
    full = ("observed.log-dirs", 0, event(log_dirs(0, 3, GB // 2)).decode())
    for _ in range(6):
        world.batch(roomy)
    setattr(world, clock, LEAPS[leap])
    if not stays:
        for _ in range(3):
            world.batch(roomy)
        setattr(world, clock, 0.0)
    transitions = [world.batch(full) for _ in range(int(60 / BATCH_SECONDS))]
    factors = [
        data["factor"] for transition in transitions if transition for data in told(transition, "decided.throttle")
    ]
    assert factors, "blind"
    assert factors[-1] == 0.0


@pytest.mark.parametrize("ahead", [3600, DAY])
def test_a_broker_whose_clock_is_ahead_delays_no_decision(ahead: float) -> None:
    """The leader of the partition stamps its records; the next leader's clock is right."""
    transitions = Transitions(PolicyHost({"throttle": throttle(SOFT_AND_HARD)}, frozenset({"payments"})))
    course = [(0, 50 * GB, ahead, 1.0), (40, GB // 2, ahead + 40, 0.0), (80, 50 * GB, ahead + 80, 1.0)]
    for at_seconds, free, appended, factor in [*course, (120, GB // 2, 120, 0.0)]:
        taken = transitions.take(at_seconds, transitions.record(log_dirs(at_seconds, 3, free), appended=appended))
        assert reasons(taken) == []
        assert [data["factor"] for data in told(taken, "decided.throttle")] == [factor]


@given(st.permutations(range(6)), st.lists(st.integers(1, 90), min_size=6, max_size=6), st.floats(1, 60))
def test_of_the_first_readings_after_a_clock_was_set_back_the_last_one_counts(
    ids: list[int], free: list[int], gap: float
) -> None:
    """Whatever their ids, by which readings of one moment are told apart."""

    def in_force(transitions: Transitions, ahead: float) -> float:
        transitions.take(ahead, transitions.record(log_dirs(0, 3, 50 * GB), appended=ahead))
        last = [
            transitions.record(event(replace(log_dirs(0, 3, gb * GB), id=f"{id_}")), appended=gap - 0.1 * (6 - n))
            for n, (id_, gb) in enumerate(zip(ids, free, strict=True))
        ]
        transitions.take(gap, *last)
        return float(told(transitions.take(gap + 600), "decided.throttle")[-1]["factor"])

    host = PolicyHost({"throttle": throttle(SOFT_AND_HARD, validity="1h")})
    assert in_force(Transitions(host), DAY) == in_force(Transitions(host), 0.0)


@pytest.mark.parametrize("ahead", [1.0, 30.0, 299.0])
def test_one_that_is_stamped_a_little_ahead_is_overruled_by_the_next(ahead: float) -> None:
    transitions = Transitions(PolicyHost({"throttle": throttle(SOFT_AND_HARD)}, frozenset({"payments"})))
    transitions.take(0, transitions.record(log_dirs(0, 3, 50 * GB), appended=ahead))
    truth = transitions.take(1, transitions.record(log_dirs(1, 3, GB // 2), appended=1))
    assert [data["factor"] for data in told(truth, "decided.throttle")] == [0.0]


# The watch


@pytest.mark.parametrize("ahead", [DAY, -DAY, 61.0, -61.0])
def test_a_difference_that_lasts_is_found_and_one_that_is_over_forgotten(ahead: float) -> None:
    now = 0.0
    watch = ClockWatch(CollectorRegistry(), lambda: now)
    for _ in range(3):
        now += 4.0
        watch.on_batch(progress(to_millis(at(now + ahead)), to_millis(at(now))))
    assert watch.ahead_ms == ahead * 1000
    for _ in range(3):
        now += 4.0
        watch.on_batch(progress(to_millis(at(now)), to_millis(at(now))))
    assert watch.ahead_ms == 0


def test_a_backlog_is_no_leap() -> None:
    now = 0.0
    watch = ClockWatch(CollectorRegistry(), lambda: now)
    for left in (3, 2, 1, 0):
        now += 10.0
        watch.on_batch(progress(to_millis(at(now)), to_millis(at(now - 3600)), lag=left))
    now += 10.0
    watch.on_batch(progress(to_millis(at(now)), to_millis(at(now - 1))))
    now += 10.0
    watch.on_batch(progress(to_millis(at(now)), None))
    assert watch.ahead_ms == 0
