"""What holds of the sessions policy whatever happens."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.observations import Observation
from policies.sessions import SessionsState
from policies.wire import audit_event
from tests.examples import combined
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
def test_keep_is_never_said_of_a_node_of_another_session(course: list[Batch], block: dict[str, Any]) -> None:
    run = run_of(course, block)
    for decision in run.bundles:
        if decision.verdict == "keep":
            assert decision.session is not None
            assert decision.node_session == decision.session
        assert not decision.delete_first or decision.expected_version is not None


@given(courses, blocks)
def test_no_decision_relies_on_an_observation_past_its_validity(course: list[Batch], block: dict[str, Any]) -> None:
    run = run_of(course, block)
    when = {o.id: o.at for _, seen in course for o in seen}
    for decision in (*run.sessions, *run.bundles):
        assert decision.evidence
        for id_ in decision.evidence:
            assert decision.decided_at - when[id_] <= run.settings.validity, (decision.verdict, id_)


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


@given(courses, blocks)
def test_every_reachable_state_survives_the_store(course: list[Batch], block: dict[str, Any]) -> None:
    for _, step in run_of(course, block).steps:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(step.state), type=SessionsState) == step.state


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
        assert [t for t in plain.told(member) if "recovered" not in t[1]] == [
            t for t in other.told(member) if "recovered" not in t[1]
        ]
        for path in PATHS:
            assert plain.ruled(member, path) == other.ruled(member, path)


@given(courses, blocks, blocks)
def test_a_state_of_other_settings_is_taken_over(
    course: list[Batch], before: dict[str, Any], after: dict[str, Any]
) -> None:
    state = run_of(course, before).state
    second = Run(state, **after)
    second.step((), at(course[-1][0] + 701))


@given(courses, blocks)
def test_every_alert_fires_before_it_resolves_and_resolves_once(course: list[Batch], block: dict[str, Any]) -> None:
    run = run_of(course, block)
    for alert_id in {a.alert_id for a in run.alerts}:
        life = [a.status for a in run.alerts if a.alert_id == alert_id]
        assert life[0] == "firing"
        assert "resolved" not in life[:-1]
    sequences = [d.sequence for d in (*run.sessions, *run.bundles)]
    assert len(set(sequences)) == len(sequences)


# --- two claims


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
        run = Run(ownership_rules=rules).together(
            session(0, "b1", "connected", "0xb1-0"), session(0, "b2", "connected", "0xb2-0"), owned(1, "b1", "0xb1-0")
        )
        now = {"b1": "0xb1-0", "b2": "0xb2-0"}
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
