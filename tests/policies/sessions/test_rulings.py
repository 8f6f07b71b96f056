"""What becomes of a bundle: every row of the table, under both rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.rulings import BundleRuling, retry_ms, rule
from policies.sessions.settings import OwnershipRules
from policies.sessions.state import NodeRecord
from tests.cases import for_each

PIP57, CURRENT = OwnershipRules
OWN, OLD = "0xb", "0xa"


def node_now(**fields: Any) -> NodeRecord:
    return NodeRecord("/namespace/t/ns/0x0", 0, "n", **fields)


def rule_b1(
    node: NodeRecord | None, rules: OwnershipRules, left_ms: int = 20_000, session: str | None = OWN, **rivals: str
) -> BundleRuling:
    return rule("b1:8080", session, node, rules, {f"{name}:8080": of for name, of in rivals.items()}, left_ms)


ABSENT = node_now(exists=False)
MINE = node_now(exists=True, owner="b1:8080", session=OWN, version=3)
MINE_OLD = node_now(exists=True, owner="b1:8080", session=OLD, version=3)
OTHERS = node_now(exists=True, owner="b2:8080", session="0xc", version=3)
PERSISTENT = node_now(exists=True, ephemeral=False, owner="b1:8080", session=OWN, version=3)
UNREADABLE = node_now(exists=True, owner=None, session=OWN, version=3, unreadable_times=1)


@for_each(
    ("node", "pip57", "current"),
    [
        (ABSENT, "re-own absent", "re-own absent"),
        (MINE, "keep own_session", "keep own_session"),
        (MINE_OLD, "wait old_session", "re-own old_session"),
        (OTHERS, "unload other_owner", "unload other_owner"),
        (PERSISTENT, "unload not_ephemeral", "unload not_ephemeral"),
        (UNREADABLE, "wait unreadable", "wait unreadable"),
        (None, "wait unread", "wait unread"),
    ],
    ids=["absent", "own", "old session", "another's", "not ephemeral", "unreadable", "not read since"],
)
def test_every_row_of_the_table(node: NodeRecord | None, pip57: str, current: str) -> None:
    for rules, expected in ((PIP57, pip57), (CURRENT, current)):
        ruling = rule_b1(node, rules)
        assert f"{ruling.verdict} {ruling.reason}" == expected


def test_the_node_of_the_old_session_is_waited_for_so_long_and_no_longer() -> None:
    assert rule_b1(MINE_OLD, PIP57).left_ms == 20_000
    assert rule_b1(MINE_OLD, PIP57, 1).verdict is OwnershipVerdict.WAIT
    late = rule_b1(MINE_OLD, PIP57, 0)
    assert (late.verdict, late.reason) == (OwnershipVerdict.UNLOAD, OwnershipReason.OLD_SESSION_PERSISTS)


def test_current_rules_replace_the_node_by_its_version() -> None:
    assert rule_b1(MINE_OLD, CURRENT).expected_version == 3
    assert rule_b1(ABSENT, CURRENT).expected_version is None


def test_a_node_whose_version_is_not_known_is_never_deleted() -> None:
    node = node_now(exists=True, owner="b1:8080", session=OLD, version=None)
    assert rule_b1(node, CURRENT).verdict is OwnershipVerdict.WAIT


@pytest.mark.parametrize(
    "node",
    [node_now(exists=True, owner="b1:8080", session=None), node_now(exists=True, owner=None, session=OLD)],
    ids=["its session unknown", "its value unknown"],
)
@pytest.mark.parametrize("rules", OwnershipRules)
def test_what_is_unknown_decides_nothing(node: NodeRecord, rules: OwnershipRules) -> None:
    assert rule_b1(node, rules, 0).verdict is OwnershipVerdict.WAIT
    assert rule_b1(MINE, rules, 0, None).verdict is OwnershipVerdict.WAIT


@for_each(
    ("failures", "wait_ms"), [(0, 100), (1, 100), (2, 200), (3, 400), (10, 51_200), (11, 60_000), (10**6, 60_000)]
)
def test_an_unreadable_node_is_tried_again_ever_less_often(failures: int, wait_ms: int) -> None:
    assert retry_ms(failures) == wait_ms


def test_of_two_claims_the_one_with_the_session_of_the_node_wins() -> None:
    """Whatever the value says: a node lives and dies with its session."""
    node = node_now(exists=True, owner="b2:8080", session=OWN, version=0)
    assert rule_b1(node, PIP57, b2="0xc").verdict is OwnershipVerdict.KEEP
    taken = rule("b2:8080", "0xc", node, CURRENT, {"b1:8080": OWN}, 0)
    assert taken.reason is OwnershipReason.DOUBLE_OWNERSHIP
    assert rule_b1(node, PIP57).verdict is OwnershipVerdict.UNLOAD


nodes = st.builds(
    node_now,
    exists=st.booleans(),
    ephemeral=st.booleans(),
    owner=st.sampled_from([None, "b1", "b2", "b3"]),
    session=st.sampled_from([None, "0x1", "0x2", "0x3", "0x9"]),
    version=st.sampled_from([None, 0, 7]),
    unreadable_times=st.integers(0, 100),
)
sessions = st.sampled_from([None, "0x1", "0x2", "0x9"])
rules_in_force = st.sampled_from(OwnershipRules)


@given(nodes, sessions, sessions, rules_in_force, st.integers(-1000, 10**6))
def test_two_claimants_are_never_both_told_to_keep(
    node: NodeRecord, first: str | None, second: str | None, rules: OwnershipRules, left_ms: int
) -> None:
    if first == second:
        second = "0x5"
    one = rule("b1", first, node, rules, {"b2": second}, left_ms)
    two = rule("b2", second, node, rules, {"b1": first}, left_ms)
    assert [one.verdict, two.verdict].count(OwnershipVerdict.KEEP) <= 1
    for ruling, session in ((one, first), (two, second)):
        if ruling.verdict is OwnershipVerdict.KEEP:
            assert node.session == session
        assert ruling.expected_version in (None, node.version)
