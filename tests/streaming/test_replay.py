"""Replay: the live code over recorded events, with the events' times for a clock."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any

import pytest

from deploy.settings.file import load_settings
from policies.bookie_readings import NamespaceAffinity
from policies.decisions import Decision
from policies.isolation.decisions import Placement
from policies.isolation.settings import IsolationSettings
from policies.observations import Observation
from policies.registry import is_collected
from policies.sessions.settings import SessionsSettings
from policies.throttle import ThrottleFactor, ThrottleSettings
from policies.units import format_instant
from policies.wire import decision_event, observation_event
from streaming.host import PolicyHost
from streaming.replay import Recorded, Rejected, Replay, differences
from streaming.transition import read_record
from tests.cases import for_each
from tests.examples import seeds
from tests.policies.isolation import scenario as isolation
from tests.policies.isolation.scenario import bookies, racks
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, Run, at, log_dirs, members, throttle
from tests.policies.sessions.course import session
from tests.streaming.records import changed, event
from tests.streaming.test_golden_replays import DATA, POLICIES, events

SETTINGS = throttle(SOFT_AND_HARD)
COURSE = ((1, 20 * GB), (60, 4 * GB), (120, GB), (200, 3 * GB), (260, 30 * GB))
NIGHT = (members(0, 3), *(log_dirs(second, 3, free) for second, free in COURSE))


def recorded(observations: Sequence[Observation]) -> list[Recorded]:
    return [Recorded(f"night:{number}", event(o)) for number, o in enumerate(observations, 1)]


def replay(
    records: Sequence[Recorded], settings: ThrottleSettings = SETTINGS, until: datetime | None = None
) -> list[Decision]:
    return list(Replay(PolicyHost({"throttle": settings})).run(records, until))


def seconds(decisions: Sequence[Decision]) -> list[float]:
    return [(d.decided_at - at(0)).total_seconds() for d in decisions if isinstance(d, ThrottleFactor)]


def test_it_decides_what_the_policy_decides() -> None:
    run = Run(SETTINGS).feed(NIGHT)
    assert replay(recorded(NIGHT)) == run.published


def test_wake_ups_between_events_are_kept_and_those_at_the_moment_of_an_event_are_one_step_with_it() -> None:
    assert seconds(replay(recorded([log_dirs(0, 3, 4 * GB), log_dirs(200, 3, 4 * GB)]))) == [0, 60, 120, 180]
    assert seconds(replay(recorded([log_dirs(0, 3, 4 * GB), log_dirs(60, 3, 2 * GB)]))) == [0, 60]


@for_each(
    ("until", "expected"),
    [(None, [0]), (at(59.999), [0]), (at(60), [0, 60]), (at(125), [0, 60, 120]), (at(-5), [0])],
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
    told = ("night:1", "invalid: time: a recorded event needs one")
    assert [(r.place, str(r.error)) for r in of_file.rejected] == [told]
    assert seconds(replay([Recorded("topic/0/1", timeless, at(5))])) == [5]


def test_bad_records_are_collected_and_change_nothing() -> None:
    good = recorded(NIGHT)
    bad = [Recorded("night:x", b"garbage"), Recorded("night:y", changed(NIGHT[1], type="headgate.weather.v1"))]
    replayed = Replay(PolicyHost({"throttle": SETTINGS}))
    decisions = list(replayed.run([bad[0], *good[:3], bad[1], *good[3:]]))
    assert decisions == replay(good)
    told = [(r.place, r.error.reason.value) for r in replayed.rejected]
    assert told == [("night:x", "malformed"), ("night:y", "unknown_type")]
    assert isinstance(replayed.rejected[0], Rejected)


@for_each("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"])
def test_a_time_at_the_end_of_the_calendar_is_a_bad_record(time: str) -> None:
    replayed = Replay(PolicyHost({"throttle": SETTINGS}))
    assert list(replayed.run([Recorded("night:1", changed(NIGHT[1], time=time))])) == []
    assert [r.error.reason.value for r in replayed.rejected] == ["invalid"]


# Differences


def different(ours: ThrottleSettings, theirs: ThrottleSettings, until: datetime | None = None) -> list[dict[str, Any]]:
    return list(differences(*(replay(recorded(NIGHT), s, until) for s in (ours, theirs))))


@for_each("until", [None, at(3600)])
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


# --- Replay of events of one time: the order of collectors changes no byte, and the order of commands counts.


GRID_SECONDS = 10
"""Recorded readings within this time count as simultaneous."""


def read_simultaneously(policy: str) -> list[Observation]:
    """Return the recorded events, moved to the grid; of several readings of one thing at one time the last one."""
    found: dict[object, Observation] = {}
    for number, value in enumerate(events(policy)):
        event = read_record(PolicyHost(), value, None)
        assert event.time is not None
        moment = event.time.replace(second=event.time.second // GRID_SECONDS * GRID_SECONDS, microsecond=0)
        reading = event.data
        identity = (moment, type(reading), reading.cluster, reading.identity(), event.source)
        of = identity if is_collected(type(reading)) else number
        found[of] = Observation(event.id, moment, reading, event.source)
    return sorted(found.values(), key=lambda each: each.at)


def shuffle_collectors(observed: Sequence[Observation], seed: int) -> list[Observation]:
    """Shuffle readings of one time, but not across a command or report."""
    rng, shuffled = random.Random(seed), list[Observation]()
    for _, alike in groupby(observed, key=lambda each: (each.at, is_collected(type(each.reading)))):
        some = list(alike)
        shuffled += rng.sample(some, len(some)) if is_collected(type(some[0].reading)) else some
    return shuffled


def replay_all(host: PolicyHost, observed: Sequence[Observation]) -> list[bytes]:
    values = (observation_event(o.reading, id=o.id, source=o.source or "test", time=o.at) for o in observed)
    return [decision_event(d) for d in Replay(host).run([Recorded(str(n), v) for n, v in enumerate(values)])]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_order_of_collectors_within_an_instant_changes_no_byte(policy: str) -> None:
    host, observed = load_settings(DATA / "settings.yaml").policy_host(), read_simultaneously(policy)
    expected = replay_all(host, observed)
    assert expected
    for seed in seeds(0.1):
        assert replay_all(host, shuffle_collectors(observed, seed)) == expected


GROUPS: Mapping[str, str] = {"default": "bk1 bk2 bk3", "shared": "bk4 bk5 bk6"}
NAMESPACES: Mapping[str, NamespaceAffinity | str] = {"acme/a": "default", "acme/b": "shared/default"}


def make_history(rng: random.Random) -> list[Observation]:
    """Return readings every ten seconds: bookies and members of groups come and go, and some readings fail."""
    observed: list[Observation] = []
    for second in range(0, 200, 10):
        names = " ".join(f"bk{n}" for n in range(1, 9) if rng.random() < 0.85)
        groups = {group: " ".join(b for b in all_.split() if rng.random() < 0.9) for group, all_ in GROUPS.items()}
        spaces = {name: to for name, to in NAMESPACES.items() if rng.random() < 0.9}
        every = (bookies(second, names, known=names), racks(second, groups), isolation.affinity(second, spaces))
        observed += [each for each in every if rng.random() < 0.8]
    return observed


@pytest.mark.parametrize("seed", seeds(0.5))
def test_it_changes_no_byte_of_any_history_of_bookies_and_groups(seed: int) -> None:
    settings = IsolationSettings.model_validate({"quarantine": "on", "grace": "0s", "validity": "45s"})
    host, observed = PolicyHost({"isolation": settings}), make_history(random.Random(seed))
    expected = replay_all(host, observed)
    for order in seeds(0.1):
        assert replay_all(host, shuffle_collectors(observed, order)) == expected


def test_of_two_readings_of_one_thing_at_one_time_the_second_holds_whatever_their_ids_are() -> None:
    settings = IsolationSettings.model_validate({"confirm_after": "0s"})
    first, second = replace(bookies(0, "bk1 bk2"), id="z"), replace(bookies(0, "bk1 bk2 bk3"), id="a")
    observed = [racks(0, GROUPS), isolation.affinity(0, NAMESPACES), first, second]
    run = Replay(PolicyHost({"isolation": settings}))
    values = (observation_event(o.reading, id=o.id, source="test", time=o.at) for o in observed)
    placements = [d for d in run.run([Recorded("", v) for v in values]) if isinstance(d, Placement)]
    assert [d.candidate_count for d in placements if d.namespace == "acme/a"] == [2, 3]
    assert {d.decided_at for d in placements} == {at(0)}


def test_each_of_them_is_decided_on() -> None:
    states = ("connected", "disconnected", "connected")
    observed = [session(second, "b1", state, "0xb1") for second, state in enumerate(states)]
    together = [observed[0], *(Observation(o.id, at(1), o.reading) for o in observed[1:])]
    host = PolicyHost({"sessions": SessionsSettings()})
    assert [b'"verdict":"hold"' in line for line in replay_all(host, together)] == [True, False]
