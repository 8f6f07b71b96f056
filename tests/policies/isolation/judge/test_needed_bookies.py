"""A bookie that a namespace needs is never put into quarantine, whoever is away for a while (rule 10).

Each order is carried out one second later, and the readings show it, so a wrong order has its full effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.isolation.decisions import QUARANTINE_GROUP, QuarantineVerdict
from policies.isolation.placement import AffinityGroups, BookieMembership, place
from policies.isolation.settings import Unaffine
from tests.examples import combined, examples
from tests.policies.isolation.scenario import ON, Run, affinity, bookies, racks, to

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
            run.see(
                bookies(
                    second, " ".join(n for n in there if n not in read_only), " ".join(read_only & set(there)), known
                ),
                racks(second, {**self.members, **({QUARANTINE_GROUP: put} if put else {})}),
                affinity(second, self.namespaces),
            )
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
        run = Run(self.settings)
        found = []
        for name, said in self.namespaces.items():
            wanted = to(*said.split("/")) if isinstance(said, str) else said
            before, after = (
                place(
                    run.settings.rules,
                    BookieMembership(writable, {**groups, QUARANTINE_GROUP: frozenset(inside)}),
                    _groups_of(wanted),
                    wanted.ensemble_size or 2,
                    Unaffine.ANY,
                ).feasible
                for inside in (set(), quarantined)
            )
            if before and not after:
                found.append(name)
        return found


def _groups_of(wanted: Any) -> Any:
    return AffinityGroups(frozenset(wanted.primary), frozenset(wanted.secondary))


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


@pytest.mark.parametrize("gap", [15, 20, 60])
def test_bookies_that_come_back_one_by_one_after_an_outage_of_zookeeper_find_the_others_as_they_were(gap: int) -> None:
    names = ["bk9", "bk5", "bk6", "bk2"]
    fleet = Fleet(**SHORT, away=[(name, 200, 60 + gap * number, "gone") for number, name in enumerate(names)])
    assert fleet.run(900)[1] == set()


@pytest.mark.parametrize("seconds", [15, 40, 100])
def test_a_member_that_comes_back_only_for_a_while_frees_no_bookie(seconds: int) -> None:
    fleet = Fleet(**{**SHORT, "dead": ""}, away=[("bk1", 0, 200, "gone"), ("bk1", 200 + seconds, 900, "gone")])
    assert fleet.run(900)[1] == set()


def test_a_member_that_stays_frees_the_bookie_when_that_has_settled() -> None:
    run, quarantined = Fleet(**{**SHORT, "dead": ""}, away=[("bk1", 0, 200, "gone")]).run(500)
    assert quarantined == {"bk9"}
    assert [(second, verdict) for second, _, verdict, _ in run.verdicts()] == [(0, "withhold"), (320, "quarantine")]


def test_a_newcomer_is_ordered_at_once_where_nothing_has_changed_for_settle_and_waits_while_a_member_is_away() -> None:
    fleet = Fleet(**FULL, away=[("bk9", 0, 200, "gone")])
    assert [verdict[:3] for verdict in fleet.run(300)[0].verdicts()] == [(205, "bk9", "quarantine")]
    fleet = Fleet({"g": "bk1 bk2 bk3"}, {"t/ns": "g"}, away=[("bk9", 0, 200, "gone"), ("bk3", 190, 400, "gone")])
    assert [verdict[:3] for verdict in fleet.run(700)[0].verdicts()] == [(310, "bk9", "quarantine")]


def test_a_newcomer_takes_nobodys_place_before_it_has_settled() -> None:
    """Two bookies in no group, one of which t/ns needs: which one stays must not rest on a bookie of this moment."""
    fleet = Fleet(**SHORT, strays="bk8 bk9", away=[("bk9", 0, 300, "gone"), ("bk9", 340, 900, "gone")])
    assert fleet.run(900)[1] <= {"bk9"}
    assert fleet.starved(fleet.run(900)[1]) == []


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


def test_a_bookie_whose_rack_entry_lacks_the_port_is_named_with_it_and_not_quarantined() -> None:
    run = Run(ON, {"grace": "0s", "validity": "1h"})
    there = "bk0:3181 bk1:3181 bk2:3181 bk9:3181"
    run.see(bookies(0, there, known=there), racks(0, {"g": "bk0 bk1:3181 bk2:3181"}), affinity(0, {"t/ns": "g"}))
    run.until(100)
    assert [verdict[1:] for verdict in run.verdicts()] == [
        ("bk0:3181", "withhold", "rack_entry"),
        ("bk9:3181", "quarantine", "unassigned"),
    ]
    named = "bookie bk0:3181 of c1 takes data and is in no group; a group lists bk0 (the rack entry lacks the port)"
    assert named in {alert.summary for alert in run.alerts}
    assert run.latest("group-member-missing").summary == (
        "bookie bk0 of c1 is in group g, and only bk0:3181 is registered: the rack entry lacks the port, so it fits no "
        "bookie"
    )
    run.see(racks(101, {"g": "bk0:3181 bk1:3181 bk2:3181"})).see(racks(120, {"g": "bk0:3181 bk1:3181 bk2:3181"}))
    assert {subject for alert, subject in run.firing() if alert == "group-member-missing"} == set()


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
def test_when_everybody_is_back_no_namespace_lacks_a_bookie_because_of_quarantine(
    namespaces: dict[str, str], dead: str, strays: str, away: list[Away], rules: str, first: int
) -> None:
    fleet = Fleet({"g": "bk1 bk2 bk3", "h": "bk5 bk6"}, namespaces, strays, dead, away, {"rules": rules})
    assert fleet.starved(fleet.run(800, first)[1]) == []
