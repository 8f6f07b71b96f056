"""What may never happen, whatever befalls a fleet and those who watch it: courses of a whole world, drawn at random."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decisions import AlertStatus
from policies.observations import Observation
from policies.sessions import SessionDecision
from policies.sessions.readings import MemberHealth, Ownerships, Recovery, ZkSession, registration_path
from tests.examples import examples
from tests.policies.sessions.course import BUNDLE, at
from tests.policies.sessions.world import World

NAMES = ("b0", "b1", "b2", "b3", "b4")
PATHS = (BUNDLE, "/namespace/t/ns/0x40000000_0x80000000")
DOWN = ("shutdown", "restart")
T = timedelta(seconds=30)
few = examples(0.4)  # each is a whole course of a fleet

names = st.sets(st.sampled_from(NAMES), min_size=1, max_size=5).map(sorted)
Event = tuple[str, Any]
happenings = st.one_of(
    st.tuples(st.sampled_from(["lose", "lose", "cut", "back", "back", "close", "deregister", "register"]), names),
    st.tuples(st.just("well"), st.tuples(st.sampled_from(NAMES), st.sampled_from(["ok", "timeout", "unreachable"]))),
    st.tuples(st.just("listed"), st.tuples(st.sampled_from(NAMES), st.sampled_from([True, False, None]))),
    st.tuples(st.just("silent"), st.sets(st.sampled_from(["session", "brokers", "namespaces", "health"]))),
    st.tuples(st.just("failing"), st.sets(st.sampled_from(["session", "brokers", "namespaces"]))),
    st.tuples(st.just("own"), st.tuples(st.sampled_from(NAMES), st.sampled_from(PATHS))),
    st.tuples(st.just("away"), st.sampled_from([30, 400])),
)
alone = st.tuples(st.sampled_from(["lose", "deregister"]), st.sampled_from(NAMES).map(lambda name: [name]))
beginnings = st.tuples(st.sampled_from([3, 12, 25, 60]), alone).map(lambda first: [first])
rest = st.lists(st.tuples(st.sampled_from([3, 12, 25, 40, 90, 250]), happenings), min_size=1, max_size=8)
courses = st.tuples(beginnings, rest).map(lambda parts: [*parts[0], *parts[1]])
"""One has a trouble of its own, and then anything happens."""
blocks: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "on_session_lost": st.sampled_from(["shutdown", "shutdown", "reconnect"]),
        "shutdown_budget": st.sampled_from([1, 1, 2]),
        "zombie_after": st.sampled_from(["40s", "3m"]),
    },
    optional={
        "shutdown_delay": st.just("0s"),
        "shutdown_window": st.just("20s"),
        "reconnect_deadline": st.just("40s"),
        "settle": st.sampled_from(["0s", "20s"]),
        "fleet_ratio": st.just(1.0),
    },
)


@dataclass
class Read:
    """The readings so far, as they were taken in."""

    everything: list[Observation] = field(default_factory=list)

    def of(self, decision: SessionDecision) -> Iterator[list[Observation]]:
        """For each reading in the evidence: all of its kind about the same thing until then, newest first."""
        until = [o for o in self.everything if o.at <= decision.decided_at]
        for id_ in decision.evidence:
            (named,) = {o.id: o for o in until if o.id == id_}.values()
            same = [o for o in until if _thing(o) == _thing(named)]
            yield sorted(same, key=lambda o: o.at, reverse=True)


def _thing(seen: Observation) -> tuple[str, str]:
    return type(seen.reading).__name__, seen.reading.subject()


class OneAfterTheOther(World):
    """Its collectors read at different moments; one collector reads both trees."""

    first_second: ClassVar = {"session": 0.0, "brokers": 0.1, "namespaces": 0.1, "health": 0.2}


def played(course: list[tuple[int, Event]], block: dict[str, Any]) -> tuple[World, Read]:
    """A world after a course; all that was read in it."""
    world, read = OneAfterTheOther(*NAMES, **block), Read()
    see = world.run.together

    def note(*seen: Observation) -> Any:
        read.everything += seen
        return see(*seen)

    world.run.together = note  # type: ignore[assignment,method-assign]
    world.own("b0", *PATHS).until(15)
    for seconds, (kind, what) in course:
        _happen(world, kind, what)
        world.until(world.now + seconds)
    return world, read


def _happen(world: World, kind: str, what: Any) -> None:
    brokers = world.brokers
    connected = [name for name in brokers if brokers[name].state == "connected"]
    match kind:
        case "lose" | "back":
            getattr(world, kind)(*what)
        case "cut":
            world.cut(*(name for name in what if name in connected))
        case "close":
            world.lose(*what)
            _set(world, what, state="closed")
        case "register" | "deregister":
            _set(world, what, registered=kind == "register")
        case "well" | "listed":
            _set(world, what[:1], **{kind: what[1]})
        case "silent" | "failing":
            setattr(world, kind, set(what))
        case "own" if what[0] in connected:
            world.own(*what)
        case "away":
            world.run.wake_at = None  # nobody wakes it
            world.restart_collectors(world.now + what)
            world.now += what


def _set(world: World, who: Iterable[str], **values: Any) -> None:
    for name in who:
        for key, value in values.items():
            setattr(world.brokers[name], key, value)


@few
@given(courses, blocks)
def test_nobody_goes_down_on_a_reading_that_is_old_or_alone(
    course: list[tuple[int, Event]], block: dict[str, Any]
) -> None:
    world, read = played(course, block)
    for decision in world.run.sessions:
        if decision.verdict not in DOWN:
            continue
        for newest_first in read.of(decision):
            last, before = newest_first[0], newest_first[1]
            interval = max(last.at - before.at, timedelta(seconds=1))
            assert decision.decided_at - last.at < min(2 * interval, T), (decision.explanation, last.id)
            assert _says(last, decision) == _says(before, decision) is not None, decision.explanation


def _says(seen: Observation, decision: SessionDecision) -> object:
    """What a reading says of the member a decision is about, as far as it bears on it; None: nothing for it."""
    match seen.reading:
        case ZkSession() as read:
            wants = ("connected",) if decision.reason == "not_ready" else ("disconnected", "expired")
            return "so" if read.state in wants else None
        case MemberHealth() as read:
            says = read.listed is False if decision.reason == "not_ready" else read.healthy
            return "so" if says else None
        case Ownerships() as read:
            there = registration_path(decision.member) in {node.path for node in read.nodes}
            return "so" if there is (decision.reason == "not_ready") else None
        case Recovery():
            return "so"
    return None


@few
@given(courses, blocks)
def test_no_more_are_down_by_our_word_than_the_budget_at_any_time(
    course: list[tuple[int, Event]], block: dict[str, Any]
) -> None:
    world, _ = played(course, block)
    down: dict[str, datetime] = {}
    for _, step in world.run.steps:
        state = step.state
        assert state is not None
        still = {spent.member for spent in state.spent if spent.back_ms < 0}
        assert len(still) <= block["shutdown_budget"]
        ordered = [d for d in step.decisions if isinstance(d, SessionDecision) and d.verdict in DOWN]
        down |= {d.member: d.decided_at for d in ordered}
        assert {d.member for d in ordered} <= still
        recent = [s for s in state.spent if s.at_ms > int(_ms(step)) - _window_ms(world)]
        assert len(recent) <= block["shutdown_budget"]


def _ms(step: Any) -> float:
    moments = [d.decided_at for d in step.decisions]
    return max(moments).timestamp() * 1000 if moments else 0.0


def _window_ms(world: World) -> int:
    return int(world.run.settings.shutdown_window.total_seconds() * 1000)


@few
@given(courses, blocks)
def test_nobody_goes_down_while_enough_of_the_fleet_are_without_a_session_as_read(
    course: list[tuple[int, Event]], block: dict[str, Any]
) -> None:
    world, read = played(course, block)
    needed = 2 if "fleet_ratio" not in block else len(NAMES)
    for decision in world.run.sessions:
        if decision.verdict not in DOWN:
            continue
        latest: dict[str, str] = {}
        for seen in sorted(read.everything, key=lambda o: (o.at, o.id)):
            if isinstance(seen.reading, ZkSession) and seen.reading.member and seen.at <= decision.decided_at:
                latest[seen.reading.member] = str(seen.reading.state)
        assert sum(state in ("expired", "disconnected") for state in latest.values()) < max(2, needed), (
            decision.explanation
        )


@few
@given(courses, blocks)
def test_no_alert_ends_because_nothing_is_read_any_more(course: list[tuple[int, Event]], block: dict[str, Any]) -> None:
    world, _ = played(course, block)
    world.silent = {"session", "brokers", "namespaces", "health"}
    before = world.now
    world.until(before + 4_000)
    ended = [a for a in world.run.alerts if a.decided_at > at(before + 0.01) and a.status is AlertStatus.RESOLVED]
    # One that stands for others takes their place, as more sessions lapse.
    assert [a.summary for a in ended if a.alert != "session-lost"] == []
    assert not ended or any(alert == "session-fleet-wide" for alert, _ in world.run.firing())


@few
@given(courses, blocks)
def test_when_all_is_well_again_each_claim_has_one_last_verdict_and_nothing_fires(
    course: list[tuple[int, Event]], block: dict[str, Any]
) -> None:
    world, _ = played(course, block)
    world.silent, world.failing = set(), set()
    world.back(*NAMES)
    for broker in world.brokers.values():
        broker.well, broker.listed = "ok", True
    world.own("b0", PATHS[0]).own("b1", PATHS[1]).until(world.now + 700)
    assert world.run.state is not None
    last = {(d.member, d.path): d.verdict.value for d in world.run.bundles}
    for path, owner in zip(PATHS, ("b0", "b1"), strict=True):
        of_path = {member: verdict for (member, p), verdict in last.items() if p == path}
        assert set(of_path.values()) <= {"keep", "unload", "re-own", "wait"}
        assert [m for m, v in of_path.items() if v == "keep"] in ([], [owner])
    assert world.run.firing() == set()


@pytest.mark.parametrize("verdict", DOWN)
def test_the_courses_bring_somebody_down_at_times(verdict: str) -> None:
    """Or the tests above would say nothing."""
    world = World(*NAMES, on_session_lost="shutdown", zombie_after="40s").until(15)
    if verdict == "shutdown":
        world.lose("b1")
    else:
        world.brokers["b1"].registered = False
    assert [what.split()[0] for _, _, what in world.until(100).went_down()][:1] == [verdict]


# --- the order of collectors


_LOOK = World._look
SOURCES = {"session", "brokers", "namespaces"}
DOES = ("lose", "cut", "back", "die", "start", "fail", "heal", "own", "unregister", "register")
CYCLE_SECONDS = 10
"""Each collector reads once or twice in a cycle; things happen between two cycles, so all read the same."""

events = st.tuples(st.integers(1, 3), st.sampled_from(DOES), st.sampled_from(NAMES))
"""(cycles until it happens, what, to which member)"""
histories = st.lists(events, max_size=6)
# No timer ends in the moment of a reading: then the order of both would decide, as it does in a real fleet.
untimely_blocks: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
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


@given(histories, untimely_blocks, st.permutations(("session", "brokers", "health")))
def test_the_order_of_collectors_changes_no_decision(
    history: list[tuple[int, str, str]], block: dict[str, Any], order: list[str]
) -> None:
    def run_in(order: list[str]) -> dict[str, list[str]]:
        with pytest.MonkeyPatch.context() as patch:
            first = {kind: n / 10 for n, kind in enumerate(order)}
            patch.setattr(World, "first_second", {**first, "namespaces": first["brokers"]})
            return decisions(run_history(history, block, until=100))

    assert run_in(order) == run_in(["session", "brokers", "health"])


@given(histories, untimely_blocks, st.permutations(("session", "brokers", "namespaces", "health")))
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
