"""Only a decision that differs from the one in force is published, in a fixed order; its sentence has the cause."""

import pytest

from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.facts import ClaimFacts
from policies.sessions.rulings import BundleRuling, explain_ruling
from policies.sessions.state import Claim, NodeRecord
from policies.units import from_millis
from tests.cases import for_each
from tests.policies.sessions.course import BUNDLE, Run, absent, at, owned, session, tree
from tests.policies.sessions.joined import connected, expired, joined, published

OTHER = "/namespace/t/ns/0x40000000_0x80000000"
NODE = NodeRecord(BUNDLE, 1, "n", owner="b2", session="0xold", version=4)
WAIT, RE_OWN, UNLOAD = OwnershipVerdict.WAIT, OwnershipVerdict.RE_OWN, OwnershipVerdict.UNLOAD


def test_bundles_are_numbered_before_members_and_members_by_their_losses() -> None:
    facts = joined(
        *connected("b1", "b2", "b3"), owned(1, "b2", "0xb2"), owned(1, "b1", "0xb1", OTHER),
        *expired("b2", seconds=10), *expired("b1", seconds=11),
        session(20, "b1", "connected", "0xn1"), session(20, "b2", "connected", "0xn2"), tree(21), until=21,
    )  # fmt: skip
    said = published(facts)
    first = said.bundles[0].sequence
    assert [(d.path, d.sequence) for d in said.bundles] == [(BUNDLE, first), (OTHER, first + 1)]
    assert [(d.member, d.sequence) for d in said.sessions] == [("b2", first + 2), ("b1", first + 3)]
    assert said.sequence == first + 3
    assert set(said.orders) == {"b1", "b2"}
    assert set(said.rulings) == {(BUNDLE, "b2"), (OTHER, "b1")}


def test_a_verdict_that_holds_is_published_once_and_again_when_it_lapses() -> None:
    run = Run(reconnect_deadline="30m").together(*connected("b1", "b2")).see(*expired("b1", seconds=10))
    run.see(session(200, "b1", "expired", "0xb1"))
    assert len(run.sessions) == 1
    run.see(session(310, "b1", "expired", "0xb1"))
    assert [d.decided_at for d in run.sessions] == [at(10), at(310)]


def test_what_is_published_is_what_is_remembered_of_it() -> None:
    run = Run().together(*connected("b1", "b2")).see(*expired("b1", seconds=10))
    assert run.state is not None
    last = run.state.members[0].last_published
    assert last is not None
    (decision,) = run.sessions
    assert (last.verdict, last.reason, from_millis(last.published_ms)) == (
        decision.verdict, decision.reason, decision.decided_at,
    )  # fmt: skip
    assert run.state.sequence == decision.sequence


def test_events_are_told_once() -> None:
    run = Run().together(*connected("b1", "b2")).see(*expired("b1", seconds=10))
    run.see(session(20, "b1", "connected", "0xnew"))
    assert [list(d.events) for d in run.sessions] == [["session_lost"], ["reconnected", "session_reestablished"]]


def test_another_mode_is_news() -> None:
    run = Run().together(*connected("b1", "b2")).see(*expired("b1", seconds=10))
    other = Run(run.state, mode="shadow").see(session(12, "b1", "expired", "0xb1"))
    assert [d.mode for d in other.sessions] == ["shadow"]


def test_a_bundle_whose_node_says_the_same_again_is_no_news() -> None:
    run = Run().together(*connected("b1", "b2")).see(owned(1, "b1", "0xb1"), *expired("b1", seconds=10))
    run.see(session(20, "b1", "connected", "0xnew"), absent(21), absent(25))
    assert [d.reason for d in run.bundles] == ["absent"]


def message(ruling: BundleRuling, node: NodeRecord | None = NODE, *rivals: str) -> str:
    claim = ClaimFacts(Claim(BUNDLE, "b1", 0), node, is_stale=False, rivals=dict.fromkeys(rivals))
    return explain_ruling("t/ns/0x0", (claim, ruling), "0xnew")


@pytest.mark.parametrize(
    ("ruling", "rivals", "expected"),
    [
        (
            BundleRuling(WAIT, OwnershipReason.OLD_SESSION, left_ms=12_000), (),
            "b1 must wait: bundle t/ns/0x0 has a node of its old session 0xold (it has 0xnew now), 12 s left.",
        ),
        (
            BundleRuling(RE_OWN, OwnershipReason.OLD_SESSION, expected_version=4), (),
            "b1 must own it again: bundle t/ns/0x0 has a node of its old session 0xold (it has 0xnew now) and is "
            "replaced at version 4.",
        ),
        (
            BundleRuling(UNLOAD, OwnershipReason.DOUBLE_OWNERSHIP), ("b3", "b2"),
            "b1 must unload it: bundle t/ns/0x0 is claimed by b2, b3 as well; its node names b2, session 0xold.",
        ),
        (
            BundleRuling(WAIT, OwnershipReason.UNREADABLE, retry_ms=200), (),
            "b1 must wait and read it again after 200 ms: bundle t/ns/0x0 has a node whose owner or session cannot be "
            "read: its node names b2, session 0xold.",
        ),
    ],
)  # fmt: skip
def test_the_sentence_about_a_bundle(ruling: BundleRuling, rivals: tuple[str, ...], expected: str) -> None:
    assert message(ruling, NODE, *rivals) == expected


@for_each("reason", OwnershipReason)
def test_there_is_a_sentence_for_every_reason_with_and_without_a_node_and_what_it_says(reason: OwnershipReason) -> None:
    for node in (NODE, NodeRecord(BUNDLE, 1, "n"), None):
        said = message(BundleRuling(UNLOAD, reason), node, "b3")
        assert "bundle t/ns/0x0" in said
        assert "None" not in said
