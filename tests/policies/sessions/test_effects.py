"""What follows from verdicts for what is remembered, and what is forgotten."""

import pytest

from policies.sessions.effects import FORGET_MS, is_forgotten, is_long_absent
from policies.sessions.state import Member, NodeRecord
from tests.policies.sessions.course import BUNDLE, absent, health, owned, recovery, session, unregistered
from tests.policies.sessions.joined import after, connected, expired, joined
from tests.policies.sessions.test_policy import start

LOST = [*connected("b1", "b2"), owned(1, "b1", "0xb1"), *expired("b1", seconds=10)]


def test_who_is_gone_leaves_its_claims_free_for_others() -> None:
    dead = joined(*connected("b1", "b2"), owned(1, "b1", "0xb1"), health(9, "b1", "unreachable"),
                  *expired("b1", seconds=10), until=11)  # fmt: skip
    assert len(dead.members["b1"].claims) == 1
    assert after(dead).members["b1"].claims == ()
    assert len(after(joined(*LOST, until=11)).members["b1"].claims) == 1


def test_a_recovery_without_bundles_is_over_at_once() -> None:
    back = session(20, "b1", "connected", "0xnew")
    assert after(joined(*LOST, back, until=20)).members["b1"].member.recovering
    nothing = joined(*connected("b1", "b2"), *expired("b1", seconds=10), back, until=20)
    assert not after(nothing).members["b1"].member.recovering


def test_load_data_is_awaited_of_who_owns_any_of_its_bundles_again() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), *expired("b1", seconds=10))
    run.see(session(20, "b1", "connected", "0xnew"), owned(25, "b1", "0xnew"))
    assert run.state is not None
    assert run.state.members[0].awaited_ms is not None
    run.see(recovery(27, "b1", "republish-load-data"))
    assert run.state.members[0].awaited_ms is None


def test_a_claim_is_over_when_its_member_has_recovered_and_nobody_else_claims_it() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), *expired("b1", seconds=10))
    run.see(session(20, "b1", "connected", "0xnew"))
    assert run.state is not None
    assert [c.key for c in run.state.claims] == [(BUNDLE, "b1")]
    run.see(owned(25, "b1", "0xnew"))
    assert run.state.claims == ()


@pytest.mark.parametrize(
    ("unseen_ms", "fleet_wide", "forgotten"),
    [(300_000, False, False), (300_001, False, True), (300_001, True, False), (FORGET_MS + 1, True, True)],
)
def test_who_is_listed_no_more_is_forgotten_and_later_when_lost_with_the_fleet(
    unseen_ms: int, fleet_wide: bool, forgotten: bool
) -> None:
    lost = joined(*LOST, until=10).members["b1"].member
    member = Member("b1", track=lost.track, fleet_wide=fleet_wide, seen_ms=1000)
    assert is_forgotten(member, 1000 + unseen_ms, 300_000) is forgotten


def test_a_node_is_forgotten_an_hour_after_it_went() -> None:
    node = NodeRecord(BUNDLE, 5, "n", exists=False, changed_ms=1000)
    assert not is_long_absent(node, 1000 + FORGET_MS - 1)
    assert is_long_absent(node, 1000 + FORGET_MS)
    assert not is_long_absent(NodeRecord(BUNDLE, 5, "n", changed_ms=1000), 10**12)


def test_a_node_that_is_claimed_is_remembered_as_long() -> None:
    late = [session(3600 + n, "b1", "expired", "0xb1") for n in (1, 12)]
    assert BUNDLE in after(joined(*LOST, absent(11), *late, until=3612, reconnect_deadline="2h")).nodes
    free = joined(*connected("b1"), owned(1, "b1", "0xb1"), absent(11), until=3612)
    assert BUNDLE not in after(free).nodes


def test_a_registration_that_is_forgotten_makes_no_zombie() -> None:
    long_ago = [*connected("b1"), unregistered(1, "b1"), unregistered(3600, "b1"), health(3600, "b1")]
    found = joined(*long_ago, until=3601)
    assert found.members["b1"].liveness.zombie_ms is not None
    remembered = after(found).members["b1"]
    assert (remembered.liveness.zombie_ms, remembered.registration) == (None, None)
