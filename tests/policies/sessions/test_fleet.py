"""What holds of the whole fleet: losses together, what is unread, and the budget."""

import pytest

from policies.sessions import SessionsSettings
from policies.sessions.fleet import Budget, LossCount, fleet_of
from policies.sessions.state import SESSIONS, Member, SourceRecord, SpentShutdown
from tests.policies.sessions.joined import connected, expired, joined

SETTINGS = SessionsSettings()
VALIDITY_MS = 300_000


@pytest.mark.parametrize(
    ("members", "ratio", "needed"), [(1, 1.0, 2), (3, 0.3, 2), (10, 0.3, 3), (11, 0.3, 4), (100, 0.07, 7), (4, 1.0, 4)]
)
def test_how_many_make_it_a_loss_of_the_fleet(members: int, ratio: float, needed: int) -> None:
    assert LossCount(0, members, ratio).needed == needed
    assert LossCount(needed, members, ratio).is_fleet_wide
    assert not LossCount(needed - 1, members, ratio).is_fleet_wide


def test_losses_closer_than_the_window_are_together() -> None:
    readings = [*expired("b1", seconds=10), *expired("b2", seconds=39.999), *expired("b3", seconds=40)]
    facts = joined(*connected("b1", "b2", "b3"), *readings, until=50)
    role = facts.fleet.roles["broker"]
    together = {name: role.lost_together(facts.members[name].member).lost for name in ("b1", "b2", "b3")}
    assert together == {"b1": 2, "b2": 3, "b3": 2}
    assert role.lost_with_the_fleet() == {"b1", "b2", "b3"}


def test_who_counts_was_read_lately_or_was_last_read_as_lost_and_has_not_closed() -> None:
    readings = [*connected("b1", "b2", "b3", "b4"), *expired("b2", seconds=1), *connected("b3", seconds=400)]
    facts = joined(*readings, until=400)
    assert [m.member for m in facts.fleet.roles["broker"].members] == ["b2", "b3"]


def test_each_role_is_a_fleet_of_its_own() -> None:
    facts = joined(*connected("b1", "b2"), *connected("p1", role="proxy"), *expired("b1", seconds=5), until=5)
    assert {role: len(found.lost) for role, found in facts.fleet.roles.items()} == {"broker": 1, "proxy": 0}
    assert fleet_of((), (), 0, SETTINGS).roles == {}


OK = SourceRecord(SESSIONS, 1000, "good", 1000, "good", "ok")


@pytest.mark.parametrize(
    ("source", "now_ms", "reason", "evidence"),
    [
        (OK, 1000 + VALIDITY_MS, None, ()),
        (OK, 1001 + VALIDITY_MS, "silence", ("good",)),
        (SourceRecord(SESSIONS, 1000, "good", 2000, "bad", "timeout"), 2000, "timeout", ("bad",)),
        (SourceRecord(SESSIONS, 1000, "good", 2000, "bad", "timeout"), 2001 + VALIDITY_MS, "timeout", ()),
        (SourceRecord("/namespace", 1000, "good", 2000, "bad", "error"), 2000 + VALIDITY_MS, "error", ("bad",)),
        (SourceRecord("/namespace", 1000, "good", 2000, "bad", "error"), 2001 + VALIDITY_MS, None, ()),
        (SourceRecord(SESSIONS), 10**9, None, ()),
    ],
    ids=["read", "silent", "failed", "failed long ago", "a tree", "a tree long ago", "never read"],
)
def test_why_zookeeper_cannot_be_read(
    source: SourceRecord, now_ms: int, reason: str | None, evidence: tuple[str, ...]
) -> None:
    found = fleet_of((), (source,), now_ms, SETTINGS).unread
    assert (found and found.reason, found.evidence if found else ()) == (reason, evidence)


def test_a_member_that_could_not_be_read_is_enough_while_that_is_news() -> None:
    members = [Member("b1", tried_ms=2000, tried_id="bad", outcome="timeout"), Member("b2", outcome="ok")]
    found = fleet_of(members, (OK,), 2000, SETTINGS).unread
    assert found is not None
    assert (found.reason, found.evidence) == ("timeout", ("bad",))
    later = fleet_of(members, (), 2001 + VALIDITY_MS, SETTINGS).unread
    assert later is None


def test_the_budget_is_free_again_when_the_window_is_over() -> None:
    budget = Budget(1, 1000, ())
    assert budget.has_left(0)
    spent = budget.spend("b1", 500)
    assert not spent.has_left(1499)
    assert spent.free_ms(1499) == 1500
    assert spent.has_left(1500)
    assert spent.left_over(1500) == ()
    assert spent.left_over(1499) == (SpentShutdown(500, "b1"),)
    assert budget.spent == ()


def test_no_budget_is_never_free() -> None:
    assert not Budget(0, 1000, ()).has_left(0)
    assert Budget(0, 1000, ()).free_ms(0) is None


def test_a_smaller_limit_waits_until_enough_of_the_old_are_over() -> None:
    budget = Budget(1, 1000, (SpentShutdown(0, "b1"), SpentShutdown(400, "b2")))
    assert budget.free_ms(500) == 1400
