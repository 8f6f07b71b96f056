"""Replay of events of one time: the order of collectors changes no byte, and the order of commands counts."""

import random
from collections.abc import Mapping, Sequence
from itertools import groupby

import pytest

from deploy.settings.file import load_settings
from policies.bookie_readings import NamespaceAffinity
from policies.isolation.decisions import Placement
from policies.isolation.settings import IsolationSettings
from policies.observations import Observation
from policies.registry import is_collected
from policies.sessions.settings import SessionsSettings
from policies.wire import decision_event, observation_event
from streaming.host import PolicyHost
from streaming.replay import Recorded, Replay
from streaming.transition import read_record
from tests.examples import seeds
from tests.policies.isolation import scenario as isolation
from tests.policies.isolation.scenario import at, bookies, racks
from tests.policies.sessions.course import session
from tests.streaming.test_golden_replays import DATA, POLICIES, events

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
        found[identity if is_collected(type(reading)) else number] = Observation(
            event.id, moment, reading, event.source
        )
    return sorted(found.values(), key=lambda each: each.at)


def shuffle_collectors(observed: Sequence[Observation], seed: int) -> list[Observation]:
    """Shuffle readings of one time, but not across a command or report."""
    rng, shuffled = random.Random(seed), list[Observation]()
    for _, alike in groupby(observed, key=lambda each: (each.at, is_collected(type(each.reading)))):
        some = list(alike)
        shuffled += rng.sample(some, len(some)) if is_collected(type(some[0].reading)) else some
    return shuffled


def replay(host: PolicyHost, observed: Sequence[Observation]) -> list[bytes]:
    values = (observation_event(o.reading, id=o.id, source=o.source or "test", time=o.at) for o in observed)
    return [decision_event(d) for d in Replay(host).run([Recorded(str(n), v) for n, v in enumerate(values)])]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_order_of_collectors_within_an_instant_changes_no_byte(policy: str) -> None:
    host, observed = load_settings(DATA / "settings.yaml").policy_host(), read_simultaneously(policy)
    expected = replay(host, observed)
    assert expected
    for seed in seeds(0.1):
        assert replay(host, shuffle_collectors(observed, seed)) == expected


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
    expected = replay(host, observed)
    for order in seeds(0.1):
        assert replay(host, shuffle_collectors(observed, order)) == expected


def test_of_two_readings_of_one_thing_at_one_time_the_second_holds_whatever_their_ids_are() -> None:
    settings = IsolationSettings.model_validate({"confirm_after": "0s"})
    first, second = bookies(0, "bk1 bk2", id="z"), bookies(0, "bk1 bk2 bk3", id="a")
    observed = [racks(0, GROUPS), isolation.affinity(0, NAMESPACES), first, second]
    run = Replay(PolicyHost({"isolation": settings}))
    values = (observation_event(o.reading, id=o.id, source="test", time=o.at) for o in observed)
    placements = [d for d in run.run([Recorded("", v) for v in values]) if isinstance(d, Placement)]
    assert [d.candidate_count for d in placements if d.namespace == "acme/a"] == [2, 3]
    assert {d.decided_at for d in placements} == {at(0)}


def test_each_of_them_is_decided_on() -> None:
    observed = [
        session(0, "b1", "connected", "0xb1"),
        session(1, "b1", "disconnected", "0xb1"),
        session(2, "b1", "connected", "0xb1"),
    ]
    together = [observed[0], *(Observation(o.id, at(1), o.reading) for o in observed[1:])]
    host = PolicyHost({"sessions": SessionsSettings()})
    assert [b'"verdict":"hold"' in line for line in replay(host, together)] == [True, False]
