"""What befalls whole fleets, watched by collectors that lag, fall silent, fail or start anew, and what it is called."""

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import for_each
from tests.examples import combined
from tests.policies.sessions.course import (
    BUNDLE,
    CLUSTER,
    Run,
    health,
    owned,
    recovery,
    session,
    tree,
    unread,
    unregistered,
)
from tests.policies.sessions.joined import connected, expired
from tests.policies.sessions.world import World

TEN = tuple(f"b{n}" for n in range(10))
SECOND = "/namespace/t/ns/0x40000000_0x80000000"
THIRD = "/namespace/t/ns/0x80000000_0xffffffff"
NO_ZOMBIES = "10h"
"""Who has lost its session is not registered either: here it is not about that."""
SOURCES = ("session", "brokers", "namespaces")


def fleet(size: int = 10, **settings: Any) -> World:
    return World(*TEN[:size], **{"on_session_lost": "shutdown", "zombie_after": NO_ZOMBIES, **settings}).until(20)


def few(**settings: Any) -> World:
    """Two brokers that are restarted as zombies after three minutes."""
    return World("b1", "b2", **settings).until(20)


def zombie(**settings: Any) -> World:
    """One of two brokers is not registered any more."""
    return few(**settings).change("b1", registered=False)


@for_each(
    ("course", "down", "last"),
    [
        pytest.param(
            lambda: fleet().lose("b1").until(28).back("b1").until(100), [], "resume recovered",
            id="it comes back while its shutdown waits",
        ),
        pytest.param(
            lambda: fleet().lose("b1").until(26).silence("session").until(100), [], "hold stale_reading",
            id="its shutdown is due on an old reading",
        ),
        pytest.param(
            lambda: fleet().lose("b1").until(26).silence("session").until(100).silence().until(120),
            ["b1 shutdown session_lost"], "shutdown session_lost", id="and then it is read again",
        ),
        pytest.param(
            lambda: few().lose("b1").until(40).back("b1").change("b1", listed=False).until(190)
            .change("b1", listed=True).until(900),
            [], "resume recovered", id="the list of brokers lags by two and a half minutes",
        ),
        pytest.param(
            lambda: fleet(shutdown_delay="0s").cut("b2", "b3").until(22).lose("b1").until(32), [],
            "reconnect fleet_wide", id="two others are cut off",
        ),
        pytest.param(
            lambda: fleet(4).change("b2", "b3", state="closed", registered=False).until(60).lose("b1").until(300), [],
            "reconnect fleet_wide", id="most have ended theirs in order",
        ),
        pytest.param(
            lambda: World("b1", "b2").change("b1", registered=False, state="expired", listed=False).until(260),
            ["b1 restart zombie"], "restart zombie", id="a zombie was there before Headgate",
        ),
        pytest.param(
            lambda: fleet().restart_collectors(300).change("b1", state="expired").until(380),
            ["b1 shutdown session_lost"], "shutdown session_lost", id="it is lost in a gap shorter than validity",
        ),
        pytest.param(
            lambda: fleet().fail(*SOURCES).until(60).lose(*TEN).fail().until(62).back(*TEN).until(400), [],
            "resume recovered", id="ZooKeeper cannot be read, and then it can",
        ),
        pytest.param(
            lambda: zombie().until(50).fail("brokers").until(190).fail().until(360), [], "",
            id="a zombie has its time while registrations can be read",
        ),
        pytest.param(
            lambda: fleet(4).change("b1", well="unreachable").lose("b1").until(60).silence("health").until(700), [],
            "gone unreachable", id="a process that is gone is not asked any more",
        ),
        pytest.param(
            lambda: fleet(4).lose("b1").until(45).change("b1", well="unreachable").until(55).change("b1", well="ok")
            .until(100),
            ["b1 shutdown session_lost"], "reconnect shutdown_budget", id="a new process has no session either",
        ),
        pytest.param(
            lambda: contradict(200), [], "reconnect session_lost", id="collectors contradict each other about a process"
        ),
    ],
)  # fmt: skip
def test_who_goes_down_and_what_b1_is_told_at_last(course: Callable[[], World], down: list[str], last: str) -> None:
    world = course()
    assert (world.down(), world.last("b1")) == (down, last)


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
    assert {alert for alert, _ in world.run.firing()} == {"session-fleet-wide", "not-registered"}, "one, however long"


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


@pytest.mark.parametrize("gap_s", [1, 5, 30, 100])
def test_a_shutdown_that_waits_comes_when_it_was_said_to(gap_s: int) -> None:
    """Whatever the interval of the readings was before the loss, and however often the member is read after it."""
    run = Run(on_session_lost="shutdown", zombie_after=NO_ZOMBIES).together(*connected("b1", "b2", "b3", "b4"))
    for second in range(gap_s, gap_s + 60, 5):
        run.together(*expired("b1", seconds=second), *connected("b2", "b3", "b4", seconds=second))
    said = re.search(r"shuts down in (\d+) s at the earliest", run.sessions[0].explanation)
    assert said is not None
    ((down_s, _),) = [(s, what) for s, what in run.told("b1") if what == "shutdown session_lost"]
    assert gap_s + int(said[1]) <= down_s < gap_s + int(said[1]) + 5


def test_who_was_told_to_go_down_counts_until_it_is_back_however_long_that_takes() -> None:
    world = fleet().lose("b1").until(100).lose("b2").until(1200)
    assert (world.down(), world.last("b2")) == (["b1 shutdown session_lost"], "reconnect shutdown_budget")
    assert [name for _, name, _ in world.back("b1").until(1300).went_down()] == ["b1", "b2"]


def two_zombies() -> World:
    """The restart of the second waits for the budget."""
    world = World(*TEN, timeout_s=6).until(20).change("b1", "b2", registered=False).until(400)
    assert (world.last("b1"), world.last("b2")) == ("restart zombie", "hold shutdown_budget")
    return world


@for_each(
    ("fields", "last"),
    [
        ({"registered": True}, "resume withdrawn"),
        ({"healthy": False}, "resume withdrawn"),
        ({"well": "timeout", "healthy": None}, "hold shutdown_budget"),
    ],
)
def test_a_restart_that_waits_for_the_budget_is_withdrawn_when_the_zombie_is_none(
    fields: dict[str, Any], last: str
) -> None:
    world = two_zombies().change("b2", **fields)
    assert world.until(420).last("b2") == last
    assert [name for _, name, _ in world.until(1100).went_down()] == ["b1"]


def test_a_restart_that_waits_is_withdrawn_when_the_process_was_down_and_has_its_time_again() -> None:
    world = zombie(shutdown_budget=0).until(400)
    assert world.last("b1") == "hold shutdown_budget"
    world.change("b1", well="unreachable").until(411).change("b1", well="ok").until(425)
    assert world.last("b1") == "resume withdrawn"
    assert "is not registered, but has time to register until 08:10:00 UTC: " in world.sentence("b1")
    assert world.until(600).last("b1") == "hold shutdown_budget"


def test_a_restarted_zombie_whose_process_does_not_come_back_is_gone_and_its_bundles_are_orphans() -> None:
    world = World(*TEN[:3]).own("b1", BUNDLE).until(20).lose("b1")
    assert world.until(700).last("b1") == "restart zombie"
    assert world.run.firing() == {("not-registered", "b1"), ("session-lost", "b1"), ("zombie-member", "b1")}
    assert world.change("b1", well="unreachable").until(720).last("b1") == "gone unreachable"
    assert world.until(790).fires("orphan-bundle", RANGE)


def test_a_zombie_is_warned_of_at_once_and_restarted_after_its_time_and_all_ends_when_it_registers() -> None:
    world = zombie().until(240)
    assert world.run.told("b1") == [(205, "restart zombie")]
    assert world.run.said("not-registered") == [(30, "b1", "firing")], "its time does not change"
    assert world.run.said("zombie-member") == [(205, "b1", "firing")]
    assert world.change("b1", registered=True).until(250).last("b1") == "resume registered"
    assert world.run.firing() == set()


def test_who_was_restarted_and_has_a_session_has_its_time_to_register() -> None:
    world = zombie().until(240)
    assert world.last("b1") == "restart zombie"
    before = len(world.lose("b1").until(250).run.told("b1"))
    world.back("b1", registered=False).until(270).change("b1", registered=True).until(300)
    assert [what for _, what in world.run.told("b1")[before:]] == ["recover session_reestablished", "resume recovered"]
    assert world.run.told("b1")[before][0] < 260, "the session shows the restart before the registration does"


@pytest.mark.parametrize("what", ["shutdown session_lost", "restart zombie"])
def test_what_was_decided_in_shadow_mode_and_still_is_the_case_is_said_when_it_may_be_carried_out(what: str) -> None:
    block: dict[str, Any] = {
        "on_session_lost": "shutdown",
        "zombie_after": NO_ZOMBIES if what.startswith("shutdown") else "3m",
    }
    world = fleet(mode="shadow", **block)
    (world.lose("b1") if what.startswith("shutdown") else world.change("b1", registered=False)).until(250)
    world.run.reload(**block)
    assert len(world.until(1000).went_down()) == 2
    assert [(d.mode.value, f"{d.verdict} {d.reason}") for d in world.run.sessions][-2:] == [
        ("shadow", what), ("active", what),
    ]  # fmt: skip


def test_nobody_is_restarted_while_the_fleet_is_without_sessions() -> None:
    world = World(*TEN).until(20).lose(*TEN).until(600)
    assert world.went_down() == []
    assert world.fires("zombie-member", "b1")
    assert [name for _, name, _ in world.back(*TEN[1:]).until(1000).went_down()] == ["b0"]


@pytest.mark.parametrize("silent", [{"health"}, {"brokers"}, {"session"}, {"health", "brokers", "session"}])
def test_a_zombie_s_alert_does_not_end_because_readings_do(silent: set[str]) -> None:
    world = zombie().until(240).silence(*silent).until(1200)
    assert world.run.firing() >= {("zombie-member", "b1"), ("not-registered", "b1")}
    said = [a.summary for a in world.run.alerts if a.alert == "zombie-member"]
    assert said[-1].startswith("unknown") == bool(silent & {"health", "brokers"})


@for_each("well", ["timeout", "error", "unauthorized"])
def test_a_zombie_s_alert_does_not_end_because_it_is_slow_to_answer(well: str) -> None:
    world = zombie().until(240).change("b1", well=well)
    assert world.until(300).fires("zombie-member", "b1")
    assert world.change("b1", well="ok").until(330).fires("zombie-member", "b1")


def test_a_zombie_of_which_nothing_but_its_health_is_read_is_found() -> None:
    world = World("b1", "b2").change("b1", registered=False)
    world.without_session.add("b1")
    assert world.until(260).down() == ["b1 restart zombie"]


def test_a_process_that_times_out_is_not_dead_and_each_bundle_it_held_gets_its_verdict_at_thaw() -> None:
    world = World("b1", "b2", "b3").own("b1", BUNDLE, SECOND, THIRD).until(20).change("b1", well="timeout")
    assert world.cut("b1").until(45).lose("b1").until(60).last("b1") == "reconnect session_lost"
    world.own("b2", SECOND).until(70).change("b1", well="ok").back("b1").until(76)
    assert world.run.ruled("b1", BUNDLE)[-1][1] == "re-own absent"
    assert world.run.ruled("b1", SECOND)[-1][1] == "unload double_ownership"
    world.own("b1", THIRD).until(82)
    assert world.run.ruled("b1", THIRD)[-1][1] == "keep own_session"
    assert world.run.ruled("b2", SECOND)[-1][1] == "keep own_session"


# --- Headgate, or its collectors, were away


@pytest.mark.parametrize("away_s", [299, 7200])
def test_membership_and_claims_outlive_a_restart_of_headgate(away_s: float) -> None:
    world = World("b1", "b2", "b3", reconnect_deadline="3h", zombie_after=NO_ZOMBIES).own("b1", BUNDLE)
    world.until(20).lose("b1").until(30).restart_collectors(30 + away_s).until(60 + away_s)
    assert world.went_down() == []
    assert [m.member for m in world.run.known.members] == ["b1", "b2", "b3"]
    assert world.back("b1").until(80 + away_s).run.ruled("b1")[-1][1] == "re-own absent"


def test_the_first_readings_after_a_restart_forget_nobody() -> None:
    """One member is read first, and all the others have not been for longer than a reading counts."""
    world = World("b1", "b2", "b3").until(20).restart_collectors(2000)
    world.brokers = dict(reversed(world.brokers.items()))
    for seen in world._look("session", 2000.0):
        world.run.step((seen,), seen.at)
    assert len(world.run.known.members) == 3


def test_the_last_member_of_a_cluster_is_forgotten_while_its_sessions_are_read() -> None:
    world = World("b1", zombie_after=NO_ZOMBIES).until(20).lose("b1").until(40).silence("health")
    world.without_session = {"b1"}
    assert world.until(4000).run.firing() == set()
    assert world.run.said("zookeeper-unread") == []


@pytest.mark.parametrize("state", ["disconnected", "expired"])
def test_what_was_the_case_before_a_gap_shuts_nobody_down_at_once_after_it(state: str) -> None:
    """However often it was read before: the first reading after it is one."""
    world = fleet().change("b1", state=state).until(34).restart_collectors(3000).until(3004)
    assert world.went_down() == []
    assert [name for _, name, _ in world.until(3060).went_down()] == ["b1"]


@pytest.mark.parametrize("state", ["disconnected", "expired"])
def test_a_session_lost_in_a_gap_is_fleet_wide_and_its_member_has_the_whole_deadline(state: str) -> None:
    """Nobody knows what others lost meanwhile: silence counts as unread, as it does while it lasts."""
    world = fleet().until(21).change("b1", state=state).restart_collectors(3000).until(3200)
    assert (world.down(), world.last("b1")) == ([], "reconnect fleet_wide")
    assert "while others lost theirs or ZooKeeper was not read" in world.sentence("b1")
    assert world.until(3400).down() == ["b1 shutdown reconnect_exhausted"]


@pytest.mark.parametrize("unread", [(), SOURCES], ids=["network", "ZooKeeper"])
def test_who_comes_back_a_little_later_than_the_fleet_is_not_given_up(unread: tuple[str, ...]) -> None:
    """The deadline has passed in an outage, in which nobody could reconnect."""
    world = World(*TEN, zombie_after=NO_ZOMBIES).until(20).lose(*TEN).until(30).fail(*unread).until(600).fail()
    assert world.until(602).back(*TEN[1:]).until(630).down() == []
    assert world.until(650).down() == ["b0 shutdown reconnect_exhausted"]


def test_an_alert_that_a_member_cannot_reconnect_outlasts_a_short_outage() -> None:
    world = World(*TEN, zombie_after=NO_ZOMBIES, shutdown_budget=0).until(20).lose("b1").until(400)
    world.fail("session").until(410).fail()
    assert [status for _, _, status in world.until(600).run.said("reconnect-exhausted")] == ["firing"]


def test_an_alert_that_zookeeper_is_unread_is_the_same_though_its_sources_fail_for_different_reasons() -> None:
    run = World(*TEN[:3]).until(20).run
    for second in range(21, 200, 2):
        run.see(unread(second), tree(second + 1, outcome="error"))
    assert [(a.alert, a.reason) for a in run.alerts] == [("zookeeper-unread", "timeout")]


RANGE = BUNDLE.removeprefix("/namespace/")

AFTERWARDS: dict[str, Callable[[World], Any]] = {
    "it stays": lambda world: world,
    "it is lost again": lambda world: world.lose("b1"),
    "it is lost and back": lambda world: world.lose("b1").until(150).back("b1"),
    "it flaps": lambda world: [world.lose("b1").until(s).back("b1").until(s + 10) for s in range(130, 240, 20)],
    "it closes its session": lambda world: world.change("b1", state="closed", registered=False),
    "it dies": lambda world: world.lose("b1").change("b1", well="unreachable"),
    "bundles are not read": lambda world: world.silence("namespaces"),
}


@pytest.mark.parametrize(("then", "many"), combined(AFTERWARDS, [1, 12]))
def test_an_orphan_s_alert_ends_only_when_a_reading_shows_an_owner(then: str, many: int) -> None:
    """Whatever becomes of its last owner in the meantime, and whether bundles are reported singly or together."""
    bundles = [BUNDLE, *(f"/namespace/t/ns{n}/0x00000000_0xffffffff" for n in range(1, many))]
    world = World("b1", "b2", "b3", settle="30s", zombie_after=NO_ZOMBIES).own("b1", *bundles).until(20)
    world.lose("b1").until(40).back("b1").until(120)
    assert world.run.said("orphan-bundle") == [(105, RANGE if many == 1 else CLUSTER, "firing")]
    AFTERWARDS[then](world)
    world.until(400)
    assert {status for _, _, status in world.run.said("orphan-bundle")} == {"firing"}
    world.silence().own("b2", *bundles).until(420)
    assert not any(alert == "orphan-bundle" for alert, _ in world.run.firing())


def test_a_bundle_that_nobody_has_owned_for_an_hour_counts_as_deleted_and_its_alert_ends() -> None:
    world = World("b1", "b2", zombie_after=NO_ZOMBIES).own("b1", BUNDLE).until(20)
    world.owners.clear()
    assert [status for _, _, status in world.until(3700).run.said("orphan-bundle")] == ["firing", "resolved"]


def test_a_loss_of_the_fleet_is_unknown_when_readings_end_and_over_when_too_few_can_be_lost() -> None:
    world = fleet(4, reconnect_deadline="10h").lose("b1", "b2").until(40).silence(*SOURCES, "health").until(9000)
    assert world.fires("session-fleet-wide", "broker")
    assert [a for a in world.run.alerts if a.alert == "session-fleet-wide"][-1].summary.startswith("unknown")
    world.without_session = {"b1"}
    world.silence().back("b2").restart_collectors(9001).until(9010)
    assert not world.fires("session-fleet-wide", "broker")


# --- Deadlines, attempts and budgets belong to a process: one that appears new begins new


def test_a_new_process_does_not_inherit_the_deadline_of_the_one_before() -> None:
    """It is gone at about 75 s; a new one answers from 300 s on, and still has no session."""
    world = World(*TEN[:4], zombie_after=NO_ZOMBIES).until(60).lose("b1").change("b1", well="unreachable")
    assert world.until(80).last("b1") == "gone unreachable"
    world.until(299).change("b1", well="ok").until(590)
    assert (world.down(), world.last("b1")) == ([], "reconnect session_lost")
    ((second, _, what),) = world.until(640).went_down()
    assert (what, second >= 600) == ("shutdown reconnect_exhausted", True)
    assert "has not reconnected in 5 min: shut it down" in world.sentence("b1")


def test_a_new_process_that_has_no_session_yet_is_not_shut_down_for_the_loss_of_the_one_before() -> None:
    world = fleet(4).until(60).change("b1", well="unreachable").until(75).lose("b1").until(120).change("b1", well="ok")
    assert (world.until(132).down(), world.last("b1")) == ([], "hold confirming")
    assert world.back("b1").until(200).went_down() == []


def test_attempts_are_those_of_the_present_process() -> None:
    run = Run(reconnect_limit=3).together(*connected(*TEN[:4]), seconds=0).see(*expired("b1", seconds=10))
    run.see(*[recovery(11 + n, "b1", "reconnect", "failed", attempt=n + 1) for n in range(2)])
    run.see(health(20, "b1", "unreachable"), health(30, "b1", healthy=False))
    run.see(recovery(31, "b1", "reconnect", "failed", attempt=1))
    assert run.told("b1")[-1][1] == "reconnect session_lost"
    assert [m.attempts for m in run.known.members if m.member == "b1"] == [1]


def unregister(run: Run, begins: int, ends: int, answer: str = "ok", every: int = 10) -> Run:
    """Of a broker only the health and the registration are read; it is not registered."""
    for second in range(begins, ends, every):
        run.together(health(second, "b1", answer), unregistered(second, "b1"))
    return run


@for_each("refused_s", [(60, 285, 15), (60, 70, 10), (60, 240, 60), (100, 101, 1)])
@for_each("pause_s", [1, 15, 100])
def test_a_new_process_has_the_whole_time_to_register_from_its_first_answer(
    refused_s: tuple[int, int, int], pause_s: int
) -> None:
    begins, ends, every = refused_s
    run = unregister(unregister(Run(zombie_after="5m"), 50, 51), begins, ends, "unreachable", every)
    first_s = max(range(*refused_s)) + pause_s
    unregister(run, first_s, first_s + 400)
    assert [told for told in run.told("b1") if told[1] == "restart zombie"] == [(first_s + 300, "restart zombie")]
    assert run.sessions[-1].explanation.endswith("but has not been registered for 5 min: restart it.")


def test_a_zombie_s_alert_ends_with_its_process() -> None:
    run = unregister(Run(zombie_after="1m"), 0, 100)
    run.see(health(100, "b1", "unreachable"), health(105, "b1", "unreachable"))
    unregister(run, 110, 150)
    assert run.firing() == {("not-registered", "b1")}
    assert "08:01:50 UTC" in next(a.summary for a in reversed(run.alerts) if a.alert == "not-registered")
    unregister(run, 150, 200)
    fires = [second for second, _, status in run.said("zombie-member") if status == "firing"]
    assert [second for second in fires if second > 105] == [170]


def test_a_second_zombie_under_the_same_name_has_its_own_budget() -> None:
    run = unregister(Run(zombie_after="1m", shutdown_window="2m"), 0, 100)
    run.see(health(100, "b1", "unreachable"), health(110, "b1", "timeout"))
    unregister(run, 120, 900)
    restarts = [second for second, what in run.told("b1") if what == "restart zombie"]
    assert restarts == [60, 180], "one that is in force is not ordered again"
    assert [s.member for s in run.known.spent if s.back_ms < 0] == ["b1"]
    run.see(health(900, "b1", "timeout"))
    unregister(run, 910, 1000)
    assert len([d for d in run.sessions if d.verdict == "restart"]) == 3


@pytest.mark.parametrize(
    ("shown", "answers_s", "registers_s", "taken_s"),
    combined(["disconnected", "connected"], [115, 135, 150, 200], [140, 155, 205], [150, 210], one_of=3),
)
def test_a_pod_that_is_back_under_its_name_within_t_claims_nothing(
    shown: str, answers_s: int, registers_s: int, taken_s: int
) -> None:
    """It is killed at 95 s; until T/2 later a collector may show its session as connected; it expires at 130 s."""
    world = World("b0", "b1", "b2").own("b0", BUNDLE, SECOND).until(94).change("b0", well="unreachable")
    moments: dict[int, Callable[[], object]] = {
        95: lambda: world.cut(*(["b0"] if shown == "disconnected" else [])),
        110: lambda: world.cut("b0"),
        130: lambda: world.lose("b0"),
        answers_s: lambda: world.change("b0", well="ok"),
        max(registers_s, answers_s + 5): lambda: world.back("b0"),
        taken_s: lambda: world.own("b1", BUNDLE, SECOND),
    }
    for second in sorted(moments):
        world.until(second - 0.5)
        moments[second]()
    world.until(600)
    assert world.run.bundles == []
    assert not any(a.alert == "double-ownership" for a in world.run.alerts)


def test_a_process_whose_session_lives_on_claims_what_it_owns_though_its_endpoint_refused() -> None:
    world = World("b0", "b1", "b2").own("b0", BUNDLE).until(20).change("b0", well="unreachable").until(60)
    world.change("b0", well="ok").until(100).lose("b0").until(110).back("b0").until(125)
    assert [what for _, what in world.run.ruled("b0")] == ["re-own absent"]


def test_a_second_process_claims_what_it_owned_itself() -> None:
    world = World("b0", "b1", "b2").own("b0", BUNDLE).until(94).change("b0", well="unreachable").cut("b0")
    world.until(120).lose("b0").change("b0", well="ok").until(140).back("b0").until(150).own("b0", SECOND)
    world.until(300).lose("b0").until(320).back("b0").until(335)
    assert {d.path for d in world.run.bundles} == {SECOND}


# --- Each sentence is true at the moment at which it is published; the values in it are those that decided


def outage(lost: tuple[str, ...], *failing: str) -> World:
    """One of the lost comes back later than the others."""
    world = fleet(6, reconnect_deadline="1h").fail(*failing).until(25).lose(*lost)
    return world.until(60).back(*lost[1:]).fail().until(400)


def flapping() -> World:
    world = fleet(4, validity="20m")
    for second in range(20, 80, 12):
        world.until(second).lose("b1").until(second + 6).back("b1")
    return world


def failed_often() -> Run:
    run = Run(reconnect_limit=3, shutdown_delay="20s").together(*connected("b1", "b2", "b3", "b4"))
    run.see(session(10, "b1", "expired", "0xb1"), health(20, "b1", "unreachable"), health(200, "b1", healthy=False))
    for number in range(1, 4):
        run.see(*expired("b1", seconds=239 + number))
        run.see(recovery(240 + number, "b1", "reconnect", "failed", attempt=number))
    return run


def in_turn() -> Run:
    run = Run().together(*connected("b1", "b2", "b3", "b4"))
    for second in range(10, 90, 10):
        run.see(session(second, "b1", "connected" if second % 20 else "disconnected", "0xb1"))
    return run


def took_another() -> Run:
    """It had owned one bundle; the other it took from another member, which claims it, too."""
    run = Run().together(*connected("b1", "b2", "b3")).see(owned(1, "b1", "0xb1"), owned(1, "b2", "0xb2", SECOND))
    run.see(session(10, "b1", "expired", "0xb1"), session(11, "b2", "expired", "0xb2"))
    run.see(session(20, "b1", "connected", "0xnew"), owned(21, "b1", "0xnew"), owned(21, "b1", "0xnew", SECOND))
    return run.until(22)


WAS_OUTAGE = "while others lost theirs or ZooKeeper was not read; 1 of 6 is without a session or cut off"


@for_each(
    ("course", "reason", "says"),
    [
        (lambda: outage(("b1", "b2", "b3")), "fleet_wide", WAS_OUTAGE),
        (lambda: outage(("b1",), "brokers"), "fleet_wide", WAS_OUTAGE),
        (
            lambda: fleet(4).change("b2", "b3", state="closed", registered=False).until(60).lose("b1").until(300),
            "fleet_wide", "cut off, and 2 more have ended theirs, where",
        ),
        (
            lambda: fleet(on_session_lost="reconnect", reconnect_deadline="1m").lose("b1").until(70).fail(*SOURCES[1:])
            .until(100),
            "fleet_wide", "in 60 s: it is not shut down while ZooKeeper cannot be read (timeout).",
        ),
        (
            lambda: fleet(4, shutdown_budget=0).lose("b1").until(60), "shutdown_budget",
            "as soon as the shutdown budget allows it (`shutdown_budget` is 0).",
        ),
        (
            lambda: fleet().lose("b1").until(100).lose("b2").until(1000), "shutdown_budget",
            "as soon as the shutdown budget allows it (1 member at a time; b1 since 08:00:40 is not back yet).",
        ),
        (
            lambda: fleet().lose("b1").until(100).back("b1").until(120).lose("b2").until(200), "shutdown_budget",
            "(1 in 10 min; the next may follow at 08:10:40 UTC).",
        ),
        (
            lambda: zombie().until(150).silence("health").until(250), "stale_reading",
            "reported itself healthy 55 s ago, but has not been registered for 3 min: restart it as soon as a fresh "
            "reading confirms it (the last one is 55 s old).",
        ),
        (
            lambda: flapping().until(85).silence("session").until(1300), "unsettled",
            "until a reading shows that its session has been stable for 3 min.",
        ),
        (
            in_turn, "unsettled",
            "Broker b1 is connected and not connected in turn since 08:00:20 UTC, or collectors contradict each other: "
            "no bundle of it is cleaned up until its session has been stable for 3 min, in 3 min at the earliest.",
        ),
        (failed_often, "reconnect_exhausted", "Broker b1 has not reconnected in 43 s and 3 failed attempts"),
        (took_another, "recovered", "it owns 1 of 1 bundle again, and gives up 0."),
        (
            lambda: Run().together(*connected(*TEN)).see(session(5, "b1", "disconnected", "0xb1")).until(31),
            "session_lost", "Broker b1 has lost its session (it was disconnected for 25 s)",
        ),
        (
            lambda: Run().together(*connected(*TEN)).see(*expired("b1", seconds=6)), "session_lost",
            "Broker b1 has lost its session (it expired)",
        ),
    ],
)  # fmt: skip
def test_the_sentence_of_a_decision(course: Callable[[], World | Run], reason: str, says: str) -> None:
    made = course()
    run = made.run if isinstance(made, World) else made
    assert says in [d.explanation for d in run.sessions if d.reason == reason][-1]


def test_without_any_reading_of_bundles_their_number_is_unknown() -> None:
    for tree_read, words, count in (("/loadbalance/brokers", "an unknown number of", None), ("/namespace", "0", 0)):
        run = Run().together(*connected("b1", "b2")).see(tree(1, name=tree_read))
        run.see(session(10, "b1", "expired", "0xb1"), session(20, "b1", "connected", "0xnew"))
        assert f"it owned {words} bundles" in run.sessions[-1].explanation
        assert run.sessions[-1].bundle_count == count


# --- A second collector finds the endpoint of a member without a session closed, and the first one open


def contradict(seconds: int) -> World:
    world = World(*TEN).until(20).lose("b1")
    for second in range(20, seconds, 5):
        world.until(second + 0.3).run.see(health(second + 2, "b1", "unreachable"))
    return world


def test_collectors_that_contradict_each_other_about_a_process_are_a_few_decisions_and_one_alert() -> None:
    world = contradict(200)
    assert len(world.run.told("b1")) <= 11
    (alert,) = (a for a in world.run.alerts if a.alert == "session-flapping")
    assert alert.summary == (
        "broker b1 of messaging refused connections and answered in turn within 3 min, or collectors disagree about it"
    )
    world.silence("health").until(480)
    assert world.fires("session-flapping", "b1"), "it does not end because readings do"
    world.silence().change("b1", well="unreachable").until(500)
    assert world.last("b1") == "gone unreachable", "it stays dead, and is settled"
    assert not world.fires("session-flapping", "b1")
