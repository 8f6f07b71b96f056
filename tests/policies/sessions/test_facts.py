"""What holds of each member and of each claim as of one moment."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from policies.observations import Observation
from policies.sessions import SessionsState
from policies.sessions.state import SpentShutdown
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.sessions.course import (
    BUNDLE,
    Run,
    absent,
    at,
    health,
    owned,
    recovery,
    registered,
    session,
    tree,
    unread,
    unregistered,
)
from tests.policies.sessions.joined import connected, expired, joined
from tests.policies.sessions.world import World

FLEET = ("b1", "b2", "b3")


def test_a_loss_is_the_fleet_s_while_others_lose_theirs_or_zookeeper_is_unread() -> None:
    alone = joined(*connected(*FLEET), *expired("b1", seconds=10), until=12)
    both = joined(*connected(*FLEET), *expired("b1", "b2", seconds=10), until=12)
    blind = joined(*connected(*FLEET), *expired("b1", seconds=10), unread(11), until=12)
    assert [f.members["b1"].member.fleet_wide for f in (alone, both, blind)] == [False, True, True]
    new = session(20, "b1", "connected", "0xnew")
    back = joined(*connected(*FLEET), *expired("b1", seconds=10), new, unread(25), until=26)
    assert not back.members["b1"].member.fleet_wide
    assert [f.members["b3"].member.fleet_wide for f in (alone, both, blind)] == [False, False, False]


@pytest.mark.parametrize(("until", "is_evidence"), [(301, True), (301.001, False)])
def test_a_registration_is_evidence_for_its_validity(until: float, is_evidence: bool) -> None:
    readings = [*connected("b1"), registered(1, "b1", "0xb1")]
    assert (readings[-1].id in joined(*readings, until=until).members["b1"].evidence) is is_evidence


@pytest.mark.parametrize(
    ("attempts", "until", "exhausted"), [(9, 30, False), (10, 30, True), (0, 309, False), (0, 310, True)]
)
def test_a_member_is_exhausted_after_enough_attempts_or_time(attempts: int, until: float, exhausted: bool) -> None:
    failed = recovery(20, "b1", "reconnect", "failed", attempt=attempts) if attempts else unread(20, "b9")
    facts = joined(*connected(*FLEET), *expired("b1", seconds=10), failed, until=until)
    assert facts.members["b1"].is_exhausted is exhausted


def test_load_data_is_published_by_a_registration_of_the_present_session_or_by_word() -> None:
    back = [*connected("b1"), *expired("b1", seconds=10), session(20, "b1", "connected", "0xnew")]
    assert not joined(*back, registered(21, "b1", "0xb1"), until=30).members["b1"].has_published
    assert joined(*back, registered(21, "b1", "0xnew"), until=30).members["b1"].has_published
    assert joined(*back, recovery(21, "b1", "republish-load-data"), until=30).members["b1"].has_published
    nameless = [session(0, "b1", "connected"), session(10, "b1", "expired"), session(20, "b1", "connected")]
    unknown = owned(21, "b1", None, "/loadbalance/brokers/b1")
    assert not joined(*nameless, unknown, until=30).members["b1"].has_published, "neither session is known"


def test_a_bundle_is_an_orphan_when_its_owner_is_settled_and_does_not_come_for_it() -> None:
    gone = [*connected("b1", "b2"), owned(1, "b1", "0xb1"), absent(10)]
    settled = joined(*gone, until=20)
    assert settled.orphan_ms(settled.nodes[BUNDLE]) == to_millis(at(70))
    lost = joined(*gone, *expired("b1", seconds=15), until=20)
    assert lost.orphan_ms(lost.nodes[BUNDLE]) is None
    back = joined(*gone, *expired("b1", seconds=15), session(18, "b1", "connected", "0xnew"), until=20)
    assert back.orphan_ms(back.nodes[BUNDLE]) == to_millis(at(78))
    heartbeat = "/namespace/t/b1/0x0_0x1"
    own = joined(*connected("b1"), owned(1, "b1", "0xb1", heartbeat), tree(10), until=20)
    assert own.orphan_ms(own.nodes[heartbeat]) is None


CUT_OFF = (session(12, "b1", "disconnected", "0xb1"), session(14, "b1", "connected", "0xb1"))
LISTED = (registered(5, "b1", "0xb1"), health(12, "b1", listed=True))


@for_each(
    ("then", "is_back"),
    [
        pytest.param((), False, id="it has its session as before"),
        pytest.param(CUT_OFF, True, id="it was cut off since, and is connected again"),
        pytest.param((*CUT_OFF[:1],), False, id="it is cut off"),
        pytest.param((*CUT_OFF, registered(5, "b1", "0xb1")), True, id="connected again, and registered as before"),
        pytest.param((registered(12, "b1", "0xb1"), unregistered(13, "b1")), False, id="registered until then"),
        pytest.param((*CUT_OFF, unregistered(5, "b1")), False, id="connected again, and not registered yet"),
        pytest.param(LISTED, True, id="registered as before, and listed since"),
        pytest.param((*LISTED, unregistered(13, "b1")), False, id="listed since, and no longer registered"),
        pytest.param((health(12, "b1", "timeout"), health(13, "b1", "timeout")), False, id="it does not answer"),
        pytest.param((health(12, "b1", "timeout"), health(13, "b1")), True, id="it was down, and answers"),
        pytest.param((*LISTED, *expired("b1", seconds=13)), False, id="listed since, and without a session"),
    ],
)
def test_a_member_that_was_ordered_down_is_back(then: tuple[Observation, ...], is_back: bool) -> None:
    state = SessionsState(spent=(SpentShutdown(to_millis(at(10)), "b1"),))
    facts = joined(*connected(*FLEET), *then, until=15, state=state)
    assert facts.budget.down() == (set() if is_back else {"b1"})


# --- What could not be read when a session was lost

TEN = tuple(f"b{n}" for n in range(10))
SHUTDOWN: dict[str, Any] = {"on_session_lost": "shutdown", "zombie_after": "10h"}


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
    world = World(*TEN, first_s=first, **SHUTDOWN).until(fails_s).fail("brokers").until(works_s).fail()
    assert world.until(22.5).lose("b3").until(120).last("b3") == expected


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
