"""Carries out one broker cluster's switch: holds the lease, publishes readings, and carries out the policy's orders.

The holder of the lease is the only orchestrator. Orders under an older lease are dropped, and the policy repeats them
under the new one. So the executor needs no memory over a restart.
"""

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.actuation.worker import ActuatorMetrics
from connectors.switching.ledger_orders import MOST_DETAIL, LedgerOrder, LedgerOrders
from connectors.switching.readings import SwitchReadings
from connectors.switching.registration import SwitchExecution
from connectors.switching.registry import HeldLease, Registry, ZooKeeperLease
from connectors.zookeeper.json_znodes import ZnodeError
from policies.decisions import Mode
from policies.observations import Outcome, Reading
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import LedgerOutcome, SwitchLease, SwitchLedger
from policies.switching.settings import SwitchingSettings
from policies.switching.state import ENDED, UNDONE, SwitchProgress, SwitchStage
from policies.units import millis_of
from policies.wire import observation_event

LEASE_VALID = timedelta(seconds=60)
"""Time after which the policy gives up a silent executor. A successor is known at once by its greater token."""

REQUESTED_COPIES = 4
"""Number of copies requested from the copier at a time, as a multiple of the copies it runs in parallel: some wait for
the journal while others are copied."""
_UNREAD_SECONDS = 1.0
"""Time after which the directive is read again, if ZooKeeper does not answer."""
_LONGEST_BACKOFF_SECONDS = 30.0
_DELETION_BACKOFF_SECONDS = 6.0
"""Time from a deletion that failed to its result. The policy itself orders each deletion again."""
_TRIED_AGAIN = frozenset({LedgerOutcome.FAILED, LedgerOutcome.CONFLICT, LedgerOutcome.ADVANCED})
_GATHER_SECONDS = 1.0
_NEVER = float("-inf")
SOURCE = "headgate/switch-executor"
_IDLE = ENDED | {SwitchStage.NONE, SwitchStage.DONE_WITH_FAILURES, SwitchStage.HOLD}
_BEFORE_ROLLBACK = frozenset({SwitchStage.BUILD, SwitchStage.PROMOTE})
LEDGER_ORDERS: Mapping[SwitchVerdict, frozenset[SwitchStage]] = {
    SwitchVerdict.START_COPY: _BEFORE_ROLLBACK,
    SwitchVerdict.PROMOTE: frozenset({SwitchStage.PROMOTE}),
    SwitchVerdict.REQUEST_ROLLOVER: frozenset({SwitchStage.PROMOTE}),
    SwitchVerdict.DELETE_OWN_COPY: _BEFORE_ROLLBACK | UNDONE,
    SwitchVerdict.REVERT: frozenset({SwitchStage.ROLLBACK}),
    SwitchVerdict.DELETE_OLD: frozenset({SwitchStage.CLEANUP}),
}
"""The orders about ledgers, with the stages in which each is begun. One of an earlier stage is void: the policy gives
another one."""
_NEEDS_INVENTORY = ENDED | {SwitchStage.HOLD, SwitchStage.DONE_WITH_FAILURES}

_log = structlog.get_logger(__name__)


class SwitchExecutorMetrics(ActuatorMetrics):
    """The metrics of the executor: make one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lease = Gauge(
            "headgate_switch_lease_held",
            "1 while this process carries out the cluster's switch.",
            ("cluster",),
            registry=registry,
        )
        self.answers = Counter(
            "headgate_switch_answers",
            "Results of orders about ledgers.",
            ("cluster", "verdict", "result"),
            registry=registry,
        )
        self.copied_bytes = Counter(
            "headgate_switch_copied_bytes", "Bytes of completely copied ledgers.", ("cluster",), registry=registry
        )
        super().__init__(registry, "headgate_switch_executor_failing", "1 while an order cannot be carried out.")


@dataclass(slots=True)
class _LedgerWork:
    """The orders about one ledger, of which one at a time is carried out."""

    newest: tuple[int, int] = (-1, -1)
    """The op and sequence of the newest order; an earlier one is void."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class SwitchReconciler:
    """Carries out one broker cluster's switch. `receive` may be called from any thread, `run` from one.

    Args:
        publish: publishes readings of the lease; must not block.
        send_answer: publishes a record (key, value), and keeps it until Kafka takes it; must not block.
    """

    def __init__(
        self,
        cluster: str,
        settings: SwitchExecution,
        rules: SwitchingSettings,
        *,
        lease: ZooKeeperLease,
        readings: SwitchReadings,
        registry: Registry,
        ledger_orders: LedgerOrders,
        publish: Callable[[Reading], None],
        send_answer: Callable[[str, bytes], None],
        metrics: SwitchExecutorMetrics,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._rules = rules
        self._leases = lease
        self._readings = readings
        self._registry = registry
        self._ledger_orders = ledger_orders
        self._publish = publish
        self._send_answer = send_answer
        self._metrics = metrics
        self._poll_seconds = settings.poll_interval.total_seconds()
        self._inbox: SimpleQueue[SwitchDecision | SwitchRecord] = SimpleQueue()
        self._answers: SimpleQueue[Reading] = SimpleQueue()
        self._answered_at = _NEVER
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._lease: HeldLease | None = None
        self._record: SwitchRecord | None = None
        self._registry_pending: dict[str, SwitchDecision] = {}
        self._inventory_order: SwitchDecision | None = None
        self._kept: SwitchProgress | None = None
        self._ledgers: defaultdict[str, _LedgerWork] = defaultdict(_LedgerWork)
        self._open = 0
        """Number of orders about ledgers that are neither done nor void."""
        self._open_lock = threading.Lock()
        self._polled_at = self._lease_published_at = self._inventory_at = _NEVER
        self._inventory: Future[bool] | None = None
        """The last inventory, which may take longer than the interval."""
        self._failing: set[str] = set()

    def receive(self, received: SwitchDecision | SwitchRecord) -> None:
        """Queue a decision; from any thread."""
        self._inbox.put(received)
        self._woken.set()

    def run(self, stop: threading.Event) -> None:
        """Reconcile until `stop` is set (and `wake` was called)."""
        with (
            ThreadPoolExecutor(
                REQUESTED_COPIES * self._rules.copy_concurrency, thread_name_prefix=f"ledgers of {self._cluster}"
            ) as ledgers,
            ThreadPoolExecutor(1, thread_name_prefix=f"readings of {self._cluster}") as readings,
        ):
            try:
                while not stop.is_set():
                    self.reconcile(ledgers, readings)
                    pause_seconds = max(0.0, self._polled_at + self._poll_seconds - time.monotonic())
                    self._woken.wait(min(pause_seconds, _GATHER_SECONDS))
            finally:
                self._ended.set()
                ledgers.shutdown(wait=False, cancel_futures=True)
                self._ledger_orders.copiers.close()  # copies in progress fail now, and are completed next time
                self._leases.release()

    def wake(self) -> None:
        """End a wait of `run`, so that it checks its stop event."""
        self._woken.set()

    def reconcile(self, ledgers: Executor, readings: Executor) -> None:
        """Renew the lease and publish readings if due; process received decisions, and begin to carry them out."""
        self._woken.clear()
        if time.monotonic() >= self._polled_at + self._poll_seconds:
            self._polled_at, before = time.monotonic(), self._lease
            self._renew_lease()
            if self._lease is not None:
                is_idle = self._record is None or self._record.verdict in _IDLE
                self._readings.publish(unchanged_too=not is_idle or self._lease != before)
        self._read_inbox(ledgers, readings)
        if self._lease is not None:
            self._run_guarded("registry", self._write_registry)
            self._keep_progress()
            self._send_answers()
            self._take_inventory(readings)

    # --- the lease

    def _renew_lease(self) -> None:
        try:
            lease = self._leases.renew()
        except ZnodeError as error:
            # The holder is unknown. Work in progress continues: all writes are conditional, and if another process has
            # taken the lease meanwhile, its greater token shows.
            _log.warning("the lease cannot be renewed", cluster=self._cluster, detail=str(error))
            self._metrics.lease.labels(self._cluster).set(0)
            return
        if lease != self._lease:
            self._reset(lease)
        self._metrics.lease.labels(self._cluster).set(lease is not None)
        if lease is not None and time.monotonic() - self._lease_published_at >= LEASE_VALID.total_seconds() / 4:
            self._lease_published_at = time.monotonic()
            valid = {"token": lease.token, "holder": lease.holder, "valid_ms": millis_of(LEASE_VALID)}
            self._publish(SwitchLease.model_validate({"cluster": self._cluster, "outcome": Outcome.OK, **valid}))

    def _reset(self, lease: HeldLease | None) -> None:
        """Drop all orders under the former lease: the policy repeats them to its present holder."""
        _log.info("switch lease", cluster=self._cluster, token=lease.token if lease else None)
        self._lease = lease
        self._registry_pending.clear()
        self._inventory_order = None
        self._ledgers = defaultdict(_LedgerWork)
        self._answers = SimpleQueue()
        self._failing.clear()
        self._metrics.failing.labels(self._cluster).set(0)
        self._inventory_at = self._lease_published_at = _NEVER

    # --- observations

    def _take_inventory(self, readings: Executor) -> None:
        """Take an inventory that is due or ordered.

        An ordered one waits until the registry is written and read again: under the directive before, it does not
        count.
        """
        order, record, about = self._inventory_order, self._record, dict[str, Any]()
        is_due = time.monotonic() - self._inventory_at >= self._settings.inventory_interval.total_seconds()
        if order is not None and not self._registry_pending and self._polled_at != _NEVER:
            self._inventory_order, pair = None, (order.source, order.target)
            about = {"moved_too": bool(order.args.get("moved_too")), "attempt": order.args.get("attempt", 1)}
        elif is_due and (self._inventory is None or self._inventory.done()):
            is_live = record is not None and record.verdict not in ENDED | {SwitchStage.NONE}
            pair = (record.source, record.target) if record is not None and is_live else (None, None)
            about = {"moved_too": record.recovering, "attempt": record.attempt} if record is not None else {}
        else:
            return
        self._inventory_at = time.monotonic()
        publish = partial(self._readings.publish_inventory, pair[0] or "", pair[1] or "", **about)
        self._inventory = readings.submit(self._run_guarded, "inventory", publish)

    # --- orders

    def _read_inbox(self, ledgers: Executor, readings: Executor) -> None:
        while True:
            try:
                received = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(received, SwitchRecord):
                self._process_record(received)
            elif received.verdict in ORDERS and received.mode is Mode.ACTIVE and self._is_under_lease(received):
                self._begin(received, ledgers, readings)

    def _process_record(self, record: SwitchRecord) -> None:
        """Process the state of the switch. Its last stages need an inventory of the ledgers left in the old cluster."""
        is_new = self._record is None or self._record.verdict is not record.verdict
        if is_new and record.verdict in _NEEDS_INVENTORY:
            self._inventory_at = _NEVER
        limit = record.copy_bytes_per_second or 0
        if self._record is None or limit != (self._record.copy_bytes_per_second or 0):
            self._ledger_orders.copiers.limit(limit)
        self._record = record

    def _begin(self, order: SwitchDecision, ledgers: Executor, readings: Executor) -> None:
        log = _log.debug if order.verdict in LEDGER_ORDERS else _log.info  # there may be 100,000 of them
        log("switch order", cluster=self._cluster, verdict=order.verdict.value, subject=order.subject, op=order.op)
        if order.verdict in LEDGER_ORDERS:
            work, version = self._ledgers[order.subject], (order.op, order.sequence)
            if version > work.newest:
                work.newest = version
                with self._open_lock:
                    self._open += 1
                ledgers.submit(self._carry_out_in_turn, work, order)
        elif order.verdict is SwitchVerdict.RUN_PRECHECK:
            source, target = (str(order.args[name]) for name in ("source", "target"))
            publish = partial(self._readings.publish_precheck, source, target)
            readings.submit(self._run_guarded, "precheck", publish)
        elif order.verdict is SwitchVerdict.TAKE_INVENTORY:
            self._inventory_order = order
        else:
            self._registry_pending[order.subject] = order

    def _write_registry(self) -> None:
        """Carry out pending orders about the registry. After a failure of ZooKeeper they stay pending."""
        for subject, order in list(self._registry_pending.items()):
            result = self._registry.carry_out(order)
            del self._registry_pending[subject]
            self._polled_at = _NEVER  # so that the policy sees the new state at once
            if result is not None:
                self._answers.put(result)

    def _keep_progress(self) -> None:
        """Keep the switch's progress beside the registry.

        Only a query that loses its checkpoint needs it, so a failure holds up no order.
        """
        progress = self._record.progress if self._record is not None else None
        if progress is None or progress == self._kept:
            return
        if self._run_guarded("progress", partial(self._registry.write_progress, progress)):
            self._kept = progress

    def _carry_out_in_turn(self, work: _LedgerWork, order: SwitchDecision) -> None:
        with work.lock:
            self._run_guarded("ledgers", partial(self._carry_out, work, order))
        with self._open_lock:
            self._open -= 1

    def _carry_out(self, work: _LedgerWork, order: SwitchDecision) -> None:
        result = self._try_until_done(work, order)
        if result is None:
            # The policy waits for the result of each deletion, because it is irreversible.
            if self._record is None or order.verdict is not SwitchVerdict.DELETE_OLD or not self._record.kept:
                return
            detail = "an operator ended the clean-up before the deletion began"
            result = LedgerOrder(order).result(LedgerOutcome.FAILED, detail)
        if result.result is LedgerOutcome.COPIED and result.target is not None:
            self._metrics.copied_bytes.labels(self._cluster).inc(result.target.length_bytes)
        if self._is_under_lease(order):
            self._answers.put(result)
            if not self._is_busy():
                self._woken.set()

    def _is_busy(self) -> bool:
        return self._open > 2 * self._rules.copy_concurrency

    def _send_answers(self) -> None:
        """Send the answers to orders; while the executor is busy, only once a second.

        One batch of the query then takes many of them, which leaves more processor time to the copies.
        """
        if self._is_busy() and time.monotonic() < self._answered_at + _GATHER_SECONDS:
            return
        self._answered_at = time.monotonic()
        while not self._answers.empty():
            event = observation_event(self._answers.get(), id=str(uuid.uuid4()), source=SOURCE, time=datetime.now(UTC))
            self._send_answer(self._cluster, event)

    def _try_until_done(self, work: _LedgerWork, order: SwitchDecision) -> SwitchLedger | None:
        """Carry out an order about a ledger, and return its last result; None if it is recalled.

        The result has the details of all tries, because a try may have deleted our own copy to make it again.
        The policy orders each try of a deletion of the source's ledger itself, because it cannot be undone.
        """
        is_deletion = order.verdict is SwitchVerdict.DELETE_OLD
        tries = 1 if is_deletion else self._rules.retries
        is_allowed = partial(self._is_allowed, work, order)
        details: dict[str, None] = {}
        for number in range(tries):
            if not is_allowed():
                return None
            result = self._ledger_orders.carry_out(order, is_allowed)
            self._metrics.answers.labels(self._cluster, order.verdict.value, result.result.value).inc()
            details |= {result.detail: None} if result.detail else {}
            if result.result not in _TRIED_AGAIN:
                break
            _log.warning(
                "switch order failed",
                cluster=self._cluster,
                verdict=order.verdict.value,
                subject=order.subject,
                detail=result.detail,
            )
            if is_deletion or number + 1 < tries:
                backoff_seconds = _DELETION_BACKOFF_SECONDS if is_deletion else 2.0**number
                self._ended.wait(min(_LONGEST_BACKOFF_SECONDS, backoff_seconds))
        return result.model_copy(update={"detail": "; then: ".join(details)[:MOST_DETAIL] or None})

    def _is_under_lease(self, order: SwitchDecision) -> bool:
        return self._lease is not None and order.lease_token == self._lease.token

    def _is_allowed(self, work: _LedgerWork, order: SwitchDecision) -> bool:
        """Whether an order may begin or go on. A recalled one is void: the policy gives another one if it is needed.

        A later order about the ledger recalls it. A record after it may show another stage, a halt, a pause, a contest
        or the end of deletions. The directive in ZooKeeper may have a later epoch, which counts at once, also before
        the policy's record has arrived. While it cannot be read it is unknown, so the order waits.
        """
        while self._is_in_force(work, order):
            if (epoch := self._registry.read_epoch()) is not None:
                return epoch <= order.epoch
            self._ended.wait(_UNREAD_SECONDS)
        return False

    def _is_in_force(self, work: _LedgerWork, order: SwitchDecision) -> bool:
        is_newest = work.newest == (order.op, order.sequence)
        return is_newest and self._is_under_lease(order) and not self._ended.is_set() and not self._is_recalled(order)

    def _is_recalled(self, order: SwitchDecision) -> bool:
        record = self._record
        if record is None or order.sequence > record.sequence:
            return False
        is_past = record.verdict not in LEDGER_ORDERS[order.verdict]
        is_stopped = bool(record.halted or record.paused or record.contested)
        return is_past or is_stopped or (order.verdict is SwitchVerdict.DELETE_OLD and record.kept)

    def _run_guarded(self, kind: str, work: Callable[[], bool | None]) -> bool:
        """Run work that is begun again later, log its error, and return whether it succeeded.

        The metric shows whether any kind of work fails.
        """
        is_done = False
        try:
            is_done = work() is not False
        except ZnodeError as error:
            _log.warning("switch work waits for ZooKeeper", cluster=self._cluster, kind=kind, detail=str(error))
        except Exception:
            _log.exception("switch work failed", cluster=self._cluster, kind=kind)
        (self._failing.discard if is_done else self._failing.add)(kind)
        self._metrics.failing.labels(self._cluster).set(bool(self._failing))
        return is_done
