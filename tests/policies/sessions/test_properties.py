"""What holds of the sessions policy whatever happens: any readings, and courses of a whole fleet."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decisions import AlertStatus
from policies.observations import Observation
from policies.sessions import SessionDecision, SessionsState
from policies.sessions.readings import MemberHealth, Ownerships, ZkSession, registration_path
from policies.units import to_millis
from policies.wire import audit_event
from tests.cases import for_each
from tests.examples import combined, examples
from tests.policies.sessions.course import (
    BUNDLE,
    Run,
    absent,
    at,
    health,
    node,
    owned,
    recovery,
    registered,
    session,
    tree,
    unread,
    unregistered,
)
from tests.policies.sessions.world import World

MEMBERS = ("b1", "b2", "b3", "b4")
PATHS = (BUNDLE, "/namespace/t/ns/0x40000000_0x80000000")
members = st.sampled_from(MEMBERS)
ids = st.integers(0, 2)
outcomes = st.sampled_from(["timeout", "unreachable", "error"])

Batch = tuple[float, tuple[Observation, ...]]


def sid(member: str, number: int) -> str:
    return f"0x{member}-{number}"


Read = Callable[[float], Observation]
"""Takes a reading at a second. To make a strategy takes longer than to draw from it, so each is made once."""
paths, maybe_members, chance = st.sampled_from(PATHS), st.none() | members, st.booleans()
states = st.sampled_from(["connected", "connected", "disconnected", "expired", "expired", "closed"])
versions, tree_outcomes = st.sampled_from([None, 0, 3]), st.sampled_from(["ok", "ok", "ok", "timeout"])
actions = st.sampled_from(["reconnect", "re-own", "unload", "republish-load-data"])
likely, listings = st.sampled_from([True, True, False]), st.sampled_from([None, True, False])
answers = st.sampled_from(["ok", "ok", "unreachable"])
kinds = st.integers(0, 11)


@st.composite
def _reads(draw: st.DrawFn) -> Read:
    member, number, path, owner, holder = draw(members), draw(ids), draw(paths), draw(maybe_members), draw(members)
    held = sid(holder, number)
    match draw(kinds):
        case 0 | 1 | 2 | 3:
            state, id_ = draw(states), sid(member, number) if draw(chance) else None
            return lambda at: session(at, member, state, id_)
        case 4:
            whose, outcome = draw(maybe_members), draw(outcomes)
            return lambda at: unread(at, whose, outcome)
        case 5 | 6:
            more = {"ephemeral": draw(likely), "version": 0 if draw(chance) else None}
            known = held if draw(chance) else None
            return lambda at: owned(at, owner, known, path, **more)
        case 7:
            return lambda at: absent(at, path)
        case 8:
            nodes, result = node(owner, held, path, version=draw(versions)), draw(tree_outcomes)
            return lambda at: tree(at, nodes, outcome=result)
        case 9:
            is_there = draw(chance)
            return lambda at: registered(at, member, sid(member, number)) if is_there else unregistered(at, member)
        case 10:
            action, came = draw(actions), "ok" if draw(chance) else "failed"
            return lambda at: recovery(at, member, action, came, path=path, attempt=number)
        case _:
            listed, answer = draw(listings), draw(answers)
            return lambda at: health(at, member, answer, listed=listed)


batches = st.tuples(
    # Around every length that matters: a delay, the monitor, T, 2 T, the windows, settle, validity.
    st.sampled_from([0.5, 1, 4, 5, 6, 20, 25, 30, 31, 60, 61, 180, 299, 300, 301, 601]),
    st.sampled_from([0, 0, 0, 3, 40, -2]),
    st.lists(_reads(), max_size=5),
)
"""Seconds since the batch before, the age of its readings, and the readings."""


def _course(drawn: list[tuple[float, int, list[Read]]]) -> list[Batch]:
    seconds = 0.0
    everyone = [session(0, m, "connected", sid(m, 0)) for m in MEMBERS]
    claims = [owned(0, "b1", sid("b1", 0), PATHS[0]), owned(0, "b2", sid("b2", 0), PATHS[1])]
    course: list[Batch] = [(seconds, (*everyone, *claims, *[unregistered(0, m) for m in MEMBERS]))]
    for pause, age, reads in drawn:
        seconds += pause
        course.append((seconds, tuple({o.id: o for o in (read(seconds - age) for read in reads)}.values())))
    return course


courses = st.lists(batches, min_size=1, max_size=14).map(_course)
blocks: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "on_session_lost": st.sampled_from(["reconnect", "shutdown", "shutdown"]),
        "shutdown_budget": st.sampled_from([0, 1, 1, 2]),
        "ownership_rules": st.sampled_from(["pip57", "current"]),
    },
    optional={
        "fleet_ratio": st.sampled_from([0.5, 1.0]),
        "shutdown_delay": st.just("0s"),
        "reconnect_limit": st.just(1),
        "settle": st.sampled_from(["0s", "10s"]),
        "validity": st.sampled_from(["20s", "30m"]),
        "wait_for_deletion": st.just("3s"),
        "shutdown_window": st.sampled_from(["20s", "1h"]),
        "mode": st.just("shadow"),
    },
)


def run_of(course: list[Batch], block: dict[str, Any], until: float = 700) -> Run:
    run = Run(**block)
    for seconds, seen in course:
        run._wake_until(at(seconds))
        run.step(seen, at(seconds))
    return run.until(course[-1][0] + until)


@given(courses, blocks)
def test_what_holds_of_each_decision_alert_and_state_whatever_is_read(
    course: list[Batch], block: dict[str, Any]
) -> None:
    run = run_of(course, block)
    when = {o.id: o.at for _, seen in course for o in seen}
    for decision in (*run.sessions, *run.bundles):
        assert decision.evidence
        for id_ in decision.evidence:
            assert decision.decided_at - when[id_] <= run.settings.validity, (decision.verdict, id_)
    for ruling in run.bundles:
        if ruling.verdict == "keep":
            assert ruling.session is not None
            assert ruling.node_session == ruling.session
        assert not ruling.delete_first or ruling.expected_version is not None
    sequences = [d.sequence for d in (*run.sessions, *run.bundles)]
    assert len(set(sequences)) == len(sequences)
    for alert_id in {a.alert_id for a in run.alerts}:
        life = [a.status for a in run.alerts if a.alert_id == alert_id]
        assert life[0] == "firing", "it fires before it resolves"
        assert "resolved" not in life[:-1], "it resolves once"
    for _, step in run.steps:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(step.state), type=SessionsState) == step.state


@given(courses, blocks, st.data())
def test_neither_order_nor_repetition_within_a_batch_matters(
    course: list[Batch], block: dict[str, Any], data: st.DataObject
) -> None:
    shuffled = [(s, tuple(data.draw(st.permutations([*seen, *seen[:2]])))) for s, seen in course]
    plain, other = run_of(course, block), run_of(shuffled, block)
    assert [audit_event(d) for d in plain.published] == [audit_event(d) for d in other.published]
    assert msgspec.msgpack.encode(plain.state) == msgspec.msgpack.encode(other.state)


@given(courses, blocks)
def test_a_batch_delivered_again_says_nothing(course: list[Batch], block: dict[str, Any]) -> None:
    run = Run(**block)
    for seconds, seen in course:
        run._wake_until(at(seconds))
        run.step(seen, at(seconds))
        assert not [d for d in run.step(seen, at(seconds)).decisions if d.verdict in ("shutdown", "restart", "hold")]


@given(courses, blocks, st.lists(st.integers(0, 3_000_000), max_size=20))
def test_idle_steps_are_harmless(course: list[Batch], block: dict[str, Any], extra_ms: list[int]) -> None:
    """Steps at other moments, without observations, change nobody's verdict."""
    plain, other = run_of(course, block), Run(**block)
    end = course[-1][0] + 700
    idle: list[Batch] = [(ms / 1000, ()) for ms in extra_ms if ms / 1000 < end]
    for seconds, seen in sorted([*course, *idle], key=lambda it: (it[0], not it[1])):
        other._wake_until(at(seconds))
        other.step(seen, at(seconds))
    other.until(end)
    for member in MEMBERS:
        one, two = ([told for told in run.told(member) if "recovered" not in told[1]] for run in (plain, other))
        assert one == two
        for path in PATHS:
            assert plain.ruled(member, path) == other.ruled(member, path)


@given(courses, blocks, blocks)
def test_a_state_of_other_settings_is_taken_over(
    course: list[Batch], before: dict[str, Any], after: dict[str, Any]
) -> None:
    state = run_of(course, before).state
    second = Run(state, **after)
    second.step((), at(course[-1][0] + 701))


def _interleavings(*tracks: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for places in set(itertools.permutations([n for n, track in enumerate(tracks) for _ in track])):
        taken = [iter(track) for track in tracks]
        yield tuple(next(taken[n]) for n in places)


B1 = ("b1 expired", "b1 connected")
B2 = ("b2 expired", "b2 connected")
NODE = ("node absent", "node taken")


@pytest.mark.parametrize(("rules", "winner"), combined(["pip57", "current"], ["b1", "b2"]))
def test_every_interleaving_of_two_claims_ends_with_one_owner_told_to_keep(winner: str, rules: str) -> None:
    """Both lose their sessions and get others; the node goes, and is taken by one of them."""
    for order in _interleavings(B1, B2, NODE):
        now = {"b1": "0xb1-0", "b2": "0xb2-0"}
        began = [session(0, member, "connected", id_) for member, id_ in now.items()]
        run = Run(ownership_rules=rules).together(*began, owned(1, "b1", "0xb1-0"))
        for n, what in enumerate(order):
            seconds = 10.0 + n
            who, event = what.split()
            if event == "expired":
                run.see(session(seconds, who, "expired", now[who]))
            elif event == "connected":
                now[who] = f"0x{who}-1"
                run.see(session(seconds, who, "connected", now[who]))
            elif event == "absent":
                run.see(absent(seconds))
            else:
                run.see(owned(seconds, winner, now[winner]))
        # The winner's node ended with its old session, if it was one of that: it is told so, and owns it again.
        run.see(absent(30), owned(31, winner, now[winner]), owned(40, winner, now[winner]))
        latest = {d.member: d for d in run.bundles if d.path == BUNDLE}
        told = {member: decision.verdict for member, decision in latest.items()}
        assert [m for m, verdict in told.items() if verdict == "keep"] == [winner], (order, told)
        assert set(told.values()) <= {"keep", "unload"}, (order, told)


# --- What may never happen, whatever befalls a fleet and those who watch it: courses of a whole world, drawn at random


NAMES = ("b0", "b1", "b2", "b3", "b4")
FLEET_PATHS = (BUNDLE, "/namespace/t/ns/0x40000000_0x80000000")
DOWN = ("shutdown", "restart")
T = timedelta(seconds=30)
few = examples(0.4)  # each is a whole course of a fleet

some_names = st.sets(st.sampled_from(NAMES), min_size=1, max_size=5).map(sorted)
Event = tuple[str, Any]
happenings = st.one_of(
    st.tuples(st.sampled_from(["lose", "lose", "cut", "back", "back", "close", "deregister", "register"]), some_names),
    st.tuples(st.just("well"), st.tuples(st.sampled_from(NAMES), st.sampled_from(["ok", "timeout", "unreachable"]))),
    st.tuples(st.just("listed"), st.tuples(st.sampled_from(NAMES), st.sampled_from([True, False, None]))),
    st.tuples(st.just("silent"), st.sets(st.sampled_from(["session", "brokers", "namespaces", "health"]))),
    st.tuples(st.just("failing"), st.sets(st.sampled_from(["session", "brokers", "namespaces"]))),
    st.tuples(st.just("own"), st.tuples(st.sampled_from(NAMES), st.sampled_from(FLEET_PATHS))),
    st.tuples(st.just("away"), st.sampled_from([30, 400])),
)
alone = st.tuples(st.sampled_from(["lose", "deregister"]), st.sampled_from(NAMES).map(lambda name: [name]))
beginnings = st.tuples(st.sampled_from([3, 12, 25, 60]), alone).map(lambda first: [first])
rest = st.lists(st.tuples(st.sampled_from([3, 12, 25, 40, 90, 250]), happenings), min_size=1, max_size=8)
fleet_courses = st.tuples(beginnings, rest).map(lambda parts: [*parts[0], *parts[1]])
"""One has a trouble of its own, and then anything happens."""
fleet_blocks: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
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
class Readings:
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


ONE_AFTER_THE_OTHER = {"session": 0.0, "brokers": 0.1, "namespaces": 0.1, "health": 0.2}
"""One collector reads both trees."""


def played(course: list[tuple[int, Event]], block: dict[str, Any]) -> tuple[World, Readings]:
    """A world after a course; all that was read in it."""
    world, read = World(*NAMES, first_s=ONE_AFTER_THE_OTHER, **block), Readings()
    see = world.run.together

    def note(*seen: Observation) -> Any:
        read.everything += seen
        return see(*seen)

    world.run.together = note  # type: ignore[assignment,method-assign]
    world.own("b0", *FLEET_PATHS).until(15)
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
            world.change(*what, state="closed")
        case "register" | "deregister":
            world.change(*what, registered=kind == "register")
        case "well" | "listed":
            world.change(what[0], **{kind: what[1]})
        case "silent" | "failing":
            setattr(world, kind, set(what))
        case "own" if what[0] in connected:
            world.own(*what)
        case "away":
            world.restart_collectors(world.now + what)
            world.now += what


@few
@given(fleet_courses, fleet_blocks)
def test_nobody_goes_down_on_old_or_single_readings_or_with_the_fleet_or_beyond_the_budget(
    course: list[tuple[int, Event]], block: dict[str, Any]
) -> None:
    world, read = played(course, block)
    fewest = 2 if "fleet_ratio" not in block else len(NAMES)
    window_ms = int(world.run.settings.shutdown_window.total_seconds() * 1000)
    for now, step in world.run.steps:
        still = {spent.member for spent in step.state.spent if spent.back_ms < 0}
        assert len(still) <= block["shutdown_budget"]
        assert len([s for s in step.state.spent if s.at_ms > to_millis(now) - window_ms]) <= block["shutdown_budget"]
        for decision in step.decisions:
            if not isinstance(decision, SessionDecision) or decision.verdict not in DOWN:
                continue
            assert decision.member in still
            for newest_first in read.of(decision):
                last, before = newest_first[0], newest_first[1]
                interval = max(last.at - before.at, timedelta(seconds=1))
                assert decision.decided_at - last.at < min(2 * interval, T), (decision.explanation, last.id)
                assert _says(last, decision) == _says(before, decision) is not None, decision.explanation
            latest: dict[str, str] = {}
            for seen in sorted(read.everything, key=lambda o: (o.at, o.id)):
                if isinstance(seen.reading, ZkSession) and seen.reading.member and seen.at <= decision.decided_at:
                    latest[seen.reading.member] = str(seen.reading.state)
            lost = [state for state in latest.values() if state in ("expired", "disconnected")]
            assert len(lost) < fewest, decision.explanation


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
    return None


@few
@given(fleet_courses, fleet_blocks)
def test_no_alert_ends_because_nothing_is_read_any_more(course: list[tuple[int, Event]], block: dict[str, Any]) -> None:
    world, _ = played(course, block)
    before = world.now
    world.silence("session", "brokers", "namespaces", "health").until(before + 4_000)
    ended = [a for a in world.run.alerts if a.decided_at > at(before + 0.01) and a.status is AlertStatus.RESOLVED]
    # One that stands for others takes their place, as more sessions lapse.
    assert [a.summary for a in ended if a.alert != "session-lost"] == []
    assert not ended or any(alert == "session-fleet-wide" for alert, _ in world.run.firing())


@few
@given(fleet_courses, fleet_blocks)
def test_when_all_is_well_again_each_claim_has_one_last_verdict_and_nothing_fires(
    course: list[tuple[int, Event]], block: dict[str, Any]
) -> None:
    world, _ = played(course, block)
    world.silence().fail().back(*NAMES).change(*NAMES, well="ok", listed=True)
    world.own("b0", FLEET_PATHS[0]).own("b1", FLEET_PATHS[1]).until(world.now + 700)
    last = {(d.member, d.path): d.verdict.value for d in world.run.bundles}
    for path, owner in zip(FLEET_PATHS, ("b0", "b1"), strict=True):
        of_path = {member: verdict for (member, p), verdict in last.items() if p == path}
        assert set(of_path.values()) <= {"keep", "unload", "re-own", "wait"}
        assert [m for m, v in of_path.items() if v == "keep"] in ([], [owner])
    assert world.run.firing() == set()


@pytest.mark.parametrize("verdict", DOWN)
def test_the_courses_bring_somebody_down_at_times(verdict: str) -> None:
    """Or the tests above would say nothing."""
    world = World(*NAMES, on_session_lost="shutdown", zombie_after="40s").until(15)
    world = world.lose("b1") if verdict == "shutdown" else world.change("b1", registered=False)
    assert [what.split()[0] for _, _, what in world.until(100).went_down()][:1] == [verdict]


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
    is_connected = world.brokers[name].state == "connected"
    match what:
        case "die":
            _happen(world, "well", (name, "unreachable"))
            world.lose(name)
        case "start":
            _happen(world, "well", (name, "ok"))
        case "fail" | "heal":
            world.failing = set(SOURCES) if what == "fail" else set()
        case "own":
            _happen(world, "own", (name, BUNDLE))
        case "unregister" | "register":
            world.brokers[name].registered = what == "register" and is_connected
        case _ if what != "back" or not is_connected:
            _happen(world, what, [name])


def decisions(history: list[tuple[int, str, str]], block: dict[str, Any], order: list[str]) -> dict[str, list[str]]:
    """The decisions in a world whose collectors read in this order."""
    first_s = {kind: n / 10 for n, kind in enumerate(order)}
    world = World(*NAMES, timeout_s=31.0, first_s={**first_s, "namespaces": first_s["brokers"]}, **block)
    second = CYCLE_SECONDS * 2 - 2.5
    for cycles, what, name in history:
        second += cycles * CYCLE_SECONDS
        happen(world.until(second), what, name)
    world.until(second + 100)
    told = {name: [what for _, what in world.run.told(name)] for name in NAMES}
    return told | {f"{name} {BUNDLE}": [what for _, what in world.run.ruled(name)] for name in NAMES}


@given(histories, untimely_blocks, st.permutations(("session", "brokers", "health")))
def test_the_order_of_collectors_changes_no_decision(
    history: list[tuple[int, str, str]], block: dict[str, Any], order: list[str]
) -> None:
    assert decisions(history, block, order) == decisions(history, block, ["session", "brokers", "health"])


# --- What one reading says and the next denies orders nothing

ORDERED = frozenset({"shutdown", "restart", "unload", "re-own"})


def everything(second: float, **odd: Observation) -> list[Observation]:
    """A reading of each kind about b1, and the sessions of others; `odd` takes the place of those of its kind."""
    names = ("b1", "b2", "b3", "b4")
    usual = {
        "session": session(second, "b1", "connected", "0xb1"),
        "brokers": tree(second, *registrations(*names), name="/loadbalance/brokers"),
        "bundles": tree(second, node("b1", "0xb1", BUNDLE)),
        "health": health(second, "b1", listed=True),
    }
    others = [session(second, name, "connected", f"0x{name}") for name in names[1:]]
    return [*(usual | odd).values(), *others]


def registrations(*names: str) -> list[dict[str, Any]]:
    return [node(name, f"0x{name}", f"/loadbalance/brokers/{name}") for name in names]


ODD: dict[str, Callable[[float], dict[str, Observation]]] = {
    "disconnected": lambda s: {"session": session(s, "b1", "disconnected", "0xb1")},
    "expired": lambda s: {"session": session(s, "b1", "expired", "0xb1")},
    "closed": lambda s: {"session": session(s, "b1", "closed", "0xb1")},
    "another session": lambda s: {"session": session(s, "b1", "connected", "0xother")},
    "another session, expired": lambda s: {"session": session(s, "b1", "expired", "0xother")},
    "another session, closed": lambda s: {"session": session(s, "b1", "closed", "0xother")},
    "a session without an id, closed": lambda s: {"session": session(s, "b1", "closed")},
    "a session without an id, expired": lambda s: {"session": session(s, "b1", "expired")},
    "a session that cannot be read": lambda s: {"session": unread(s, "b1")},
    "sessions that cannot be read": lambda s: {"session": unread(s)},
    "registrations that cannot be read": lambda s: {"brokers": tree(s, name="/loadbalance/brokers", outcome="timeout")},
    "unregistered": lambda s: {"brokers": tree(s, *registrations("b2", "b3"), name="/loadbalance/brokers")},
    "no broker registered": lambda s: {"brokers": tree(s, name="/loadbalance/brokers")},
    "no owner": lambda s: {"bundles": tree(s)},
    "another owner": lambda s: {"bundles": tree(s, node("b2", "0xb2", BUNDLE))},
    "an unreadable owner": lambda s: {"bundles": tree(s, node(None, "0xb1", BUNDLE))},
    "unreachable": lambda s: {"health": health(s, "b1", "unreachable")},
    "unhealthy": lambda s: {"health": health(s, "b1", healthy=False)},
    "not listed": lambda s: {"health": health(s, "b1", listed=False)},
    "expired, and unregistered": lambda s: ODD["expired"](s) | ODD["unregistered"](s),
    "expired, and owned by another": lambda s: ODD["expired"](s) | ODD["another owner"](s),
    "expired, and unreachable": lambda s: ODD["expired"](s) | ODD["unreachable"](s),
    "closed, and unregistered": lambda s: ODD["closed"](s) | ODD["unregistered"](s),
}


@for_each("odd", [odd for odd in ODD if ", and " not in odd])
def test_a_reading_that_the_next_ones_deny_orders_nothing(odd: str) -> None:
    run = Run(on_session_lost="shutdown", zombie_after="1m", shutdown_delay="0s")
    for second in range(0, 120, 5):
        run.together(*everything(second))
        if second == 20:
            run.see(*ODD[odd](21).values())
    assert not [d for d in (*run.sessions, *run.bundles) if d.verdict in ORDERED]
    assert not run.firing()
    assert {m.track.status.value for m in run.known.members if m.track} == {"established"}


VALIDITY_SECONDS = 300
MOST_RECORDS = 16
"""Of one subject within one validity: four losses, each with a few orders; then it flaps, and little follows."""


@pytest.mark.parametrize(("odd", "collectors"), combined(ODD, [1, 2, 3], one_of=3))
def test_contradicting_readings_are_few_records_and_bring_nobody_down(odd: str, collectors: int) -> None:
    """One collector contradicts itself from reading to reading; of two or three, the last contradicts the others."""
    rng = random.Random(f"{odd} {collectors}")
    run = Run(on_session_lost=rng.choice(["shutdown", "reconnect"]), zombie_after=rng.choice(["30s", "1m", "5m"]))
    run.together(*everything(0))
    interval = rng.choice([4.0, 5.0, 6.0])
    for number in range(int(VALIDITY_SECONDS / interval)):
        for place, collector in enumerate(rng.sample(range(collectors), collectors)):
            second = round(1 + interval * (number + place / collectors), 3)
            is_odd = number % 2 == 1 if collectors == 1 else collector == collectors - 1
            seen = everything(second, **(ODD[odd](second) if is_odd else {}))
            named = [replace(each, id=f"{each.id} {collector}", source=f"zk-{collector}") for each in seen]
            run.together(*rng.sample(named, len(named)))
    records = Counter((getattr(d, "alert", ""), d.subject) for d in run.published)
    assert max(records.values(), default=0) <= MOST_RECORDS, records
    assert not [d for d in run.sessions if d.verdict in ("shutdown", "restart")]


def test_a_registration_that_comes_and_goes_is_one_alert_until_it_is_stable() -> None:
    run = Run().together(*everything(0))
    for second in range(2, 60, 2):
        run.together(*everything(second, **(ODD["unregistered"](second) if second % 4 else {})))
    assert ("session-flapping", "b4") in run.firing()
    assert ("not-registered", "b4") not in run.firing()
    (alert,) = [a for a in run.alerts if (a.alert, a.labels["member"]) == ("session-flapping", "b4")]
    assert alert.summary == (
        "broker b4 of messaging was registered and unregistered in turn within 3 min, or collectors disagree about it"
    )
    for second in range(60, 1000, 60):
        run.see(session(second, "b4", "connected", "0xb4"))
    assert ("session-flapping", "b4") in run.firing(), "it does not end because readings of its registration do"
    for second in range(1000, 1240, 10):
        run.together(*everything(second))
    assert not run.firing()


def test_attempts_that_fail_and_succeed_in_turn_are_one_alert() -> None:
    run = Run().together(*everything(0))
    for second in range(2, 60, 2):
        run.see(*everything(second) if second % 4 else [unread(second)])
    assert [status for _, _, status in run.said("zookeeper-unread")] == ["firing", "resolved", "firing"]
    assert run.alerts[-1].summary.startswith("attempts to read ZooKeeper of messaging fail and succeed in turn: ")
    run.until(290)
    assert run.said("zookeeper-unread")[-1][2] == "firing", "it does not end because readings do"
    run.until(800)
    assert run.alerts[-1].summary.startswith("ZooKeeper of messaging cannot be read (silence): "), "nobody tries now"
    for second in range(800, 1040, 10):
        run.together(*everything(second))
    assert run.said("zookeeper-unread")[-1][2] == "resolved"


def test_a_member_that_flaps_is_gone_when_readings_have_shown_it_closed_for_settle() -> None:
    run = Run().together(*everything(0))
    for second in range(2, 40, 2):
        run.together(*everything(second, **({} if second % 6 else ODD["closed"](second))))
    assert run.told("b1")[-1][1] != "gone closed"
    for second in range(40, 300, 5):
        run.together(*everything(second, **ODD["closed"](second)))
    assert run.told("b1")[-1][1] == "gone closed"
