"""A reconciler whose lease, registry, readings and copier are in memory, and executors for its work."""

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import timedelta
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from connectors.switching.reconciler import SwitchExecutorMetrics, SwitchReconciler
from connectors.switching.registration import SwitchExecution
from connectors.switching.registry import HeldLease
from connectors.zookeeper.json_znodes import ZnodeError
from policies.observations import Outcome, Reading
from policies.switching.decisions import SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import LedgerOutcome, SwitchLedger, SwitchStatus
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchProgress


class AtOnce(Executor):
    """Does what is submitted before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(fn(*args, **options))
        return done


class Later(Executor):
    """Does what is submitted when it is told to."""

    def __init__(self) -> None:
        self.work: list[Callable[[], Any]] = []
        self.results: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        self.work.append(partial(fn, *args, **options))
        self.results.append(Future())
        return self.results[-1]

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


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
        self.meanwhile: Callable[[], None] = lambda: None
        self.results: list[LedgerOutcome] = []
        """The results of the next tries."""
        self._ended = ended

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
            "lease": self.lease, "readings": self.readings, "registry": self.registry, "ledger_orders": self.ledgers,
            "publish": self.published.append, "send_answer": lambda _key, value: self.results.append(value),
            "metrics": SwitchExecutorMetrics(self.series),
        }  # fmt: skip
        settings = SwitchExecution.model_construct(poll_interval=timedelta(0), inventory_interval=inventory_interval)
        rules = SwitchingSettings(copy_concurrency=2, retries=3)
        self.reconciler = SwitchReconciler("c1", settings, rules, **parts)

    def reconcile(self, *received: SwitchDecision | SwitchRecord, executor: Executor | None = None) -> None:
        for each in received:
            self.reconciler.receive(each)
        self.reconciler.reconcile(executor or AtOnce(), executor or AtOnce())

    def reconcile_later(self, *received: SwitchDecision | SwitchRecord) -> None:
        """Begin the work when all that came is known."""
        later = Later()
        self.reconcile(*received, executor=later)
        later.run()

    def is_failing(self) -> bool:
        return self.series.get_sample_value("headgate_switch_executor_failing", {"cluster": "c1"}) == 1

    def of(self, kind: type[Reading]) -> list[Any]:
        return [each for each in self.published if isinstance(each, kind)]

    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(each)["data"] for each in self.results]


def leader() -> World:
    """Return a world whose reconciler has the lease."""
    world = World()
    world.reconcile()
    return world
