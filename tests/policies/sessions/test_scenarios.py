"""What befalls whole fleets, watched by collectors that lag, fall silent, fail or start anew."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.examples import combined
from tests.policies.sessions.course import BUNDLE, CLUSTER, Run, session, tree, unread
from tests.policies.sessions.world import World

TEN = tuple(f"b{n}" for n in range(10))
SECOND = "/namespace/t/ns/0x40000000_0x80000000"
THIRD = "/namespace/t/ns/0x80000000_0xffffffff"


NO_ZOMBIES = "10h"
"""Who has lost its session is not registered either: here it is not about that."""


def fleet(size: int = 10, **settings: Any) -> World:
    return World(*TEN[:size], on_session_lost="shutdown", zombie_after=NO_ZOMBIES, **settings).until(20)


def test_who_comes_back_while_its_shutdown_waits_is_not_shut_down() -> None:
    world = fleet().lose("b1").until(28).back("b1").until(100)
    assert world.went_down() == []
    assert [what for _, what in world.run.told("b1")] == [
        "hold confirming", "recover session_reestablished", "resume recovered",
    ]  # fmt: skip


def test_a_shutdown_that_is_due_on_an_old_reading_holds_and_says_so() -> None:
    world = fleet().lose("b1").until(26)
    world.silent = {"session"}
    world.until(100)
    assert world.last("b1") == "hold stale_reading"
    world.silent = set()
    assert world.until(120).last("b1") == "shutdown session_lost"


def test_who_is_to_be_restarted_is_not_also_said_to_be_left_alone() -> None:
    world = World("b1", "b2", "b3").until(20).lose("b1").until(700)
    assert world.last("b1") == "restart zombie"
    assert not world.fires("reconnect-exhausted", "b1")


def test_a_fleet_that_is_lost_together_is_one_alert_however_long_it_lasts() -> None:
    world = fleet().lose("b1", "b2", "b3").until(500)
    assert world.went_down() == []
    assert not any(world.fires("reconnect-exhausted", name) for name in ("b1", "b2", "b3"))
    assert world.fires("session-fleet-wide", "broker")


@pytest.mark.parametrize("lag_s", [10, 78, 150])
def test_a_list_of_brokers_that_lags_shuts_nobody_down(lag_s: float) -> None:
    world = World("b1", "b2", "b3").until(20).lose("b1").until(40).back("b1")
    world.brokers["b1"].listed = False
    world.until(40 + lag_s)
    world.brokers["b1"].listed = True
    assert world.until(900).went_down() == []


@pytest.mark.parametrize("pace_s", [0.0, 7.0, 60.0])
def test_however_far_apart_ten_lose_theirs_at_most_the_budget_is_down_before_it_is_a_loss_of_the_fleet(
    pace_s: float,
) -> None:
    world = fleet()
    for n, name in enumerate(TEN):
        world.until(20 + n * pace_s).lose(name)
    world.until(20 + 10 * pace_s + 400)
    assert len(world.went_down()) <= 1
    assert all(second <= 20 + 2 * pace_s + 40 for second, _, _ in world.went_down())
    assert world.fires("session-fleet-wide", "broker")


def state_of_a_cut_session(second: float, cut_s: float, heartbeat_s: float, timeout_s: float, shown: str) -> str:
    """What a collector sees of a cut-off client: a `reset` at once, `silent` after T/2, or its expiry `only`."""
    cut_off_s = {"reset": cut_s, "silent": heartbeat_s + timeout_s / 2, "only": math.inf}[shown]
    cut_off = "disconnected" if second >= cut_off_s else "connected"
    return "expired" if second >= heartbeat_s + timeout_s else cut_off


@pytest.mark.parametrize(
    ("timeouts_s", "shown", "gaps_s"),
    combined(
        [(6, 30), (6, 120), (30, 40), (30, 30), (60, 6)],
        ["reset", "silent", "only"],
        [(5,), (15,), (1, 20), (38,), (2, 2, 2, 50)],
        one_of=5,
    ),
)
def test_a_fleet_that_is_cut_off_at_once_loses_nobody_whatever_its_timeouts_and_intervals(
    timeouts_s: tuple[int, int], shown: str, gaps_s: tuple[int, ...]
) -> None:
    """Two of five had their last heartbeat T/3 before the cut, so they expire first; the others are read less often."""
    run = Run(on_session_lost="shutdown", fleet_ratio=0.5, zombie_after=NO_ZOMBIES, shutdown_budget=5)
    cut_s, first_s = 101, timeouts_s[0]
    others_read_s = set(itertools.takewhile(lambda s: s < 290, itertools.accumulate(itertools.cycle(gaps_s))))
    for second in range(0, 290, 2):
        members = range(5) if {second, second + 1} & others_read_s else range(2)
        timeouts = [timeouts_s[n >= 2] for n in members]
        heartbeats = [cut_s - first_s / 3 if n < 2 else cut_s for n in members]
        run.together(*[
            session(second, f"b{n}", state_of_a_cut_session(second, cut_s, beat_s, timeout_s, shown), f"0x{n}",
                    timeout_ms=timeout_s * 1000)
            for n, beat_s, timeout_s in zip(members, heartbeats, timeouts, strict=True)
        ])  # fmt: skip
    assert [d.explanation for d in run.sessions if d.verdict == "shutdown"] == []


@pytest.mark.parametrize(
    ("timeouts_s", "every_s"), combined([(6, 30), (30, 6), (30, 30), (6, 120)], [1, 5, 15], one_of=3)
)
def test_who_alone_has_lost_its_session_is_shut_down_once_others_would_have_lost_theirs(
    timeouts_s: tuple[int, int], every_s: int
) -> None:
    own_s, others_s = timeouts_s
    run = Run(on_session_lost="shutdown", zombie_after=NO_ZOMBIES)
    for second in range(0, 280, every_s):
        state = "connected" if second < 60 else "expired"
        others = [session(second, f"b{n}", "connected", f"0x{n}", timeout_ms=others_s * 1000) for n in range(1, 10)]
        run.together(session(second, "b0", state, "0x0", timeout_ms=own_s * 1000), *others)
    ((down_s, _),) = [told for told in run.told("b0") if told[1] == "shutdown session_lost"]
    spread_s = max(own_s, others_s) - 2 * own_s / 3
    assert max(5, spread_s + min(every_s, own_s)) <= down_s - 60 <= max(5, spread_s) + 2 * every_s


def test_a_shutdown_waits_until_the_others_are_read_again_and_says_so() -> None:
    run = Run(on_session_lost="shutdown", zombie_after=NO_ZOMBIES)
    run.together(*[session(0, f"b{n}", "connected", f"0x{n}") for n in range(4)])
    run.feed([session(10 + s, "b0", "expired", "0x0") for s in range(0, 190, 5)])
    assert run.told("b0") == [(10, "hold confirming")]
    run.together(*[session(200, f"b{n}", "expired" if n == 0 else "connected", f"0x{n}") for n in (0, 1, 2)])
    assert run.told("b0")[1:] == []
    run.see(session(202, "b3", "connected", "0x3"))
    assert run.told("b0")[1:] == [(202, "shutdown session_lost")]


def test_the_connections_of_others_count_towards_the_outage() -> None:
    world = fleet(shutdown_delay="0s").cut("b1", "b2").until(22).lose("b3").until(32)
    assert world.went_down() == []
    assert world.last("b3") == "reconnect fleet_wide"


def test_who_is_left_when_most_have_ended_theirs_in_order_is_not_shut_down() -> None:
    world = fleet(size=4)
    for name in ("b1", "b2"):
        world.brokers[name].state, world.brokers[name].registered = "closed", False
    world.until(60).lose("b3")
    assert world.until(300).went_down() == []
    assert "cut off, and 2 more have ended theirs, where" in sentence(world, "b3")


def test_who_was_told_to_go_down_counts_until_it_is_back_however_long_that_takes() -> None:
    world = fleet().lose("b1").until(100)
    world.lose("b2").until(1200)
    assert [name for _, name, _ in world.went_down()] == ["b1"]
    assert world.last("b2") == "reconnect shutdown_budget"
    world.back("b1").until(1300)
    assert [name for _, name, _ in world.went_down()] == ["b1", "b2"]


def test_a_zombie_s_restart_that_waits_for_the_budget_is_withdrawn_when_it_registers() -> None:
    world = World(*TEN, timeout_s=6).until(20)
    for name in ("b1", "b2"):
        world.brokers[name].registered = False
    world.until(400)
    assert world.last("b1") == "restart zombie"
    assert world.last("b2") == "hold shutdown_budget"
    world.brokers["b2"].registered = True
    assert world.until(420).last("b2") == "resume withdrawn"
    assert [name for _, name, _ in world.until(2000).went_down()] == ["b1"]


@pytest.mark.parametrize(("well", "healthy", "last"), [("ok", False, "resume withdrawn"), ("timeout", None, None)])
def test_a_zombie_s_restart_that_waits_is_withdrawn_when_the_zombie_is_unwell(
    well: str, healthy: bool | None, last: str | None
) -> None:
    world = World(*TEN, timeout_s=6).until(20)
    for name in ("b1", "b2"):
        world.brokers[name].registered = False
    assert world.until(400).last("b2") == "hold shutdown_budget"
    world.brokers["b2"].well, world.brokers["b2"].healthy = well, healthy
    assert world.until(420).last("b2") == (last or "hold shutdown_budget")


def test_a_restart_that_waits_is_withdrawn_when_the_process_was_down_and_has_its_time_again() -> None:
    world = World(*TEN, timeout_s=6, shutdown_budget=0).until(20)
    world.brokers["b1"].registered = False
    assert world.until(400).last("b1") == "hold shutdown_budget"
    world.brokers["b1"].well = "unreachable"
    world.until(411).brokers["b1"].well = "ok"
    assert world.until(425).last("b1") == "resume withdrawn"
    assert "is not registered, but has time to register until 08:10:00 UTC: " in world.run.sessions[-1].explanation
    assert world.until(600).last("b1") == "hold shutdown_budget"


def test_a_restarted_zombie_whose_process_does_not_come_back_is_gone_and_its_bundles_are_orphans() -> None:
    world = World(*TEN[:3]).own("b1", BUNDLE).until(20).lose("b1")
    assert world.until(220).last("b1") == "restart zombie"
    world.brokers["b1"].well = "unreachable"
    assert world.until(240).last("b1") == "gone unreachable"
    assert world.until(310).fires("orphan-bundle", "t/ns/0x00000000_0x40000000")


def test_who_was_restarted_and_has_a_session_has_its_time_to_register() -> None:
    world = World("b1", "b2").until(20)
    world.brokers["b1"].registered = False
    assert world.until(240).last("b1") == "restart zombie"
    before = len(world.lose("b1").until(250).run.told("b1"))
    world.back("b1", registered=False).until(270)
    assert "shutdown_budget" not in " ".join(what for _, what in world.run.told("b1")[before:])
    world.brokers["b1"].registered = True
    world.until(300)
    assert [what for _, what in world.run.told("b1")[before:]] == ["recover session_reestablished", "resume recovered"]
    assert world.run.told("b1")[before][0] < 260, "the session shows the restart before the registration does"


@pytest.mark.parametrize("what", ["shutdown session_lost", "restart zombie"])
def test_what_was_decided_in_shadow_mode_and_still_is_the_case_is_said_when_it_may_be_carried_out(what: str) -> None:
    zombie_after = NO_ZOMBIES if what.startswith("shutdown") else "3m"
    block: dict[str, Any] = {"on_session_lost": "shutdown", "zombie_after": zombie_after}
    world = World(*TEN, mode="shadow", **block).until(20)
    if what.startswith("shutdown"):
        world.lose("b1")
    else:
        world.brokers["b1"].registered = False
    world.until(250)
    assert world.last("b1") == what
    world.run.reload(**block)
    world.until(260)
    assert [(d.mode.value, f"{d.verdict} {d.reason}") for d in world.run.sessions][-2:] == [
        ("shadow", what), ("active", what),
    ]  # fmt: skip
    world.until(1000)
    assert len(world.went_down()) == 2


def sentence(world: World, name: str) -> str:
    return next(d.explanation for d in reversed(world.run.sessions) if d.member == name)


@pytest.mark.parametrize("cause", ["the fleet's loss", "an unread tree"])
def test_a_loss_of_an_outage_is_not_said_to_be_shared_by_others_who_have_a_session(cause: str) -> None:
    world = fleet(6, reconnect_deadline="1h")
    lost = ("b1",) if cause == "an unread tree" else ("b1", "b2", "b3")
    world.failing = {"brokers"} if cause == "an unread tree" else set()
    world.until(25).lose(*lost).until(60).back(*lost[1:]).failing = set()
    world.until(400)
    assert world.last("b1") == "reconnect fleet_wide"
    why = "while others lost theirs or ZooKeeper was not read; 1 of 6 is without a session or cut off"
    assert why in sentence(world, "b1")


def test_a_budget_of_none_is_said_to_be_that() -> None:
    world = fleet(4, shutdown_budget=0).lose("b1").until(60)
    assert world.last("b1") == "reconnect shutdown_budget"
    assert sentence(world, "b1").endswith("as soon as the shutdown budget allows it (`shutdown_budget` is 0).")


def test_a_wait_that_no_reading_ends_is_not_said_to_end_in_the_past() -> None:
    world = fleet(4, validity="20m")
    for second in range(20, 80, 12):
        world.until(second).lose("b1").until(second + 6).back("b1")
    world.until(85).silent = {"session"}
    world.until(1300)
    assert world.last("b1") == "hold unsettled"
    assert sentence(world, "b1").endswith("until a reading shows that its session has been stable for 3 min.")


def test_nobody_is_restarted_while_the_fleet_is_without_sessions() -> None:
    world = World(*TEN).until(20).lose(*TEN).until(1000)
    assert world.went_down() == []
    assert world.fires("zombie-member", "b1")
    world.back(*TEN[1:]).until(1400)
    assert [name for _, name, _ in world.went_down()] == ["b0"]


@pytest.mark.parametrize("silent", [{"health"}, {"brokers"}, {"session"}, {"health", "brokers", "session"}])
def test_a_zombie_s_alert_does_not_end_because_readings_do(silent: set[str]) -> None:
    world = World("b1", "b2").until(20)
    world.brokers["b1"].registered = False
    world.until(240).silent = silent
    world.until(1200)
    assert world.fires("zombie-member", "b1")
    assert world.fires("not-registered", "b1")
    said = [a.summary for a in world.run.alerts if a.alert == "zombie-member"]
    assert said[-1].startswith("unknown") == bool(silent & {"health", "brokers"})


@pytest.mark.parametrize("well", ["timeout", "error", "unauthorized"])
def test_a_zombie_s_alert_does_not_end_because_it_is_slow_to_answer(well: str) -> None:
    world = World("b1", "b2").until(20)
    world.brokers["b1"].registered = False
    world.until(240).brokers["b1"].well = well
    world.until(300)
    assert world.fires("zombie-member", "b1")
    world.brokers["b1"].well = "ok"
    world.until(330)
    assert world.fires("zombie-member", "b1")


def test_a_zombie_that_was_there_before_headgate_is_found() -> None:
    world = World("b1", "b2")
    world.brokers["b1"].registered, world.brokers["b1"].state = False, "expired"
    world.brokers["b1"].listed = False
    ((second, name, what),) = world.until(260).went_down()
    assert (name, what) == ("b1", "restart zombie")
    assert 180 <= second <= 220


def test_a_zombie_of_which_nothing_but_its_health_is_read_is_found() -> None:
    world = World("b1", "b2")
    world.brokers["b1"].registered = False
    world.without_session.add("b1")
    assert [(name, what) for _, name, what in world.until(260).went_down()] == [("b1", "restart zombie")]


def test_a_process_that_times_out_is_not_dead_and_each_bundle_it_held_gets_its_verdict_at_thaw() -> None:
    world = World("b1", "b2", "b3").own("b1", BUNDLE, SECOND, THIRD).until(20)
    world.brokers["b1"].well = "timeout"
    world.cut("b1").until(45).lose("b1").until(60)
    assert world.last("b1") == "reconnect session_lost"
    world.own("b2", SECOND).until(70)
    world.brokers["b1"].well = "ok"
    world.back("b1").until(76)
    assert world.run.ruled("b1", BUNDLE)[-1][1] == "re-own absent"
    assert world.run.ruled("b1", SECOND)[-1][1] == "unload double_ownership"
    world.own("b1", THIRD).until(82)
    assert world.run.ruled("b1", THIRD)[-1][1] == "keep own_session"
    assert world.run.ruled("b2", SECOND)[-1][1] == "keep own_session"


@pytest.mark.parametrize("away_s", [60, 299, 600, 7200])
def test_membership_and_claims_outlive_a_restart_of_headgate(away_s: float) -> None:
    world = World("b1", "b2", "b3", reconnect_deadline="3h", zombie_after=NO_ZOMBIES).own("b1", BUNDLE)
    world.until(20).lose("b1").until(30)
    world.run.wake_at = None  # nobody wakes it
    world.restart_collectors(30 + away_s).until(60 + away_s)
    assert world.went_down() == []
    assert [m.member for m in world.run.known.members] == ["b1", "b2", "b3"]
    world.back("b1").until(80 + away_s)
    assert world.run.ruled("b1")[-1][1] == "re-own absent"


def test_the_first_readings_after_a_restart_forget_nobody() -> None:
    """One member is read first, and all the others have not been for longer than a reading counts."""
    world = World("b1", "b2", "b3").until(20)
    world.run.wake_at = None
    world.restart_collectors(2000)
    world.brokers = dict(reversed(world.brokers.items()))
    for seen in world._look("session", 2000.0):
        world.run.step((seen,), seen.at)
    assert len(world.run.known.members) == 3


def test_the_last_member_of_a_cluster_is_forgotten_while_its_sessions_are_read() -> None:
    world = World("b1", zombie_after=NO_ZOMBIES).until(20).lose("b1").until(40)
    world.without_session, world.silent = {"b1"}, {"health"}
    world.until(4000)
    assert world.run.firing() == set()
    assert world.run.said("zookeeper-unread") == []


@pytest.mark.parametrize("state", ["disconnected", "expired"])
def test_what_was_the_case_before_a_gap_shuts_nobody_down_at_once_after_it(state: str) -> None:
    """However often it was read before: the first reading after it is one."""
    world = fleet().until(20)
    world.brokers["b1"].state = state
    world.until(34)
    world.run.wake_at = None
    world.restart_collectors(3000).until(3004)
    assert world.went_down() == []
    assert [name for _, name, _ in world.until(3060).went_down()] == ["b1"]


@pytest.mark.parametrize("state", ["disconnected", "expired"])
def test_a_session_lost_in_a_gap_is_fleet_wide_and_its_member_has_the_whole_deadline(state: str) -> None:
    """Nobody knows what others lost meanwhile: silence counts as unread, as it does while it lasts."""
    world = fleet().until(21)
    world.brokers["b1"].state = state
    world.run.wake_at = None
    world.restart_collectors(3000).until(3200)
    assert world.run.told("b1")[-1][1] == "reconnect fleet_wide"
    assert "while others lost theirs or ZooKeeper was not read" in sentence(world, "b1")
    assert world.went_down() == []
    assert [what for _, _, what in world.until(3400).went_down()] == ["shutdown reconnect_exhausted"]


def test_a_gap_shorter_than_validity_makes_no_loss_fleet_wide() -> None:
    world = fleet().until(21)
    world.brokers["b1"].state = "expired"
    assert [name for _, name, _ in world.restart_collectors(300).until(380).went_down()] == ["b1"]


def test_an_absence_begins_anew_after_a_gap() -> None:
    """It may have registered while nobody looked, and lost its registration again."""
    world = World("b1", "b2").until(20)
    world.brokers["b1"].registered = False
    world.until(60)
    world.run.wake_at = None
    world.restart_collectors(1000).until(1170)
    assert world.went_down() == []
    assert len(world.until(1250).went_down()) == 1


def test_nobody_is_shut_down_while_zookeeper_cannot_be_read_nor_right_after_it_can() -> None:
    world = fleet().until(20)
    world.failing = {"session", "brokers", "namespaces"}
    world.until(60).lose(*TEN)
    world.failing = set()
    assert world.until(62).went_down() == []
    assert world.back(*TEN).until(400).went_down() == []


@pytest.mark.parametrize("unread", [set(), {"session", "brokers", "namespaces"}], ids=["network", "ZooKeeper"])
def test_who_comes_back_a_little_later_than_the_fleet_is_not_given_up(unread: set[str]) -> None:
    """The deadline has passed in an outage, in which nobody could reconnect."""
    world = World(*TEN, zombie_after=NO_ZOMBIES).until(20).lose(*TEN).until(30)
    world.failing = unread
    world.until(600).failing = set()
    world.until(602).back(*TEN[1:]).until(630)
    assert world.went_down() == []
    assert [what for _, _, what in world.until(650).went_down()] == ["shutdown reconnect_exhausted"]


def test_an_alert_that_a_member_cannot_reconnect_outlasts_a_short_outage() -> None:
    world = World(*TEN, zombie_after=NO_ZOMBIES, shutdown_budget=0).until(20).lose("b1").until(400)
    world.failing = {"session"}
    world.until(410).failing = set()
    assert [status for _, _, status in world.until(600).run.said("reconnect-exhausted")] == ["firing"]


@pytest.mark.parametrize(("failing", "restarts"), [(True, []), (False, [205.0])])
def test_a_zombie_has_its_time_while_zookeeper_can_be_read(failing: bool, restarts: list[float]) -> None:
    world = World(*TEN[:3]).until(20)
    world.brokers["b1"].registered = False
    world.until(50).failing = {"brokers"} if failing else set()
    world.until(190).failing = set()
    assert [second for second, _, _ in world.until(360).went_down()] == restarts


def test_an_alert_that_zookeeper_is_unread_is_the_same_though_its_sources_fail_for_different_reasons() -> None:
    run = World(*TEN[:3]).until(20).run
    for second in range(21, 200, 2):
        run.see(unread(second), tree(second + 1, outcome="error"))
    assert [(a.alert, a.reason) for a in run.alerts] == [("zookeeper-unread", "timeout")]


def test_re_own_is_decided_on_a_reading_of_after_the_new_session_began() -> None:
    world = World("b1", "b2", "b3").own("b1", BUNDLE).until(20).lose("b1").until(38)
    world.silent = {"namespaces"}
    world.back("b1").until(52)
    assert [what for _, what in world.run.ruled("b1")] == ["wait unread"]
    world.own("b2", BUNDLE).silent = set()
    world.until(60)
    assert world.run.ruled("b1")[-1][1] == "unload double_ownership"


RANGE = "t/ns/0x00000000_0x40000000"


def set_of(world: World, **fields: Any) -> World:
    """Change what is so of b1."""
    world.brokers["b1"] = replace(world.brokers["b1"], **fields)
    return world


AFTERWARDS: dict[str, Callable[[World], Any]] = {
    "it stays": lambda world: world,
    "it is lost again": lambda world: world.lose("b1"),
    "it is lost and back": lambda world: world.lose("b1").until(150).back("b1"),
    "it flaps": lambda world: [world.lose("b1").until(s).back("b1").until(s + 10) for s in range(130, 240, 20)],
    "it closes its session": lambda world: set_of(world, state="closed", registered=False),
    "it dies": lambda world: set_of(world.lose("b1"), well="unreachable"),
    "bundles are not read": lambda world: world.silent.add("namespaces"),
}


@pytest.mark.parametrize(("then", "many"), combined(AFTERWARDS, [1, 12]))
def test_an_orphan_s_alert_ends_only_when_a_reading_shows_an_owner(then: str, many: int) -> None:
    """Whatever becomes of its last owner in the meantime, and whether bundles are reported singly or together."""
    bundles = [BUNDLE, *(f"/namespace/t/ns{n}/0x00000000_0xffffffff" for n in range(1, many))]
    world = World("b1", "b2", "b3", settle="30s", zombie_after=NO_ZOMBIES).own("b1", *bundles).until(20)
    world.lose("b1").until(40).back("b1").until(120)
    assert [of for _, of, _ in world.run.said("orphan-bundle")] == [RANGE if many == 1 else CLUSTER]
    AFTERWARDS[then](world)
    world.until(400)
    assert {status for _, _, status in world.run.said("orphan-bundle")} == {"firing"}
    world.silent.clear()
    world.own("b2", *bundles).until(420)
    assert not any(alert == "orphan-bundle" for alert, _ in world.run.firing())


def test_a_bundle_that_nobody_has_owned_for_an_hour_counts_as_deleted_and_its_alert_ends() -> None:
    world = World("b1", "b2", zombie_after=NO_ZOMBIES).own("b1", BUNDLE).until(20)
    world.owners.clear()
    world.until(3700)
    assert [status for _, _, status in world.run.said("orphan-bundle")] == ["firing", "resolved"]


def test_a_loss_of_the_fleet_is_unknown_when_readings_end_and_over_when_too_few_can_be_lost() -> None:
    world = fleet(4, reconnect_deadline="10h").until(20).lose("b1", "b2").until(40)
    world.silent = {"session", "namespaces", "brokers", "health"}
    world.until(9000)
    assert world.fires("session-fleet-wide", "broker")
    assert [a for a in world.run.alerts if a.alert == "session-fleet-wide"][-1].summary.startswith("unknown")
    world.without_session, world.silent = {"b1"}, set()
    assert not world.back("b2").restart_collectors(9001).until(9010).fires("session-fleet-wide", "broker")
