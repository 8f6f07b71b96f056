"""Folds: when a bookie is believed to be gone, which promise to a namespace counts, and which reading is refused."""

from dataclasses import replace
from itertools import permutations

import pytest

from policies.bookie_readings import BookieRegistration, Bookies
from policies.isolation import fold as fold_module
from policies.isolation.fold import fold
from policies.isolation.settings import RuleSet
from policies.isolation.state import BookieClusterState, Presence
from policies.observations import Observation, Outcome
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.isolation.scenario import (
    BASE,
    CLUSTER,
    GROUPS,
    LONG,
    Run,
    affinity,
    at,
    bookies,
    everything,
    isolation,
    placement_of,
    promise,
    racks,
)

NAMESPACES = {"acme/a": "default", "acme/b": "default"}


def test_the_same_reading_twice_does_not_confirm_itself() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "")).see(replace(bookies(30, ""), id="bookies@10"))
    assert run.placement("acme/a").verdict == "isolated"


def test_a_cluster_without_bookies_is_believed_at_first() -> None:
    assert placement_of("", "default").verdict == "infeasible"


def short(**settings: str) -> Run:
    """Both namespaces have one bookie of their own, and may use bk11, which is in no group."""
    return Run(LONG, settings).see(*everything(0, "bk1 bk11", GROUPS, NAMESPACES))


def test_a_namespace_is_held_against_what_it_was_promised_and_no_other_is() -> None:
    run = short(promise="current").see(promise(10, "acme/a", "strict"))
    assert (run.placement("acme/a").verdict, run.placement("acme/a").promise) == ("leaks", "strict")
    assert (run.placement("acme/b").verdict, run.placement("acme/b").promise) == ("spills_to_secondary", "current")
    assert run.said("isolation-leak") == [(10, "c1/acme/a", "firing", "critical")]


def test_taken_back_what_the_settings_promise_holds_again() -> None:
    run = short().see(promise(10, "acme/a", "current")).see(promise(20, "acme/a", None))
    assert [(p.promise, p.verdict) for p in run.placements("acme/a")] == [
        ("strict", "leaks"), ("current", "spills_to_secondary"), ("strict", "leaks"),
    ]  # fmt: skip


@for_each("order", list(permutations((10, 20, 30))))
def test_the_last_promise_counts_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    given = {10: "current", 20: None, 30: "legacy"}
    run = short()
    for second in order:
        run.see(promise(second, "acme/a", given[second]), seconds=40)
    assert run.placement("acme/a").promise is RuleSet.LEGACY


def test_a_bookie_that_only_changes_its_mode_has_not_joined_again() -> None:
    seen = [bookies(0, "bk1"), bookies(10, "", read_only="bk1"), bookies(20, "", read_only="bk1")]
    (found,) = fold(BookieClusterState(), seen, isolation()).bookies
    assert (found.presence, found.registered_ms, found.since_ms) == (
        Presence.READ_ONLY, to_millis(at(0)), to_millis(at(10)),
    )  # fmt: skip


def test_a_bookie_that_joined_and_left_is_away_since_the_first_reading_without_it() -> None:
    seen = [bookies(0, "bk1 bk2"), bookies(5, "bk1 bk2 bk9"), bookies(7, "bk1 bk2"), bookies(30, "bk1 bk2")]
    (left,) = (b for b in fold(BookieClusterState(), seen, isolation()).bookies if b.bookie == "bk9")
    assert (left.presence, left.since_ms) == (Presence.OFFLINE, to_millis(at(7)))


def test_a_bookie_without_czxid_that_has_another_session_joined_again() -> None:
    cluster = BookieClusterState()
    for second, session in ((0, "0x1"), (10, "0x1"), (20, "0x2")):
        listed = (BookieRegistration(bookie="bk1", session=session),)
        seen = Observation(f"{second}", at(second), Bookies(cluster=CLUSTER, outcome=Outcome.OK, writable=listed))
        cluster = fold(cluster, [seen], isolation())
    assert [(b.session, b.registered_ms) for b in cluster.bookies] == [("0x2", to_millis(at(20)))]


def test_a_namespace_may_be_promised_something_before_it_is_known() -> None:
    run = Run(LONG, promise="current").see(promise(0, "acme/a", "strict"))
    run.see(*everything(1, "bk1 bk11", GROUPS, NAMESPACES))
    assert {name: run.placement(name).promise for name in NAMESPACES} == {"acme/a": "strict", "acme/b": "current"}


# Groups multiply by the affinities that name them; a reading that makes too much of that is refused by itself.

WIDE_GROUPS = {group: " ".join(f"bk{n}" for n in range(11)) for group in GROUPS}
MANY = {f"acme/n{n}": " ".join(f"g{n} default".split()) for n in range(9)}
ALIKE = {f"acme/n{n}": "default shared" for n in range(1000)}
AT_BOUND = {group: " ".join(f"bk{n}" for n in range(5)) for group in GROUPS}
TOO_MANY = "more than 10 bookies in the groups of all affinities together"


@for_each(
    ("reading", "why"),
    [
        pytest.param(racks(1, WIDE_GROUPS), TOO_MANY, id="wide groups"),
        pytest.param(affinity(1, MANY), TOO_MANY, id="many affinities"),
        pytest.param(racks(1, AT_BOUND), None, id="at the bound"),
        pytest.param(affinity(1, ALIKE), None, id="one affinity of many namespaces"),
    ],
)
def test_a_reading_beyond_the_bound_is_refused_and_changes_nothing(reading: Observation, why: str | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_module, "MOST_PLACED", 10)
        run = Run({"confirm_after": "0s"})
        before = run.step([bookies(0, BASE), racks(0, GROUPS), affinity(0, NAMESPACES)], at(0)).state.cluster
        step = run.step([reading, bookies(1, BASE)], at(1))
        after = step.state.cluster
        assert step.refused == ({} if why is None else {reading.id: why})
        assert ((after.groups, after.cohorts) == (before.groups, before.cohorts)) is (why is not None)
        assert run.step([racks(2, GROUPS), affinity(2, NAMESPACES)], at(2)).refused == {}
