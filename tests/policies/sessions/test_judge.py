"""Verdicts on facts: what passes from one member to the next, and what a member's bundles mean for it."""

from typing import Any

import pytest

from policies.observations import Observation
from policies.sessions.facts import Facts
from policies.sessions.judge import MemberVerdict, judge
from tests.cases import for_each
from tests.policies.sessions.course import BUNDLE, health, owned, recovery, session, unread, unregistered
from tests.policies.sessions.joined import connected, expired, joined

SHUTDOWN: dict[str, Any] = {"on_session_lost": "shutdown", "fleet_ratio": 1.0, "shutdown_delay": "5s"}
FLEET = ("b1", "b2", "b3", "b4")
Verdicts = tuple[MemberVerdict, ...]


def orders(verdicts: Verdicts) -> dict[str, str]:
    """By member, in the order in which they were judged."""
    return {v.member.name: f"{v.order.verdict} {v.order.reason}" for v in verdicts if v.order is not None}


def lost_one_after_the_other(**more: Any) -> Facts:
    losses = [*expired("b3", seconds=1), *expired("b1", seconds=2), *expired("b2", seconds=2)]
    losses += expired("b1", "b2", "b3", seconds=18)
    return joined(*connected(*FLEET), *losses, until=20, **{**SHUTDOWN, **more})


def test_who_lost_first_takes_from_the_budget_first_and_then_by_name() -> None:
    verdicts, left = judge(lost_one_after_the_other(shutdown_budget=2))
    assert list(orders(verdicts).items()) == [
        ("b3", "shutdown session_lost"), ("b1", "shutdown session_lost"), ("b2", "reconnect shutdown_budget"),
    ]  # fmt: skip
    assert [v.shutdowns_spent for v in verdicts] == [1, 2, 2, 2]
    assert [s.member for s in left.spent] == ["b3", "b1"]


def test_restarts_and_shutdowns_share_the_budget_and_nobody_goes_down_while_zookeeper_cannot_be_read() -> None:
    zombie = [unregistered(1, "b1"), health(2, "b1"), health(65, "b1"), unregistered(66, "b1")]
    lost = [*expired("b2", seconds=50), *expired("b2", seconds=65)]
    block = {**SHUTDOWN, "zombie_after": "1m"}
    facts = joined(*connected(*FLEET), *zombie, *lost, until=70, **block)
    assert orders(judge(facts)[0]) == {"b2": "shutdown session_lost", "b1": "hold shutdown_budget"}
    facts = joined(*connected(*FLEET), *zombie, *lost, unread(69), until=70, **block)
    assert orders(judge(facts)[0]) == {"b2": "reconnect fleet_wide"}


def test_a_member_whose_session_was_not_read_for_its_validity_is_judged_no_more() -> None:
    lost = [*connected(*FLEET), owned(1, "b2", "0xb2"), *expired("b2", seconds=10)]
    verdicts, _ = judge(joined(*lost, owned(305, "b1", "0xb1"), until=310.001, **SHUTDOWN))
    assert orders(verdicts) == {}
    assert [v.rulings for v in verdicts if v.member.name == "b2"] == [()]


def back(*readings: Observation, until: float = 30, **more: Any) -> Verdicts:
    lost = [*connected("b1", "b2"), owned(1, "b1", "0xb1"), *expired("b1", seconds=10)]
    return judge(joined(*lost, session(20, "b1", "connected", "0xnew"), *readings, until=until, **more))[0]


@pytest.mark.parametrize(("until", "expected"), [(49.9, {}), (50, {(BUNDLE, "b1"): "wait unread"})])
def test_a_claim_of_a_member_that_is_back_waits_when_its_reading_is_late(
    until: float, expected: dict[Any, str]
) -> None:
    verdicts = back(until=until)
    ruled = {claim.claim.key: f"{ruling.verdict} {ruling.reason}" for v in verdicts for claim, ruling in v.rulings}
    assert ruled == expected
    assert orders(verdicts) == {"b1": "recover session_reestablished"}


@pytest.mark.parametrize("second", [19, 25], ids=["before its session was read", "after"])
def test_a_node_of_the_present_session_counts_whenever_it_was_read(second: float) -> None:
    by_member = {v.member.name: v.rulings for v in back(owned(second, "b1", "0xnew"))}
    assert [f"{r.verdict} {r.reason}" for _, r in by_member["b1"]] == ["keep own_session"]


def test_of_a_member_without_a_session_only_what_others_own_is_ruled_on() -> None:
    lost = [*connected("b1", "b2"), owned(1, "b1", "0xb1"), *expired("b1", seconds=10)]
    for node in (owned(12, "b1", "0xb1"), owned(12, "b1", None, ephemeral=False)):
        assert [v.rulings for v in judge(joined(*lost, node, until=12))[0]] == [(), ()]
    taken, _ = judge(joined(*lost, owned(12, "b2", "0xb2"), until=12))
    assert {v.member.name: [r.verdict.value for _, r in v.rulings] for v in taken} == {
        "b1": ["unload"], "b2": ["keep"],
    }  # fmt: skip


@for_each(("losses", "expected"), [(3, "gone unreachable"), (4, "hold unsettled")])
def test_a_process_that_dies_and_starts_again_and_again_is_not_given_up_each_time(losses: int, expected: str) -> None:
    readings = connected("b1", "b2")
    for number in range(losses):
        readings += [*expired("b1", seconds=10 + 4 * number), *connected("b1", seconds=12 + 4 * number)]
    dead = [health(50, "b1", "unreachable"), health(51, "b1", "unreachable")]
    facts = joined(*readings[:-1], *dead, until=52)
    assert orders(judge(facts)[0])["b1"] == expected


@for_each(("read_s", "reason"), [((10, 11.9), "reconnect_exhausted"), ((10,), "confirming")])
def test_a_member_that_failed_often_is_given_up_on_two_readings_of_its_loss(
    read_s: tuple[float, ...], reason: str
) -> None:
    read = [reading for seconds in read_s for reading in expired("b1", seconds=seconds)]
    reported = [recovery(seconds, "b1", "reconnect", "failed", attempt=10) for seconds in (11, 12)]
    verdicts, _ = judge(joined(*connected(*FLEET), *read, *reported, until=13, shutdown_delay="0s"))
    (order,) = [v.order for v in verdicts if v.order is not None]
    assert (order.reason, order.evidence) == (reason, (read[-1].id,))
