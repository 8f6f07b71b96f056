"""Readings of every kind, each to the read model of its kind."""

import dataclasses
from collections.abc import Iterable

import pytest

from policies.observations import Observation
from policies.sessions.decisions import OwnershipReason, OwnershipVerdict, SessionEvent, SessionStatus
from policies.sessions.fleet import is_relapsing
from policies.sessions.fold import ClusterState, OwnershipNodes, fold_source
from policies.sessions.readings import Ownership, Ownerships, ZkSession, registration_path
from policies.sessions.session_machine import fold_session, pass_member_time
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import (
    SESSIONS,
    Claim,
    LastPublishedRuling,
    Member,
    NodeRecord,
    SessionsState,
    SourceRecord,
)
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.sessions.course import BUNDLE, absent, at, health, node, owned, recovery, session, tree, unread

SETTINGS = SessionsSettings()


def folded(*readings: Observation, until: float = 60) -> ClusterState:
    cluster = ClusterState(SessionsState(0), SessionsSettings())
    cluster.fold(readings, to_millis(at(until)))
    return cluster


def test_that_one_member_cannot_be_read_says_nothing_of_the_sessions() -> None:
    cluster = folded(session(5, "b1", "connected", "0xa"), unread(9, "b1"))
    assert (cluster.sources[SESSIONS].outcome, cluster.members["b1"].outcome) == ("ok", "timeout")
    assert folded(session(5, "b1", "connected", "0xa"), unread(9)).sources[SESSIONS].outcome == "timeout"


def test_a_tree_that_was_read_later_goes_before_one_that_comes_later() -> None:
    cluster = folded(owned(1, "b1", "0xa"), tree(9, outcome="timeout"), tree(5))
    record = cluster.nodes.by_path.get(BUNDLE)
    assert record is not None
    assert (record.exists, cluster.sources["/namespace"].outcome) == (False, "timeout")


def test_the_registrations_of_known_members_are_expected_in_their_tree() -> None:
    cluster = folded(session(1, "b1", "connected", "0xa"), health(1, "b2"), tree(5, name="/loadbalance/brokers"))
    assert set(cluster.nodes.by_path) == {registration_path("b1"), registration_path("b2")}


def test_reports_of_an_unknown_member_say_nothing() -> None:
    assert folded(recovery(5, "b1", "reconnect", "failed")).members == {}


def test_a_loss_by_time_lies_between_the_readings_around_it() -> None:
    """What b1 owned at its loss (at 30 s) is claimed by it, though its node went before the batch was folded."""
    lost = [session(0, "b1", "connected", "0xa"), owned(1, "b1", "0xa"), session(5, "b1", "disconnected", "0xa")]
    cluster = folded(*lost, absent(40))
    assert cluster.claims.by_path[BUNDLE]["b1"].since_ms == to_millis(at(30))


@pytest.mark.parametrize("split", range(1, 6))
def test_batches_make_no_difference(split: int) -> None:
    readings = [
        session(0, "b1", "connected", "0xa"), owned(1, "b1", "0xa"), session(5, "b1", "disconnected", "0xa"),
        health(31, "b1"), absent(40), session(50, "b1", "connected", "0xb"),
    ]  # fmt: skip
    whole = folded(*reversed(readings))
    parts = folded(*readings[:split], until=0)
    parts.fold(readings[split:], to_millis(at(60)))
    assert (parts.members, parts.nodes.by_path, parts.claims.by_path) == (
        whole.members, whole.nodes.by_path, whole.claims.by_path,
    )  # fmt: skip


# --- Who claims what: after a loss, after a member's own word, and where two believe they own a bundle


CONNECTED = tuple(session(0, m, "connected", f"0x{m}") for m in ("b1", "b2"))
OWNED = owned(1, "b1", "0xb1")
LOST = session(10, "b1", "expired", "0xb1")
TOLD_TO_UNLOAD = LastPublishedRuling(OwnershipVerdict.UNLOAD, OwnershipReason.OTHER_OWNER, 1)


def claimants(*readings: Observation, claims: Iterable[Claim] = ()) -> list[str]:
    """Who claims the bundle after these readings."""
    cluster = ClusterState(SessionsState(0, claims=tuple(claims)), SessionsSettings())
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
        "nobody while nothing is lost",
        "who lost its session what it owned",
        "what was deleted since it was last connected",
        "what was its own and cannot be read now",
        "what another took since it was last connected, both",
        "not what another took before it was last connected",
        "another that takes it later, as well",
        "another that a tree names, as well",
        "nobody that is not known",
        "nobody after an orderly end",
        "whom a node names and whose session it is of",
    ],
)
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
    cluster = ClusterState(SessionsState(0, claims=(ruled,)), SessionsSettings())
    cluster.fold((*CONNECTED, owned(5, "b2", "0xb2"), recovery(12, "b1", "re-own", path=BUNDLE)), to_millis(at(60)))
    assert cluster.claims.by_path[BUNDLE]["b1"] == ruled


def test_a_new_loss_begins_a_new_claim() -> None:
    cluster = ClusterState(SessionsState(0, claims=(Claim(BUNDLE, "b1", 0, TOLD_TO_UNLOAD),)), SessionsSettings())
    cluster.fold((*CONNECTED, OWNED, LOST), to_millis(at(60)))
    assert cluster.claims.by_path[BUNDLE]["b1"] == Claim(BUNDLE, "b1", to_millis(at(10)))


# --- The last good reading of each node, and who owned it before


OTHER = "/namespace/t/ns/0x40000000_0x80000000"


def folded_nodes(*readings: Observation, expected: tuple[str, ...] = ()) -> OwnershipNodes:
    nodes = OwnershipNodes((), SessionsSettings())
    for seen in readings:
        if isinstance(seen.reading, Ownerships):
            nodes.fold_tree(seen, seen.reading, expected)
        else:
            assert isinstance(seen.reading, Ownership)
            nodes.fold(seen, seen.reading)
    return nodes


def last(*readings: Observation) -> NodeRecord:
    record = folded_nodes(*readings).by_path.get(BUNDLE)
    assert record is not None
    return record


def test_the_last_reading_counts_and_a_failed_one_tells_nothing() -> None:
    first = last(owned(5, "b1", "0xa"))
    assert last(owned(5, "b1", "0xa"), owned(4, "b2", "0xb")) == first
    assert last(owned(5, "b1", "0xa"), owned(9, "b2", "0xb", outcome="timeout")) == first


def test_the_owner_before_the_present_one_is_remembered() -> None:
    assert last(owned(5, "b1", "0xa"), owned(9, "b2", "0xb")).prior == "b1"
    assert last(owned(5, "b1", "0xa"), absent(9)).prior == "b1"
    assert last(owned(5, "b1", "0xa"), absent(9), owned(12, "b2", "0xb")).prior == "b1"
    assert last(owned(5, "b1", "0xa"), absent(9), owned(12, "b1", "0xb")).prior is None
    assert last(owned(5, "b1", "0xa"), owned(9, None, "0xa")).prior == "b1"


def test_a_change_is_another_owner_or_an_absence_and_not_another_reading() -> None:
    assert last(owned(5, "b1", "0xa"), owned(9, "b1", "0xb")).changed_ms == to_millis(at(5))
    assert last(owned(5, "b1", "0xa"), owned(9, None, "0xa")).changed_ms == to_millis(at(5))
    assert last(owned(5, "b1", "0xa"), owned(9, "b2", "0xa")).changed_ms == to_millis(at(9))
    assert last(owned(5, "b1", "0xa"), absent(9), absent(12)).changed_ms == to_millis(at(9))


def test_readings_that_could_not_tell_its_value_are_counted_until_one_can() -> None:
    unreadable = [owned(n, None, "0xa") for n in (5, 6, 7)]
    assert last(*unreadable).unreadable_times == 3
    assert last(*unreadable, owned(9, "b1", "0xa")).unreadable_times == 0


def test_what_a_tree_does_not_list_is_absent() -> None:
    nodes = folded_nodes(owned(5, "b1", "0xa"), owned(5, "b2", "0xb", OTHER), tree(9, node("b2", "0xb", OTHER)))
    assert {path: record.exists for path, record in nodes.by_path.items()} == {BUNDLE: False, OTHER: True}


def test_a_registration_that_is_expected_and_not_listed_is_absent_from_then_on() -> None:
    path = registration_path("b1")
    record = folded_nodes(tree(9, name="/loadbalance/brokers"), expected=(path,)).by_path.get(path)
    assert record is not None
    assert (record.exists, record.changed_ms) == (False, to_millis(at(9)))
    assert folded_nodes(tree(9), expected=(path,)).by_path.get(path) is None


def test_the_leader_s_node_is_nobody_s_to_own() -> None:
    assert folded_nodes(owned(5, "b1", "0xa", "/loadbalance/leader")).by_path == {}


def test_a_member_s_bundles_are_those_it_owns_or_was_the_last_to_own() -> None:
    nodes = folded_nodes(owned(5, "b1", "0xa"), owned(9, "b2", "0xb"), owned(9, "b1", "0xa", registration_path("b1")))
    assert [record.path for record in nodes.find_bundles("b1")] == [BUNDLE]
    assert [record.path for record in nodes.find_bundles("b2")] == [BUNDLE]
    assert nodes.find_bundles("b3") == []
    assert [record.path for record in nodes.bundles] == [BUNDLE]


# --- What attempts to read a source make of what is remembered of it


def test_a_failed_attempt_leaves_the_last_good_reading() -> None:
    good = fold_source(SourceRecord("/namespace"), tree(5), SETTINGS, good=True)
    failed = fold_source(good, tree(9, outcome="timeout"), SETTINGS, good=False)
    assert (failed.read_ms, failed.tried_ms, failed.outcome) == (to_millis(at(5)), to_millis(at(9)), "timeout")
    assert failed.read_id == good.read_id == good.tried_id


def test_an_older_attempt_and_the_same_again_are_no_news() -> None:
    source = fold_source(SourceRecord("/namespace"), tree(5), SETTINGS, good=True)
    assert fold_source(source, tree(4), SETTINGS, good=True) is source
    assert fold_source(source, tree(5), SETTINGS, good=True) is source


def test_a_failure_that_two_collectors_saw_is_one() -> None:
    cluster = ClusterState(SessionsState(0), SessionsSettings())
    failures = [tree(second, outcome="timeout") for second in (5, 5, 12)]
    failures[1] = dataclasses.replace(failures[1], id="of another collector")
    for seen, is_in_turn in zip([failures[0], tree(9), *failures[1:]], [False, False, False, True], strict=True):
        cluster.fold([seen], to_millis(at(12)))
        assert is_relapsing(cluster.sources["/namespace"]) is is_in_turn


@pytest.mark.parametrize(("recovered_ms", "is_unread"), [(999, True), (1000, False), (1001, False)])
def test_a_source_that_was_read_in_the_instant_of_its_failure_has_recovered(recovered_ms: int, is_unread: bool) -> None:
    source = SourceRecord("/namespace", failed_ms=1000, recovered_ms=recovered_ms)
    assert source.was_unread(since_ms=1000, lost_ms=2000, validity_ms=300_000) is is_unread


def test_it_is_remembered_since_when_it_has_been_read_without_a_gap() -> None:
    read = [tree(0), tree(300), tree(601)]
    source, since = SourceRecord("/namespace"), []
    for seen in read:
        source = fold_source(source, seen, SETTINGS, good=True)
        since.append(source.since_ms)
    assert since == [to_millis(at(0)), to_millis(at(0)), to_millis(at(601))]


# --- What readings of a session make of what is remembered of its member


def tracked(*readings: Observation, member: Member | None = None) -> Member:
    member = member or Member("b1")
    for seen in readings:
        assert isinstance(seen.reading, ZkSession)
        member, _ = fold_session(member, seen, seen.reading, SETTINGS)
    return member


def test_the_last_attempt_counts_and_an_older_one_changes_nothing() -> None:
    member = tracked(session(10, "b1", "connected", "0xa"))
    assert tracked(session(5, "b1", "expired", "0xa"), member=member) == member
    assert tracked(session(10, "b1", "connected", "0xa"), member=member) == member


def test_a_reading_that_failed_only_tells_that_somebody_tried() -> None:
    before = tracked(session(0, "b1", "connected", "0xa"))
    member = tracked(unread(10, "b1", "timeout"), member=before)
    assert (member.outcome, member.tried_id) == ("timeout", "session-b1-None-None@10")
    assert (member.track, member.read_id, member.role) == (before.track, before.read_id, before.role)


def test_a_reading_of_a_session_of_the_past_is_no_evidence() -> None:
    before = tracked(session(0, "b1", "connected", "0xa"), session(5, "b1", "connected", "0xb"))
    member = tracked(session(10, "b1", "expired", "0xa"), member=before)
    assert (member.read_id, member.track) == (before.read_id, before.track)


@pytest.mark.parametrize(
    ("state", "id_", "recovering"),
    [("expired", "0xa", False), ("closed", "0xa", False), ("connected", "0xb", True)],
    ids=["lost", "closed", "established again"],
)
def test_what_was_remembered_of_the_way_back_ends_with_the_session(state: str, id_: str, recovering: bool) -> None:
    before = Member("b1", attempts=3, fleet_wide=True, recovering=True, awaited_ms=7)
    member = tracked(session(0, "b1", "connected", "0xa"), session(5, "b1", state, id_), member=before)
    assert (member.attempts, member.fleet_wide, member.awaited_ms) == (0, False, None)
    assert member.recovering is recovering


def test_a_connection_that_comes_back_in_time_leaves_the_way_back_alone() -> None:
    connected = tracked(session(0, "b1", "connected", "0xa"), member=Member("b1", recovering=True, awaited_ms=7))
    member = tracked(session(5, "b1", "disconnected", "0xa"), session(9, "b1", "connected", "0xa"), member=connected)
    assert (member.recovering, member.awaited_ms) == (True, 7)
    assert member.events == (SessionEvent.CONNECTION_LOST, SessionEvent.RECONNECTED)


def test_the_last_eight_events_are_kept() -> None:
    states = [session(n, "b1", "disconnected" if n % 2 else "connected", "0xa") for n in range(20)]
    assert tracked(*states).events == (SessionEvent.RECONNECTED, SessionEvent.CONNECTION_LOST) * 4


def test_time_alone_loses_a_disconnected_session() -> None:
    member = tracked(session(0, "b1", "connected", "0xa"), session(5, "b1", "disconnected", "0xa"))
    assert member.track is not None
    assert member.track.lapse_ms is not None
    assert pass_member_time(member, member.track.lapse_ms - 1, SETTINGS) == (member, ())
    lost, events = pass_member_time(member, member.track.lapse_ms, SETTINGS)
    assert lost.track is not None
    assert (lost.track.status, events) == (SessionStatus.SESSION_LOST, (SessionEvent.SESSION_LOST,))
