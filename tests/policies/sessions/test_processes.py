"""Deadlines, attempts and budgets belong to a process: one that appears new begins new."""

from collections.abc import Callable

import pytest

from tests.examples import combined
from tests.policies.sessions.course import BUNDLE, Run, health, recovery, session, unregistered
from tests.policies.sessions.world import World

FLEET = ("b1", "b2", "b3", "b4")


def test_a_new_process_does_not_inherit_the_deadline_of_the_one_before() -> None:
    """It is gone at about 75 s; a new one answers from 300 s on, and still has no session."""
    world = World(*FLEET, zombie_after="10h").until(60).lose("b1")
    world.brokers["b1"].well = "unreachable"
    assert world.until(80).last("b1") == "gone unreachable"
    world.until(299).brokers["b1"].well = "ok"
    world.until(590)
    assert world.went_down() == []
    assert world.last("b1") == "reconnect session_lost"
    ((second, _, what),) = world.until(640).went_down()
    assert (what, second >= 600) == ("shutdown reconnect_exhausted", True)
    explained = next(d.explanation for d in world.run.sessions if d.verdict == "shutdown")
    assert "has not reconnected in 5 min: shut it down" in explained


def test_a_new_process_that_has_no_session_yet_is_not_shut_down_for_the_loss_of_the_one_before() -> None:
    world = World(*FLEET, zombie_after="10h", on_session_lost="shutdown").until(60)
    world.brokers["b1"].well = "unreachable"
    world.until(75).lose("b1").until(120).brokers["b1"].well = "ok"
    assert world.until(132).went_down() == []
    assert world.last("b1") == "hold confirming"
    assert world.back("b1").until(200).went_down() == []


def test_attempts_are_those_of_the_present_process() -> None:
    run = Run(reconnect_limit=3).together(*[session(0, m, "connected", f"0x{m}") for m in FLEET])
    run.see(session(10, "b1", "expired", "0xb1"))
    run.see(*[recovery(11 + n, "b1", "reconnect", "failed", attempt=n + 1) for n in range(2)])
    run.see(health(20, "b1", "unreachable"), health(30, "b1", healthy=False))
    run.see(recovery(31, "b1", "reconnect", "failed", attempt=1))
    assert run.told("b1")[-1][1] == "reconnect session_lost"
    assert run.known.members[0].attempts == 1


def zombie_again(run: Run, begins: float, ends: float) -> None:
    """A broker of which only the health and the registration are read; it answers healthy, and is not registered."""
    for second in range(int(begins), int(ends), 10):
        run.together(health(second, "b1"), unregistered(second, "b1"))


@pytest.mark.parametrize("refused_s", [(60, 285, 15), (60, 70, 10), (60, 240, 60), (100, 101, 1)])
@pytest.mark.parametrize("pause_s", [1, 15, 100])
def test_a_new_process_has_the_whole_time_to_register_from_its_first_answer(
    refused_s: tuple[int, int, int], pause_s: int
) -> None:
    run = Run(zombie_after="5m").together(health(50, "b1"), unregistered(50, "b1"))
    for second in range(*refused_s):
        run.together(health(second, "b1", "unreachable"), unregistered(second, "b1"))
    first_s = max(range(*refused_s)) + pause_s
    for second in range(first_s, first_s + 400, 10):
        run.together(health(second, "b1"), unregistered(second, "b1"))
    ((restarted_s, _),) = [told for told in run.told("b1") if told[1] == "restart zombie"]
    assert restarted_s == first_s + 300
    assert run.sessions[-1].explanation.endswith("but has not been registered for 5 min: restart it.")


def test_a_zombie_s_alert_ends_with_its_process() -> None:
    run = Run(zombie_after="1m")
    zombie_again(run, 0, 100)
    run.see(health(100, "b1", "unreachable"), health(105, "b1", "unreachable"))
    zombie_again(run, 110, 150)
    assert ("zombie-member", "b1") not in run.firing()
    assert ("not-registered", "b1") in run.firing()
    assert "08:01:50 UTC" in next(a.summary for a in reversed(run.alerts) if a.alert == "not-registered")
    zombie_again(run, 150, 200)
    fires = [second for second, _, status in run.said("zombie-member") if status == "firing"]
    assert [second for second in fires if second > 105] == [170]


def test_a_second_zombie_under_the_same_name_has_its_own_budget() -> None:
    run = Run(zombie_after="1m", shutdown_window="2m")
    zombie_again(run, 0, 100)
    assert [what for _, what in run.told("b1")] == ["restart zombie"]
    run.see(health(100, "b1", "unreachable"), health(110, "b1", "timeout"))
    zombie_again(run, 120, 400)
    restarts = [second for second, what in run.told("b1") if what == "restart zombie"]
    assert restarts == [60, 180]
    assert [s.member for s in run.known.spent if s.back_ms < 0] == ["b1"]
    run.see(health(400, "b1", "timeout"))
    zombie_again(run, 410, 500)
    assert len([d for d in run.sessions if d.verdict == "restart"]) == 3


def test_a_restart_that_is_in_force_is_not_ordered_again_and_spends_the_budget_once() -> None:
    run = Run(zombie_after="1m", shutdown_window="2m")
    zombie_again(run, 0, 900)
    assert [what for _, what in run.told("b1")] == ["restart zombie"]
    assert len(run.known.spent) == 1


OTHER = "/namespace/t/ns/0x40000000_0x80000000"


@pytest.mark.parametrize(
    ("shown", "answers_s", "registers_s", "taken_s"),
    combined(["disconnected", "connected"], [115, 135, 150, 200], [140, 155, 205], [150, 210], one_of=3),
)
def test_a_pod_that_is_back_under_its_name_within_t_claims_nothing(
    shown: str, answers_s: int, registers_s: int, taken_s: int
) -> None:
    """It is killed at 95 s; until T/2 later a collector may show its session as connected; it expires at 130 s."""
    world = World("b0", "b1", "b2").own("b0", BUNDLE, OTHER).until(94)
    broker = world.brokers["b0"]
    broker.well = "unreachable"
    moments: dict[int, Callable[[], object]] = {
        95: lambda: world.cut(*(["b0"] if shown == "disconnected" else [])),
        110: lambda: world.cut("b0"),
        130: lambda: world.lose("b0"),
        answers_s: lambda: setattr(broker, "well", "ok"),
        max(registers_s, answers_s + 5): lambda: world.back("b0"),
        taken_s: lambda: world.own("b1", BUNDLE, OTHER),
    }
    for second in sorted(moments):
        world.until(second - 0.5)
        moments[second]()
    world.until(600)
    assert world.run.bundles == []
    assert not any(a.alert == "double-ownership" for a in world.run.alerts)


def test_a_process_whose_session_lives_on_claims_what_it_owns_though_its_endpoint_refused() -> None:
    world = World("b0", "b1", "b2").own("b0", BUNDLE).until(20)
    world.brokers["b0"].well = "unreachable"
    world.until(60).brokers["b0"].well = "ok"
    world.until(100).lose("b0").until(110).back("b0").until(125)
    assert [what for _, what in world.run.ruled("b0")] == ["re-own absent"]


def test_a_second_process_claims_what_it_owned_itself() -> None:
    world = World("b0", "b1", "b2").own("b0", BUNDLE).until(94)
    world.brokers["b0"].well = "unreachable"
    world.cut("b0").until(120).lose("b0").brokers["b0"].well = "ok"
    world.until(140).back("b0").until(150).own("b0", OTHER).until(300).lose("b0").until(320).back("b0").until(335)
    assert {d.path for d in world.run.bundles} == {OTHER}
