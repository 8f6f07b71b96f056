"""Carries out one broker cluster's switch: holds the lease, tells the policy what there is, and does what it orders.

Whoever holds the lease is the one orchestrator. What is ordered under an older lease is dropped: the policy orders it
again under the new one, so nothing must be remembered over a restart.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue

import structlog

from connectors.switching.answers import Answers
from connectors.switching.desk import Desk
from connectors.switching.lease import Held, Lease
from connectors.switching.ledger_orders import LEDGER_ORDERS, LedgerOrders
from connectors.switching.metrics import SwitchExecutorMetrics
from connectors.switching.registry import Registry, RegistryError, RegistryView
from connectors.switching.registry_orders import REGISTRY_ORDERS, RegistryOrders
from connectors.switching.sightings import Sightings
from policies.decisions import Mode
from policies.observations import Outcome, Reading
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import LedgerOutcome, SwitchLease, SwitchRegistry
from policies.switching.state import ENDED, SwitchStage
from policies.units import millis_of

LEASE_VALID = timedelta(seconds=60)
"""An executor that is gone is told by its successor's token, not by this; it only bounds how long nobody is missed."""
_REPUBLISH_SECONDS = 15.0
_IDLE = ENDED | {SwitchStage.NONE, SwitchStage.DONE_WITH_FAILURES, SwitchStage.HOLD}

_COUNTED_ANEW = frozenset({SwitchStage.HOLD, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES})

Heard = SwitchDecision | SwitchRecord

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Hands:
    """What a conductor works with."""

    lease: Lease
    registry: Registry
    sightings: Sightings
    ledgers: LedgerOrders
    publish: Callable[[Reading], None]
    """Takes each sighting; must not block."""
    answers: Answers
    metrics: SwitchExecutorMetrics


class Conductor:
    """Conducts one broker cluster's switch. `take` may be called from any thread, `run` from one.

    Args:
        cluster: its name.
        hands: what it works with.
        poll_interval: how often it looks and renews the lease.
        inventory_interval: how often it lists all references unasked.
        concurrency: how many ledgers it works on at once.
        default_bootstrap: the bootstrap cluster while the registry names none.
    """

    def __init__(
        self,
        cluster: str,
        hands: Hands,
        *,
        poll_interval: timedelta,
        inventory_interval: timedelta,
        concurrency: int,
        default_bootstrap: str,
    ) -> None:
        self._cluster = cluster
        self._hands = hands
        self._poll_seconds = poll_interval.total_seconds()
        self._inventory_seconds = inventory_interval.total_seconds()
        self._concurrency = concurrency
        self._default_bootstrap = default_bootstrap
        self._registry_orders = RegistryOrders(cluster, hands.registry)
        self._inbox: SimpleQueue[Heard] = SimpleQueue()
        self._news = threading.Event()
        self._ended = threading.Event()
        self._held: Held | None = None
        self._record: SwitchRecord | None = None
        self._view: RegistryView | None = None
        self._registry_pending: dict[str, SwitchDecision] = {}
        self._desk = Desk()
        self._polled_at = self._renewed_at = self._published_at = self._inventory_at = float("-inf")
        self._published: dict[str, Reading] = {}
        self._troubles: set[str] = set()

    def take(self, heard: Heard) -> None:
        """Something was decided."""
        self._inbox.put(heard)
        self._news.set()

    def run(self, stop: threading.Event) -> None:
        """Conduct until `stop` is set (and `wake` was called)."""
        with (
            ThreadPoolExecutor(self._concurrency, thread_name_prefix=f"ledgers of {self._cluster}") as ledgers,
            ThreadPoolExecutor(1, thread_name_prefix=f"readings of {self._cluster}") as readings,
        ):
            try:
                while not stop.is_set():
                    self.turn(ledgers, readings)
                    self._news.wait(max(0.0, self._polled_at + self._poll_seconds - time.monotonic()))
            finally:
                self._ended.set()
                self._hands.ledgers.close()  # what is being copied fails now, and is found half done next time
                self._hands.lease.release()

    def wake(self) -> None:
        """Have `run` look at its stop event now."""
        self._news.set()

    def turn(self, ledgers: Executor, readings: Executor) -> None:
        """Renew the lease and look, when it is time; take in what was decided, and begin with it."""
        self._news.clear()
        if time.monotonic() >= self._polled_at + self._poll_seconds:
            self._polled_at = time.monotonic()
            self._renew()
            if self._held is not None:
                self._look()
        self._read_inbox(ledgers, readings)
        if self._held is not None:
            self._write_registry()
            self._hands.answers.repeat()
            self._take_due_inventory(readings)

    # --- the lease

    def _renew(self) -> None:
        try:
            held = self._hands.lease.renew()
        except RegistryError as error:
            # Nobody knows who holds it. What is under way goes on: all writes are conditional, and if another one took
            # the lease meanwhile, its token will tell.
            _log.warning("the lease cannot be renewed", cluster=self._cluster, detail=str(error))
            self._hands.metrics.holds_lease(self._cluster, yes=False)
            return
        if held != self._held:
            self._start_anew(held)
        self._hands.metrics.holds_lease(self._cluster, yes=held is not None)
        now = time.monotonic()
        if held is not None and now - self._renewed_at >= LEASE_VALID.total_seconds() / 4:
            self._renewed_at = now
            self._hands.publish(
                SwitchLease(
                    cluster=self._cluster, outcome=Outcome.OK, token=held.token, holder=held.holder,
                    valid_ms=millis_of(LEASE_VALID),
                )
            )  # fmt: skip

    def _start_anew(self, held: Held | None) -> None:
        """Whatever was ordered under another lease is ordered again, or is somebody else's."""
        _log.info("switch lease", cluster=self._cluster, token=held.token if held else None)
        self._held = held
        self._registry_pending.clear()
        self._desk = Desk()
        self._hands.answers.forget()
        self._published.clear()
        self._troubles.clear()
        self._hands.metrics.failing(self._cluster, yes=False)
        self._inventory_at = self._renewed_at = float("-inf")

    # --- sightings

    def _look(self) -> None:
        """Read what is quickly read; what has not changed is told now and then, and always while it matters."""
        now = time.monotonic()
        due = now - self._published_at >= _REPUBLISH_SECONDS or not self._is_idle()
        if due:
            self._published_at = now
        try:
            self._view = self._hands.registry.read()
            self._tell("registry", self._view.reading(self._cluster), due=due)
        except RegistryError as error:
            self._tell("registry", SwitchRegistry(cluster=self._cluster, **_unread(error)), due=due)
        self._tell("brokers", self._hands.sightings.brokers(), due=due)
        for cluster in self._hands.sightings.clusters():
            # How long it took says nothing new.
            self._tell(cluster.name, cluster, due=due, known_by=cluster.model_copy(update={"took_ms": 0}))

    def _tell(self, what: str, reading: Reading, *, due: bool, known_by: Reading | None = None) -> None:
        key = known_by or reading
        if due or self._published.get(what) != key:
            self._published[what] = key
            self._hands.publish(reading)

    def _is_idle(self) -> bool:
        return self._record is None or self._record.verdict in _IDLE

    def _take_due_inventory(self, readings: Executor) -> None:
        if time.monotonic() - self._inventory_at >= self._inventory_seconds:
            record = self._record
            is_live = record is not None and record.verdict not in ENDED | {SwitchStage.NONE}
            pair = (record.source, record.target) if record is not None and is_live else (None, None)
            self._submit_inventory(readings, pair[0] or "", pair[1] or "")

    def _submit_inventory(self, readings: Executor, source: str, target: str) -> None:
        self._inventory_at = time.monotonic()
        readings.submit(self._guarded, "inventory", lambda: self._publish_inventory(source, target))

    def _publish_inventory(self, source: str, target: str) -> bool:
        """Gives whether there is one."""
        well = True
        for reading in self._hands.sightings.inventory(self._bootstrap(), source, target):
            if reading.outcome is not Outcome.OK:
                _log.warning("no inventory", cluster=self._cluster, detail=reading.detail)
                well = False
            self._hands.publish(reading)
        return well

    def _bootstrap(self) -> str:
        return (self._view.bootstrap if self._view else None) or self._default_bootstrap

    # --- orders

    def _read_inbox(self, ledgers: Executor, readings: Executor) -> None:
        while True:
            try:
                heard = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(heard, SwitchRecord):
                self._stands(heard)
                continue
            self._hands.answers.heard(heard)
            if self._is_for_us(heard):
                self._begin(heard, ledgers, readings)

    def _stands(self, record: SwitchRecord) -> None:
        """Where the switch stands; at its end whoever asks wants to know what is left of the old cluster since."""
        if record.verdict in _COUNTED_ANEW and (self._record is None or self._record.verdict is not record.verdict):
            self._inventory_at = float("-inf")
        self._record = record

    def _is_for_us(self, decision: SwitchDecision) -> bool:
        return (
            decision.verdict in ORDERS
            and decision.mode is Mode.ACTIVE
            and self._held is not None
            and decision.lease_token == self._held.token
        )

    def _begin(self, order: SwitchDecision, ledgers: Executor, readings: Executor) -> None:
        say = _log.debug if order.verdict in LEDGER_ORDERS else _log.info  # of those there may be 100,000
        say("switch order", cluster=self._cluster, verdict=order.verdict.value, subject=order.subject, op=order.op)
        self._hands.metrics.ordered(self._cluster, order.verdict)
        if order.verdict in REGISTRY_ORDERS:
            self._registry_pending[order.subject] = order
        elif order.verdict in LEDGER_ORDERS:
            desk = self._desk
            if desk.begins(order):
                ledgers.submit(self._work, desk, order)
        elif order.verdict is SwitchVerdict.RUN_PRECHECK:
            source, target = str(order.args["source"]), str(order.args["target"])
            readings.submit(
                self._guarded,
                "precheck",
                lambda: self._hands.publish(self._hands.sightings.precheck(source, target, self._bootstrap())),
            )
        elif order.verdict is SwitchVerdict.TAKE_INVENTORY:
            self._submit_inventory(readings, order.source or "", order.target or "")

    def _write_registry(self) -> None:
        """Try what is ordered of the registry; what ZooKeeper does not answer is tried again."""
        for subject, order in list(self._registry_pending.items()):
            try:
                answer = self._registry_orders.carry_out(order)
            except RegistryError as error:
                _log.warning("the registry cannot be written", cluster=self._cluster, detail=str(error))
                self._trouble("registry", yes=True)
                return
            del self._registry_pending[subject]
            self._polled_at = float("-inf")  # so that the policy sees at once what is there now
            if answer is not None:
                self._hands.answers.give(answer)
        self._trouble("registry", yes=False)

    def _work(self, desk: Desk, first: SwitchDecision) -> None:
        """Carry out an order about a ledger, and those that came about it meanwhile."""
        order: SwitchDecision | None = first
        while order is not None:
            if not self._ended.is_set() and desk is self._desk:
                self._guarded("ledgers", partial(self._carry_out, desk, order))
            order = desk.next(order)

    def _carry_out(self, desk: Desk, order: SwitchDecision) -> None:
        answer = self._hands.ledgers.carry_out(order)
        self._hands.metrics.answered(self._cluster, order.verdict, answer.result)
        if answer.result in (LedgerOutcome.FAILED, LedgerOutcome.CONFLICT):
            _log.warning(
                "switch order failed", cluster=self._cluster, verdict=order.verdict.value, subject=order.subject,
                detail=answer.detail,
            )  # fmt: skip
            # The policy tries again at once, and so often only: let what is in the way pass.
            self._ended.wait(desk.pause_seconds(answer))
        else:
            desk.succeeded(answer)
        if answer.result is LedgerOutcome.COPIED and answer.target is not None:
            self._hands.metrics.copied(self._cluster, answer.target.length_bytes)
        if desk is self._desk:
            self._hands.answers.give(answer)

    def _guarded(self, what: str, work: Callable[[], bool | None]) -> None:
        """An unexpected error is logged with all there is to know; whoever drives the switch on has it tried again."""
        try:
            self._trouble(what, yes=work() is False)
        except Exception:
            _log.exception("switch work failed", cluster=self._cluster, what=what)
            self._trouble(what, yes=True)

    def _trouble(self, what: str, *, yes: bool) -> None:
        """One kind of work fails, or does not any more; the metric says whether any does."""
        (self._troubles.add if yes else self._troubles.discard)(what)
        self._hands.metrics.failing(self._cluster, yes=bool(self._troubles))


def _unread(error: RegistryError) -> dict[str, object]:
    return {"outcome": Outcome.ERROR, "detail": str(error)}
