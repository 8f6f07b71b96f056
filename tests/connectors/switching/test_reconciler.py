"""What a reconciler does with its lease, with orders, and with what it cannot do: call by call, everything at once."""

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.switching import reconciler
from connectors.switching.registry import HeldLease
from connectors.zookeeper.json_znodes import ZnodeError
from policies.decisions import Mode
from policies.switching.decisions import SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import LedgerOutcome, SwitchLease
from policies.switching.state import SwitchProgress, SwitchStage
from tests.cases import for_each
from tests.connectors.switching.orders import order, record
from tests.connectors.switching.reconciling import Later, World, leader
from tests.system.waiting import eventually

COPY = SwitchVerdict.START_COPY
ARGS = {"source": "old", "target": "new"}
PROGRESS = SwitchProgress(source="old", target="new", stage=SwitchStage.BUILD, epoch=1, target_floor=5, started_ms=9)


def test_who_holds_the_lease_says_so_and_publishes_what_there_is() -> None:
    world = leader()
    (lease,) = world.of(SwitchLease)
    assert (lease.token, lease.holder, lease.valid_ms) == (3, "me", 60_000)
    assert (world.readings.published, world.readings.inventories) == (1, [("", "")])
    unchanged_too = [world.readings.unchanged_too]
    for _ in range(2):
        world.reconcile()
        unchanged_too.append(world.readings.unchanged_too)
    assert unchanged_too == [True, False, False], "a new lease begins with everything"
    assert (len(world.published), world.readings.inventories) == (1, [("", "")]), "not again at once"


@for_each(("stage", "unchanged_too"), [(SwitchStage.BUILD, True), (SwitchStage.HOLD, False), (SwitchStage.DONE, False)])
def test_while_a_switch_goes_on_unchanged_readings_are_published_too(stage: SwitchStage, unchanged_too: bool) -> None:
    world = World()
    world.reconcile(record(verdict=stage))
    world.reconcile()
    assert world.readings.unchanged_too is unchanged_too


def test_without_the_lease_nothing_is_published_or_done() -> None:
    world = World()
    world.lease.held = None
    world.reconcile(order(COPY))
    assert (world.published, world.readings.published, world.ledgers.done) == ([], 0, [])


@pytest.mark.parametrize(
    "changes",
    [{"lease_token": 2}, {"lease_token": 4}, {"mode": Mode.SHADOW}, {"verdict": SwitchVerdict.LEDGER}],
    ids=["an older lease", "another's lease", "shadow mode", "no order"],
)
def test_only_orders_under_its_own_lease_are_carried_out(changes: dict[str, Any]) -> None:
    world = leader()
    world.reconcile(order(changes.pop("verdict", COPY), **changes))
    assert (world.ledgers.done, world.results) == ([], [])


def test_an_order_is_carried_out_once_and_answered() -> None:
    world = leader()
    world.reconcile(order(COPY), order(COPY))
    assert world.ledgers.done == [(COPY, 1)]
    assert len(world.results) == 1


def test_an_order_whose_lease_was_lost_meanwhile_is_not_answered() -> None:
    world = leader()

    def lose() -> None:
        world.lease.held = HeldLease(4, "me")
        world.reconcile()

    world.ledgers.meanwhile = lose
    later = Later()
    world.reconcile(order(COPY), order(COPY, 2, 8), executor=later)
    later.run()
    assert (world.ledgers.done, world.results) == ([(COPY, 1)], []), "nor is one begun that was not begun before"


def test_an_order_outlives_a_moment_in_which_nobody_knows_who_holds_the_lease() -> None:
    world = leader()

    def look_away() -> None:
        world.lease.held = ZnodeError("no ZooKeeper")
        world.reconcile()
        world.lease.held = HeldLease(3, "me")
        world.reconcile()

    world.ledgers.meanwhile = look_away
    world.reconcile(order(COPY))
    assert len(world.results) == 1


FAILED, CONFLICT, ADVANCED = LedgerOutcome.FAILED, LedgerOutcome.CONFLICT, LedgerOutcome.ADVANCED


@pytest.mark.parametrize(
    ("verdict", "outcomes", "tries", "last"),
    [
        (COPY, [FAILED, FAILED], 3, "copied"),
        (SwitchVerdict.PROMOTE, [ADVANCED, CONFLICT], 3, "copied"),
        (SwitchVerdict.REVERT, [CONFLICT, FAILED, CONFLICT], 3, "conflict"),
        (SwitchVerdict.DELETE_OLD, [FAILED], 1, "failed"),
    ],
    ids=["copy", "promote", "given up", "a deletion is ordered anew by the policy"],
)
def test_an_order_is_tried_until_it_is_done_and_then_reported_once(
    verdict: SwitchVerdict, outcomes: list[LedgerOutcome], tries: int, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_LONGEST_BACKOFF_SECONDS", 0)
    world = World()
    world.ledgers.results = outcomes
    world.reconcile()
    world.reconcile(order(verdict))
    assert len(world.ledgers.done) == tries
    [answer] = world.answers()
    assert answer["result"] == last
    assert answer["detail"] == "; then: ".join(f"try {number + 1}" for number in range(tries))


@pytest.mark.parametrize("recall", ["a later order", "a later epoch", "another stage"])
def test_a_recall_ends_the_tries_of_an_order(recall: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "_LONGEST_BACKOFF_SECONDS", 0)
    world, news = leader(), list[SwitchDecision | SwitchRecord]()
    if recall == "a later order":
        news.append(order(SwitchVerdict.PROMOTE, 2))
    if recall == "another stage":
        news.append(record(sequence=150, verdict=SwitchStage.ROLLBACK))

    def meanwhile() -> None:
        world.registry.epochs = [3 if recall == "a later epoch" else 2]
        world.reconcile(*news, executor=Later())

    world.ledgers.results, world.ledgers.meanwhile = [FAILED] * 3, meanwhile
    world.reconcile(order(SwitchVerdict.PROMOTE))
    assert (len(world.ledgers.done), world.results) == (1, [])


def test_an_earlier_order_about_a_ledger_is_void() -> None:
    world = leader()
    orders = (order(COPY, 1), order(SwitchVerdict.PROMOTE, 2), order(COPY, 1, sequence=99))
    world.reconcile_later(*orders, record(sequence=90, verdict=SwitchStage.PROMOTE))
    assert world.ledgers.done == [(SwitchVerdict.PROMOTE, 2)]


def test_how_much_may_be_copied_changes_while_it_runs() -> None:
    world = leader()
    for number, limit in enumerate((None, None, 1000, 1000, None)):
        world.reconcile(record(sequence=150 + number, copy_bytes_per_second=limit))
    assert world.ledgers.limits == [0, 1000, 0]


@pytest.mark.parametrize("why", [{"halted": "INV-2"}, {"paused": True}, {"contested": "epoch 9"}])
def test_what_lies_ready_when_the_switch_stops_is_not_begun_until_it_is_ordered_again(why: dict[str, Any]) -> None:
    world = leader()
    world.reconcile_later(order(COPY), record(sequence=150, cluster="c1", **why))
    assert world.ledgers.done == []
    world.reconcile_later(order(COPY, sequence=160, decision_id="d2"))
    assert world.ledgers.done == [(COPY, 1)]


@pytest.mark.parametrize(
    ("verdict", "stage", "is_begun"),
    [
        (COPY, SwitchStage.BUILD, True),
        (COPY, SwitchStage.PROMOTE, True),
        (COPY, SwitchStage.ROLLBACK, False),
        (SwitchVerdict.PROMOTE, SwitchStage.PROMOTE, True),
        (SwitchVerdict.PROMOTE, SwitchStage.ROLLBACK, False),
        (SwitchVerdict.PROMOTE, SwitchStage.ABORTED, False),
        (SwitchVerdict.REVERT, SwitchStage.ROLLBACK, True),
        (SwitchVerdict.REVERT, SwitchStage.ABORTED, False),
        (SwitchVerdict.DELETE_OLD, SwitchStage.CLEANUP, True),
        (SwitchVerdict.DELETE_OLD, SwitchStage.DONE_WITH_FAILURES, False),
        (SwitchVerdict.DELETE_OWN_COPY, SwitchStage.ROLLED_BACK, True),
        (SwitchVerdict.DELETE_OWN_COPY, SwitchStage.ROLLBACK, False),
    ],
)
def test_a_recall_voids_what_was_not_begun(verdict: SwitchVerdict, stage: SwitchStage, is_begun: bool) -> None:
    world = leader()
    world.reconcile_later(order(verdict), record(verdict=stage))
    assert [done for done, _ in world.ledgers.done] == ([verdict] if is_begun else [])


def test_what_an_operator_ended_were_the_deletions_of_the_sources_ledgers() -> None:
    world = leader()
    world.reconcile_later(order(SwitchVerdict.DELETE_OWN_COPY), record(verdict=SwitchStage.ABORTED, kept=True))
    assert world.ledgers.done == [(SwitchVerdict.DELETE_OWN_COPY, 1)]


def test_the_progress_of_a_switch_is_kept_once_for_each_change() -> None:
    world = World()
    for stage_ms in (10, 10, 20):
        world.reconcile(record(verdict=SwitchStage.BUILD, progress=replace(PROGRESS, stage_ms=stage_ms)))
    assert [each.stage_ms for each in world.registry.kept] == [10, 20]


def test_a_progress_that_cannot_be_kept_is_shown_and_holds_up_no_order() -> None:
    world = leader()
    world.registry.damage = ZnodeError("orchestrator/new is damaged")
    world.reconcile(record(verdict=SwitchStage.BUILD, progress=PROGRESS), directive(2))
    assert (world.registry.directives, world.is_failing()) == ([(2, "new")], True)
    world.registry.damage = None
    world.reconcile()
    assert (world.registry.kept, world.is_failing()) == ([PROGRESS], False)


@pytest.mark.parametrize(("epoch", "is_begun"), [(1, True), (2, True), (3, False)])
def test_nothing_is_written_under_an_old_epoch(epoch: int, is_begun: bool) -> None:
    world = World()
    world.registry.epochs = [epoch]
    world.reconcile()
    world.reconcile(order(COPY))
    assert bool(world.ledgers.done) is is_begun


@pytest.mark.parametrize(("then", "is_begun"), [(2, True), (3, False)])
def test_while_the_epoch_cannot_be_read_an_order_waits_and_is_not_lost(
    then: int, is_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_UNREAD_SECONDS", 0)
    world = World()
    world.registry.epochs = [None, None, then]
    world.reconcile()
    world.reconcile(order(SwitchVerdict.PROMOTE))
    assert (bool(world.ledgers.done), world.registry.epochs) == (is_begun, [then])


def test_a_deletion_that_an_operator_recalls_is_not_begun_and_is_reported() -> None:
    """The policy waits for the outcome of each deletion, because a deletion cannot be undone."""
    world = leader()
    world.reconcile_later(order(SwitchVerdict.DELETE_OLD), record(verdict=SwitchStage.CLEANUP, kept=True))
    assert world.ledgers.done == []
    world.reconcile_later()
    [result] = world.answers()
    assert (result["result"], "before the deletion began" in result["detail"]) == ("failed", True)


def test_the_copier_is_asked_ahead_of_what_it_makes_at_once() -> None:
    world, stop, may_end, lock = World(), threading.Event(), threading.Event(), threading.Lock()
    under_way = peak = 0

    def meanwhile() -> None:
        nonlocal under_way, peak
        with lock:
            under_way += 1
            peak = max(peak, under_way)
        may_end.wait()
        with lock:
            under_way -= 1

    world.ledgers.meanwhile = meanwhile
    running = threading.Thread(target=world.reconciler.run, args=(stop,))
    running.start()
    eventually("it has the lease", lambda: world.of(SwitchLease) or None)
    for number in range(20):
        world.reconciler.receive(order(COPY, number, subject=f"c1/ledgers/{number}"))
    eventually("as many as may be are under way", lambda: under_way >= 8 or None)
    may_end.set()
    eventually("all are done", lambda: len(world.results) == 20 or None)
    stop.set()
    world.reconciler.wake()
    running.join()
    assert peak == 8


def directive(epoch: int) -> SwitchDecision:
    return order(
        SwitchVerdict.WRITE_DIRECTIVE, 0, subject="c1/directive", ledger=None, sequence=200 + epoch,
        args={"directive_epoch": epoch, "target": "new"},
    )  # fmt: skip


def test_what_the_registry_does_not_take_is_tried_again_and_only_the_newest_of_it() -> None:
    world = leader()
    world.registry.error = ZnodeError("no ZooKeeper")
    world.reconcile(directive(1))
    world.reconcile(directive(2))
    assert world.registry.directives == []
    world.registry.error = None
    world.reconcile()
    world.reconcile()
    assert world.registry.directives == [(2, "new")]


INVENTORY = order(SwitchVerdict.TAKE_INVENTORY, 0, subject="c1/inventory", ledger=None, args=ARGS)


def test_an_ordered_inventory_waits_until_the_registry_is_written_and_read_again() -> None:
    world = leader()
    world.registry.error = ZnodeError("no ZooKeeper")
    world.reconcile(directive(1), INVENTORY)
    assert world.readings.inventories == [("", "")], "the one that was due"
    world.registry.error = None
    world.reconcile()
    world.reconcile()
    assert world.readings.inventories == [("", ""), ("old", "new")]


def test_the_last_stages_need_an_inventory_each_once() -> None:
    world = leader()
    stages = (SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.HOLD, SwitchStage.HOLD, SwitchStage.DONE)
    taken = []
    for number, stage in enumerate(stages):
        world.reconcile(record(sequence=150 + number, verdict=stage))
        taken.append(len(world.readings.inventories))
    assert taken == [1, 1, 2, 2, 3]


def test_a_precheck_and_an_inventory_are_made_when_ordered() -> None:
    world = leader()
    world.reconcile(order(SwitchVerdict.RUN_PRECHECK, 0, subject="c1/prechecks/new", ledger=None, args=ARGS))
    assert world.readings.prechecks == [("old", "new")]
    world.reconcile(INVENTORY)
    assert (world.readings.inventories, world.readings.moved_too) == ([("", ""), ("old", "new")], False)
    lost = order(SwitchVerdict.TAKE_INVENTORY, subject="c1/inventory", ledger=None, args={"moved_too": True})
    world.reconcile(lost)
    assert (world.readings.inventories[-1], world.readings.moved_too) == (("old", "new"), True)


def test_an_inventory_that_takes_longer_than_its_interval_is_not_queued_again() -> None:
    world = World(inventory_interval=timedelta(0))
    readings = Later()
    for _ in range(3):
        world.reconcile(executor=readings)
    assert len(readings.work) == 1
    readings.results[0].set_result(None)
    world.reconcile(executor=readings)
    assert len(readings.work) == 2


def test_an_unexpected_error_ends_nothing() -> None:
    world = leader()

    def fail() -> None:
        world.ledgers.meanwhile = lambda: None
        raise RuntimeError("not thought of")

    world.ledgers.meanwhile = fail
    world.reconcile(order(COPY, 1, 7))
    world.reconcile(order(COPY, 2, 7))
    assert world.ledgers.done == [(COPY, 1), (COPY, 2)]
    assert len(world.results) == 1


def test_what_fails_shows_until_it_succeeds_whatever_else_does() -> None:
    world = World()
    world.readings.is_complete = False
    world.reconcile()
    world.reconcile()
    assert world.is_failing(), "no inventory can be made, so a switch would wait for ever"
    world.registry.error = ZnodeError("no ZooKeeper")
    world.reconcile(directive(1))
    world.registry.error, world.readings.is_complete = None, True
    world.reconcile()
    assert world.is_failing(), "of the inventory nothing is known yet"
    world.reconcile(INVENTORY)
    assert not world.is_failing()


def test_it_runs_until_it_is_stopped_and_gives_the_lease_back() -> None:
    world, stop = World(), threading.Event()
    stop.set()
    world.reconciler.run(stop)
    assert world.ended == ["copies", "lease"]


def test_answers_are_gathered_for_a_second_while_more_are_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    later, now = Later(), [100.0]
    monkeypatch.setattr(reconciler, "time", SimpleNamespace(monotonic=lambda: now[0]))
    world = leader()
    world.reconcile(*(order(COPY, number, subject=f"c1/ledgers/{number}") for number in range(8)), executor=later)
    sent = []
    for seconds in (0.4, 0.5, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0):
        later.work.pop(0)()
        now[0] += seconds
        world.reconcile(executor=later)
        sent.append(len(world.results))
    assert sent == [0, 0, 3, 4, 5, 6, 7, 8], "the last ones wait for no others"
