"""Only what differs from what is in force is published, numbered in a fixed order."""

from policies.units import from_millis
from tests.policies.sessions.course import BUNDLE, Run, absent, at, owned, session
from tests.policies.sessions.joined import connected, expired, joined, published

OTHER = "/namespace/t/ns/0x40000000_0x80000000"


def test_bundles_are_numbered_before_members_and_members_by_their_losses() -> None:
    facts = joined(
        *connected("b1", "b2", "b3"), owned(1, "b2", "0xb2"), owned(1, "b1", "0xb1", OTHER),
        *expired("b2", seconds=10), *expired("b1", seconds=11),
        session(20, "b1", "connected", "0xn1"), session(20, "b2", "connected", "0xn2"), until=20,
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
    assert [d.reason for d in run.bundles] == ["unread", "absent"]
