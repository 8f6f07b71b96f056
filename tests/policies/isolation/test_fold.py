"""Folds: when a bookie is believed to be gone, which promise counts, which reading is refused; and doubts."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.bookie_readings import BookieRegistration, Bookies, NamespaceAffinity
from policies.isolation import fold as fold_module
from policies.isolation.decisions import QuarantineVerdict
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
    ON,
    Run,
    affinity,
    at,
    bookies,
    everything,
    isolation,
    placement_of,
    promise,
    racks,
    to,
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


# What a single reading, or collectors that contradict each other or themselves, must not cause.


MEMBERS = " ".join(f"bk{n}" for n in range(1, 11))
OTHERS = " ".join(f"bk{n}" for n in range(51, 61))
MEMBERS_GROUP = {"default": MEMBERS}
ONE_NAMESPACE: Mapping[str, NamespaceAffinity | str] = {"acme/a": "default"}
SHORT = "bk1 bk11"
"""acme/a has bk1 alone, so it needs bk11, which is in no group."""


def settled(writable: str = MEMBERS, *blocks: Any, end: int = 70, names: Any = ONE_NAMESPACE, **settings: Any) -> Run:
    """A cluster that was read the same for a while."""
    run = Run(ON, *blocks, settings)
    for second in range(0, end, 10):
        run.see(*everything(second, writable, MEMBERS_GROUP, names))
    return run


def orders(run: Run) -> list[tuple[str, str]]:
    return [(d.bookie, d.verdict.value) for d in run.quarantines()]


def criticals(run: Run) -> set[tuple[str, str]]:
    return {(a.alert, a.subject) for a in run.alerts if a.severity == "critical"}


@pytest.mark.parametrize(
    "reading",
    [
        pytest.param(affinity(70, {}), id="no namespaces, outcome ok"),
        pytest.param(affinity(70, {}, outcome=Outcome.ABSENT), id="no node"),
        pytest.param(affinity(70, {"other/ns": "default"}), id="other namespaces"),
        pytest.param(affinity(70, {"acme/a": "nowhere"}), id="another affinity"),
        pytest.param(bookies(70, f"{SHORT} bk2"), id="a member that is not there"),
    ],
)
def test_one_reading_lifts_no_guard_and_ends_no_alert(reading: Observation) -> None:
    run = settled(SHORT)
    assert orders(run) == [("bk11", "withhold")]
    before = run.said("isolation-leak")
    run.see(reading).see(*everything(71, SHORT, MEMBERS_GROUP, ONE_NAMESPACE)).until(80)
    assert orders(run) == [("bk11", "withhold")]
    if not reading.id.startswith("bookies"):
        assert run.said("isolation-leak") == before == [(0, "c1/acme/a", "firing", "critical")]


def test_a_second_reading_lifts_the_guard_when_it_has_settled() -> None:
    run = settled(SHORT, LONG).see(affinity(70, {})).see(affinity(80, {})).until(199)
    assert orders(run) == [("bk11", "withhold")]
    assert orders(run.until(200))[-1] == ("bk11", "quarantine")
    assert run.said("isolation-leak")[-1] == (80, "c1/acme/a", "resolved", "critical")


@for_each(
    "reading",
    [
        pytest.param(bookies(70, OTHERS), id="bookies of another cluster"),
        pytest.param(bookies(70, f"{MEMBERS} {OTHERS} bk61"), id="more strangers than members"),
        pytest.param(racks(70, {"default": OTHERS}), id="groups of another cluster"),
        pytest.param(racks(70, {"other": OTHERS}), id="other groups"),
        pytest.param(racks(70, {"default": ""}), id="an empty group"),
        pytest.param(racks(70, {"default": "bk1"}), id="one member is left"),
        pytest.param(racks(70, None), id="no znode, outcome ok"),
        pytest.param(racks(70, None, outcome=Outcome.ABSENT), id="no znode"),
        pytest.param(racks(70, {"default": MEMBERS.removeprefix("bk1 ")}), id="one member is missing"),
    ],
)
@for_each("grace", ["0s", "10s"])
def test_one_odd_reading_orders_nothing_and_raises_nothing_critical(reading: Observation, grace: str) -> None:
    run = settled(grace=grace).see(reading).until(79)
    run.see(*everything(80, MEMBERS, MEMBERS_GROUP, ONE_NAMESPACE)).until(200)
    assert orders(run) == []
    assert criticals(run) == set()


def test_an_absent_node_is_believed_when_a_second_reading_confirms_it() -> None:
    run = Run(LONG).see(bookies(0, MEMBERS), affinity(0, ONE_NAMESPACE))
    run.see(racks(0, None, outcome=Outcome.ABSENT)).until(9)
    assert (run.placements(), run.firing()) == ([], {("bookies-unconfirmed", "c1"): "warning"})
    run.see(racks(10, None, outcome=Outcome.ABSENT))
    assert run.placement("acme/a").reason == "no_groups"
    assert run.firing() == {("no-bookie-groups", "c1"): "critical"}


QUARANTINED = {**MEMBERS_GROUP, "headgate-quarantine": "bk21 bk22 bk23"}


def test_a_reading_of_groups_in_a_cluster_without_any_orders_no_quarantine_and_ends_no_critical_note() -> None:
    run = Run(LONG, ON, grace="0s")
    for second in range(0, 70, 10):
        run.see(*everything(second, MEMBERS, {}, ONE_NAMESPACE))
    run.see(racks(70, {"default": OTHERS})).until(79).see(racks(80, {})).until(120)
    assert {verdict for _, verdict in orders(run)} == {"withhold"}
    assert run.said("no-bookie-groups") == [(0, "c1", "firing", "critical")]


def test_the_first_group_of_a_cluster_orders_quarantines_when_two_readings_show_it_and_it_has_settled() -> None:
    run = Run(LONG, ON, grace="0s").see(*everything(0, MEMBERS, {}, ONE_NAMESPACE))
    run.see(racks(70, {"default": "bk1 bk2"})).until(79)
    assert {verdict for _, verdict in orders(run)} == {"withhold"}
    assert {verdict for _, verdict in orders(run.until(300))} == {"withhold"}
    run.see(racks(301, {"default": "bk1 bk2"})).until(420)
    assert {verdict for _, verdict in orders(run)} == {"withhold"}
    run.until(421)
    assert "quarantine" in {verdict for _, verdict in orders(run)}


def test_one_reading_without_the_quarantine_group_makes_no_room_in_it() -> None:
    run = Run(LONG, ON)
    for second in range(0, 70, 10):
        run.see(*everything(second, f"{MEMBERS} bk11 bk21 bk22 bk23", QUARANTINED, ONE_NAMESPACE))
    run.see(racks(70, MEMBERS_GROUP)).until(75).see(racks(76, QUARANTINED)).until(120)
    assert orders(run) == [("bk11", "withhold")]


def test_one_reading_in_which_a_read_only_member_is_writable_lifts_no_guard() -> None:
    run = Run(LONG, ON)
    groups = {"default": "bk1 bk2"}
    for second in range(0, 70, 10):
        run.see(bookies(second, "bk1 bk11", "bk2"), racks(second, groups), affinity(second, ONE_NAMESPACE))
    run.see(bookies(70, "bk1 bk2 bk11")).until(75).see(bookies(76, "bk1 bk11", "bk2")).until(100)
    assert orders(run) == [("bk11", "withhold")]
    run.see(bookies(100, "bk1 bk2 bk11")).see(bookies(110, "bk1 bk2 bk11")).until(219)
    assert orders(run) == [("bk11", "withhold")]
    assert orders(run.until(220))[-1] == ("bk11", "quarantine")


def contradicting(until: int, ours: Observation, theirs: Observation) -> Run:
    """Two collectors read the same cluster differently, every 5 s in turn."""
    run = settled()
    for second in range(70, until, 5):
        which, source = (theirs, "b") if second % 10 else (ours, "a")
        run.see(replace(which, id=f"{second}", at=at(second), source=source))
    return run


NOT_BK1 = MEMBERS.removeprefix("bk1 ")
CONTRADICTIONS = {
    "another cluster": (bookies(0, MEMBERS), bookies(0, OTHERS), "20 registered bookies (bk1, bk10, bk2, bk3, bk4"),
    "one bookie": (bookies(0, MEMBERS), bookies(0, NOT_BK1), "1 registered bookie (bk1)"),
    "one member": (racks(0, MEMBERS_GROUP), racks(0, {"default": NOT_BK1}), "1 grouped bookie (bk1)"),
    "affinity": (affinity(0, ONE_NAMESPACE), affinity(0, {"acme/a": "nowhere"}), "1 namespace (acme/a)"),
    "groups of brokers": (
        affinity(0, ONE_NAMESPACE, broker_groups=""), affinity(0, ONE_NAMESPACE, broker_groups="default"),
        "1 namespace (namespaces without affinity)",
    ),
    "mode": (bookies(0, MEMBERS), bookies(0, NOT_BK1, read_only="bk1"), "1 registered bookie (bk1)"),
}  # fmt: skip
"""Readings of two collectors that contradict each other, and the words for what they contradict each other about."""


@pytest.mark.parametrize(("ours", "theirs", "named"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_collectors_that_contradict_each_other_are_one_alert_with_its_beginning_and_nothing_flaps(
    ours: Observation, theirs: Observation, named: str
) -> None:
    run = settled()
    before = len(run.placements())
    run = contradicting(270, ours, theirs)
    assert len(run.placements()) <= before + 2
    assert [s[2] for s in run.said("bookies-unconfirmed")] == ["firing"]
    assert (orders(run), criticals(run)) == ([], set())
    said = f"since 2026-11-21T08:01:15Z readings of c1 contradict what was confirmed about {named}"
    assert run.latest("bookies-unconfirmed").summary.startswith(said)
    for second in (270, 280):
        run.see(*everything(second, MEMBERS, MEMBERS_GROUP, ONE_NAMESPACE))
    assert [s[2] for s in run.said("bookies-unconfirmed")] == ["firing", "resolved"]
    assert run.placement("acme/a").candidate_count == 10


def test_a_new_bookie_is_reported_at_once_and_ordered_into_quarantine_when_a_second_reading_in_a_row_shows_it() -> None:
    run = settled(grace="0s").see(bookies(70, f"{MEMBERS} bk11"))
    assert (orders(run), ("unassigned-bookie", "c1/bk11") in run.firing()) == ([], True)
    run.see(bookies(72, MEMBERS)).see(bookies(74, f"{MEMBERS} bk11"))
    assert orders(run) == []
    assert orders(run.see(bookies(76, f"{MEMBERS} bk11"))) == [("bk11", "quarantine")]


odd_names = st.lists(st.sampled_from(["bk1", "bk2", "bk3", "bk11", "bk51", "bk52"]), max_size=6, unique=True)
odd_groups = st.none() | st.dictionaries(st.sampled_from(["default", "other"]), odd_names.map(" ".join), max_size=2)
odd_namespaces = st.dictionaries(
    st.sampled_from(["acme/a", "other/ns"]), st.sampled_from([to("default"), to("other"), to()]), max_size=2
)
odd_readings = st.one_of(
    st.builds(bookies, st.just(75), odd_names.map(" ".join)),
    st.builds(racks, st.just(75), odd_groups, st.sampled_from([Outcome.OK, Outcome.ABSENT])),
    st.builds(affinity, st.just(75), odd_namespaces, st.sampled_from([Outcome.OK, Outcome.ABSENT])),
)


@given(odd_readings, st.sampled_from([SHORT, "bk1 bk2 bk3", "bk1 bk2 bk11"]), st.integers(1, 9))
def test_a_reading_that_contradicts_and_is_contradicted_orders_nothing(
    odd: Observation, writable: str, back_after: int
) -> None:
    """The same orders follow as without it, except about a bookie that only this reading lists."""

    def run_with(*readings: Observation) -> set[tuple[str, str]]:
        run = settled(writable)
        for reading in readings:
            run.see(reading)
        run.see(*everything(75 + back_after, writable, MEMBERS_GROUP, ONE_NAMESPACE)).until(200)
        return {(d.bookie, d.verdict.value) for d in run.quarantines() if d.verdict is QuarantineVerdict.QUARANTINE}

    assert run_with(odd) == run_with()


@example(["y", "x", "z"], ["bk11"], {"default": "bk11"}, {})
@given(st.permutations(["x", "y", "z"]), odd_names, odd_groups, odd_namespaces)
def test_the_order_of_collectors_within_an_instant_changes_no_decision(
    order: list[str], names: list[str], groups: dict[str, str] | None, namespaces: dict[str, Any]
) -> None:
    def run_with(ids: list[str]) -> list[Any]:
        run = settled()
        for second in (70, 85):
            readings = everything(second, " ".join(names), groups, namespaces)
            run.see(*(replace(each, id=f"{second}{id_}") for each, id_ in zip(readings, ids, strict=True)))
        return [d.model_dump(exclude={"evidence"}) for d in run.until(200).published]

    assert run_with(order) == run_with(["x", "y", "z"])


def test_while_collectors_contradict_each_other_no_bookie_is_newly_withheld() -> None:
    run = Run(LONG, ON, max_quarantined=0, grace="30s").see(
        *everything(0, f"{MEMBERS} bk11", MEMBERS_GROUP, ONE_NAMESPACE)
    )
    for second in range(10, 60, 5):
        for later, members in enumerate((MEMBERS, MEMBERS.removeprefix("bk1 "))):
            run.see(replace(bookies(second + later, f"{members} bk11"), source=f"zk-{later}"))
    assert run.quarantines() == []
