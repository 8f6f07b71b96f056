"""What holds of the whole fleet: losses together, what is unread, and the budget."""

from typing import Any

import pytest

from policies.observations import Observation
from policies.sessions import SessionsSettings
from policies.sessions.fleet import Budget, Certainty, ReadingPair, RoleFacts, find_unread
from policies.sessions.state import SESSIONS, Member, SourceRecord, SpentShutdown
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.sessions.course import at, health, owned, registered, session, tree, unread, unregistered
from tests.policies.sessions.joined import connected, expired, joined

SETTINGS = SessionsSettings()
VALIDITY_MS = 300_000


@for_each(
    ("members", "ratio", "needed"), [(1, 1.0, 2), (3, 0.3, 2), (10, 0.3, 3), (11, 0.3, 4), (100, 0.07, 7), (4, 1.0, 4)]
)
def test_how_many_make_it_a_loss_of_the_fleet(members: int, ratio: float, needed: int) -> None:
    assert RoleFacts((Member("b1"),) * members, ratio).fewest_fleet_wide == needed


NAMES = tuple(f"b{n}" for n in range(10))


def role(*readings: Observation, until: float = 200) -> RoleFacts:
    return joined(*connected(*NAMES), *readings, until=until).roles["broker"]


def test_whoever_is_without_a_session_counts_since_whenever_and_who_has_recovered_does_not() -> None:
    lost = [*expired("b1", seconds=10), *expired("b2", seconds=90), *expired("b3", seconds=170)]
    assert role(*lost).losses == 3
    assert role(*lost).is_lost_together
    assert role(*lost, session(180, "b1", "connected", "0xnew")).losses == 2


@pytest.mark.parametrize(
    ("closed", "lost", "may"), [(0, 2, True), (4, 1, True), (4, 2, False), (7, 1, False), (9, 1, False)]
)
def test_nobody_may_be_shut_down_when_most_are_down(closed: int, lost: int, may: bool) -> None:
    ended = [session(10, name, "closed", f"0x{name}") for name in NAMES[:closed]]
    assert role(*ended, *expired(*NAMES[closed : closed + lost], seconds=20)).may_lose_another is may


OK = SourceRecord(SESSIONS, 1000, "good", 1000, "good", "ok")


@for_each(
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
    found = find_unread((), (source,), now_ms, SETTINGS)
    assert (found and found.reason, found.evidence if found else ()) == (reason, evidence)


def test_a_member_that_could_not_be_read_is_enough_while_that_is_news() -> None:
    members = [Member("b1", tried_ms=2000, tried_id="bad", outcome="timeout"), Member("b2", outcome="ok")]
    found = find_unread(members, (OK,), 2000, SETTINGS)
    assert found is not None
    assert (found.reason, found.evidence) == ("timeout", ("bad",))
    assert find_unread(members, (), 2000 + VALIDITY_MS, SETTINGS) == found
    assert find_unread(members, (), 2001 + VALIDITY_MS, SETTINGS) is None


@pytest.mark.parametrize(("second", "is_unread"), [(5, True), (12, False)])
def test_a_part_of_a_tree_that_is_read_after_the_whole_failed_ends_that(second: float, is_unread: bool) -> None:
    readings = (tree(second, name="/namespace/t"), tree(9, outcome="timeout"))
    assert (joined(*readings, until=13).unread is not None) is is_unread
    assert joined(unread(9), tree(second), until=13).unread is not None, "a tree is no part of the sessions"


def test_the_budget_is_free_again_when_the_window_is_over() -> None:
    budget = Budget(1, 1000, ())
    assert budget.has_left(0)
    spent = budget.spend("b1", 500)
    back = spent.give_back(["b1"], 600)
    assert not back.has_left(1499)
    assert back.free_ms(1499) == 1500
    assert back.has_left(1500)
    assert back.left_over(1500) == ()
    assert back.left_over(1499) == (SpentShutdown(500, "b1", 600),)
    assert budget.spent == ()
    assert spent.spend("b2", 550).give_back(["b1"], 600).down() == {"b2"}


def test_the_budget_is_not_free_while_one_is_down_by_our_word() -> None:
    spent = Budget(1, 1000, ()).spend("b1", 500)
    assert spent.down() == {"b1"}
    assert not spent.has_left(10**9)
    assert spent.free_ms(10**9) is None, "time alone does not bring it back"
    assert spent.left_over(10**9) == (SpentShutdown(500, "b1"),)
    assert spent.give_back(["b2"], 700) is spent


def test_a_smaller_limit_waits_until_enough_of_the_old_are_over() -> None:
    budget = Budget(1, 1000, (SpentShutdown(0, "b1", 1), SpentShutdown(400, "b2", 401)))
    assert budget.free_ms(500) == 1400


# --- Dead, alive without a registration, not ready: what the readings of a member's health and registration say

B1 = connected("b1")
REFUSED = "unreachable"
LOST = expired("b1", seconds=9)


def b1(*readings: Observation, until: float, **settings: Any) -> Any:
    return joined(*B1, *readings, until=until, **settings).members["b1"]


@for_each(
    ("readings", "until", "dead"),
    [
        ([health(7, "b1", REFUSED), health(8, "b1", REFUSED), *expired("b1", seconds=9)], 10, True),
        ([health(8, "b1", REFUSED), *expired("b1", seconds=9)], 10, False),
        ([health(6, "b1", REFUSED), health(7, "b1"), health(8, "b1", REFUSED), *expired("b1", seconds=9)], 10, False),
        ([health(7, "b1", REFUSED), health(8, "b1", "timeout"), *expired("b1", seconds=9)], 10, False),
        ([health(7, "b1", "timeout"), health(8, "b1", "timeout"), *expired("b1", seconds=9)], 10, False),
        ([health(7, "b1", "error"), health(8, "b1", "error"), *expired("b1", seconds=9)], 10, False),
        ([health(7, "b1", REFUSED), health(8, "b1", REFUSED)], 10, False),
        ([health(7, "b1", REFUSED), health(8, "b1", REFUSED), session(1, "b1", "disconnected", "0xb1")], 40, False),
        ([health(3, "b1", REFUSED), *connected("b1", seconds=5), health(8, "b1", REFUSED), *LOST], 10, False),
        ([health(7, "b1", REFUSED), health(8, "b1", REFUSED), *expired("b1", seconds=9)], 309, False),
        ([health(7, "b1", REFUSED), health(8, "b1", REFUSED), session(8.5, "b1", "closed", "0xb1"), *LOST], 10, False),
    ],
    ids=[
        "refused twice", "refused once", "answered in between", "slow at last", "slow", "an answer", "a session",
        "lost by time", "connected since", "long ago", "closed before",
    ],
)  # fmt: skip
def test_dead_is_who_is_expired_and_has_refused_twice_since(
    readings: list[Observation], until: float, dead: bool
) -> None:
    assert b1(*readings, until=until).liveness.is_dead is dead


@for_each(
    ("readings", "since"),
    [
        ([unregistered(10, "b1"), health(12, "b1")], 10),
        ([*expired("b1", seconds=9), unregistered(10, "b1"), health(12, "b1")], 10),
        ([*LOST, unregistered(10, "b1"), session(15, "b1", "connected", "0xnew"), health(16, "b1")], 15),
        ([unregistered(10, "b1"), health(11, "b1", "unreachable"), health(12, "b1")], 12),
        ([unregistered(10, "b1"), health(11, "b1", "timeout"), health(12, "b1")], 11),
        ([unregistered(10, "b1"), health(12, "b1", healthy=False)], None),
        ([unregistered(10, "b1"), health(9, "b1")], None),
        ([registered(10, "b1", "0xb1"), health(12, "b1")], None),
        ([health(12, "b1")], None),
        ([unregistered(10, "b1"), health(12, "b1"), session(13, "b1", "closed", "0xb1")], None),
    ],
    ids=[
        "unregistered", "without a session", "a session since", "down in between", "slow in between", "ill",
        "not asked since", "registered", "never read", "closed",
    ],
)  # fmt: skip
def test_a_zombie_is_who_is_healthy_and_unregistered_for_long_enough(
    readings: list[Observation], since: float | None
) -> None:
    absence = b1(*readings, until=20).liveness.unregistered
    expected = None if since is None else (to_millis(at(since)), to_millis(at(since)) + 300_000)
    assert (absence and (absence.gone_ms, absence.due_ms)) == expected
    assert b1(*readings, until=400).liveness.unregistered is None, "readings past their validity"


@for_each(
    ("readings", "until", "certainty"),
    [
        ([unregistered(10, "b1"), health(12, "b1")], 14, Certainty.ONCE),
        ([unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1")], 16, Certainty.ONCE),
        ([unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1"), health(17, "b1")], 18, Certainty.SURE),
        ([unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1"), health(17, "b1")], 24.9, Certainty.SURE),
        ([unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1"), health(17, "b1")], 25, Certainty.STALE),
        ([health(9, "b1"), unregistered(10, "b1"), health(12, "b1"), unregistered(15, "b1")], 16, Certainty.ONCE),
    ],
    ids=["one of each", "health once", "two of each", "just fresh", "too old", "healthy before it was gone"],
)
def test_it_is_certain_by_two_fresh_readings_of_each_after_it_was_gone(
    readings: list[Observation], until: float, certainty: Certainty
) -> None:
    absence = b1(*readings, until=until).liveness.unregistered
    assert absence is not None
    assert absence.certainty is certainty


@pytest.mark.parametrize(
    ("listed", "asked_at", "until", "since"),
    [(False, 22, 30, 22), (True, 22, 30, None), (None, 22, 30, None), (False, 19, 30, None), (False, 22, 330, None)],
    ids=["not listed", "listed", "not known", "asked before", "asked long ago"],
)
def test_not_ready_may_be_who_is_back_and_registered_and_not_listed(
    listed: bool | None, asked_at: float, until: float, since: float | None
) -> None:
    readings = [*expired("b1", seconds=10), session(20, "b1", "connected", "0xnew"), registered(21, "b1", "0xnew")]
    absence = b1(*readings, health(asked_at, "b1", listed=listed), until=until).liveness.unlisted
    assert (absence and absence.gone_ms) == (None if since is None else to_millis(at(since)))
    gone = b1(*readings, unregistered(22, "b1"), health(asked_at, "b1", listed=listed), until=until)
    assert gone.liveness.unlisted is None


@for_each(("until", "is_dead"), [(302, True), (302.001, False)])
def test_a_member_that_no_session_protects_is_dead_for_the_validity_of_its_last_refusal(
    until: float, is_dead: bool
) -> None:
    lasting = owned(0, "b1", None, "/loadbalance/brokers/b1", ephemeral=False)
    facts = joined(lasting, health(1, "b1", REFUSED), health(2, "b1", REFUSED), until=until)
    assert facts.members["b1"].liveness.is_dead is is_dead


@pytest.mark.parametrize(("apart_ms", "certainty"), [(120_000, Certainty.SURE), (120_001, Certainty.ONCE)])
def test_readings_further_apart_than_two_minutes_are_not_in_a_row(apart_ms: int, certainty: Certainty) -> None:
    pair = ReadingPair(1000 + apart_ms, 1000, event_ms=0, timeout_ms=30_000)
    assert pair.judge_certainty(1000 + apart_ms) is certainty
