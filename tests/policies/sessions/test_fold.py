"""Readings of every kind, each to the read model of its kind."""

import dataclasses
from collections.abc import Iterable

import pytest

from policies.observations import Observation
from policies.sessions import fold
from policies.sessions.decisions import OwnershipReason, OwnershipVerdict, SessionStatus
from policies.sessions.fleet import is_relapsing
from policies.sessions.fold import ClusterState
from policies.sessions.readings import registration_path
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import SESSIONS, Claim, LastPublishedRuling, SessionsState, SourceRecord
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.sessions.course import BUNDLE, absent, at, health, node, owned, recovery, session, tree


def folded(*readings: Observation, until: float = 60) -> ClusterState:
    cluster = ClusterState(SessionsState(), SessionsSettings())
    cluster.fold(readings, to_millis(at(until)))
    return cluster


def test_a_tree_that_was_read_later_goes_before_one_that_comes_later() -> None:
    cluster = folded(owned(1, "b1", "0xa"), tree(9, outcome="timeout"), tree(5))
    record = cluster.nodes.by_path.get(BUNDLE)
    assert record is not None
    assert (record.exists, cluster.sources["/namespace"].outcome) == (False, "timeout")


def test_an_older_reading_of_a_node_and_the_leader_s_node_change_nothing() -> None:
    cluster = folded(owned(5, "b1", "0xa"))
    before = dict(cluster.nodes.by_path)
    for seen in (owned(4, "b2", "0xb"), absent(4), owned(6, "b1", "0xa", "/loadbalance/leader")):
        cluster.fold([seen], to_millis(at(60)))
    assert cluster.nodes.by_path == before


def test_the_registrations_of_known_members_are_expected_in_their_tree() -> None:
    cluster = folded(session(1, "b1", "connected", "0xa"), health(1, "b2"), tree(5, name="/loadbalance/brokers"))
    assert set(cluster.nodes.by_path) == {registration_path("b1"), registration_path("b2")}


@pytest.mark.parametrize(
    ("bound", "readings"),
    [
        ("nodes", [tree(1, node("b1", "0xa")), tree(2, node("b2", "0xb")), owned(3, "b1", "0xa", f"{BUNDLE}0")]),
        ("trees", [tree(1), tree(2, node("b1", "0xa")), tree(3, name="/loadbalance/brokers")]),
        ("members", [health(1, "b1"), session(2, "b1", "connected", "0xa"), health(3, "b2")]),
    ],
)
def test_readings_beyond_a_bound_are_refused_and_those_of_known_things_are_not(
    monkeypatch: pytest.MonkeyPatch, bound: str, readings: list[Observation]
) -> None:
    monkeypatch.setattr(fold, f"MOST_{bound.replace('trees', 'sources').upper()}", 1)
    assert folded(*readings).refused == {readings[2].id: f"more than 1 {bound}"}


@pytest.mark.parametrize(("seconds", "since"), [(300, 0), (300.001, 300.001)])
def test_an_absence_begins_anew_after_a_gap_longer_than_validity(seconds: float, since: float) -> None:
    cluster = folded(absent(0, registration_path("b1")), absent(seconds, registration_path("b1")), until=400)
    assert cluster.nodes.by_path[registration_path("b1")].changed_ms == to_millis(at(since))


def test_a_loss_by_time_lies_between_the_readings_around_it() -> None:
    """What b1 owned at its loss (at 30 s) is claimed by it, though its node went before the batch was folded."""
    lost = [session(0, "b1", "connected", "0xa"), owned(1, "b1", "0xa"), session(5, "b1", "disconnected", "0xa")]
    cluster = folded(*lost, absent(40))
    assert cluster.claims.by_path[BUNDLE]["b1"].since_ms == to_millis(at(30))


COURSE = [
    session(0, "b1", "connected", "0xa"), owned(1, "b1", "0xa"), session(5, "b1", "disconnected", "0xa"),
    health(31, "b1"), absent(40), session(50, "b1", "connected", "0xb"),
]  # fmt: skip


@for_each("split", range(1, 6))
def test_batches_make_no_difference(split: int) -> None:
    whole = folded(*reversed(COURSE))
    parts = folded(*COURSE[:split], until=0)
    parts.fold(COURSE[split:], to_millis(at(60)))
    assert (parts.members, parts.nodes.by_path, parts.claims.by_path) == (
        whole.members, whole.nodes.by_path, whole.claims.by_path,
    )  # fmt: skip


def test_the_order_of_ids_within_an_instant_makes_no_difference() -> None:
    """Collectors name their readings as they like: a member is known before its registration is missed, and so on."""
    instant = [
        session(40, "b3", "connected", "0xc"), tree(40, name="/loadbalance/brokers"),
        owned(40, "b2", "0xb"), recovery(40, "b1", "re-own", path=BUNDLE),
    ]  # fmt: skip
    for sign in (1, -1):
        named = [dataclasses.replace(each, id=f"{sign * n + 10}") for n, each in enumerate(instant)]
        cluster = folded(*CONNECTED, *named)
        assert registration_path("b3") in cluster.nodes.by_path
        assert cluster.claims.by_path[BUNDLE].keys() == {"b1", "b2"}


# --- Who claims what: after a loss, after a member's own word, and where two believe they own a bundle


CONNECTED = tuple(session(0, m, "connected", f"0x{m}") for m in ("b1", "b2"))
OWNED = owned(1, "b1", "0xb1")
LOST = session(10, "b1", "expired", "0xb1")
TOLD_TO_UNLOAD = LastPublishedRuling(OwnershipVerdict.UNLOAD, OwnershipReason.OTHER_OWNER, 1)


def claimants(*readings: Observation, claims: Iterable[Claim] = ()) -> list[str]:
    """Who claims the bundle after these readings."""
    cluster = ClusterState(SessionsState(claims=tuple(claims)), SessionsSettings())
    cluster.fold((*CONNECTED, *readings), to_millis(at(60)))
    return sorted(cluster.claims.by_path.get(BUNDLE, ()))


@for_each(
    ("readings", "expected"),
    [
        ([OWNED], []),
        ([OWNED, LOST], ["b1"]),
        ([OWNED, absent(5), LOST], ["b1"]),
        ([OWNED, owned(5, None, "0xb1"), LOST], ["b1"]),
        ([OWNED, owned(5, "b2", "0xb2"), LOST], ["b1", "b2"]),
        ([OWNED, owned(5, "b2", "0xb2"), session(7, "b1", "connected", "0xb1"), LOST], []),
        ([OWNED, LOST, owned(12, "b2", "0xb2")], ["b1", "b2"]),
        ([OWNED, LOST, tree(12, node("b2", "0xb2"))], ["b1", "b2"]),
        ([OWNED, LOST, owned(12, "b9", "0xb9")], ["b1"]),
        ([OWNED, LOST, session(12, "b1", "closed", "0xb1")], []),
        ([OWNED, owned(5, "b1", "0xb2")], ["b1", "b2"]),
    ],
    ids=[
        "nobody while nothing is lost", "who lost its session what it owned", "what was deleted since its connection",
        "what was its own and cannot be read now", "what another took since its connection, both",
        "not what another took before", "another that takes it later", "another that a tree names",
        "nobody that is not known", "nobody after an orderly end", "whom a node names and whose session it is of",
    ],
)  # fmt: skip
def test_who_claims_a_bundle(readings: list[Observation], expected: list[str]) -> None:
    assert claimants(*readings) == expected


def test_a_member_s_own_word_is_a_claim_where_the_node_names_another() -> None:
    says = recovery(12, "b1", "re-own", path=BUNDLE)
    assert claimants(owned(5, "b2", "0xb2"), says) == ["b1", "b2"]
    assert claimants(OWNED, says) == []
    assert claimants(owned(20, "b2", "0xb2"), says) == []
    assert claimants(owned(5, "b2", "0xb2"), recovery(12, "b1", "re-own", "failed", path=BUNDLE)) == []


def test_what_a_member_has_unloaded_since_the_loss_is_claimed_no_more() -> None:
    """Also before the loop has told it to: an agent that waits in vain goes by the same rules, and reports once."""
    done = recovery(12, "b1", "unload", path=BUNDLE)
    assert claimants(done, claims=[Claim(BUNDLE, "b1", 0, TOLD_TO_UNLOAD)]) == []
    assert claimants(done, claims=[Claim(BUNDLE, "b1", 0)]) == []
    assert claimants(done, claims=[Claim(BUNDLE, "b1", to_millis(at(13)))]) == ["b1"]


def test_a_member_s_own_word_begins_no_claim_again() -> None:
    ruled = Claim(BUNDLE, "b1", 0, TOLD_TO_UNLOAD)
    cluster = ClusterState(SessionsState(claims=(ruled,)), SessionsSettings())
    cluster.fold((*CONNECTED, owned(5, "b2", "0xb2"), recovery(12, "b1", "re-own", path=BUNDLE)), to_millis(at(60)))
    assert cluster.claims.by_path[BUNDLE]["b1"] == ruled


def test_a_new_loss_begins_a_new_claim() -> None:
    cluster = ClusterState(SessionsState(claims=(Claim(BUNDLE, "b1", 0, TOLD_TO_UNLOAD),)), SessionsSettings())
    cluster.fold((*CONNECTED, OWNED, LOST), to_millis(at(60)))
    assert cluster.claims.by_path[BUNDLE]["b1"] == Claim(BUNDLE, "b1", to_millis(at(10)))


def test_a_failure_that_two_collectors_saw_is_one() -> None:
    cluster = ClusterState(SessionsState(), SessionsSettings())
    failures = [tree(second, outcome="timeout") for second in (5, 5, 12)]
    failures[1] = dataclasses.replace(failures[1], id="of another collector")
    for seen, is_in_turn in zip([failures[0], tree(9), *failures[1:]], [False, False, False, True], strict=True):
        cluster.fold([seen], to_millis(at(12)))
        assert is_relapsing(cluster.sources["/namespace"]) is is_in_turn


@for_each(("seconds", "since"), [(300, 0), (300.001, 300.001)])
def test_readings_of_a_source_are_without_a_gap_while_they_are_valid(seconds: float, since: float) -> None:
    cluster = folded(tree(0), tree(seconds), until=400)
    assert cluster.sources["/namespace"].since_ms == to_millis(at(since))


def test_a_reading_that_is_delivered_again_is_not_a_second_one() -> None:
    """Two readings would show that the session was not closed."""
    once = session(10, "b1", "connected", "0xb1")
    cluster = folded(session(0, "b1", "closed", "0xb1"), once)
    cluster.fold([once], to_millis(at(60)))
    track = cluster.members["b1"].track
    assert track is not None
    assert track.status is SessionStatus.CLOSED


@for_each(("name", "is_unread"), [(SESSIONS, True), ("/namespace", False)])
def test_a_failure_of_the_sessions_counts_until_they_are_read_and_that_of_a_tree_for_its_validity(
    name: str, is_unread: bool
) -> None:
    source = SourceRecord(name, failed_ms=1000)
    assert source.was_unread(since_ms=10**6, lost_ms=10**6 + 10**5, validity_ms=300_000) is is_unread


@pytest.mark.parametrize(("recovered_ms", "is_unread"), [(999, True), (1000, False), (1001, False)])
def test_a_source_that_was_read_in_the_instant_of_its_failure_has_recovered(recovered_ms: int, is_unread: bool) -> None:
    source = SourceRecord("/namespace", failed_ms=1000, recovered_ms=recovered_ms)
    assert source.was_unread(since_ms=1000, lost_ms=2000, validity_ms=300_000) is is_unread
