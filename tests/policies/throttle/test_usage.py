"""What fills a volume: its topics by growth, and what is not Kafka's; in state, sentence, alert and audit."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.free_space.limits import Limit
from policies.free_space.trend import Filling
from policies.free_space.volumes import VolumeState
from policies.observations import Observation, Outcome
from policies.throttle.readings import ReplicaSizes, VolumeUsage
from policies.throttle.state import MeasuredUsage, VolumeContent, describe_growth, is_filling_up, measure_usage
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, MB, SOFT_AND_HARD, Run, at, log_dirs, members, throttle
from tests.policies.throttle.known import A, B, folded


def content(used: int, topics: Mapping[str, int], moving: Mapping[str, int] | None = None) -> VolumeContent:
    moved = {(topic, True): size for topic, size in (moving or {}).items()}
    return VolumeContent(used, {(topic, False): size for topic, size in topics.items()} | moved)


ORDERS = {"orders": 300 * MB, "clicks": 200 * MB, "idle": 400 * MB, "shrinks": 90 * MB}
THEN = content(1000 * MB, ORDERS)
NOW = content(1200 * MB, {"orders": 360 * MB, "clicks": 230 * MB, "idle": 400 * MB, "shrinks": 30 * MB})


def usage_of(after: VolumeContent = NOW, before: VolumeContent | None = THEN, log_dir: str = A) -> VolumeUsage:
    return measure_usage(log_dir, before, after, 60.0)


def sizes(seconds: float, *usages: VolumeUsage, broker: int = 1) -> Observation:
    reading = ReplicaSizes(cluster=CLUSTER, outcome=Outcome.OK, broker=broker, volumes=usages)
    return Observation(f"sizes-{broker}@{seconds:g}", at(seconds), reading)


def test_topics_are_named_by_growth_then_by_size_with_their_shares() -> None:
    usage = usage_of()
    assert [each.topic for each in usage.topics] == ["orders", "clicks", "idle", "shrinks"]
    assert [each.bytes_per_second for each in usage.topics] == [MB, 0.5 * MB, 0.0, -MB]
    # All that grows: 1 MB/s, 0.5 MB/s, and 170 MB in 60 s that are not Kafka's.
    growth = 1.5 * MB + 170 * MB / 60
    assert usage.topics[0].share == pytest.approx(MB / growth)
    assert usage.topics[3].share == 0.0
    assert (usage.kafka_bytes, usage.kafka_bytes_per_second) == (1020 * MB, 0.5 * MB)
    assert (usage.other_bytes, usage.other_bytes_per_second) == (180 * MB, 170 * MB / 60)


def test_a_move_is_named_and_its_end_is_no_growth() -> None:
    before, after = content(0, {"orders": 10 * MB}), content(0, {"orders": 16 * MB}, {"orders": 54 * MB})
    said = describe_growth(MeasuredUsage(0, measure_usage(A, before, after, 60)), 0)
    assert said == (
        "filled by topic orders, being moved here from another log dir (900 kB/s, 90%) and topic orders (100 kB/s, 10%)"
    )
    ended = measure_usage(A, after, content(0, {"orders": 76 * MB}), 60)
    assert describe_growth(MeasuredUsage(0, ended), 0) == "filled by topic orders (100 kB/s, 100%)"


@pytest.mark.parametrize(
    ("free", "rate", "is_named"),
    [(4 * GB, 3 * MB, True), (4 * GB, 30 * MB, False), (5400 * MB, 3 * MB, True)],
    ids=["named", "another rate", "above the limits"],
)
def test_a_time_to_full_and_the_topics_never_contradict_each_other(free: int, rate: int, is_named: bool) -> None:
    usage = usage_of(content(1060 * MB, {**ORDERS, "orders": 480 * MB}))  # 3 MB/s
    course = [log_dirs(t, 1, free - rate * t) for t in range(0, 100, 10)]
    run = Run(throttle(SOFT_AND_HARD)).feed([members(0, 1), *course[:6], sizes(55, usage), *course[6:]])
    run.feed(log_dirs(t, 1, free - rate * t) for t in range(100, 130, 10))
    told = [run.last.explanation, [a.summary for a in run.alerts if a.alert == "volume-fills-soon"][-1]]
    assert ["; full in" in told[0], "is full in" in told[1]] == [True, True]
    assert {"filled by" in each for each in told} == {is_named}
    assert {" ago" in each for each in told} == {is_named}


def test_a_time_to_full_carries_the_age_of_its_reading() -> None:
    course = [members(0, 1), *(log_dirs(t, 1, 4 * GB - 10 * MB * t) for t in range(0, 100, 10))]
    run = Run(throttle(SOFT_AND_HARD)).feed(course)
    assert any("full in 5 min at the present rate" in decision.explanation for decision in run.decisions)
    assert "at the rate of 2 min ago" in run.until(240).last.explanation


def test_an_attempt_that_failed_takes_no_usage_away() -> None:
    sized = folded([log_dirs(0, 1, 4 * GB)], [sizes(0, usage_of())])
    failed = replace(sizes(10), reading=ReplicaSizes(cluster=CLUSTER, outcome=Outcome.ERROR, broker=1))
    assert folded([log_dirs(0, 1, 4 * GB)], [sizes(0, usage_of())], [failed]) == sized
    assert folded([log_dirs(0, 1, 4 * GB)], [failed]).brokers[0].usage is None


@for_each(
    ("usage", "sentence"),
    [
        pytest.param(None, "", id="not read"),
        pytest.param(usage_of(before=None), "", id="read once"),
        pytest.param(
            usage_of(),
            "filled by files that are not Kafka's (2.8 MB/s, 65%) and topic orders (1.0 MB/s, 23%)",
            id="not Kafka's first",
        ),
        pytest.param(
            usage_of(content(1060 * MB, {**ORDERS, "orders": 360 * MB})),
            "filled by topic orders (1.0 MB/s, 100%)",
            id="one topic",
        ),
        pytest.param(
            usage_of(content(1090 * MB, {**ORDERS, "new": 30 * MB, "orders": 360 * MB})),
            "filled by topic orders (1.0 MB/s, 67%) and topic new (500 kB/s, 33%)",
            id="a new topic grows from nothing",
        ),
        pytest.param(usage_of(THEN), "", id="nothing grows"),
    ],
)
def test_the_first_two_are_named(usage: VolumeUsage | None, sentence: str) -> None:
    measured = None if usage is None else MeasuredUsage(0, usage)
    assert describe_growth(measured, 0) == sentence
    assert describe_growth(measured, 40_000) == (f"{sentence}, as measured 40 s ago" if sentence else "")


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 10**12), max_size=40),
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 10**12), max_size=40),
    st.integers(0, 10**14),
    st.floats(0.1, 300),
)
def test_shares_add_up_and_the_reading_is_bounded(
    before: dict[str, int], after: dict[str, int], used: int, seconds: float
) -> None:
    usage = measure_usage(A, content(used, before), content(used, after), seconds)
    assert len(usage.topics) <= 20
    named = sum(each.share or 0.0 for each in usage.topics) + (usage.other_share or 0.0)
    assert named <= 1.0 + 1e-9
    if len(after) <= 10 and named:
        assert named == pytest.approx(1.0)
    assert VolumeUsage.model_validate_json(usage.model_dump_json()) == usage


@pytest.mark.parametrize(
    ("usable", "rate", "filling"),
    [(5 * GB, None, True), (5 * GB + 1, None, False), (50 * GB, 50 * MB, True), (50 * GB, 10 * MB, False)],
)
def test_a_volume_fills_up_at_a_limit_or_within_the_time_of_the_alert(
    usable: int, rate: float | None, filling: bool
) -> None:
    volume = VolumeState(A, 100 * GB, usable, 0, filling=Filling(rate, 0.9) if rate else None)
    assert is_filling_up(volume, 0, [Limit(available_bytes_below=5 * GB)], alert_seconds=1800.0) is filling


def test_the_decision_its_sentence_and_the_alert_name_the_topics() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(members(0, 1), log_dirs(0, 1, {A: 4 * GB, B: 50 * GB}))
    assert [decision.filled_by for decision in run.decisions] == [None]
    run.see(sizes(10, usage_of())).until(70)
    said = "filled by files that are not Kafka's (2.8 MB/s, 65%) and topic orders (1.0 MB/s, 23%)"
    assert run.last.explanation.startswith(
        "Producers of payments should be slowed to 0.75: broker 1 /data/a has 4.0 GB"
    )
    assert f"; {said}" in run.last.explanation
    filled_by = run.last.filled_by
    assert filled_by is not None
    assert (filled_by.broker, filled_by.log_dir, filled_by.read_at) == (1, A, at(10))
    assert [each.topic for each in filled_by.topics] == ["orders", "clicks", "idle", "shrinks"]
    largest = max(filled_by.topics, key=lambda each: each.size_bytes).topic
    assert run.last.runbook_values() == {"topic": largest}
    numbers = run.last.numbers
    assert numbers["topic orders"] == "360 MB, 1.0 MB/s (23% of what grows)"
    assert numbers["topic shrinks"] == "30.0 MB, -1.0 MB/s (0% of what grows)"
    assert numbers["files that are not Kafka's"] == "180 MB, 2.8 MB/s (65% of what grows)"
    alert = next(a for a in reversed(run.alerts) if a.alert == "volume-below-soft-limit")
    free = "broker 1 /data/a of payments has 4.0 GB free, soft limit 5.0 GB"
    assert alert.summary == f"{free}; {said}, as measured 50 s ago"


def test_what_was_read_long_ago_is_not_said() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(members(0, 1), log_dirs(0, 1, 4 * GB), sizes(1, usage_of()))
    run.feed(log_dirs(t, 1, 4 * GB) for t in range(10, 700, 10))
    named = [d.decided_at for d in run.decisions if d.filled_by is not None]
    assert named
    assert all(when < at(301) for when in named)
    assert "filled by" not in run.last.explanation


def test_an_older_or_repeated_reading_changes_nothing_and_an_unknown_broker_is_no_member() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(members(0, 1), log_dirs(0, 1, 4 * GB), sizes(20, usage_of()), seconds=20)
    before = run.known.cluster
    run.see(sizes(10, usage_of(before=None)), sizes(20, usage_of()), sizes(20, usage_of(), broker=9), seconds=20)
    assert run.known.cluster == before
