"""Rare orders of readings, cuts and losses, each with its near variants."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.policies.sessions.course import Run, health, node, owned, session, tree
from tests.policies.sessions.world import World

TEN = tuple(f"b{n}" for n in range(10))
SHUTDOWN: dict[str, Any] = {"on_session_lost": "shutdown", "zombie_after": "10h"}
BUNDLE = "/namespace/t/ns/0x00000000_0x40000000"
FIRST = {
    "sessions first": {"session": 0.0, "brokers": 0.1, "namespaces": 0.1, "health": 0.2},
    "trees first": {"session": 0.2, "brokers": 0.0, "namespaces": 0.0, "health": 0.1},
    "together": {"session": 0.0, "brokers": 0.0, "namespaces": 0.0, "health": 0.0},
}


@pytest.fixture(params=FIRST)
def _collectors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "first_second", FIRST[request.param])


@pytest.mark.usefixtures("_collectors")
@pytest.mark.parametrize(
    ("fails_s", "works_s", "expected"),
    [(17.5, 22.5, "reconnect fleet_wide"), (12.5, 17.5, "shutdown session_lost")],
    ids=["in the instant of its last connection", "in the instant before"],
)
def test_one_failed_reading_of_a_tree_counts_if_it_was_the_last_before_the_loss(
    fails_s: float, works_s: float, expected: str
) -> None:
    """The member is last connected at about 20 s, and lost at about 25 s, whichever collector reads first."""
    world = World(*TEN, **SHUTDOWN).until(fails_s)
    world.failing = {"brokers"}
    world.until(works_s).failing = set()
    world.until(22.5).lose("b3").until(120)
    assert world.last("b3") == expected


def without_ownership(world: World) -> World:
    """With an extensible load manager, and without `pulsar.admin_url`."""
    world._outcome = lambda kind: "unsupported" if kind == "namespaces" else "ok"  # type: ignore[method-assign]
    return world


def test_a_tree_that_zookeeper_does_not_keep_makes_no_loss_fleet_wide() -> None:
    world = without_ownership(World(*TEN, **SHUTDOWN)).until(22.5).lose("b3").until(120)
    assert world.last("b3") == "shutdown session_lost"
    assert ("zookeeper-unread", "messaging") not in world.run.firing()


def test_bundles_of_before_a_change_of_the_load_manager_are_not_counted() -> None:
    world = without_ownership(World(*TEN).own("b3", BUNDLE).until(20)).until(400).lose("b3").until(430).back("b3")
    (recover,) = (d for d in world.until(480).run.sessions if d.verdict == "recover")
    assert (recover.bundle_count, recover.bundles) == (None, ())
    assert "it owned an unknown number of bundles" in recover.explanation
    assert world.last("b3") == "resume recovered"


def test_a_double_ownership_is_not_critical_on_a_reading_older_than_t() -> None:
    run, six = Run(), {"timeout_ms": 6_000}
    run.together(*[session(0, name, "connected", f"0x{name}", **six) for name in ("b1", "b2", "b3")])
    run.see(owned(0, "b1", "0xb1"), owned(8, "b2", "0xb2"), session(20, "b1", "expired", "0xb1", **six))
    assert not [a for a in run.alerts if a.alert == "double-ownership"]
    run.see(owned(21, "b2", "0xb2"))
    assert [a.severity for a in run.alerts if a.alert == "double-ownership"] == ["critical"]


def test_a_collector_that_publishes_changes_at_once_and_nothing_else_for_five_seconds_delays_no_order() -> None:
    """The readings 0.2 s apart do not show how long the next one takes."""
    run = Run().together(*[session(0, name, "connected", f"0x{name}") for name in ("b1", "b2")])
    run.see(tree(0, node("b1", "0xb1", BUNDLE)), session(10, "b1", "expired", "0xb1"))
    run.see(tree(10.0, node("b1", "0xb1", BUNDLE)), tree(10.2), session(11, "b1", "connected", "0xnew"))
    run.see(tree(15.2))
    assert [what for _, what in run.ruled("b1")] == ["re-own absent"]


def test_a_tree_that_is_not_read_for_longer_makes_its_bundles_wait() -> None:
    run = Run().together(*[session(0, name, "connected", f"0x{name}") for name in ("b1", "b2")])
    run.see(tree(0, node("b1", "0xb1", BUNDLE)), tree(5, node("b1", "0xb1", BUNDLE)))
    run.see(session(10, "b1", "expired", "0xb1"), session(11, "b1", "connected", "0xnew")).until(40)
    assert run.ruled("b1") == [(16.0, "wait unread")]


def contradict(seconds: int) -> World:
    """Let a second collector find the endpoint of a member without a session closed, and the first one open."""
    world = World(*TEN).until(20).lose("b1")
    for second in range(20, seconds, 5):
        world.until(second + 0.3).run.see(health(second + 2, "b1", "unreachable"))
    return world


def test_collectors_that_contradict_each_other_about_a_process_are_a_few_decisions_and_one_alert() -> None:
    world = contradict(200)
    assert len(world.run.told("b1")) <= 11
    assert world.last("b1") == "reconnect session_lost"
    (alert,) = (a for a in world.run.alerts if a.alert == "session-flapping")
    assert alert.summary == (
        "broker b1 of messaging refused connections and answered in turn within 3 min, or collectors disagree about it"
    )


def test_a_process_that_stays_dead_after_that_is_gone_once_it_is_settled() -> None:
    world = contradict(200)
    world.silent = {"health"}
    world.until(480)
    assert ("session-flapping", "b1") in world.run.firing(), "it does not end because readings do"
    world.silent = set()
    world.brokers["b1"].well = "unreachable"
    assert world.until(500).last("b1") == "gone unreachable"
    assert ("session-flapping", "b1") not in world.run.firing()


FLEET = tuple(f"b{n:02}" for n in range(40))


@pytest.mark.parametrize(
    ("left", "summary"),
    [
        (3, "session-lost of messaging ends: the few that are left have alerts of their own"),
        (0, "session-lost of messaging is over"),
    ],
)
def test_an_alert_about_many_is_not_said_to_be_over_while_some_are_left(left: int, summary: str) -> None:
    world = World(*FLEET).until(20).lose(*FLEET[:11]).until(40).back(*FLEET[left:11]).until(50)
    (ended,) = (a for a in world.run.alerts if a.alert == "session-lost" and a.status == "resolved")
    assert ended.summary == summary
    assert len([key for key in world.run.firing() if key[0] == "session-lost"]) == left


def waits_for_the_budget(world: World) -> None:
    world.lose("b1").until(100)


def waits_to_restart(world: World) -> None:
    world.brokers["b1"].registered = False
    world.until(100)


@pytest.mark.parametrize(
    ("happen", "block", "expected"),
    [
        (waits_for_the_budget, SHUTDOWN, {"recover", "shutdown"}),
        (waits_to_restart, {"zombie_after": "1m"}, {"resume", "restart"}),
    ],
    ids=["a shutdown", "a restart"],
)
def test_a_waiting_order_names_the_verdicts_that_follow(
    happen: Callable[[World], None], block: dict[str, Any], expected: set[str]
) -> None:
    world = World(*TEN, shutdown_budget=0, **block).until(20)
    happen(world)
    last = world.run.sessions[-1]
    assert last.reason == "shutdown_budget"
    assert {each.verdict for each in last.otherwise} == expected


def test_a_bundle_that_was_to_be_unloaded_is_not_said_to_be_owned_again_when_its_node_is_gone() -> None:
    world = World("b1", "b2", "b3").own("b1", BUNDLE).until(20).lose("b1").until(22).own("b2", BUNDLE)
    world.until(40).back("b1").until(60)
    unload = next(d for d in reversed(world.run.bundles) if d.member == "b1")
    assert [(each.verdict, each.when) for each in unload.otherwise] == [
        ("keep", "its node belongs to the member's next session")
    ]
    del world.owners[BUNDLE]
    world.until(120)
    assert [what for _, what in world.run.ruled("b1")][-1].startswith("unload")


def test_losses_beyond_those_that_are_remembered_are_counted_as_at_least_so_many() -> None:
    run = Run().together(*[session(0, name, "connected", f"0x{name}") for name in ("b1", "b2", "b3", "b4")])
    for number in range(20):
        run.see(session(10 + 4 * number, "b1", "expired", "0xb1"), session(12 + 4 * number, "b1", "connected", "0xb1"))
    run.until(100)
    assert run.alerts[-1].summary == "broker b1 of messaging lost its session at least 16 times within 3 min"
