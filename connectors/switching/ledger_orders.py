"""Carries out orders about single ledgers: copy, attribute, roll over, revert, delete.

Every state is read again before a change, and changed only if it is still as read. So an order that arrives twice, late
or after a crash finds its work done, or finds another state and reports that. A try makes each change at most once; the
reconciler tries again until the order is done.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack

import structlog
from msgspec import structs

from connectors.bookkeeper.cluster import NOT_OURS
from connectors.bookkeeper.copier import (
    COMPARED,
    LedgerCopier,
    NotPossibleError,
    NotRecordedError,
    SourceUnreadableError,
)
from connectors.bookkeeper.copy_journal import CopyJournal, OtherSourceError
from connectors.bookkeeper.gateway import BookKeeperJvm, JavaError, JvmDiedError
from connectors.collection import whole_line
from connectors.switching.attribution import Move, ReferenceZnodes
from connectors.switching.clusters import ClusterSessions
from connectors.switching.registration import SwitchExecution
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import (
    NotConnectedError,
    UnreadError,
    describe_zookeeper_error,
)
from policies.observations import Outcome
from policies.switching.decisions import LedgerRef, SwitchDecision, SwitchVerdict
from policies.switching.ledgers import Ledger, LedgerKind
from policies.switching.readings import LedgerOutcome, SwitchLedger
from policies.units import UserError


class LedgerCopiers:
    """The ledger copier of one broker cluster. Thread-safe; must be closed.

    It is made at its first use, and again for another pair of BookKeeper clusters, or after the password has changed.
    """

    def __init__(
        self,
        sessions: ClusterSessions,
        settings: SwitchExecution,
        make_jvm: Callable[[], BookKeeperJvm],
        concurrency: int,
    ) -> None:
        self._sessions = sessions
        self._settings = settings
        self._make_jvm = make_jvm
        self._concurrency = concurrency
        self._lock = threading.RLock()
        self._bytes_per_second = 0
        self._copier: LedgerCopier | None = None
        self._made_for = ("", "", b"")

    def get(self, source: str, target: str) -> LedgerCopier:
        """Return the copier from one cluster to another.

        Raises:
            UnreadError: a cluster's identity cannot be read.
            NotConnectedError: its ZooKeeper cannot be reached.
            UserError: the settings have no such cluster, its settings are wrong, or both are the same.
        """
        wanted = (source, target, self._settings.password())
        with self._lock:
            if self._copier is None or wanted != self._made_for:
                self.close()
                self._copier, self._made_for = self._make(*wanted), wanted
            return self._copier

    def limit(self, bytes_per_second: int) -> None:
        """Limit the copied bytes per second from now on; 0: no limit."""
        with self._lock:
            self._bytes_per_second = bytes_per_second
            if self._copier is not None:
                self._copier.jvm.limit(bytes_per_second)

    def close(self) -> None:
        """Abort all copies."""
        with self._lock:
            copier, self._copier = self._copier, None
            if copier is not None:
                copier.jvm.close()

    def _make(self, source: str, target: str, password: bytes) -> LedgerCopier:
        one, other = (self._sessions.identify(name) for name in (source, target))
        copier = LedgerCopier(
            self._make_jvm(),
            CopyJournal(self._sessions.brokers, source=one["instance_id"], target=other["instance_id"]),
            one["uri"],
            other["uri"],
            password=password,
            replication=self._settings.replication,
            concurrency=self._concurrency,
            timeout=self._settings.copy_timeout,
        )
        copier.jvm.limit(self._bytes_per_second)
        return copier


MOST_DETAIL = 500
"""Limit of the characters of a result's detail."""
_WRITERS = 64
"""Limit of the znodes that are written at the same time."""

_log = structlog.get_logger(__name__)


class LedgerOrder:
    """An order about a ledger, with its required fields.

    `is_allowed` returns whether it may still write. It must be asked again after a copy, which may take minutes.
    """

    def __init__(self, decision: SwitchDecision, is_allowed: Callable[[], bool] = lambda: True) -> None:
        if decision.ledger is None or decision.source is None or decision.target is None:
            raise ValueError("it names no ledger, or no clusters")
        self.decision = decision
        self.ledger: LedgerRef = decision.ledger
        self.source: str = decision.source
        self.target: str = decision.target
        self.is_allowed = is_allowed
        self.ledger_id = self.ledger.ledger_id
        """The id of the source's ledger."""
        self.target_id = self.ledger_id if self.ledger.target_id is None else self.ledger.target_id
        """The id of its copy."""
        self.is_shared = bool(decision.args.get("shared"))
        """Whether another kind of reference names the ledger, so that its copy is never deleted to be made again."""

    def result(self, result: LedgerOutcome, detail: str = "", **more: object) -> SwitchLedger:
        """Make the result of the order."""
        return SwitchLedger.model_validate(
            {
                "cluster": self.decision.cluster,
                "outcome": Outcome.OK,
                "detail": whole_line(detail)[:MOST_DETAIL] or None,
                "ledger_id": self.ledger_id,
                "op": self.decision.op,
                "result": result,
                **more,
            }
        )


class LedgerOrders:
    """Carries orders out. Thread-safe."""

    def __init__(self, sessions: ClusterSessions, copiers: LedgerCopiers, references: ReferenceZnodes) -> None:
        self._sessions = sessions
        self.copiers = copiers
        self._references = references
        self._writers = tuple(threading.Lock() for _ in range(_WRITERS))
        self._handlers: dict[SwitchVerdict, Callable[[LedgerOrder], SwitchLedger]] = {
            SwitchVerdict.START_COPY: self._copy,
            SwitchVerdict.DELETE_OWN_COPY: self._delete_own,
            SwitchVerdict.PROMOTE: self._promote,
            SwitchVerdict.REQUEST_ROLLOVER: self._refuse_rollover,
            SwitchVerdict.REVERT: self._revert,
            SwitchVerdict.DELETE_OLD: self._delete_old,
        }

    def carry_out(self, decision: SwitchDecision, is_allowed: Callable[[], bool] = lambda: True) -> SwitchLedger:
        """Try to carry out an order; every failure is a result. The next try goes on where this one ended.

        Raises ValueError if the decision is no order about a ledger.
        """
        order = LedgerOrder(decision, is_allowed)
        try:
            return self._handlers[decision.verdict](order)
        except (UnreadError, NotConnectedError) as error:
            return order.result(LedgerOutcome.FAILED, describe_zookeeper_error(error))
        except (NotPossibleError, JvmDiedError, JavaError, ZnodeError, UserError, ValueError) as error:
            return order.result(LedgerOutcome.FAILED, str(error))
        except Exception as error:
            _log.exception("unexpected error", verdict=decision.verdict.value, ledger=order.ledger_id)
            return order.result(LedgerOutcome.FAILED, f"unexpected: {error!r}")

    # --- copying

    def _copy(self, order: LedgerOrder) -> SwitchLedger:
        new_id = order.ledger.remap
        if new_id and order.ledger.kind is LedgerKind.CURSOR:
            raise NotPossibleError("a cursor is never copied under a new id: its owner makes the new ledger")
        try:
            result = self._copier(order).copy(order.ledger_id, new_id=new_id)
        except SourceUnreadableError as error:
            return order.result(LedgerOutcome.SOURCE_UNREADABLE, str(error))
        if result.is_ours and not result.is_equal and not order.is_shared:
            self._delete_to_copy_again(order, why := "our copy is not whole")
            raise NotPossibleError(f"{why}: it is deleted and made again")
        target = result.target
        if target is None and not new_id:
            # The id is journalled for another source, so the target's ledger is no copy of this one.
            found = self._find_ledger(order.target, order.ledger_id)
            target = None if found is None else structs.replace(found, provenance=NOT_OURS)
        return order.result(result.outcome, result.detail, source=result.source, target=target)

    def _delete_to_copy_again(self, order: LedgerOrder, why: str) -> None:
        """Delete our copy, so that the next copy is made again. Raises as `_delete_own` does, if it stays."""
        if not order.is_allowed():
            raise NotPossibleError(f"{why}, and the order is recalled")
        self._delete_own(order)

    def _delete_own(self, order: LedgerOrder) -> SwitchLedger:
        # The policy may not know the new id of a copy; then no reference has that id either.
        if any(order.target in self._read_owners(order, each) for each in {order.ledger_id, order.target_id}):
            raise NotPossibleError(f"a reference attributes it to {order.target}: the copy is in use")
        try:
            self._copier(order).delete(order.ledger_id, own=True)
        except (NotRecordedError, OtherSourceError):
            # Without a record, an earlier attempt may have deleted it.
            if self._copy_exists(order):
                raise
        return order.result(LedgerOutcome.COPY_DELETED)

    # --- attributing

    def _promote(self, order: LedgerOrder) -> SwitchLedger:
        if order.ledger.remap and order.ledger.target_id is None:
            raise NotPossibleError("the order does not say which id its copy has")
        self._require_unloaded(order)
        # After an earlier promotion its copy is in use, whatever happened to the source.
        if self._has_advanced(order) and self._read_owners(order, order.target_id) != {order.target}:
            return self._copy_cursor_again(order)
        return self._attribute(order, (order.source, order.ledger_id), (order.target, order.target_id))

    def _copy_cursor_again(self, order: LedgerOrder) -> SwitchLedger:
        """Copy a cursor's ledger that is not the one that was copied; the next try promotes it."""
        why = "the cursor moved on since it was copied"
        if order.is_shared:
            return order.result(LedgerOutcome.ADVANCED, f"{why}, and a schema needs the copy")
        self._delete_to_copy_again(order, why)
        if not order.is_allowed():
            raise NotPossibleError(f"{why}, and the order is recalled")
        copied = self._copy(order)
        is_ours = copied.target is not None and copied.target.provenance != NOT_OURS
        if is_ours and copied.result in (LedgerOutcome.COPIED, LedgerOutcome.EXISTS):
            return order.result(LedgerOutcome.ADVANCED, f"{why}: it is copied again")
        raise NotPossibleError(f"{why}, and cannot be copied again: {copied.detail or ''}")

    def _has_advanced(self, order: LedgerOrder) -> bool:
        """Whether a cursor's ledger is not the one that was copied; other ledgers are closed and never change."""
        if order.ledger.kind is not LedgerKind.CURSOR:
            return False
        record = self._copier(order).journal.find(order.ledger_id)
        copied, found = record.copied if record else None, self._find_ledger(order.source, order.ledger_id)
        if copied is None or found is None:
            return copied is None
        return any(getattr(copied, name) != getattr(found, name) for name in COMPARED)

    def _revert(self, order: LedgerOrder) -> SwitchLedger:
        self._require_unloaded(order)
        is_promoted = order.target in self._read_owners(order, order.target_id)
        if is_promoted and order.ledger_id not in self._sessions.find_ledgers(order.source, [order.ledger_id]).ids:
            raise NotPossibleError(f"{order.source} no longer has this ledger: the copy stays in use")
        return self._attribute(order, (order.target, order.target_id), (order.source, order.ledger_id))

    def _require_unloaded(self, order: LedgerOrder) -> None:
        """Check that no broker keeps the cursor in memory: it would overwrite our change, or fail on it."""
        is_cursor = order.ledger.kind is LedgerKind.CURSOR
        if is_cursor and (member := self._sessions.find_owner(order.ledger.paths[0])) is not None:
            raise NotPossibleError(f"{member} has its topic loaded: unload it")

    def _attribute(self, order: LedgerOrder, moved: tuple[str, int], to: tuple[str, int]) -> SwitchLedger:
        """Move the attribution from one (cluster, ledger id) to another."""
        ledger, (owner, ledger_id), (new_owner, new_id) = order.ledger, moved, to
        owners = {owner, None} if order.decision.expects.get("legacy") == "or_none" else {owner}
        move = Move(ledger.kind, ledger_id, frozenset(owners), new_owner, new_id)
        with ExitStack() as stack:
            # One locator names many ledgers, and our own orders about them must not conflict with each other.
            for number in sorted({hash(path) % _WRITERS for path in ledger.paths}):
                stack.enter_context(self._writers[number])
            done = self._references.attribute(ledger.paths, move)
        if done.failure is None:  # a ledger without references needs no attribution
            outcome = LedgerOutcome.PROMOTED if new_owner == order.target else LedgerOutcome.REVERTED
            return order.result(outcome, done.detail, changed=done.changed)
        return order.result(done.failure, done.detail, new_id=done.new_id, attribution=done.attribution)

    def _refuse_rollover(self, order: LedgerOrder) -> SwitchLedger:
        """A cursor under a new id needs its owner, and no released Pulsar can be asked to roll a cursor over."""
        member = self._sessions.find_owner(order.ledger.paths[0]) or "its next owner"
        raise NotPossibleError(f"{member} must roll the cursor over: load and unload its topic")

    # --- deleting

    def _delete_old(self, order: LedgerOrder) -> SwitchLedger:
        others = self._read_owners(order, order.ledger_id) - {order.target}
        if others:
            named = ", ".join(sorted(owner or "nobody" for owner in others))
            raise NotPossibleError(f"a reference still attributes it to {named}")
        self._copier(order).delete(order.ledger_id, own=False)
        return order.result(LedgerOutcome.DELETED)

    def _read_owners(self, order: LedgerOrder, ledger_id: int) -> frozenset[str | None]:
        return self._references.read_owners(order.ledger.paths, order.ledger.kind, ledger_id)

    def _copy_exists(self, order: LedgerOrder) -> bool:
        if order.ledger.remap and order.ledger.target_id is None:
            return False  # a ledger with the source's id is not ours
        return order.target_id in self._sessions.find_ledgers(order.target, [order.target_id]).ids

    def _find_ledger(self, name: str, ledger_id: int) -> Ledger | None:
        """Return a ledger by its metadata; None if it does not exist, or they cannot be parsed."""
        return self._sessions.find_ledgers(name, [ledger_id]).facts.get(ledger_id)

    def _copier(self, order: LedgerOrder) -> LedgerCopier:
        return self.copiers.get(order.source, order.target)
