"""Carries out one broker cluster's switch: holds the lease, publishes observations, and does what the policy orders.

The holder of the lease is the only orchestrator. Orders under an older lease are dropped: the policy gives them again
under the new one, so nothing must be remembered over a restart.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue

import structlog

from connectors.switching.dependencies import Dependencies
from connectors.switching.lease import HeldLease
from connectors.switching.ledger_orders import LEDGER_ORDERS
from connectors.switching.order_queue import LedgerOrderQueue
from connectors.switching.registry import RegistryError
from connectors.switching.registry_orders import REGISTRY_ORDERS
from policies.decisions import Mode
from policies.observations import Outcome
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import LedgerOutcome, SwitchLease
from policies.switching.state import ENDED, SwitchStage
from policies.units import millis_of

LEASE_VALID = timedelta(seconds=60)
"""How long the policy counts on an executor that says nothing. A successor shows by its greater token, at once."""

_COPIES_IN_HAND = 4
"""Of so many times as many ledgers as are copied at once the copier is asked at once: it writes the intents of the next
ones, and that others are equal, meanwhile, and of many together."""
_NEVER = float("-inf")
_IDLE = ENDED | {SwitchStage.NONE, SwitchStage.DONE_WITH_FAILURES, SwitchStage.HOLD}
_COPIES_FOLLOW = frozenset({SwitchStage.TRIGGERED, SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD})
"""What copies takes some seconds to start: they pass while the brokers follow and the inventory is taken."""
_COUNTED_ANEW = frozenset({SwitchStage.HOLD, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES})

Received = SwitchDecision | SwitchRecord

_log = structlog.get_logger(__name__)


class SwitchReconciler:
    """Carries out one broker cluster's switch. `receive` may be called from any thread, `run` from one.

    Args:
        cluster: its name.
        dependencies: what it works with.
        poll_interval: how often it reads what there is and renews the lease.
        inventory_interval: how often it lists all references unasked.
        concurrency: how many ledgers it works on at once.
    """

    def __init__(
        self,
        cluster: str,
        dependencies: Dependencies,
        *,
        poll_interval: timedelta,
        inventory_interval: timedelta,
        concurrency: int,
    ) -> None:
        self._cluster = cluster
        self._with = dependencies
        self._poll_seconds = poll_interval.total_seconds()
        self._inventory_seconds = inventory_interval.total_seconds()
        self._concurrency = concurrency
        self._inbox: SimpleQueue[Received] = SimpleQueue()
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._lease: HeldLease | None = None
        self._record: SwitchRecord | None = None
        self._registry_pending: dict[str, SwitchDecision] = {}
        self._is_shown = False
        self._ledger_queue = LedgerOrderQueue()
        self._places = threading.BoundedSemaphore(concurrency)
        """Of all work on ledgers but copies, of which the copier itself has no more under way."""
        self._polled_at = self._lease_published_at = self._inventory_at = _NEVER
        self._failing: set[str] = set()

    def receive(self, received: Received) -> None:
        """Something was decided."""
        self._inbox.put(received)
        self._woken.set()

    def run(self, stop: threading.Event) -> None:
        """Reconcile until `stop` is set (and `wake` was called)."""
        with (
            ThreadPoolExecutor(
                _COPIES_IN_HAND * self._concurrency, thread_name_prefix=f"ledgers of {self._cluster}"
            ) as ledgers,
            ThreadPoolExecutor(1, thread_name_prefix=f"readings of {self._cluster}") as readings,
        ):
            try:
                while not stop.is_set():
                    self.reconcile(ledgers, readings)
                    self._woken.wait(max(0.0, self._polled_at + self._poll_seconds - time.monotonic()))
            finally:
                self._ended.set()
                self._with.ledger_orders.close()  # what is being copied fails now, and is found half done next time
                self._with.lease.release()

    def wake(self) -> None:
        """Have `run` look at its stop event now."""
        self._woken.set()

    def reconcile(self, ledgers: Executor, readings: Executor) -> None:
        """Renew the lease and publish what there is, when it is time; take in what was decided, and begin with it."""
        self._woken.clear()
        if time.monotonic() >= self._polled_at + self._poll_seconds:
            self._polled_at = time.monotonic()
            self._renew_lease()
            if self._lease is not None:
                self._with.observations.publish(unchanged_too=not self._is_idle())
        self._read_inbox(ledgers, readings)
        if self._lease is not None:
            self._write_registry()
            self._with.results.resend_due()
            self._take_due_inventory(readings)

    # --- the lease

    def _renew_lease(self) -> None:
        try:
            lease = self._with.lease.renew()
        except RegistryError as error:
            # Nobody knows who holds it. What is under way goes on: all writes are conditional, and if another one took
            # the lease meanwhile, its token will tell.
            _log.warning("the lease cannot be renewed", cluster=self._cluster, detail=str(error))
            self._with.metrics.holds_lease(self._cluster, yes=False)
            return
        if lease != self._lease:
            self._start_anew(lease)
        self._with.metrics.holds_lease(self._cluster, yes=lease is not None)
        if lease is not None and time.monotonic() - self._lease_published_at >= LEASE_VALID.total_seconds() / 4:
            self._publish_lease(lease)

    def _publish_lease(self, lease: HeldLease) -> None:
        self._lease_published_at = time.monotonic()
        self._with.publish(
            SwitchLease(
                cluster=self._cluster,
                outcome=Outcome.OK,
                token=lease.token,
                holder=lease.holder,
                valid_ms=millis_of(LEASE_VALID),
            )
        )

    def _start_anew(self, lease: HeldLease | None) -> None:
        """Whatever was ordered under another lease is ordered again, or is somebody else's."""
        _log.info("switch lease", cluster=self._cluster, token=lease.token if lease else None)
        self._lease = lease
        self._registry_pending.clear()
        self._is_shown = False
        self._ledger_queue = LedgerOrderQueue()
        self._with.results.clear()
        self._with.observations.publish_all_next()
        self._failing.clear()
        self._with.metrics.set_failing(self._cluster, yes=False)
        self._inventory_at = self._lease_published_at = _NEVER

    # --- observations

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
        readings.submit(self._guarded, "inventory", lambda: self._with.observations.publish_inventory(source, target))

    # --- orders

    def _read_inbox(self, ledgers: Executor, readings: Executor) -> None:
        while True:
            try:
                received = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(received, SwitchRecord):
                self._take_record(received, ledgers)
                continue
            self._with.results.acknowledge(received)
            if self._is_for_us(received):
                self._begin(received, ledgers, readings)

    def _take_record(self, record: SwitchRecord, ledgers: Executor) -> None:
        """Where the switch stands; at its end whoever asks wants to know what is left of the old cluster since."""
        is_new = self._record is None or self._record.verdict is not record.verdict
        if is_new and record.verdict in _COUNTED_ANEW:
            self._inventory_at = _NEVER
        limit = record.copy_bytes_per_second or 0
        if self._record is None or limit != (self._record.copy_bytes_per_second or 0):
            self._with.ledger_orders.limit(limit)  # first: it would wait for a JVM that starts
        if is_new and record.verdict in _COPIES_FOLLOW and self._lease is not None and record.source and record.target:
            ledgers.submit(self._guarded, "copier", partial(self._make_ready, record.source, record.target))
        self._record = record

    def _make_ready(self, source: str, target: str) -> None:
        if not self._ended.is_set():
            self._with.ledger_orders.make_ready(source, target)

    def _is_for_us(self, decision: SwitchDecision) -> bool:
        return (
            decision.verdict in ORDERS
            and decision.mode is Mode.ACTIVE
            and self._lease is not None
            and decision.lease_token == self._lease.token
        )

    def _begin(self, order: SwitchDecision, ledgers: Executor, readings: Executor) -> None:
        log = _log.debug if order.verdict in LEDGER_ORDERS else _log.info  # of those there may be 100,000
        log("switch order", cluster=self._cluster, verdict=order.verdict.value, subject=order.subject, op=order.op)
        self._with.metrics.ordered(self._cluster, order.verdict)
        if order.verdict in REGISTRY_ORDERS:
            self._registry_pending[order.subject] = order
        elif order.verdict in LEDGER_ORDERS:
            queue = self._ledger_queue
            if queue.begin(order):
                ledgers.submit(self._work_through, queue, order)
        elif order.verdict is SwitchVerdict.RUN_PRECHECK:
            source, target = str(order.args["source"]), str(order.args["target"])
            readings.submit(self._guarded, "precheck", lambda: self._with.observations.publish_precheck(source, target))
        elif order.verdict is SwitchVerdict.TAKE_INVENTORY:
            self._submit_inventory(readings, order.source or "", order.target or "")

    def _write_registry(self) -> None:
        """Try what is ordered of the registry; what ZooKeeper does not answer is tried again."""
        try:
            if not self._is_shown:
                self._with.registry_orders.show_as_proposed()
                self._is_shown = True
            for subject, order in list(self._registry_pending.items()):
                result = self._with.registry_orders.carry_out(order)
                del self._registry_pending[subject]
                self._polled_at = _NEVER  # so that the policy sees at once what is there now
                if result is not None:
                    self._with.results.send(result)
        except RegistryError as error:
            _log.warning("the registry cannot be written", cluster=self._cluster, detail=str(error))
            self._set_failing("registry", yes=True)
        else:
            self._set_failing("registry", yes=False)

    def _work_through(self, queue: LedgerOrderQueue, first: SwitchDecision) -> None:
        """Carry out an order about a ledger, and those that came about it meanwhile."""
        order: SwitchDecision | None = first
        while order is not None:
            with nullcontext() if order.verdict is SwitchVerdict.START_COPY else self._places:
                if not self._ended.is_set() and queue is self._ledger_queue and not self._is_held(order):
                    self._guarded("ledgers", partial(self._carry_out, queue, order))
            order = queue.finish(order)

    def _is_held(self, order: SwitchDecision) -> bool:
        """Whether an order must not be begun any more; whoever drives the switch on has it given again, after that."""
        record = self._record
        if record is None or order.sequence > record.sequence:
            return False
        return bool(record.halted or record.paused or record.contested)

    def _carry_out(self, queue: LedgerOrderQueue, order: SwitchDecision) -> None:
        result = self._with.ledger_orders.carry_out(order)
        self._with.metrics.answered(self._cluster, order.verdict, result.result)
        if result.result in (LedgerOutcome.FAILED, LedgerOutcome.CONFLICT):
            _log.warning(
                "switch order failed",
                cluster=self._cluster,
                verdict=order.verdict.value,
                subject=order.subject,
                detail=result.detail,
            )
            # The policy orders it again at once, a limited number of times: let what is in the way pass first.
            self._ended.wait(queue.backoff_seconds(result))
        else:
            queue.succeeded(result)
        if result.result is LedgerOutcome.COPIED and result.target is not None:
            self._with.metrics.copied(self._cluster, result.target.length_bytes)
        if queue is self._ledger_queue:
            self._with.results.send(result, more_to_come=queue.in_hand > 2 * self._concurrency)

    def _guarded(self, what: str, work: Callable[[], bool | None]) -> None:
        """An unexpected error is logged with all there is to know; whoever drives the switch on has it tried again."""
        try:
            self._set_failing(what, yes=work() is False)
        except Exception:
            _log.exception("switch work failed", cluster=self._cluster, what=what)
            self._set_failing(what, yes=True)

    def _set_failing(self, what: str, *, yes: bool) -> None:
        """One kind of work fails, or does not any more; the metric says whether any does."""
        (self._failing.add if yes else self._failing.discard)(what)
        self._with.metrics.set_failing(self._cluster, yes=bool(self._failing))
