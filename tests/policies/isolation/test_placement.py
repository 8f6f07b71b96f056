"""The three rule sets: every row of the table, and where the real code is odd."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.isolation.decisions import QUARANTINE_GROUP, PlacementReason, Tier
from policies.isolation.placement import (
    NO_GROUPS,
    AffinityGroups,
    BookieMembership,
    Exclusion,
    HypotheticalChange,
    apply_changes,
    classify,
    parse_change,
    place,
)
from policies.isolation.settings import RuleSet, Unaffine
from policies.units import UserError
from tests.cases import for_each

TWO_GROUPS = {"p": "a b", "s": "c d", "x": "e"}


def membership(writable: str, groups: Mapping[str, str]) -> BookieMembership:
    listed = {g: frozenset(members.split()) for g, members in groups.items()}
    return BookieMembership(frozenset(writable.split()), listed)


def affinity(primary: str, secondary: str = "") -> AffinityGroups:
    return AffinityGroups(tuple(primary.split()), tuple(secondary.split()))


@for_each(
    ("rules", "writable", "groups", "own", "n", "candidates", "tier", "headroom"),
    [
        pytest.param("legacy", "a b c e u", TWO_GROUPS, ("p", "s"), 2, "a b u", "primary", 1, id="legacy: U always"),
        pytest.param("legacy", "a c d e u", TWO_GROUPS, ("p", "s"), 2, "a c d u", "secondary", 2, id="legacy: S too"),
        pytest.param("legacy", "a e u", TWO_GROUPS, ("p", "s"), 2, "a u", "unassigned", 1, id="legacy: needs U"),
        pytest.param("legacy", "a e", TWO_GROUPS, ("p", "s"), 2, "a", "none", 0, id="legacy: too few"),
        pytest.param(
            "legacy", "a c u", {"p": "a b", "q": "a", "s": "c"}, ("p q", "s"), 2, "a u", "unassigned", 1,
            id="legacy: one bookie in two primary groups counts twice, so S stays away",
        ),
        pytest.param(
            "legacy", "a c", {"p": "a b", "q": "a", "s": "c"}, ("p q", "s"), 2, "a", "none", 0,
            id="legacy: counted twice, and infeasible for it",
        ),
        pytest.param("legacy", "a b", {"p": "a b", "x": "b"}, ("p", ""), 2, "a b", "primary", 1, id="legacy: P and X"),
        pytest.param("current", "a b c e u", TWO_GROUPS, ("p", "s"), 2, "a b", "primary", 1, id="current: P alone"),
        pytest.param("current", "a c d e u", TWO_GROUPS, ("p", "s"), 2, "a c d", "secondary", 2, id="current: S too"),
        pytest.param("current", "a e u v", TWO_GROUPS, ("p", ""), 2, "a u v", "unassigned", 2, id="current: U too"),
        pytest.param("current", "a e", TWO_GROUPS, ("p", ""), 2, "a", "none", 0, id="current: never a third group"),
        pytest.param(
            "current", "a e u v", TWO_GROUPS, ("p", "s"), 2, "a", "none", 0,
            id="current: dead members of S count, so U stays away",
        ),
        pytest.param(
            "current", "a u v", TWO_GROUPS, ("p", "s"), 4, "a u v", "none", 0,
            id="current: even dead members of S are too few, so U serves",
        ),
        pytest.param(
            "current", "b u", {"p": "a b", "s": "b c"}, ("p", "s"), 2, "b", "none", 0,
            id="current: a member of P and S does not count again, the dead one of S does",
        ),
        pytest.param(
            "current", "b u", {"p": "a b", "s": "a b"}, ("p", "s"), 2, "b u", "unassigned", 1,
            id="current: members of both P and S, one dead, count as members of P",
        ),
        pytest.param(
            "current", "a c u", {"p": "a b", "q": "a", "s": "c"}, ("p q", "s"), 2, "a c", "secondary", 1,
            id="current: one bookie in two primary groups counts once",
        ),
        pytest.param("current", "u v", {"p": ""}, ("p", ""), 2, "u v", "unassigned", 1, id="current: an empty group"),
        pytest.param("current", "u v", {"x": "e"}, ("p", ""), 2, "u v", "unassigned", 1, id="current: no such group"),
        pytest.param("strict", "a b c e u", TWO_GROUPS, ("p", "s"), 2, "a b", "primary", 1, id="strict: P alone"),
        pytest.param("strict", "a c d e u", TWO_GROUPS, ("p", "s"), 2, "a c d", "secondary", 2, id="strict: S too"),
        pytest.param("strict", "a e u v", TWO_GROUPS, ("p", ""), 2, "a", "none", 0, id="strict: never U"),
        pytest.param("strict", "u v", {"p": ""}, ("p", ""), 2, "", "none", 0, id="strict: nothing at all"),
        pytest.param("strict", "a b c", {"p": "a b c"}, ("p", ""), 2, "a b c", "primary", 2, id="strict: headroom 2"),
    ],
)  # fmt: skip
def test_the_rules_of_namespaces_with_affinity(
    rules: str, writable: str, groups: dict[str, str], own: tuple[str, str], n: int, candidates: str, tier: str,
    headroom: int,
) -> None:  # fmt: skip
    placed = place(RuleSet(rules), membership(writable, groups), affinity(*own), n, Unaffine.ANY)
    assert placed.candidates == frozenset(candidates.split())
    assert (placed.tier, placed.headroom) == (Tier(tier), headroom)
    assert placed.feasible == (tier != "none")


every_rules = pytest.mark.parametrize("rules", list(RuleSet))


@every_rules
@pytest.mark.parametrize(
    ("groups", "own", "unaffine", "reason"),
    [
        pytest.param({}, affinity("p"), Unaffine.ANY, PlacementReason.NO_GROUPS, id="no groups"),
        pytest.param({}, NO_GROUPS, Unaffine.UNGROUPED, PlacementReason.NO_GROUPS, id="no groups, no affinity"),
        pytest.param(TWO_GROUPS, affinity("x *", "s"), Unaffine.ANY, PlacementReason.ANY_GROUP, id="star"),
        pytest.param(TWO_GROUPS, affinity("*"), Unaffine.UNGROUPED, PlacementReason.ANY_GROUP, id="star, ungrouped"),
        pytest.param(TWO_GROUPS, NO_GROUPS, Unaffine.ANY, PlacementReason.NO_AFFINITY, id="no affinity"),
    ],
)
def test_where_nothing_is_excluded(
    rules: RuleSet, groups: dict[str, str], own: AffinityGroups, unaffine: Unaffine, reason: PlacementReason
) -> None:
    placed = place(rules, membership("a b u", groups), own, 2, unaffine)
    assert placed.candidates == frozenset("abu")
    assert (placed.reason, placed.feasible, placed.headroom) == (reason, True, 2)


@for_each(
    ("rules", "writable", "candidates", "tier"),
    [
        ("legacy", "a x y u", "xyu", Tier.SECONDARY),
        ("current", "a x y u", "xy", Tier.SECONDARY),
        ("strict", "a x y u", "xy", Tier.SECONDARY),
        ("current", "a x u", "x", Tier.NONE),  # y is dead, and counts
        ("strict", "a u v", "", Tier.NONE),
    ],
)
@for_each("unaffine", list(Unaffine))
def test_secondary_groups_alone_are_an_affinity_whose_primary_groups_are_always_short(
    rules: str, writable: str, candidates: str, tier: Tier, unaffine: Unaffine
) -> None:
    known = membership(writable, {"p": "a b", "s": "x y"})
    placed = place(RuleSet(rules), known, affinity("", "s"), 2, unaffine)
    assert (placed.candidates, placed.tier) == (frozenset(candidates), tier)


@every_rules
def test_too_few_bookies_are_too_few_even_where_nothing_is_excluded(rules: RuleSet) -> None:
    placed = place(rules, membership("a", {}), affinity("p"), 2, Unaffine.ANY)
    assert (placed.feasible, placed.headroom, placed.tier) == (False, 0, Tier.NONE)


@every_rules
def test_without_affinity_and_ungrouped_only_bookies_without_a_group_serve(rules: RuleSet) -> None:
    groups = {"p": "a", QUARANTINE_GROUP: "v"}
    placed = place(rules, membership("a u v w", groups), NO_GROUPS, 2, Unaffine.UNGROUPED)
    assert placed.candidates == frozenset("uw")
    assert (placed.tier, placed.headroom, placed.reason) == (Tier.UNASSIGNED, 1, PlacementReason.UNGROUPED_ONLY)
    assert not place(rules, membership("a u v", groups), NO_GROUPS, 2, Unaffine.UNGROUPED).feasible


def test_a_bookie_in_the_quarantine_group_is_never_used_as_ungrouped() -> None:
    groups = {"p": "a", QUARANTINE_GROUP: "u"}
    assert place(RuleSet.CURRENT, membership("a u v", groups), affinity("p"), 2, Unaffine.ANY).candidates == {"a", "v"}
    assert place(RuleSet.LEGACY, membership("a u v", groups), affinity("p"), 2, Unaffine.ANY).candidates == {"a", "v"}


@pytest.mark.parametrize(
    ("rules", "writable", "expected"),
    [
        (
            "current", "a b c e u q",
            {"a": "primary", "b": "primary", "c": "secondary_not_needed", "d": "not_writable", "e": "other_group",
             "u": "unassigned_not_needed", "q": "quarantined"},
        ),
        (
            "strict", "a e u q c",
            {"a": "primary", "b": "not_writable", "c": "secondary", "d": "not_writable", "e": "other_group",
             "u": "unassigned_forbidden", "q": "quarantined"},
        ),
        (
            "current", "a u",
            {"a": "primary", "b": "not_writable", "c": "not_writable", "d": "not_writable", "e": "not_writable",
             "u": "dead_secondary_counted", "q": "not_writable"},
        ),
        (
            "legacy", "a u c",
            {"a": "primary", "b": "not_writable", "c": "secondary", "d": "not_writable", "e": "not_writable",
             "u": "unassigned", "q": "not_writable"},
        ),
    ],
)  # fmt: skip
def test_every_bookie_has_its_tier_or_the_reason_why_it_is_out(
    rules: str, writable: str, expected: dict[str, str]
) -> None:
    groups = TWO_GROUPS | {QUARANTINE_GROUP: "q"}
    known, own = membership(writable, groups), affinity("p", "s")
    told = classify(place(RuleSet(rules), known, own, 2, Unaffine.ANY), RuleSet(rules), known, own)
    assert {bookie: standing.name.lower() for bookie, standing in told.items()} == expected
    assert list(told) == sorted(told)


bookie_sets = st.frozensets(st.sampled_from("abcdefgh"))
group_names = st.sampled_from(["p", "q", "s", "x", QUARANTINE_GROUP])
memberships = st.builds(BookieMembership, bookie_sets, st.dictionaries(group_names, bookie_sets))
affinities = st.builds(
    AffinityGroups,
    st.lists(st.sampled_from(["p", "q", "nowhere", "*"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["p", "s", "nowhere"]), max_size=2).map(tuple),
)
sizes, unaffines = st.integers(1, 5), st.sampled_from(list(Unaffine))


@given(memberships, affinities, sizes, unaffines)
def test_strict_allows_no_more_than_current_and_current_no_more_than_all(
    known: BookieMembership, own: AffinityGroups, n: int, unaffine: Unaffine
) -> None:
    legacy, current, strict = (place(rules, known, own, n, unaffine) for rules in RuleSet)
    assert strict.candidates <= current.candidates <= known.writable
    assert legacy.candidates <= known.writable


@given(memberships, affinities, sizes)
def test_strict_never_uses_an_unassigned_bookie_of_a_cluster_with_groups(
    known: BookieMembership, own: AffinityGroups, n: int
) -> None:
    if not known.groups or not own.primary or "*" in own.primary:
        return
    everyone = frozenset[str]().union(*known.groups.values())
    assert place(RuleSet.STRICT, known, own, n, Unaffine.ANY).candidates <= everyone


@given(memberships, affinities, sizes, unaffines, st.sampled_from("abcdefgh"))
def test_a_bookie_added_to_a_foreign_group_is_never_a_new_candidate(
    known: BookieMembership, own: AffinityGroups, n: int, unaffine: Unaffine, bookie: str
) -> None:
    groups = dict(known.groups)
    then = BookieMembership(known.writable, groups | {"foreign": groups.get("foreign", frozenset()) | {bookie}})
    before = place(RuleSet.CURRENT, known, own, n, unaffine).candidates
    assert place(RuleSet.CURRENT, then, own, n, unaffine).candidates <= before


@given(st.sampled_from(list(RuleSet)), memberships, affinities, sizes, unaffines)
def test_what_is_said_of_a_placement_agrees_with_itself(
    rules: RuleSet, known: BookieMembership, own: AffinityGroups, n: int, unaffine: Unaffine
) -> None:
    placed = place(rules, known, own, n, unaffine)
    assert (placed.tier is Tier.NONE) == (not placed.feasible) == (placed.headroom == 0)
    assert not placed.feasible or len(placed.candidates) >= n
    told = classify(placed, rules, known, own)
    assert {b for b, standing in told.items() if isinstance(standing, Tier)} == placed.candidates
    assert {b for b, standing in told.items() if standing is not Exclusion.NOT_WRITABLE} == known.writable


@given(memberships, sizes, st.sampled_from(list(RuleSet)), st.data())
def test_headroom_is_how_many_losses_the_tier_survives(
    known: BookieMembership, n: int, rules: RuleSet, data: st.DataObject
) -> None:
    own = AffinityGroups(("p",), ("s",))
    placed = place(rules, known, own, n, Unaffine.ANY)
    if placed.tier is not Tier.PRIMARY or not known.groups:
        return
    lost = data.draw(st.permutations(placed.primary.names))[: placed.headroom]

    def after(count: int) -> Tier:
        left = BookieMembership(known.writable - set(lost[:count]), known.groups)
        return place(rules, left, own, n, Unaffine.ANY).tier

    assert after(placed.headroom - 1) is Tier.PRIMARY
    assert after(placed.headroom) is not Tier.PRIMARY


# What if a bookie joined, died or were assigned.

MOVED = {"g": frozenset({"dead:1"}), "h": frozenset({"a:1", "b:1"})}
NOW = BookieMembership(frozenset({"a:1", "b:1"}), {"g": frozenset({"a:1", "dead:1"}), "h": frozenset({"b:1"})})


@for_each(
    ("text", "change"),
    [
        ("add=bk9:3181", HypotheticalChange("add", "bk9:3181")),
        ("add=bk9:3181@shared", HypotheticalChange("add", "bk9:3181", "shared")),
        ("add=a@b@shared", HypotheticalChange("add", "a@b", "shared")),
        ("remove=bk1:3181", HypotheticalChange("remove", "bk1:3181")),
        ("remove=odd@id", HypotheticalChange("remove", "odd@id")),
        ("remove-group=shared", HypotheticalChange("remove-group", "shared")),
    ],
)
def test_a_change_is_read(text: str, change: HypotheticalChange) -> None:
    assert parse_change(text) == change


@for_each("text", ["", "bk1", "add", "add=", "lose=bk1", "add=@g", "add=bk1@", "remove=", "remove-group="])
def test_what_is_no_change_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(UserError, match="add=BOOKIE@GROUP"):
        parse_change(text)


@for_each(
    ("changes", "writable", "groups"),
    [
        pytest.param(["add=c:1"], {"a:1", "b:1", "c:1"}, NOW.groups, id="joins without a group"),
        pytest.param(["add=c:1@new"], {"a:1", "b:1", "c:1"}, {**NOW.groups, "new": frozenset({"c:1"})}, id="new group"),
        pytest.param(["add=a:1@h"], {"a:1", "b:1"}, MOVED, id="a registered one moves"),
        pytest.param(["remove=a:1"], {"b:1"}, NOW.groups, id="a dead one stays in its group"),
        pytest.param(["remove-group=h"], {"a:1", "b:1"}, {"g": frozenset({"a:1", "dead:1"})}, id="a group is dropped"),
        pytest.param(["add=c:1", "remove=c:1"], {"a:1", "b:1"}, NOW.groups, id="in order"),
    ],
)
def test_changes_happen_in_order(changes: list[str], writable: set[str], groups: dict[str, frozenset[str]]) -> None:
    assert apply_changes(NOW, map(parse_change, changes)) == BookieMembership(frozenset(writable), groups)


def test_where_there_are_no_groups_a_bookie_without_one_makes_none() -> None:
    assert apply_changes(BookieMembership(frozenset(), {}), [HypotheticalChange("add", "a:1")]).groups == {}


@pytest.mark.parametrize("text", ["remove=nobody:1", "remove=dead:1", "remove-group=nobody"])
def test_what_is_not_there_cannot_go(text: str) -> None:
    with pytest.raises(UserError, match=text):
        apply_changes(NOW, [parse_change(text)])
