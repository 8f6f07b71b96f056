"""What holds of every run, whatever was read in whatever order."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.bookie_readings import NamespaceAffinity
from policies.isolation.decisions import QuarantineVerdict
from policies.isolation.judge import IsolationFacts, join_facts, judge_placements
from policies.isolation.placement import BookieMembership, place
from policies.isolation.state import IsolationState
from policies.observations import Observation, Outcome
from policies.units import millis_of
from tests.policies.isolation.scenario import CLUSTER, Run, affinity, at, bookies, isolation, promise, racks

BOOKIES = ["bk1", "bk2", "bk3", "bk4", "bk4#2", "bk5"]
some_bookies = st.lists(st.sampled_from(BOOKIES), max_size=6).map(" ".join)
some_members = st.lists(st.sampled_from(["bk1", "bk2", "bk3", "bk5"]), max_size=3).map(" ".join)
groups = st.none() | st.dictionaries(st.sampled_from(["p", "s", "headgate-quarantine"]), some_members)
outcomes = st.sampled_from([Outcome.OK] * 6 + [Outcome.TIMEOUT])
group_lists = st.lists(st.sampled_from(["p", "s", "*", ""]), max_size=2).map(tuple)
own = {"strict": st.none() | st.booleans(), "ensemble_size": st.none() | st.integers(1, 3)}
affinities = st.builds(NamespaceAffinity, primary=group_lists, secondary=group_lists, **own)
namespaces = st.dictionaries(st.sampled_from(["t/a", "t/b", "t/c"]), affinities)
seconds = st.integers(0, 900)
what_is_read = st.one_of(
    st.builds(bookies, seconds, some_bookies, some_bookies, some_members, outcomes),
    st.builds(racks, seconds, groups, outcomes),
    st.builds(affinity, seconds, namespaces, outcomes),
)
promised = st.none() | st.sampled_from(["legacy", "current", "strict"])
promises = st.builds(promise, seconds, st.sampled_from(["t/a", "t/b"]), promised)
readings = st.one_of(what_is_read, what_is_read, promises)
settings_blocks = st.fixed_dictionaries(
    {
        "rules": st.sampled_from(["legacy", "current", "strict"]),
        "promise": st.sampled_from(["current", "strict"]),
        "unaffine": st.sampled_from(["any", "ungrouped"]),
        "ensemble_size": st.integers(1, 3),
        "grace": st.sampled_from(["0s", "10s", "2m"]),
        "validity": st.sampled_from(["1ms", "2m", "1h"]),
        "confirm_after": st.sampled_from(["0s", "30s"]),
        "quarantine": st.sampled_from(["on", "off"]),
        "max_quarantined": st.integers(0, 2),
        "alert_grace": st.sampled_from(["0s", "30s"]),
    }
)
Batch = tuple[int, list[Observation]]


def _by_time(observations: list[Observation]) -> list[Batch]:
    """Batches of those that arrive within the same two minutes; ids told apart by their place."""
    unique = {f"{o.id}/{i}": Observation(f"{o.id}/{i}", o.at, o.reading) for i, o in enumerate(observations)}
    batches: dict[int, list[Observation]] = {}
    for observation in unique.values():
        batches.setdefault(int((observation.at - at(0)).total_seconds()) // 120, []).append(observation)
    return [(120 * (number + 1), batches[number]) for number in sorted(batches)]


courses = st.lists(readings, max_size=25).map(_by_time)


def run_of(course: Sequence[Batch], block: Mapping[str, Any]) -> Run:
    run = Run(block)
    for second, observations in course:
        run.see(*observations, seconds=second)
    return run.until(3000)


@given(courses, settings_blocks)
def test_sequences_only_grow_and_ids_are_never_given_twice(course: list[Batch], block: dict[str, Any]) -> None:
    run = run_of(course, block)
    latest: dict[tuple[str, str], int] = {}
    for decision in run.published:
        key = (decision.topic, decision.record_key())
        assert decision.sequence > latest.get(key, 0)
        latest[key] = decision.sequence
    assert len({d.decision_id for d in run.published}) == len(run.published)


@given(courses, settings_blocks, st.randoms(use_true_random=False))
def test_order_and_duplicates_do_not_matter(course: list[Batch], block: dict[str, Any], random: Any) -> None:
    shuffled = []
    for second, observations in course:
        again = observations + random.sample(observations, len(observations) // 2)
        random.shuffle(again)
        shuffled.append((second, again))
    ours, theirs = run_of(course, block), run_of(shuffled, block)
    assert _bytes(ours.state) == _bytes(theirs.state)
    assert ours.published == theirs.published


@given(courses, settings_blocks)
def test_what_was_seen_before_changes_nothing(course: list[Batch], block: dict[str, Any]) -> None:
    run = run_of(course, block)
    before, said = run.state, len(run.published)
    if before is None:
        return
    run.step([o for _, observations in course for o in observations], at(3000))
    assert run.state == before
    assert run.published[said:] == []


def facts_of(run: Run, second: float) -> IsolationFacts:
    return join_facts(at(second), CLUSTER, run.known.cluster, run.settings)


@given(courses, settings_blocks)
def test_no_more_are_on_their_way_into_quarantine_than_allowed(course: list[Batch], block: dict[str, Any]) -> None:
    run = Run(block)
    for second, observations in course:
        run.see(*observations, seconds=second)
        facts = facts_of(run, second)
        inside, oldest_ms = facts.quarantined, facts.now_ms - millis_of(run.settings.validity)
        valid = (order for order in run.known.orders if order.published_ms > oldest_ms)
        coming = {o.bookie for o in valid if o.verdict is QuarantineVerdict.QUARANTINE} - inside
        if facts.is_fresh and coming & facts.membership.writable:
            assert len(coming | inside) <= block["max_quarantined"]


@given(courses, settings_blocks)
def test_what_is_on_its_way_into_quarantine_starves_nobody(course: list[Batch], block: dict[str, Any]) -> None:
    run = Run(block)
    for second, observations in course:
        run.see(*observations, seconds=second)
        facts = facts_of(run, second)
        coming = {o.bookie for o in run.known.orders if o.verdict is QuarantineVerdict.QUARANTINE}
        if not (facts.is_fresh and facts.membership.groups and coming):
            continue
        groups = dict(facts.membership.groups) | {"headgate-quarantine": facts.quarantined | coming}
        then = BookieMembership(facts.membership.writable, groups)
        for j in judge_placements(facts.membership, facts.known.cohorts, facts.known.promises, run.settings)[1:]:
            after = place(j.rules, then, j.affinity, j.ensemble_size, run.settings.unaffine)
            assert after.feasible or not j.placed.feasible


@given(st.lists(what_is_read, min_size=1, max_size=12), settings_blocks)
def test_a_verdict_is_a_function_of_the_membership_alone(history: list[Observation], block: dict[str, Any]) -> None:
    """Two clusters that end with the same three readings agree, whatever they read before, once these are confirmed."""
    groups, names = {"p": "bk1 bk2", "s": "bk3"}, {"t/a": "p/s", "t/b": "p", "t/c": "s"}
    long_block = block | {"validity": "1h"}
    fresh, old = Run(long_block), run_history(history, long_block)
    for second in (1000, 1100):  # what shrinks by half is believed when it is read again after `confirm_after`
        last = bookies(second, "bk1 bk4"), racks(second, groups), affinity(second, names)
        fresh, old = fresh.see(*last), old.see(*last)
    for name in names:
        ours, theirs = fresh.placement(name), old.placement(name)
        kept = {"verdict", "reason", "tier", "candidates", "promised_candidates", "headroom", "leak", "feasible"}
        assert ours.model_dump(include=kept) == theirs.model_dump(include=kept)


def run_history(history: list[Observation], block: Mapping[str, Any]) -> Run:
    run = Run(block)
    for second, observations in _by_time(history):
        if second < 1000:
            run.see(*observations, seconds=second)
    return run


def _bytes(state: IsolationState | None) -> bytes:
    return msgspec.msgpack.encode(state)


@pytest.mark.parametrize("value", [True, "on"])
def test_yaml_s_plain_on_is_on(value: object) -> None:
    assert isolation(quarantine=value).quarantine == "on"
