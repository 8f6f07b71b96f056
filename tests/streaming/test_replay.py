"""Replay: the live code over recorded events, with the events' times for a clock."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from policies.decisions import Decision
from policies.observations import Observation
from policies.throttle import ThrottleFactor, ThrottleSettings
from policies.units import format_instant
from streaming.host import PolicyHost
from streaming.replay import Recorded, Rejected, Replay, differences
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, Run, at, log_dirs, members, throttle
from tests.streaming.records import changed, event

SETTINGS = throttle(SOFT_AND_HARD)
NIGHT = (
    members(0, 3),
    log_dirs(1, 3, 20 * GB),
    log_dirs(60, 3, 4 * GB),
    log_dirs(120, 3, GB),
    log_dirs(200, 3, 3 * GB),
    log_dirs(260, 3, 30 * GB),
)


def recorded(observations: Sequence[Observation]) -> list[Recorded]:
    return [Recorded(f"night:{number}", event(o)) for number, o in enumerate(observations, 1)]


def replay(
    records: Sequence[Recorded], settings: ThrottleSettings = SETTINGS, until: datetime | None = None
) -> list[Decision]:
    return list(Replay(PolicyHost({"throttle": settings})).run(records, until))


def seconds(decisions: Sequence[Decision]) -> list[float]:
    return [(d.decided_at - at(0)).total_seconds() for d in decisions if isinstance(d, ThrottleFactor)]


# Steps


def test_it_decides_what_the_policy_decides() -> None:
    run = Run(SETTINGS).feed(NIGHT)
    assert replay(recorded(NIGHT)) == run.published


def test_wake_ups_between_events_are_kept() -> None:
    decisions = replay(recorded([log_dirs(0, 3, 4 * GB), log_dirs(200, 3, 4 * GB)]))
    assert seconds(decisions) == [0, 60, 120, 180]


def test_a_wake_up_at_the_moment_of_an_event_is_one_step_with_it() -> None:
    decisions = replay(recorded([log_dirs(0, 3, 4 * GB), log_dirs(60, 3, 2 * GB)]))
    assert seconds(decisions) == [0, 60]


@pytest.mark.parametrize(
    ("until", "expected"),
    [(None, [0]), (at(59.999), [0]), (at(60), [0, 60]), (at(125), [0, 60, 120]), (at(-5), [0])],
    ids=["not given", "just before", "included", "later", "before the events"],
)
def test_until_lets_the_clock_run_on(until: datetime | None, expected: list[float]) -> None:
    assert seconds(replay(recorded([log_dirs(0, 3, 4 * GB)]), until=until)) == expected


def of_another_cluster(observation: Observation) -> Observation:
    reading = observation.reading.model_copy(update={"cluster": "orders"})
    return Observation(f"{observation.id}-of-orders", observation.at, reading)


def test_clusters_are_woken_in_the_order_of_time() -> None:
    other = of_another_cluster(log_dirs(7, 1, 4 * GB))
    decisions = replay(recorded([log_dirs(0, 3, 4 * GB), other]), until=at(130))
    assert seconds(decisions) == [0, 7, 60, 67, 120, 127]


def test_time_does_not_go_backwards_with_the_file() -> None:
    late = [log_dirs(40, 1, 2 * GB), of_another_cluster(log_dirs(50, 1, 2 * GB))]
    decisions = replay(recorded([log_dirs(100, 3, 4 * GB), *late]))
    assert {d.cluster for d in decisions} == {CLUSTER, "orders"}
    assert seconds(decisions) == [100, 100, 100]


def test_without_events_nothing_is_decided() -> None:
    assert replay([], until=at(1000)) == []


# Records


def test_a_record_of_kafka_counts_from_its_append() -> None:
    late = Recorded("topic/0/1", event(log_dirs(0, 3, 4 * GB)), at(30))
    assert seconds(replay([late])) == [30]


def test_an_event_without_a_time_needs_one_in_a_file_alone() -> None:
    timeless = changed(log_dirs(0, 3, 4 * GB), time=None)
    of_file = Replay(PolicyHost())
    assert list(of_file.run([Recorded("night:1", timeless)])) == []
    assert [(r.place, str(r.error)) for r in of_file.rejected] == [
        ("night:1", "invalid: time: a recorded event needs one")
    ]
    assert seconds(replay([Recorded("topic/0/1", timeless, at(5))])) == [5]


def test_bad_records_are_collected_and_change_nothing() -> None:
    good = recorded(NIGHT)
    bad = [Recorded("night:x", b"garbage"), Recorded("night:y", changed(NIGHT[1], type="headgate.weather.v1"))]
    replayed = Replay(PolicyHost({"throttle": SETTINGS}))
    decisions = list(replayed.run([bad[0], *good[:3], bad[1], *good[3:]]))
    assert decisions == replay(good)
    assert [(r.place, r.error.reason.value) for r in replayed.rejected] == [
        ("night:x", "malformed"),
        ("night:y", "unknown_type"),
    ]
    assert isinstance(replayed.rejected[0], Rejected)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"])
def test_a_time_at_the_end_of_the_calendar_is_a_bad_record(time: str) -> None:
    replayed = Replay(PolicyHost({"throttle": SETTINGS}))
    assert list(replayed.run([Recorded("night:1", changed(NIGHT[1], time=time))])) == []
    assert [r.error.reason.value for r in replayed.rejected] == ["invalid"]


# Differences


def different(ours: ThrottleSettings, theirs: ThrottleSettings, until: datetime | None = None) -> list[dict[str, Any]]:
    return list(differences(*(replay(recorded(NIGHT), s, until) for s in (ours, theirs))))


@pytest.mark.parametrize("until", [None, at(3600)], ids=["events", "and an hour"])
def test_equal_settings_make_no_difference(until: datetime | None) -> None:
    assert different(SETTINGS, throttle(SOFT_AND_HARD), until) == []


def test_a_stricter_limit_differs_from_where_it_bites_to_where_both_agree() -> None:
    found = different(SETTINGS, throttle(SOFT_AND_HARD, soft={"available_bytes_below": "25GB"}))
    of_factor = [line for line in found if line["type"] == ThrottleFactor.event_type]
    assert of_factor[0]["time"] == format_instant(at(1))
    assert (of_factor[0]["settings"]["factor"], of_factor[0]["against"]["factor"]) == (1.0, pytest.approx(19 / 24))
    assert {line["cluster"] for line in found} == {CLUSTER}
    assert [line["same"] for line in found if line["time"] == format_instant(at(120)) and line in of_factor] == [True]


def test_a_difference_tells_both_explanations() -> None:
    (first, *_) = different(SETTINGS, ThrottleSettings())
    assert {"explanation", "factor", "reason"} == first["settings"].keys() == first["against"].keys()


def test_what_lay_on_another_topic_than_its_own_is_rejected_as_the_query_does() -> None:
    replayed = Replay(PolicyHost({"throttle": SETTINGS}))
    value = event(log_dirs(0, 3, 4 * GB))
    assert list(replayed.run([Recorded("t/0/1", value, at(0), "observed.bookies")])) == []
    assert [each.error.reason for each in replayed.rejected] == ["wrong-topic"]
    assert list(replayed.run([Recorded("t/0/2", value, at(0), "observed.log-dirs")]))
