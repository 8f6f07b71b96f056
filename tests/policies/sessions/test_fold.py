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
from tests.policies.sessions.joined import connected


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


CONNECTED = tuple(connected("b1", "b2"))
OWNED = owned(1, "b1", "0xb1")
LOST = session(10, "b1", "expired", "0xb1")
TOLD_TO_UNLOAD = LastPublishedRuling(OwnershipVerdict.UNLOAD, OwnershipReason.OTHER_OWNER, 1)


OTHERS = owned(5, "b2", "0xb2")
SAYS = recovery(12, "b1", "re-own", path=BUNDLE)
UNLOADED = recovery(12, "b1", "unload", path=BUNDLE)


def refused(*seconds: float) -> list[Observation]:
    return [health(second, "b1", "unreachable") for second in seconds]


def claim(seconds: float, last: LastPublishedRuling | None = None) -> tuple[Claim, ...]:
    return (Claim(BUNDLE, "b1", to_millis(at(seconds)), last),)


@for_each(
    ("readings", "before", "claimants"),
    [
        pytest.param([OWNED], (), [], id="nobody while nothing is lost"),
        pytest.param([OWNED, LOST], (), ["b1"], id="who lost its session what it owned"),
        pytest.param([OWNED, absent(5), LOST], (), ["b1"], id="what was deleted since its connection"),
        pytest.param([OWNED, owned(5, None, "0xb1"), LOST], (), ["b1"], id="what was its own and cannot be read now"),
        pytest.param([OWNED, owned(5, None, "0xb1"), absent(7), LOST], (), ["b1"], id="and then was deleted"),
        pytest.param([OWNED, OTHERS, LOST], (), ["b1", "b2"], id="what another took since its connection, both"),
        pytest.param([OWNED, OTHERS, *connected("b1", seconds=7), LOST], (), [], id="not what another took before"),
        pytest.param([OWNED, LOST, owned(12, "b2", "0xb2")], (), ["b1", "b2"], id="another that takes it later"),
        pytest.param([OWNED, LOST, tree(12, node("b2", "0xb2"))], (), ["b1", "b2"], id="another that a tree names"),
        pytest.param([OWNED, LOST, owned(12, "b9", "0xb9")], (), ["b1"], id="nobody that is not known"),
        pytest.param([OWNED, LOST, session(12, "b1", "closed", "0xb1")], (), [], id="nobody after an orderly end"),
        pytest.param([OWNED, owned(5, "b1", "0xb2")], (), ["b1", "b2"], id="whom a node names and whose it is"),
        pytest.param([OWNED, *refused(5, 9), LOST], (), [], id="nobody whose process is gone"),
        pytest.param([OWNED, LOST, *refused(12, 14)], (), [], id="nor one whose process goes later"),
        pytest.param([OTHERS, SAYS], (), ["b1", "b2"], id="who says so where the node names another"),
        pytest.param([OWNED, SAYS], (), [], id="not who says what the node shows"),
        pytest.param([owned(20, "b2", "0xb2"), SAYS], (), [], id="not who said so before the node was read"),
        pytest.param(
            [OTHERS, recovery(12, "b1", "re-own", "failed", path=BUNDLE)], (), [], id="not who says that it failed"
        ),
        pytest.param([UNLOADED], claim(0, TOLD_TO_UNLOAD), [], id="not what it was told to unload, and has"),
        pytest.param([UNLOADED], claim(0), [], id="nor what it has unloaded by itself, by the same rules"),
        pytest.param([UNLOADED], claim(13), ["b1"], id="but not before it claimed it"),
    ],
)  # fmt: skip
def test_who_claims_a_bundle(readings: list[Observation], before: tuple[Claim, ...], claimants: list[str]) -> None:
    assert sorted(claims_after(readings, before)) == claimants


def claims_after(readings: Iterable[Observation], before: tuple[Claim, ...]) -> dict[str, Claim]:
    cluster = ClusterState(SessionsState(claims=before), SessionsSettings())
    cluster.fold((*CONNECTED, *readings), to_millis(at(60)))
    return cluster.claims.by_path.get(BUNDLE, {})


def test_a_new_loss_begins_a_new_claim_and_a_member_s_own_word_does_not() -> None:
    ruled = claim(0, TOLD_TO_UNLOAD)
    assert claims_after([OTHERS, SAYS], ruled)["b1"] == ruled[0]
    assert claims_after([OWNED, LOST], ruled)["b1"] == claim(10)[0]


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
    assert source.was_unread(since_ms=999, lost_ms=2000, validity_ms=300_000), "it failed after the last connection"
