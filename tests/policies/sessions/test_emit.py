"""Only a decision that differs from the one in force is published; what is remembered, and what is forgotten."""

import pytest

from policies.observations import Observation
from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.facts import ClaimFacts
from policies.sessions.fold import FORGET_MS, find_forgotten
from policies.sessions.readings import registration_path
from policies.sessions.rulings import BundleRuling, explain_ruling
from policies.sessions.state import Claim, Health, Member, NodeRecord, SourceRecord
from tests.cases import for_each
from tests.policies.sessions.course import BUNDLE, absent, health, owned, registered, session, tree, unregistered
from tests.policies.sessions.joined import after, connected, expired, joined, published
from tests.policies.sessions.test_policy import start

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


def message(ruling: BundleRuling, node: NodeRecord | None = NODE, *rivals: str) -> str:
    claim = ClaimFacts(Claim(BUNDLE, "b1", 0), node, rivals=dict.fromkeys(rivals))
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


LOST = [*connected("b1", "b2"), owned(1, "b1", "0xb1"), *expired("b1", seconds=10)]


def test_a_dead_process_claims_nothing_and_a_lost_one_what_it_owned() -> None:
    dead = joined(*connected("b1", "b2"), owned(1, "b1", "0xb1"), health(5, "b1", "unreachable"),
                  health(9, "b1", "unreachable"), *expired("b1", seconds=10), until=11)  # fmt: skip
    assert after(dead).members["b1"].claims == ()
    assert len(after(joined(*LOST, until=11)).members["b1"].claims) == 1


@pytest.mark.parametrize("bundles", [(), (owned(1, "b1", "0xb1"), owned(12, "b2", "0xb2"))], ids=["none", "all taken"])
def test_a_recovery_of_nothing_ends_at_once_and_load_data_is_asked_for(bundles: tuple[Observation, ...]) -> None:
    run = start("b1", "b2").see(*bundles[:1], *expired("b1", seconds=10), *bundles[1:])
    run.see(registered(15, "b1", "0xb1"), session(20, "b1", "connected", "0xnew")).until(60)
    assert [(second // 1, what) for second, what in run.told("b1")[1:]] == [
        (20, "recover session_reestablished"), (20, "resume recovered"), (50, "republish-load-data load_data_missing"),
    ]  # fmt: skip


def test_a_claim_is_over_when_its_member_has_recovered_and_nobody_else_claims_it() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), *expired("b1", seconds=10))
    run.see(session(20, "b1", "connected", "0xnew"), owned(25, "b1", "0xnew"))
    assert run.known.claims == ()


@for_each(
    ("unseen_ms", "who", "forgotten"),
    [
        (300_000, "b2", False), (300_001, "b2", True), (300_001, "b1", False), (FORGET_MS + 1, "b1", True),
        (300_001, "told to go down", False), (FORGET_MS + 1, "told to go down", True),
        (FORGET_MS + 1, "not read for as long", False),
    ],
)  # fmt: skip
def test_who_is_listed_no_more_is_forgotten_and_later_when_without_a_session(
    unseen_ms: int, who: str, forgotten: bool
) -> None:
    found = joined(*LOST, until=10).members["b1" if who == "b1" else "b2"].member
    member = Member(found.member, track=found.track, seen_ms=1000)
    read_ms = 1000 + unseen_ms
    sessions = SourceRecord("", read_ms, since_ms=read_ms if who == "not read for as long" else 1000)
    down = {member.member} if who == "told to go down" else set()
    assert bool(find_forgotten([member], sessions, 300_000, down)) is forgotten


@pytest.mark.parametrize(("asked_ms", "forgotten"), [(FORGET_MS, set()), (FORGET_MS + 1, {"z"})])
def test_a_member_of_which_only_its_health_was_read_is_forgotten_when_others_are_asked_and_it_is_not(
    asked_ms: int, forgotten: set[str]
) -> None:
    other = Health(1000 + asked_ms + 10_000, "", "ok", healthy=True, listed=True, before_ms=1000 + asked_ms)
    members = [Member("b1", health=other, seen_ms=other.at_ms), Member("z", seen_ms=1000)]
    assert find_forgotten(members, SourceRecord(""), 300_000) == forgotten


def test_a_node_that_is_claimed_is_remembered_as_long() -> None:
    late = [session(3600 + n, "b1", "expired", "0xb1") for n in (1, 12)]
    assert BUNDLE in after(joined(*LOST, absent(11), *late, until=3612, reconnect_deadline="2h")).nodes
    for last_s, is_kept in ((3610.999, True), (3611, False)):
        free = joined(*connected("b1"), owned(1, "b1", "0xb1"), absent(11), absent(last_s), until=3612)
        assert (BUNDLE in after(free).nodes) is is_kept


def test_the_absence_of_a_member_s_registration_is_remembered_as_long_as_the_member() -> None:
    """Or a zombie's alert would end after an hour."""
    looks = [reading for n in range(0, 3700, 100) for reading in (unregistered(n, "b1"), health(n + 1, "b1"))]
    found = after(joined(*connected("b1"), *looks, until=3700))
    assert found.members["b1"].liveness.unregistered is not None
    assert registration_path("b1") in found.nodes


def test_a_source_that_nobody_has_tried_for_an_hour_is_forgotten() -> None:
    found = joined(*connected("b1"), tree(1), until=5)
    assert set(after(found).sources) == {"", "/namespace"}
    assert set(after(joined(*connected("b1"), tree(1), *connected("b1", seconds=3602), until=3602)).sources) == {""}
