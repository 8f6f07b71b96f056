"""What becomes of a bundle: every row of the table, under both rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.sessions.decisions import OwnershipVerdict
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
MINE = node_now(owner="b1:8080", session=OWN, version=3)
MINE_OLD = node_now(owner="b1:8080", session=OLD, version=3)
OTHERS = node_now(owner="b2:8080", session="0xc", version=3)
OTHERS_OF_MINE = node_now(owner="b2:8080", session=OWN, version=0)
"""A node lives and dies with its session, whatever its value says."""


@for_each(
    ("node", "known", "pip57", "current"),
    [
        pytest.param(ABSENT, {}, "re-own absent", "re-own absent", id="absent"),
        pytest.param(MINE, {}, "keep own_session", "keep own_session", id="its own"),
        pytest.param(MINE_OLD, {}, "wait old_session", "re-own old_session", id="of its old session"),
        pytest.param(MINE_OLD, {"left_ms": 1}, "wait old_session", "re-own old_session", id="still waited for"),
        pytest.param(MINE_OLD, {"left_ms": 0}, "unload old_session_persists", "re-own old_session", id="no longer"),
        pytest.param(OTHERS, {}, "unload other_owner", "unload other_owner", id="another's"),
        pytest.param(OTHERS_OF_MINE, {"b2": "0xc"}, "keep own_session", "keep own_session", id="a rival's name"),
        pytest.param(OTHERS_OF_MINE, {}, "unload other_owner", "unload other_owner", id="another's name"),
        pytest.param(
            MINE, {"session": "0xc", "b2": OWN}, "unload double_ownership", "unload double_ownership",
            id="of a rival's session",
        ),
        pytest.param(
            node_now(ephemeral=False, owner="b1:8080", session=OWN), {}, "unload not_ephemeral", "unload not_ephemeral",
            id="not ephemeral",
        ),
        pytest.param(
            node_now(owner=None, session=OWN), {"left_ms": 0}, "wait unreadable", "wait unreadable", id="no value"
        ),
        pytest.param(
            node_now(owner="b1:8080", session=None), {"left_ms": 0}, "wait unreadable", "wait unreadable",
            id="its session is not known",
        ),
        pytest.param(
            MINE, {"session": None, "left_ms": 0}, "wait unreadable", "wait unreadable", id="the member's is not known"
        ),
        pytest.param(
            node_now(owner="b1:8080", session=OLD, version=None), {}, "wait old_session", "wait unreadable",
            id="a version that is not known is never deleted",
        ),
        pytest.param(None, {}, "wait unread", "wait unread", id="not read since"),
    ],
)  # fmt: skip
def test_every_row_of_the_table(node: NodeRecord | None, known: dict[str, Any], pip57: str, current: str) -> None:
    for rules, expected in ((PIP57, pip57), (CURRENT, current)):
        ruling = rule_b1(node, rules, **known)
        assert f"{ruling.verdict} {ruling.reason}" == expected


def test_a_ruling_has_the_time_that_is_left_or_the_version_to_replace() -> None:
    assert rule_b1(MINE_OLD, PIP57).left_ms == 20_000
    assert rule_b1(MINE_OLD, CURRENT).expected_version == 3
    assert rule_b1(ABSENT, CURRENT).expected_version is None


@for_each(
    ("failures", "wait_ms"), [(0, 100), (1, 100), (2, 200), (3, 400), (10, 51_200), (11, 60_000), (10**6, 60_000)]
)
def test_an_unreadable_node_is_tried_again_ever_less_often(failures: int, wait_ms: int) -> None:
    assert retry_ms(failures) == wait_ms


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
