"""The order of collectors changes no decision; what one reading shows and the next ones deny orders nothing.

Both hold in any history: members lose their sessions, come back, die, are cut off, and ZooKeeper cannot be read.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.observations import Observation
from tests.policies.sessions.course import BUNDLE, absent, health, owned, registered, session, tree, unregistered
from tests.policies.sessions.world import World

_LOOK = World._look
NAMES = tuple(f"b{n}" for n in range(5))
SOURCES = {"session", "brokers", "namespaces"}
DOES = ("lose", "cut", "back", "die", "start", "fail", "heal", "own", "unregister", "register")
ORDERED = frozenset({"shutdown", "restart", "unload", "re-own"})
CYCLE_SECONDS = 10
"""Each collector reads once or twice in a cycle; things happen between two cycles, so all read the same."""

members = st.sampled_from(NAMES)
events = st.tuples(st.integers(1, 3), st.sampled_from(DOES), members)
"""(cycles until it happens, what, to which member)"""
histories = st.lists(events, max_size=6)
# No timer ends in the moment of a reading: then the order of both would decide, as it does in a real fleet.
blocks: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "on_session_lost": st.sampled_from(["reconnect", "shutdown"]),
        "zombie_after": st.sampled_from(["33s", "10h"]),
        "ownership_rules": st.sampled_from(["pip57", "current"]),
        "shutdown_budget": st.sampled_from([1, 2]),
        "shutdown_delay": st.just("17s"),
    }
)


def happen(world: World, what: str, name: str) -> None:
    broker = world.brokers[name]
    match what:
        case "lose":
            world.lose(name)
        case "cut" if broker.state == "connected":
            world.cut(name)
        case "back" if broker.state != "connected":
            world.back(name)
        case "die":
            broker.well = "unreachable"
            world.lose(name)
        case "start":
            broker.well = "ok"
        case "fail":
            world.failing = set(SOURCES)
        case "heal":
            world.failing = set()
        case "own" if broker.state == "connected":
            world.own(name, BUNDLE)
        case "unregister" | "register":
            broker.registered = what == "register" and broker.state == "connected"


def run_history(history: list[tuple[int, str, str]], block: dict[str, Any], *, until: float = 0) -> World:
    world, second = World(*NAMES, timeout_s=31.0, **block), CYCLE_SECONDS * 2 - 2.5
    world.until(second)
    for cycles, what, name in history:
        second += cycles * CYCLE_SECONDS
        happen(world.until(second), what, name)
    return world.until(second + until)


def decisions(world: World) -> dict[str, list[str]]:
    told = {name: [what for _, what in world.run.told(name)] for name in NAMES}
    return told | {f"{name} {BUNDLE}": [what for _, what in world.run.ruled(name)] for name in NAMES}


@given(histories, blocks, st.permutations(("session", "brokers", "health")))
def test_the_order_of_collectors_changes_no_decision(
    history: list[tuple[int, str, str]], block: dict[str, Any], order: list[str]
) -> None:
    def run_in(order: list[str]) -> dict[str, list[str]]:
        with pytest.MonkeyPatch.context() as patch:
            first = {kind: n / 10 for n, kind in enumerate(order)}
            patch.setattr(World, "first_second", {**first, "namespaces": first["brokers"]})
            return decisions(run_history(history, block, until=100))

    assert run_in(order) == run_in(["session", "brokers", "health"])


@given(histories, blocks, st.permutations(("session", "brokers", "namespaces", "health")))
def test_the_order_of_ids_within_an_instant_changes_no_decision(
    history: list[tuple[int, str, str]], block: dict[str, Any], order: list[str]
) -> None:
    """All collectors read at once; the order of ids, which decides in one batch, depends on the kind."""

    def run_in(order: list[str]) -> dict[str, list[str]]:
        def look(world: World, kind: str, at: float) -> list[Observation]:
            return [replace(each, id=f"{order.index(kind)}{each.id}") for each in _LOOK(world, kind, at)]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(World, "first_second", dict.fromkeys(order, 0.0))
            patch.setattr(World, "_look", look)
            return decisions(run_history(history, block, until=100))

    assert run_in(order) == run_in(sorted(order))


ODD: dict[str, Callable[[float], Observation]] = {
    "expired": lambda s: session(s, "b1", "expired", "0xb1-0"),
    "closed": lambda s: session(s, "b1", "closed", "0xb1-0"),
    "disconnected": lambda s: session(s, "b1", "disconnected", "0xb1-0"),
    "another session": lambda s: session(s, "b1", "connected", "0xother"),
    "unregistered": lambda s: unregistered(s, "b1"),
    "registered by another session": lambda s: registered(s, "b1", "0xother"),
    "no node": absent,
    "no bundles": tree,
    "no brokers": lambda s: tree(s, name="/loadbalance/brokers"),
    "another owner": lambda s: owned(s, "b2", "0xb2-0"),
    "an unreadable owner": lambda s: owned(s, None, None),
    "unreachable": lambda s: health(s, "b1", "unreachable"),
    "not listed": lambda s: health(s, "b1", listed=False),
}


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(DOES), st.sampled_from(NAMES[2:])), max_size=4),
    blocks,
    st.sampled_from(sorted(ODD)),
    st.floats(0.3, 2.4),
)
def test_a_reading_that_the_next_ones_deny_orders_nothing(
    history: list[tuple[int, str, str]], block: dict[str, Any], odd: str, after_seconds: float
) -> None:
    """Of b1 and its bundle, whatever happens to others."""

    def run_with(*odd: str) -> list[str]:
        world = World(*NAMES, timeout_s=31.0, **block).own("b1", BUNDLE).until(17.5)
        for cycles, what, name in history:
            second = world.now + cycles * CYCLE_SECONDS
            happen(world.until(second), what if what != "own" else "", name)
        world.run.feed(ODD[each](round(world.now + after_seconds, 3)) for each in odd)
        world.failing = set()
        world.until(world.now + 100)
        told = [what for _, what in (*world.run.told("b1"), *world.run.ruled("b1"))]
        return [what for what in told if what.split()[0] in ORDERED]

    assert run_with(odd) == run_with() == []
