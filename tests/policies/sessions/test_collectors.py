"""Which collector reads first changes no decision; what one reading says and the next denies orders nothing."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from policies.observations import Observation
from tests.cases import for_each
from tests.examples import combined
from tests.policies.sessions.course import BUNDLE, Run, health, node, owned, session, tree, unread
from tests.policies.sessions.world import World

TEN = tuple(f"b{n}" for n in range(10))
SHUTDOWN: dict[str, Any] = {"on_session_lost": "shutdown", "zombie_after": "10h"}


ORDERED = frozenset({"shutdown", "restart", "unload", "re-own"})


def everything(second: float, **odd: Observation) -> list[Observation]:
    """A reading of each kind about b1, and the sessions of others; `odd` takes the place of those of its kind."""
    names = ("b1", "b2", "b3", "b4")
    usual = {
        "session": session(second, "b1", "connected", "0xb1"),
        "brokers": tree(second, *registrations(*names), name="/loadbalance/brokers"),
        "bundles": tree(second, node("b1", "0xb1", BUNDLE)),
        "health": health(second, "b1", listed=True),
    }
    others = [session(second, name, "connected", f"0x{name}") for name in names[1:]]
    return [*(usual | odd).values(), *others]


def registrations(*names: str) -> list[dict[str, Any]]:
    return [node(name, f"0x{name}", f"/loadbalance/brokers/{name}") for name in names]


ODD: dict[str, Callable[[float], dict[str, Observation]]] = {
    "disconnected": lambda s: {"session": session(s, "b1", "disconnected", "0xb1")},
    "expired": lambda s: {"session": session(s, "b1", "expired", "0xb1")},
    "closed": lambda s: {"session": session(s, "b1", "closed", "0xb1")},
    "another session": lambda s: {"session": session(s, "b1", "connected", "0xother")},
    "another session, expired": lambda s: {"session": session(s, "b1", "expired", "0xother")},
    "another session, closed": lambda s: {"session": session(s, "b1", "closed", "0xother")},
    "a session without an id, closed": lambda s: {"session": session(s, "b1", "closed")},
    "a session without an id, expired": lambda s: {"session": session(s, "b1", "expired")},
    "a session that cannot be read": lambda s: {"session": unread(s, "b1")},
    "sessions that cannot be read": lambda s: {"session": unread(s)},
    "registrations that cannot be read": lambda s: {"brokers": tree(s, name="/loadbalance/brokers", outcome="timeout")},
    "unregistered": lambda s: {"brokers": tree(s, *registrations("b2", "b3"), name="/loadbalance/brokers")},
    "no broker registered": lambda s: {"brokers": tree(s, name="/loadbalance/brokers")},
    "no owner": lambda s: {"bundles": tree(s)},
    "another owner": lambda s: {"bundles": tree(s, node("b2", "0xb2", BUNDLE))},
    "an unreadable owner": lambda s: {"bundles": tree(s, node(None, "0xb1", BUNDLE))},
    "unreachable": lambda s: {"health": health(s, "b1", "unreachable")},
    "unhealthy": lambda s: {"health": health(s, "b1", healthy=False)},
    "not listed": lambda s: {"health": health(s, "b1", listed=False)},
    "expired, and unregistered": lambda s: ODD["expired"](s) | ODD["unregistered"](s),
    "expired, and owned by another": lambda s: ODD["expired"](s) | ODD["another owner"](s),
    "expired, and unreachable": lambda s: ODD["expired"](s) | ODD["unreachable"](s),
    "closed, and unregistered": lambda s: ODD["closed"](s) | ODD["unregistered"](s),
}


@for_each("odd", [odd for odd in ODD if ", and " not in odd])
def test_a_reading_that_the_next_ones_deny_orders_nothing(odd: str) -> None:
    run = Run(on_session_lost="shutdown", zombie_after="1m", shutdown_delay="0s")
    for second in range(0, 120, 5):
        run.together(*everything(second))
        if second == 20:
            run.see(*ODD[odd](21).values())
    assert not [d for d in (*run.sessions, *run.bundles) if d.verdict in ORDERED]
    assert not run.firing()
    assert {m.track.status.value for m in run.known.members if m.track} == {"established"}


VALIDITY_SECONDS = 300
MOST_RECORDS = 16
"""Of one subject within one validity: four losses, each with a few orders; then it flaps, and little follows."""


@pytest.mark.parametrize(("odd", "collectors"), combined(ODD, [1, 2, 3], one_of=3))
def test_contradicting_readings_are_few_records_and_bring_nobody_down(odd: str, collectors: int) -> None:
    """One collector contradicts itself from reading to reading; of two or three, the last contradicts the others."""
    rng = random.Random(f"{odd} {collectors}")
    run = Run(on_session_lost=rng.choice(["shutdown", "reconnect"]), zombie_after=rng.choice(["30s", "1m", "5m"]))
    run.together(*everything(0))
    interval = rng.choice([4.0, 5.0, 6.0])
    for number in range(int(VALIDITY_SECONDS / interval)):
        for place, collector in enumerate(rng.sample(range(collectors), collectors)):
            second = round(1 + interval * (number + place / collectors), 3)
            is_odd = number % 2 == 1 if collectors == 1 else collector == collectors - 1
            seen = everything(second, **(ODD[odd](second) if is_odd else {}))
            named = [replace(each, id=f"{each.id} {collector}", source=f"zk-{collector}") for each in seen]
            run.together(*rng.sample(named, len(named)))
    records = Counter((getattr(d, "alert", ""), d.subject) for d in run.published)
    assert max(records.values(), default=0) <= MOST_RECORDS, records
    assert not [d for d in run.sessions if d.verdict in ("shutdown", "restart")]


def test_a_registration_that_comes_and_goes_is_one_alert_until_it_is_stable() -> None:
    run = Run().together(*everything(0))
    for second in range(2, 60, 2):
        run.together(*everything(second, **(ODD["unregistered"](second) if second % 4 else {})))
    assert ("session-flapping", "b4") in run.firing()
    assert ("not-registered", "b4") not in run.firing()
    (alert,) = [a for a in run.alerts if (a.alert, a.labels["member"]) == ("session-flapping", "b4")]
    assert alert.summary == (
        "broker b4 of messaging was registered and unregistered in turn within 3 min, or collectors disagree about it"
    )
    for second in range(60, 1000, 60):
        run.see(session(second, "b4", "connected", "0xb4"))
    assert ("session-flapping", "b4") in run.firing(), "it does not end because readings of its registration do"
    for second in range(1000, 1240, 10):
        run.together(*everything(second))
    assert not run.firing()


def test_attempts_that_fail_and_succeed_in_turn_are_one_alert() -> None:
    run = Run().together(*everything(0))
    for second in range(2, 60, 2):
        run.see(*everything(second) if second % 4 else [unread(second)])
    assert [status for _, _, status in run.said("zookeeper-unread")] == ["firing", "resolved", "firing"]
    assert run.alerts[-1].summary.startswith("attempts to read ZooKeeper of messaging fail and succeed in turn: ")
    run.until(290)
    assert run.said("zookeeper-unread")[-1][2] == "firing", "it does not end because readings do"
    run.until(800)
    assert run.alerts[-1].summary.startswith("ZooKeeper of messaging cannot be read (silence): "), "nobody tries now"
    for second in range(800, 1040, 10):
        run.together(*everything(second))
    assert run.said("zookeeper-unread")[-1][2] == "resolved"


def test_a_member_that_flaps_is_gone_when_readings_have_shown_it_closed_for_settle() -> None:
    run = Run().together(*everything(0))
    for second in range(2, 40, 2):
        run.together(*everything(second, **({} if second % 6 else ODD["closed"](second))))
    assert run.told("b1")[-1][1] != "gone closed"
    for second in range(40, 300, 5):
        run.together(*everything(second, **ODD["closed"](second)))
    assert run.told("b1")[-1][1] == "gone closed"


def poll(second: float, *lost: str, trees_s: float = 0.1) -> list[Observation]:
    """One look of both collectors, each at its own moment."""
    states = [session(second, m, "expired" if m in lost else "connected", f"0x{m}") for m in TEN]
    return [*states, tree(second + trees_s), tree(second + trees_s, name="/loadbalance/brokers")]


def last(run: Run) -> str:
    return run.told("b3")[-1][1]


@for_each("trees_s", [-0.1, 0.0, 0.1], ids=["trees first", "together", "sessions first"])
@for_each("batch_of", [lambda at: at, lambda at: at.replace(second=0)], ids=["by instant", "by minute"])
@for_each(
    ("fails_s", "expected"),
    [(range(25, 60), "reconnect fleet_wide"), (range(25, 40), "shutdown session_lost")],
    ids=["it expired meanwhile", "it expired after that"],
)
def test_a_session_that_expired_while_nothing_could_be_read_shuts_nobody_down(
    trees_s: float, batch_of: Callable[[datetime], datetime], fails_s: range, expected: str
) -> None:
    """However readings are cut into batches: one of ten sessions is read as expired from 60 s on."""
    run, readings = Run(**SHUTDOWN), list[Observation]()
    for second in range(1, 125, 5):
        if second in fails_s:
            readings += [unread(second), tree(second + trees_s, outcome="timeout")]
        else:
            readings += poll(second, *(["b3"] if second >= 60 else []), trees_s=trees_s)
    for batch in sorted({batch_of(seen.at) for seen in readings}):
        run.together(*(seen for seen in readings if batch_of(seen.at) == batch))
    assert last(run) == expected


def test_a_failed_reading_of_one_tree_counts_though_it_arrives_after_the_loss_is_known() -> None:
    """Collectors are processes of their own: a record of one may be late by seconds."""
    run = Run(**SHUTDOWN).together(*poll(0)).together(*poll(10, "b3"))
    assert last(run) == "hold confirming"
    run.together(tree(5, outcome="timeout"), seconds=12)
    assert last(run) == "reconnect fleet_wide"


def test_others_that_lost_theirs_and_came_back_within_the_same_batch_count() -> None:
    """As they do if each reading is a step of its own."""
    lost_and_back = [
        *poll(0),
        *poll(10, "b1", "b2", "b3"),
        *(session(15, m, "connected", f"0x{m}-2") for m in ("b1", "b2")),
        *(session(second, "b3", "expired", "0xb3") for second in (15, 20, 25)),
    ]
    stepwise = Run(**SHUTDOWN).feed(sorted(lost_and_back, key=lambda o: o.at)).until(60)
    merged = Run(**SHUTDOWN).together(*lost_and_back).until(60)
    assert last(stepwise) == last(merged) == "reconnect fleet_wide"


@for_each("first_s", [(0.0, 0.1, 0.2), (0.2, 0.0, 0.1), (0.0, 0.0, 0.0)], ids=["sessions", "trees", "together"])
@for_each(
    ("fails_s", "works_s", "expected"),
    [(17.5, 22.5, "reconnect fleet_wide"), (12.5, 17.5, "shutdown session_lost")],
    ids=["in the instant of its last connection", "in the instant before"],
)
def test_one_failed_reading_of_a_tree_counts_if_it_was_the_last_before_the_loss(
    first_s: tuple[float, float, float], fails_s: float, works_s: float, expected: str
) -> None:
    """The member is last connected at about 20 s, and lost at about 25 s, whichever collector reads first."""
    sessions, trees, health = first_s
    first = {"session": sessions, "brokers": trees, "namespaces": trees, "health": health}
    world = World(*TEN, first_s=first, **SHUTDOWN).until(fails_s)
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


def test_losses_beyond_those_that_are_remembered_are_counted_as_at_least_so_many() -> None:
    run = Run().together(*[session(0, name, "connected", f"0x{name}") for name in ("b1", "b2", "b3", "b4")])
    for number in range(20):
        run.see(session(10 + 4 * number, "b1", "expired", "0xb1"), session(12 + 4 * number, "b1", "connected", "0xb1"))
    run.until(100)
    assert run.alerts[-1].summary == "broker b1 of messaging lost its session at least 16 times within 3 min"
