"""What if a bookie joined, died or were assigned."""

import pytest

from policies.isolation.placement import BookieMembership, HypotheticalChange, apply_changes, parse_change
from policies.units import UserError
from tests.cases import for_each

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
        pytest.param(
            ["add=c:1@new"], {"a:1", "b:1", "c:1"}, {**(NOW.groups or {}), "new": frozenset({"c:1"})}, id="new group"
        ),
        pytest.param(
            ["add=a:1@h"],
            {"a:1", "b:1"},
            {"g": frozenset({"dead:1"}), "h": frozenset({"a:1", "b:1"})},
            id="a registered one moves",
        ),
        pytest.param(["remove=a:1"], {"b:1"}, NOW.groups, id="a dead one stays in its group"),
        pytest.param(["remove-group=h"], {"a:1", "b:1"}, {"g": frozenset({"a:1", "dead:1"})}, id="a group is dropped"),
        pytest.param(["add=c:1", "remove=c:1"], {"a:1", "b:1"}, NOW.groups, id="in order"),
    ],
)
def test_changes_happen_in_order(changes: list[str], writable: set[str], groups: dict[str, frozenset[str]]) -> None:
    assert apply_changes(NOW, map(parse_change, changes)) == BookieMembership(frozenset(writable), groups)


def test_where_there_are_no_groups_a_bookie_without_one_makes_none() -> None:
    assert apply_changes(BookieMembership(frozenset(), None), [HypotheticalChange("add", "a:1")]).groups is None


@pytest.mark.parametrize("text", ["remove=nobody:1", "remove=dead:1", "remove-group=nobody"])
def test_what_is_not_there_cannot_go(text: str) -> None:
    with pytest.raises(UserError, match=text):
        apply_changes(NOW, [parse_change(text)])
