"""What a reconciler does with its lease, with orders, and with what it cannot do: call by call, everything at once."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from connectors.switching import reconciler
from connectors.switching.lease import HeldLease, SwitchExecutorMetrics
from connectors.switching.reconciler import SwitchReconciler
from connectors.switching.registration import SwitchExecution
from connectors.zookeeper.json_znodes import ZnodeError
from policies.decisions import Mode
from policies.observations import Outcome, Reading
from policies.switching.decisions import SwitchDecision, SwitchVerdict
from policies.switching.readings import (
    LedgerOutcome,
    SwitchLease,
    SwitchLedger,
    SwitchStatus,
)
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchProgress, SwitchStage
from tests.cases import for_each
from tests.connectors.switching.orders import order, record
from tests.system.waiting import eventually


class AtOnce(Executor):
    """Does what is submitted before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(fn(*args, **options))
        return done


class FakeLease:
    """Held unless told otherwise."""

    def __init__(self, ended: list[str]) -> None:
        self.held: HeldLease | ZnodeError | None = HeldLease(3, "me")
        self._ended = ended

    def renew(self) -> HeldLease | None:
        if isinstance(self.held, ZnodeError):
            raise self.held
        return self.held

    def release(self) -> None:
        self._ended.append("lease")


class FakeRegistry:
    """It is read, and directives are written to it, unless it fails."""

    def __init__(self) -> None:
        self.error: ZnodeError | None = None
        self.directives: list[tuple[int, str]] = []
        self.kept: list[SwitchProgress] = []
        self.damage: ZnodeError | None = None
        self.epochs: list[int | None] = [2]
        """The epochs of the directive in ZooKeeper by reading, the last one for good; None: it cannot be read."""

    def read_epoch(self) -> int | None:
        return self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]

    def write_progress(self, progress: SwitchProgress) -> None:
        if self.damage is not None:
            raise self.damage
        self.kept.append(progress)

    def carry_out(self, order: SwitchDecision) -> SwitchStatus | None:
        if self.error is not None:
            raise self.error
        self.directives.append((int(order.args["directive_epoch"] or 0), str(order.args["target"])))
        return None


class FakeReadings:
    """Notes what is published."""

    def __init__(self) -> None:
        self.is_complete = True
        self.published = 0
        self.unchanged_too = False
        self.prechecks: list[tuple[str, str]] = []
        self.inventories: list[tuple[str, str]] = []

    def publish(self, *, unchanged_too: bool) -> None:
        self.published += 1
        self.unchanged_too = unchanged_too

    def publish_precheck(self, source: str, target: str) -> None:
        self.prechecks.append((source, target))

    def publish_inventory(
        self, source: str, target: str, *, moved_too: bool = False, attempt: int | None = None
    ) -> bool:
        self.inventories.append((source, target))
        self.moved_too, self.attempt = moved_too, attempt
        return self.is_complete


class FakeLedgerOrders:
    """Every order is carried out."""

    def __init__(self, ended: list[str]) -> None:
        self.copiers = self
        self.done: list[tuple[SwitchVerdict, int]] = []
        self.limits: list[int] = []
        self.ready: list[tuple[str, str]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.results: list[LedgerOutcome] = []
        """The results of the next tries."""
        self._ended = ended

    def make_ready(self, source: str, target: str) -> None:
        self.ready.append((source, target))

    def carry_out(self, decision: SwitchDecision, is_allowed: Callable[[], bool]) -> SwitchLedger:
        assert is_allowed()
        self.done.append((decision.verdict, decision.op))
        self.meanwhile()
        result = self.results.pop(0) if self.results else LedgerOutcome.COPIED
        return SwitchLedger(
            cluster="c1", outcome=Outcome.OK, ledger_id=7, op=decision.op, result=result, detail=f"try {len(self.done)}"
        )

    def limit(self, bytes_per_second: int) -> None:
        self.limits.append(bytes_per_second)

    def close(self) -> None:
        self._ended.append("copies")


class World:
    """A reconciler and what it works with."""

    def __init__(self, inventory_interval: timedelta = timedelta(hours=1)) -> None:
        self.ended: list[str] = []
        self.lease = FakeLease(self.ended)
        self.registry = FakeRegistry()
        self.readings = FakeReadings()
        self.ledgers = FakeLedgerOrders(self.ended)
        self.published: list[Reading] = []
        self.results: list[bytes] = []
        self.series = CollectorRegistry()
        parts: dict[str, Any] = {
            "lease": self.lease,
            "readings": self.readings,
            "registry": self.registry,
            "ledger_orders": self.ledgers,
            "publish": self.published.append,
            "send_answer": lambda _key, value: self.results.append(value),
            "metrics": SwitchExecutorMetrics(self.series),
        }
        settings = SwitchExecution.model_construct(poll_interval=timedelta(0), inventory_interval=inventory_interval)
        rules = SwitchingSettings(copy_concurrency=2, retries=3)
        self.reconciler = SwitchReconciler("c1", settings, rules, **parts)

    def reconcile(self, *received: SwitchDecision) -> None:
        for each in received:
            self.reconciler.receive(each)
        self.reconciler.reconcile(AtOnce(), AtOnce())

    def is_failing(self) -> bool:
        return self.series.get_sample_value("headgate_switch_executor_failing", {"cluster": "c1"}) == 1

    def of(self, kind: type[Reading]) -> list[Any]:
        return [each for each in self.published if isinstance(each, kind)]


COPY = SwitchVerdict.START_COPY


def test_who_holds_the_lease_says_so_and_publishes_what_there_is() -> None:
    world = World()
    world.reconcile()
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
    world.reconciler.receive(record(verdict=stage))
    world.reconcile()
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
    world = World()
    world.reconcile()
    world.reconcile(order(changes.pop("verdict", COPY), **changes))
    assert (world.ledgers.done, world.results) == ([], [])


def test_an_order_is_carried_out_once_and_answered() -> None:
    world = World()
    world.reconcile()
    world.reconcile(order(COPY), order(COPY))
    assert world.ledgers.done == [(COPY, 1)]
    assert len(world.results) == 1


def test_an_order_whose_lease_was_lost_meanwhile_is_not_answered() -> None:
    world = World()
    world.reconcile()

    def lose() -> None:
        world.lease.held = HeldLease(4, "me")
        world.reconciler.reconcile(AtOnce(), AtOnce())

    world.ledgers.meanwhile = lose
    world.reconcile(order(COPY))
    assert (world.ledgers.done, world.results) == ([(COPY, 1)], [])


def test_an_order_outlives_a_moment_in_which_nobody_knows_who_holds_the_lease() -> None:
    world = World()
    world.reconcile()

    def look_away() -> None:
        world.lease.held = ZnodeError("no ZooKeeper")
        world.reconciler.reconcile(AtOnce(), AtOnce())
        world.lease.held = HeldLease(3, "me")
        world.reconciler.reconcile(AtOnce(), AtOnce())

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
    [answer] = [json.loads(each)["data"] for each in world.results]
    assert answer["result"] == last
    assert answer["detail"] == "; then: ".join(f"try {number + 1}" for number in range(tries))


@pytest.mark.parametrize("recall", ["a later order", "a later epoch", "another stage"])
def test_a_recall_ends_the_tries_of_an_order(recall: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "_LONGEST_BACKOFF_SECONDS", 0)
    world, later = World(), Later()

    def meanwhile() -> None:
        world.registry.epochs = [3 if recall == "a later epoch" else 2]
        if recall == "a later order":
            world.reconciler.receive(order(SwitchVerdict.PROMOTE, 2))
        if recall == "another stage":
            world.reconciler.receive(record(sequence=150, verdict=SwitchStage.ROLLBACK))
        world.reconciler.reconcile(later, later)

    world.reconcile()
    world.ledgers.results, world.ledgers.meanwhile = [FAILED] * 3, meanwhile
    world.reconcile(order(SwitchVerdict.PROMOTE))
    assert (len(world.ledgers.done), world.results) == (1, [])


def test_an_earlier_order_about_a_ledger_is_void() -> None:
    world, later = World(), Later()
    world.reconcile()
    for each in (order(COPY, 1), order(SwitchVerdict.PROMOTE, 2), order(COPY, 1, sequence=99)):
        world.reconciler.receive(each)
    world.reconciler.receive(record(sequence=90, verdict=SwitchStage.PROMOTE))
    world.reconciler.reconcile(later, later)
    for work in later.work:
        work()
    assert world.ledgers.done == [(SwitchVerdict.PROMOTE, 2)]


def test_how_much_may_be_copied_changes_while_it_runs() -> None:
    world = World()
    world.reconcile()
    for number, limit in enumerate((None, None, 1000, 1000, None)):
        world.reconciler.receive(record(sequence=150 + number, copy_bytes_per_second=limit))
        world.reconcile()
    assert world.ledgers.limits == [0, 1000, 0]


def test_what_copies_is_started_once_a_stage_while_the_brokers_follow_by_whoever_holds_the_lease() -> None:
    world = World()
    world.lease.held = None
    world.reconciler.receive(record(sequence=150, verdict=SwitchStage.TRIGGERED))
    world.reconcile()
    assert world.ledgers.ready == []
    world.lease.held = HeldLease(3, "me")
    stages = (SwitchStage.LIVE_DUAL_READ, SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.HOLD)
    for number, stage in enumerate(stages):
        world.reconciler.receive(record(sequence=160 + number, verdict=stage))
        world.reconcile()
    assert world.ledgers.ready == [("old", "new")] * 2


class Later(Executor):
    """Works when it is told to: what lies ready waits."""

    def __init__(self) -> None:
        self.work: list[Callable[[], Any]] = []
        self.results: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        self.work.append(partial(fn, *args, **options))
        self.results.append(Future())
        return self.results[-1]


@pytest.mark.parametrize("why", [{"halted": "INV-2"}, {"paused": True}, {"contested": "epoch 9"}])
def test_what_lies_ready_when_the_switch_stops_is_not_begun_until_it_is_ordered_again(why: dict[str, Any]) -> None:
    world, later = World(), Later()
    world.reconcile()
    world.reconciler.receive(order(COPY))
    world.reconciler.receive(record(sequence=150, cluster="c1", **why))
    world.reconciler.reconcile(later, later)
    while later.work:
        later.work.pop()()
    assert world.ledgers.done == []
    again = order(COPY, sequence=160, decision_id="d2")
    world.reconciler.receive(again)
    world.reconciler.reconcile(later, later)
    while later.work:
        later.work.pop()()
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
    world, later = World(), Later()
    world.reconcile()
    world.reconciler.receive(order(verdict))
    world.reconciler.receive(record(verdict=stage))
    world.reconciler.reconcile(later, later)
    while later.work:
        later.work.pop()()
    assert [done for done, _ in world.ledgers.done] == ([verdict] if is_begun else [])


def test_the_progress_of_a_switch_is_kept_once_for_each_change() -> None:
    world = World()
    progress = SwitchProgress(
        source="old", target="new", stage=SwitchStage.BUILD, epoch=1, target_floor=5, started_ms=9
    )
    for stage_ms in (10, 10, 20):
        kept = replace(progress, stage_ms=stage_ms)
        world.reconciler.receive(record(verdict=SwitchStage.BUILD, progress=kept))
        world.reconcile()
    assert [each.stage_ms for each in world.registry.kept] == [10, 20]


def test_a_progress_that_cannot_be_kept_is_shown_and_holds_up_no_order() -> None:
    world = World()
    world.reconcile()
    world.registry.damage = ZnodeError("orchestrator/new is damaged")
    progress = SwitchProgress(
        source="old", target="new", stage=SwitchStage.BUILD, epoch=1, target_floor=5, started_ms=9
    )
    world.reconciler.receive(record(verdict=SwitchStage.BUILD, progress=progress))
    world.reconcile(directive(2))
    assert (world.registry.directives, world.is_failing()) == ([(2, "new")], True)
    world.registry.damage = None
    world.reconcile()
    assert (world.registry.kept, world.is_failing()) == ([progress], False)


def test_a_plan_that_was_lost_is_read_again_with_the_ledgers_that_moved() -> None:
    world = World()
    world.reconcile()
    taken = order(SwitchVerdict.TAKE_INVENTORY, subject="c1/inventory", ledger=None, args={"moved_too": True})
    world.reconcile(taken)
    assert (world.readings.inventories[-1], world.readings.moved_too) == (("old", "new"), True)


@pytest.mark.parametrize("verdict", [COPY, SwitchVerdict.PROMOTE])
@pytest.mark.parametrize(("epoch", "is_begun"), [(1, True), (2, True), (3, False)])
def test_nothing_is_written_under_an_old_epoch(epoch: int, is_begun: bool, verdict: SwitchVerdict) -> None:
    world = World()
    world.registry.epochs = [epoch]
    world.reconcile()
    world.reconcile(order(verdict))
    assert bool(world.ledgers.done) is is_begun


def test_copies_share_a_reading_of_the_epoch_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "_SHARED_SECONDS", 3600)
    world = World()
    world.registry.epochs = [2, 3]
    world.reconcile()
    world.reconcile(order(COPY), order(COPY, sequence=301, op=8))
    assert (len(world.ledgers.done), world.registry.epochs) == (2, [3])


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
    world, later = World(), Later()
    world.reconcile()
    world.reconciler.receive(order(SwitchVerdict.DELETE_OLD))
    world.reconciler.receive(record(verdict=SwitchStage.CLEANUP, kept=True))
    world.reconciler.reconcile(later, later)
    while later.work:
        later.work.pop()()
    assert world.ledgers.done == []
    world.reconciler.reconcile(later, later)
    [result] = [json.loads(each)["data"] for each in world.results]
    assert (result["result"], "before the deletion began" in result["detail"]) == ("failed", True)


@pytest.mark.parametrize(("verdict", "most"), [(COPY, 8), (SwitchVerdict.PROMOTE, 2)], ids=["copies", "all else"])
def test_the_copier_is_asked_ahead_of_what_it_makes_at_once_and_of_all_else_no_more_is_under_way(
    verdict: SwitchVerdict, most: int
) -> None:
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
        world.reconciler.receive(order(verdict, number, subject=f"c1/ledgers/{number}"))
    eventually("as many as may be are under way", lambda: under_way >= most or None)
    may_end.set()
    eventually("all are done", lambda: len(world.results) == 20 or None)
    stop.set()
    world.reconciler.wake()
    running.join()
    assert peak == most


def directive(epoch: int) -> SwitchDecision:
    return order(
        SwitchVerdict.WRITE_DIRECTIVE, 0, subject="c1/directive", ledger=None, sequence=200 + epoch,
        args={"directive_epoch": epoch, "target": "new"},
    )  # fmt: skip


def test_what_the_registry_does_not_take_is_tried_again_and_only_the_newest_of_it() -> None:
    world = World()
    world.reconcile()
    world.registry.error = ZnodeError("no ZooKeeper")
    world.reconcile(directive(1))
    world.reconcile(directive(2))
    assert world.registry.directives == []
    world.registry.error = None
    world.reconcile()
    world.reconcile()
    assert world.registry.directives == [(2, "new")]


def test_a_precheck_and_an_inventory_are_made_when_ordered() -> None:
    world = World()
    world.reconcile()
    args = {"source": "old", "target": "new"}
    world.reconcile(order(SwitchVerdict.RUN_PRECHECK, 0, subject="c1/prechecks/new", ledger=None, args=args))
    assert world.readings.prechecks == [("old", "new")]
    world.reconcile(order(SwitchVerdict.TAKE_INVENTORY, 0, subject="c1/inventory", ledger=None, args=args))
    assert world.readings.inventories == [("", ""), ("old", "new")]


def test_an_inventory_that_takes_longer_than_its_interval_is_not_queued_again() -> None:
    world = World(inventory_interval=timedelta(0))
    readings = Later()
    for _ in range(3):
        world.reconciler.reconcile(AtOnce(), readings)
    assert len(readings.work) == 1
    readings.results[0].set_result(None)
    world.reconciler.reconcile(AtOnce(), readings)
    assert len(readings.work) == 2


def test_an_unexpected_error_ends_nothing() -> None:
    world = World()
    world.reconcile()

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
    args = {"source": "old", "target": "new"}
    world.reconcile(order(SwitchVerdict.TAKE_INVENTORY, 0, subject="c1/inventory", ledger=None, args=args))
    assert not world.is_failing()


def test_it_runs_until_it_is_stopped_and_gives_the_lease_back() -> None:
    world, stop = World(), threading.Event()
    stop.set()
    world.reconciler.run(stop)
    assert world.ended == ["copies", "lease"]


def test_answers_are_gathered_for_a_second_while_more_are_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    world, later, now = World(), Later(), [100.0]
    monkeypatch.setattr(reconciler, "time", SimpleNamespace(monotonic=lambda: now[0]))
    world.reconcile()
    for number in range(8):
        world.reconciler.receive(order(COPY, number, subject=f"c1/ledgers/{number}"))
    world.reconciler.reconcile(later, later)
    sent = []
    for seconds in (0.4, 0.5, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0):
        later.work.pop(0)()
        now[0] += seconds
        world.reconciler.reconcile(later, later)
        sent.append(len(world.results))
    assert sent == [0, 0, 3, 4, 5, 6, 7, 8], "the last ones wait for no others"
