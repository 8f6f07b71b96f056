"""Which bookies are put into quarantine, which are withheld, and when an order ends."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.bookie_readings import BookieRegistration, Bookies, NamespaceAffinity
from policies.decisions import Mode
from policies.isolation.decisions import QUARANTINE_GROUP, QuarantineVerdict
from policies.isolation.placement import AffinityGroups, BookieMembership, place
from policies.isolation.settings import Unaffine
from policies.observations import Observation, Outcome
from tests.cases import for_each
from tests.examples import combined, examples
from tests.policies.isolation.scenario import (
    BASE,
    GROUPS,
    LONG,
    NAMESPACES,
    ON,
    Run,
    affinity,
    at,
    bookies,
    everything,
    joined,
    racks,
    to,
)


def test_a_bookie_without_group_is_to_be_quarantined_after_its_grace() -> None:
    run = joined().until(60)
    assert run.verdicts() == [(10, "bk11", "quarantine", "unassigned")]
    said = run.quarantines()[0]
    assert (said.subject, said.group, said.rack) == ("c1/bk11", QUARANTINE_GROUP, f"/{QUARANTINE_GROUP}")
    assert (said.session, said.czxid, said.registered_at) == ("0xb", 11, at(0))
    assert said.valid_until == at(10) + run.settings.validity
    assert said.evidence[0] in ("bookies@0", "racks@0")


def inside(second: float) -> Observation:
    """bk11 is in quarantine."""
    return racks(second, GROUPS | {QUARANTINE_GROUP: "bk11"})


def twice(read: Callable[[float], Observation], second: float = 70) -> list[Observation]:
    return [read(second), read(second + 10)]


COURSES: Mapping[str, tuple[str, Mapping[str, Any], Sequence[Observation], float, str]] = {
    "as many as allowed, in the order of registration": (
        "bk14 bk13 bk12 bk11#1", {"max_quarantined": 2}, [], 60,
        "10 bk12 quarantine unassigned, 10 bk13 quarantine unassigned, "
        "10 bk14 withhold max_quarantined, 10 bk11 withhold max_quarantined",
    ),
    "a withheld one follows when there is room": (
        "bk11 bk12", {"max_quarantined": 1}, [racks(70, GROUPS | {"default": "bk1 bk2 bk11"})], 90,
        "10 bk11 quarantine unassigned, 10 bk12 withhold max_quarantined, "
        "70 bk11 lift assigned, 70 bk12 quarantine unassigned",
    ),
    "a newcomer takes nobody's place": (
        "bk12", {"max_quarantined": 1}, twice(lambda s: bookies(s, f"{BASE} bk11 bk12")), 90,
        "10 bk12 quarantine unassigned, 80 bk11 withhold max_quarantined",
    ),
    "one on its way keeps its place while it is read-only": (
        "bk11", {"max_quarantined": 1}, twice(lambda s: bookies(s, f"{BASE} bk12", "bk11")), 90,
        "10 bk11 quarantine unassigned, 80 bk12 withhold max_quarantined",
    ),
    "an order is taken back when it would starve a namespace": (
        "bk11", {}, twice(lambda s: bookies(s, "bk1 bk6 bk7 bk11")), 90,
        "10 bk11 quarantine unassigned, 80 bk11 withhold would_be_infeasible",
    ),
    "an order ends when somebody assigns the bookie": (
        "bk11", {}, [inside(20), *twice(lambda s: racks(s, GROUPS | {"default": "bk1 bk2 bk11"}), 30)], 600,
        "10 bk11 quarantine unassigned, 40 bk11 lift assigned",
    ),
    "going read-only ends nothing": ("bk11", {}, [bookies(70, BASE, "bk11")], 100, "10 bk11 quarantine unassigned"),
    "once carried out it stays": ("bk11", {}, [inside(20)], 600, "10 bk11 quarantine unassigned"),
    "taken out of quarantine without another group": (
        "bk11", {}, [inside(20), *twice(lambda s: racks(s, GROUPS), 610)], 669,
        "10 bk11 quarantine unassigned, 620 bk11 quarantine unassigned",
    ),
    "a bookie joins again": (
        "bk11", {}, [bookies(70, f"{BASE} bk11#2")], 100,
        "10 bk11 quarantine unassigned, 70 bk11 quarantine unassigned",
    ),
    "a bookie that joins again in quarantine needs no new order until it is taken out": (
        "bk11", {}, [inside(20), bookies(70, f"{BASE} bk11#2"), *twice(lambda s: racks(s, GROUPS), 110)], 180,
        "10 bk11 quarantine unassigned, 120 bk11 quarantine unassigned",
    ),
    "a person puts a withheld one into quarantine": (
        "bk11", {"max_quarantined": 0}, [inside(20)], 200,
        "10 bk11 withhold max_quarantined, 20 bk11 lift assigned",
    ),
    "a bookie that comes back waits for its grace again": (
        "bk11", {}, [*twice(lambda s: bookies(s, BASE)), *twice(lambda s: bookies(s, f"{BASE} bk11#2"), 90)], 200,
        "10 bk11 quarantine unassigned, 80 bk11 lift gone, 100 bk11 quarantine unassigned",
    ),
    "nothing is taken back while the namespaces are unread": (
        "bk11", {"validity": "100s"},
        [each for s in (90, 130, 140) for each in (racks(s, GROUPS), bookies(s, "bk1 bk6 bk7 bk11"))], 200,
        "10 bk11 quarantine unassigned, 60 bk11 quarantine unassigned",
    ),
    "on unread data nothing is repeated": (
        "bk11", {"validity": "100s"}, [], 1000, "10 bk11 quarantine unassigned, 60 bk11 quarantine unassigned",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("writable", "settings", "readings", "until", "verdicts"), COURSES.values(), ids=COURSES)
def test_which_orders_are_published(
    writable: str, settings: Mapping[str, Any], readings: Sequence[Observation], until: float, verdicts: str
) -> None:
    run = joined(writable, settings).feed(readings).until(until)
    assert ", ".join(f"{second:g} {' '.join(order)}" for second, *order in run.verdicts()) == verdicts


def test_where_no_transaction_is_known_the_first_to_register_comes_first() -> None:
    """As over HTTP. bk11 was in a group when it registered; bk12 came later, and was in none before bk11 was."""

    def read(second: float, *names: str) -> Observation:
        listed = tuple(BookieRegistration(bookie=name) for name in names)
        return Observation(f"{second}", at(second), Bookies(cluster="c1", outcome=Outcome.OK, writable=listed))

    known = ("bk1", "bk2", "bk6", "bk7")
    run = Run(LONG, ON, max_quarantined=1).see(racks(0, GROUPS | {"other": "bk12"}), affinity(0, NAMESPACES))
    run.see(read(0, *known, "bk12")).see(read(100, *known, "bk11", "bk12")).see(read(105, *known, "bk11", "bk12"))
    run.feed([racks(second, GROUPS) for second in (106, 117)]).until(400)
    assert [verdict[1:3] for verdict in run.verdicts()] == [("bk12", "quarantine"), ("bk11", "withhold")]
    # ZooKeeper shows transactions, but not yet that of bk12: nothing is ordered while that is doubted.
    assert len(run.see(bookies(401, "bk1 bk2 bk6 bk7 bk11")).verdicts()) == 2


def test_in_shadow_it_is_published_as_such_and_never_overdue() -> None:
    run = joined(mode="shadow").until(600)
    assert [d.mode for d in run.quarantines()] == [Mode.SHADOW]
    assert run.said("quarantine-overdue") == []
    run.with_settings(LONG, ON).see(bookies(601, f"{BASE} bk11"))
    assert [d.mode for d in run.quarantines()] == [Mode.SHADOW, Mode.ACTIVE]


def test_a_bookie_already_in_some_group_is_left_alone() -> None:
    groups = GROUPS | {QUARANTINE_GROUP: "bk11"}
    run = Run(LONG, ON).see(*everything(0, f"{BASE} bk11", groups, NAMESPACES)).until(600)
    assert run.quarantines() == []


def test_an_expired_order_on_a_read_only_bookie_keeps_no_place() -> None:
    run = Run(ON, max_quarantined=1).see(*everything(0, f"{BASE} bk11", GROUPS, NAMESPACES)).until(60)
    for second in (70, 80, 170, 309, 310):
        run.see(bookies(second, f"{BASE} bk12", "bk11"), racks(second, GROUPS), affinity(second, NAMESPACES))
    assert [verdict[:3] for verdict in run.verdicts()[1:]] == [(80, "bk12", "withhold"), (310, "bk12", "quarantine")]


def test_a_bookie_that_a_namespace_needs_is_withheld() -> None:
    run = Run(LONG, ON).see(*everything(0, "bk1 bk6 bk7 bk11 bk12", GROUPS, NAMESPACES)).until(60)
    # acme/a has bk1 alone: one of the two must remain.
    assert [v[1:3] for v in run.verdicts()] == [("bk11", "quarantine"), ("bk12", "withhold")]
    assert run.quarantines()[-1].explanation == (
        "Bookie bk12 is in no group, but without it acme/a could not place data: an operator must decide."
    )


def test_who_cannot_place_data_anyway_forbids_nothing() -> None:
    run = Run(LONG, ON, rules="strict").see(*everything(0, "bk1 bk6 bk7 bk11", GROUPS, NAMESPACES)).until(60)
    assert [v[1:3] for v in run.verdicts()] == [("bk11", "quarantine")]


@pytest.mark.parametrize(("unaffine", "verdict"), [("any", "quarantine"), ("ungrouped", "withhold")])
def test_unnamed_namespaces_without_affinity_need_ungrouped_bookies(unaffine: str, verdict: str) -> None:
    run = joined("bk11 bk12", unaffine=unaffine).until(60)
    assert [v[2] for v in run.verdicts()] == [verdict, verdict]


def test_an_order_that_stands_is_guarded_although_the_grace_is_longer_now() -> None:
    run = joined().until(60).with_settings(LONG, ON, grace="1h")
    run.twice(70, lambda second: bookies(second, "bk1 bk6 bk7 bk11"))
    assert run.verdicts()[-1] == (80, "bk11", "withhold", "would_be_infeasible")


def test_a_newcomer_suffices_to_keep_an_order_that_stands() -> None:
    """It is too new to stand in for a bookie that is not ordered yet."""
    run = joined(max_quarantined=1).until(60).twice(100, lambda second: bookies(second, f"{BASE} bk11 bk12"))
    run.see(affinity(120, {**NAMESPACES, "acme/c": NamespaceAffinity(primary=("default",), ensemble_size=3)}))
    assert run.placement("acme/c").verdict == "leaks"
    assert [verdict for _, bookie, verdict, _ in run.verdicts() if bookie == "bk11"] == ["quarantine"]


@pytest.mark.parametrize("groups", [None, {}], ids=["no znode", "no groups"])
def test_the_first_group_of_a_cluster_is_never_the_quarantine_group(groups: dict[str, str] | None) -> None:
    run = Run(LONG, ON).see(*everything(0, "bk1 bk2 bk3", groups, NAMESPACES)).until(60)
    assert {v[2:] for v in run.verdicts()} == {("withhold", "no_groups")}


def test_without_the_affinity_of_namespaces_nothing_is_put_into_quarantine() -> None:
    run = Run(LONG, ON).see(bookies(0, f"{BASE} bk11"), racks(0, GROUPS)).until(60)
    assert run.quarantines() == []
    run.see(affinity(61, NAMESPACES))
    assert [v[:3] for v in run.verdicts()] == [(61, "bk11", "quarantine")]


def test_it_is_lifted_when_quarantine_is_switched_off_even_while_unread() -> None:
    run = joined(validity="1m").until(300).with_settings().see(bookies(310, "", outcome=Outcome.ERROR))
    assert run.verdicts()[-1] == (310, "bk11", "lift", "switched_off")
    assert run.until(900).verdicts()[-1][0] == 310


Away = tuple[str, int, int, str]
"""(bookie, from second, for seconds, `gone` or `read-only`)"""
EVERY = 5


@dataclass
class Fleet:
    """A cluster whose bookies leave and come back, and the loop that watches it."""

    members: Mapping[str, str]
    """Bookies by group."""
    namespaces: Mapping[str, Any]
    strays: str = "bk9"
    dead: str = ""
    """Members that never come back."""
    away: Sequence[Away] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def run(self, until: int, first: int = 0) -> tuple[Run, set[str]]:
        """Return the run, and the bookies in quarantine at the end."""
        run, quarantined = Run(ON, {"grace": "0s"}, self.settings), dict[str, float]()
        known = " ".join((*self.members.values(), self.strays))
        for second in range(first, until, EVERY):
            gone, read_only = (self._list_away(second, how) for how in ("gone", "read-only"))
            there = [name for name in known.split() if name not in gone and name not in self.dead.split()]
            put = " ".join(name for name, at_second in quarantined.items() if second > at_second)
            writable = " ".join(name for name in there if name not in read_only)
            seen = bookies(second, writable, " ".join(read_only & set(there)), known)
            groups = {**self.members, **({QUARANTINE_GROUP: put} if put else {})}
            run.see(seen, racks(second, groups), affinity(second, self.namespaces))
            for order in run.state.orders if run.state else ():
                if order.verdict is QuarantineVerdict.QUARANTINE:
                    quarantined.setdefault(order.bookie, second)
        return run, set(quarantined)

    def _list_away(self, second: int, how: str) -> set[str]:
        return {name for name, start, length, mode in self.away if mode == how and start <= second < start + length}

    def starved(self, quarantined: set[str]) -> list[str]:
        """The namespaces that cannot place data once everybody is back, and could without quarantine."""
        writable = frozenset(" ".join((*self.members.values(), self.strays)).split()) - set(self.dead.split())
        groups = {group: frozenset(members.split()) for group, members in self.members.items()}
        rules, found = Run(self.settings).settings.rules, []
        for name, said in self.namespaces.items():
            wanted = to(*said.split("/")) if isinstance(said, str) else said
            own, size = AffinityGroups(wanted.primary, wanted.secondary), wanted.ensemble_size or 2
            insides = (frozenset[str](), frozenset(quarantined))
            known = (BookieMembership(writable, {**groups, QUARANTINE_GROUP: inside}) for inside in insides)
            before, after = (place(rules, each, own, size, Unaffine.ANY).feasible for each in known)
            if before and not after:
                found.append(name)
        return found


SHORT: Mapping[str, Any] = {
    "members": {"g": "bk1 bk2", "other": "bk5 bk6"},
    "namespaces": {"t/ns": "g", "t/other": "other"},
    "dead": "bk1",
}
"""t/ns has bk2 alone, and needs bk9, which is in no group."""
FULL: Mapping[str, Any] = {"members": {"g": "bk1 bk2 bk3"}, "namespaces": {"t/ns": to("g", ensemble_size=3)}}


@pytest.mark.parametrize(("seconds", "how"), combined([5, 10, 15, 20, 40, 90, 120, 300], ["gone", "read-only"]))
def test_a_restart_of_any_length_orders_no_needed_bookie_into_quarantine(seconds: int, how: str) -> None:
    run, quarantined = Fleet(**SHORT, away=[("bk2", 200, seconds, how)]).run(800)
    assert quarantined == set()
    assert [d.verdict.value for d in run.quarantines()] == ["withhold"]
    assert "placement-infeasible" not in {alert for alert, _ in run.firing()}


def test_a_member_that_stays_frees_the_bookie_when_that_has_settled() -> None:
    run, quarantined = Fleet(**{**SHORT, "dead": ""}, away=[("bk1", 0, 200, "gone")]).run(500)
    assert quarantined == {"bk9"}
    assert [(second, verdict) for second, _, verdict, _ in run.verdicts()] == [(0, "withhold"), (320, "quarantine")]


def test_a_newcomer_is_ordered_at_once_where_nothing_has_changed_for_settle_and_waits_while_a_member_is_away() -> None:
    fleet = Fleet(**FULL, away=[("bk9", 0, 200, "gone")])
    assert [verdict[:3] for verdict in fleet.run(300)[0].verdicts()] == [(205, "bk9", "quarantine")]
    fleet = Fleet({"g": "bk1 bk2 bk3"}, {"t/ns": "g"}, away=[("bk9", 0, 200, "gone"), ("bk3", 190, 400, "gone")])
    assert [verdict[:3] for verdict in fleet.run(700)[0].verdicts()] == [(310, "bk9", "quarantine")]


def test_a_quarantine_that_starves_a_namespace_is_offered_back_with_one_command() -> None:
    fleet = Fleet(**FULL, away=[("bk3", 300, 900, "gone")])
    run, quarantined = fleet.run(500)
    assert quarantined == {"bk9"}
    alert = run.latest("quarantine-starves")
    assert (alert.subject, alert.severity, alert.summary) == (
        "c1/bk9",
        "critical",
        "bookie bk9 of c1 is in quarantine, and without it t/ns cannot place its data: run "
        "`pulsar-admin bookies delete-bookie-rack --bookie bk9` to give it back",
    )
    there = bookies(501, "bk1 bk2 bk9", known="bk1 bk2 bk3 bk9")
    run.see(there, racks(501, fleet.members)).see(there, racks(515, fleet.members)).until(700)
    assert run.said("quarantine-starves")[-1][2] == "resolved"
    assert run.verdicts()[-1][1:] == ("bk9", "withhold", "would_be_infeasible")


@for_each(("rules", "is_starved"), [("current", True), ("strict", False)])
def test_a_quarantine_starves_a_namespace_only_where_its_rules_allow_the_bookie(
    rules: str, *, is_starved: bool
) -> None:
    groups = {"default": "bk1", QUARANTINE_GROUP: "bk11"}
    run = Run(LONG, rules=rules).see(*everything(0, "bk1 bk11", groups, {"t/a": "default"}))
    alerts = {alert for alert, _ in run.firing()}
    assert ("placement-infeasible" in alerts, "quarantine-starves" in alerts) == (True, is_starved)


def test_a_bookie_whose_rack_entry_lacks_the_port_is_named_with_it_and_not_quarantined() -> None:
    run = Run(ON, {"grace": "0s", "validity": "1h"})
    there = "bk0:3181 bk1:3181 bk2:3181 bk9:3181"
    run.see(bookies(0, there, known=there), racks(0, {"g": "bk0 bk1:3181 bk2:3181"}), affinity(0, {"t/ns": "g"}))
    run.until(100)
    assert [(bookie, reason) for _, bookie, _, reason in run.verdicts()] == [
        ("bk0:3181", "rack_entry"), ("bk9:3181", "unassigned"),
    ]  # fmt: skip
    named = "bookie bk0:3181 of c1 takes data and is in no group; a group lists bk0 (the rack entry lacks the port)"
    assert named in {alert.summary for alert in run.alerts}
    assert run.latest("group-member-missing").summary == (
        "bookie bk0 of c1 is in group g, and only bk0:3181 is registered: the rack entry lacks the port, so it fits no "
        "bookie"
    )
    run.see(racks(101, {"g": "bk0:3181 bk1:3181 bk2:3181"})).see(racks(120, {"g": "bk0:3181 bk1:3181 bk2:3181"}))
    assert {subject for alert, subject in run.firing() if alert == "group-member-missing"} == set()


def test_a_member_without_a_port_that_has_joined_before_is_no_mistake() -> None:
    there = "bk0:3181 bk1:3181 bk2:3181"
    run = Run(LONG, ON, grace="0s").see(bookies(0, there, known="bk0"), racks(0, {"g": "bk0 bk1:3181 bk2:3181"}))
    run.see(affinity(0, {"t/ns": "g"})).until(200)
    assert [verdict[1:] for verdict in run.verdicts()] == [("bk0:3181", "quarantine", "unassigned")]


groups = st.sampled_from(["g", "h", "g/h", "h/g"])
namespaces = st.dictionaries(st.sampled_from(["t/a", "t/b"]), groups, min_size=1)
absences = st.lists(
    st.tuples(
        st.sampled_from([f"bk{number}" for number in (1, 2, 3, 5, 6, 8, 9)]),
        st.integers(10, 80).map(lambda n: n * EVERY),
        st.integers(1, 24).map(lambda n: n * EVERY),
        st.sampled_from(["gone", "read-only"]),
    ),
    max_size=12,
)


@examples(1)
@given(
    namespaces,
    st.sampled_from(["", "bk1", "bk1 bk2", "bk5", "bk1 bk5"]),
    st.sampled_from(["bk9", "bk8 bk9"]),
    absences,
    st.sampled_from(["current", "legacy", "strict"]),
    st.sampled_from([0, 100, 250]),
)
@example({"t/a": "g"}, "bk1 bk2", "bk9", [("bk3", 200, 15, "gone")], "current", 0)
@example(
    {"t/a": "g"},
    "bk1 bk3",
    "bk9",
    [("bk9", 200, 60, "gone"), ("bk5", 200, 75, "gone"), ("bk2", 200, 90, "gone")],
    "current",
    0,
)
@example({"t/a": "g"}, "bk2", "bk9", [("bk1", 0, 200, "gone"), ("bk1", 240, 120, "gone")], "current", 0)
@example({"t/a": "g"}, "bk1 bk2", "bk8 bk9", [("bk9", 0, 300, "gone"), ("bk9", 340, 120, "gone")], "current", 0)
def test_when_everybody_is_back_no_namespace_lacks_a_bookie_because_of_quarantine(
    namespaces: dict[str, str], dead: str, strays: str, away: list[Away], rules: str, first: int
) -> None:
    fleet = Fleet({"g": "bk1 bk2 bk3", "h": "bk5 bk6"}, namespaces, strays, dead, away, {"rules": rules})
    assert fleet.starved(fleet.run(800, first)[1]) == []
