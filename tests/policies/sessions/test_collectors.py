"""Which collector reads first changes no decision; what one reading says and the next denies orders nothing."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from policies.observations import Observation
from tests.policies.sessions import world as worlds
from tests.policies.sessions.course import BUNDLE, Run, absent, node, owned, registered, session, tree, unregistered
from tests.policies.sessions.world import World

TEN = tuple(f"b{n}" for n in range(10))
ORDERS = tuple(itertools.permutations(("session", "brokers", "health")))
"""The order in which the collectors look; that of the brokers reads both trees."""
SHUTDOWN: dict[str, Any] = {"on_session_lost": "shutdown", "zombie_after": "10h"}


def one_alone(world: World) -> None:
    world.until(22.5).lose("b3").until(120)


def one_during_an_outage(world: World) -> None:
    world.failing = {"session", "brokers", "namespaces"}
    world.until(42.5).lose("b3").until(57.5).failing = set()
    world.until(150)


def one_before_an_outage(world: World) -> None:
    world.until(22.5).lose("b3").until(27.5).failing = {"session", "brokers", "namespaces"}
    world.until(57.5).failing = set()
    world.until(150)


def the_fleet(world: World) -> None:
    world.until(22.5).lose(*TEN).until(62.5).back(*TEN).until(150)


def one_that_comes_back(world: World) -> None:
    world.own("b3", BUNDLE).until(22.5).lose("b3").until(32.5).back("b3").until(52.5).own("b3", BUNDLE).until(150)


def one_that_dies(world: World) -> None:
    world.own("b3", BUNDLE).until(22.5).brokers["b3"].well = "unreachable"
    world.until(42.5).lose("b3").until(150)


@pytest.mark.parametrize(
    "happen",
    [one_alone, one_during_an_outage, one_before_an_outage, the_fleet, one_that_comes_back, one_that_dies],
    ids=lambda happen: happen.__name__,
)
def test_the_order_of_collectors_within_an_instant_changes_no_decision(
    happen: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: dict[tuple[str, ...], Any] = {}
    for order in ORDERS:
        first = {kind: n / 10 for n, kind in enumerate(order)}
        monkeypatch.setattr(worlds, "_FIRST_SECOND", {**first, "namespaces": first["brokers"]})
        world = World(*TEN, **SHUTDOWN)
        happen(world)
        ruled = [(name, what) for name in TEN for _, what in world.run.ruled(name)]
        decided[order] = ([(name, what) for name in TEN for _, what in world.run.told(name)], ruled)
    expected = decided[ORDERS[0]]
    assert expected[0]
    assert all(found == expected for found in decided.values()), decided


ORDERED = frozenset({"shutdown", "restart", "unload", "re-own"})


@pytest.mark.parametrize(
    "denied",
    [
        session(21, "b1", "expired", "0xb1"),
        session(21, "b1", "disconnected", "0xb1"),
        session(21, "b1", "closed", "0xb1"),
        session(21, "b1", "connected", "0xother"),
        unregistered(21, "b1"),
        absent(21),
        tree(21),
        tree(21, name="/loadbalance/brokers"),
        owned(21, "b2", "0xb2"),
        owned(21, None, None),
    ],
    ids=lambda seen: seen.id,
)
@pytest.mark.parametrize("cut", [Run.feed, lambda run, seen: run.together(*seen)], ids=["one by one", "in one batch"])
def test_a_reading_that_the_next_ones_deny_orders_nothing(denied: Observation, cut: Any) -> None:
    run = Run(on_session_lost="shutdown", zombie_after="1m", shutdown_delay="0s")
    for second in range(0, 120, 5):
        run.together(*look(second))
        if second == 20:
            cut(run, [denied])
    assert not [d for d in (*run.sessions, *run.bundles) if d.verdict in ORDERED]
    assert not run.firing()
    assert run.state is not None
    assert {m.track.status.value for m in run.state.members if m.track} == {"established"}


def look(second: float) -> list[Observation]:
    names = ("b1", "b2", "b3")
    nodes = [node("b1", "0xb1", BUNDLE)]
    return [
        *(session(second, name, "connected", f"0x{name}") for name in names),
        *(registered(second, name, f"0x{name}") for name in names),
        tree(second + 0.001, *nodes),
    ]


@pytest.mark.parametrize("other", ["disconnected", "expired"])
def test_two_collectors_that_contradict_each_other_all_the_time_are_a_few_decisions_and_one_alert(other: str) -> None:
    run = Run(on_session_lost="shutdown").together(*look(0))
    for second in range(3, 320, 3):
        state = "connected" if second % 2 else other
        run.see(session(second, "b1", state, "0xb1"), session(second, "b2", "connected", "0xb2"))
    told = [what for _, what in run.told("b1")]
    assert len(told) <= 12, told
    assert told[-1] == "hold unsettled"
    assert not ORDERED & {what.split()[0] for what in told}
    assert {(a.alert, a.subject) for a in run.alerts if a.alert != "session-lost"} == {
        ("session-flapping", "messaging/b1")
    }
    assert len({a.alert_id for a in run.alerts if a.alert == "session-flapping"}) == 1
