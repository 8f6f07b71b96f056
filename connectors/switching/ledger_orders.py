"""Carries out orders about single ledgers: copy, attribute, roll over, revert, delete.

Every state is read again before a change, and changed only if it is still as read. So an order that arrives twice, late
or after a crash finds its work done, or finds another state and reports that. A try makes each change at most once; the
reconciler tries again until the order is done.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import structlog
from msgspec import structs

from connectors.bookkeeper.cluster import NOT_OURS
from connectors.bookkeeper.copier import LedgerCluster, LedgerCopier, metadata_service_uri
from connectors.bookkeeper.copy_journal import (
    COPIES,
    POLICY_OUTCOMES,
    CopyJournal,
    CopyOutcome,
    CopyResult,
    DeleteOutcome,
    DeleteResult,
)
from connectors.bookkeeper.gateway import BookKeeperJvm, JavaError, JvmDiedError
from connectors.collection import whole_line
from connectors.switching.broker_agent import Attribution, AttributionOutcome, ReferenceZnodes
from connectors.switching.clusters import ClusterSessions, make_ledger_reading
from connectors.switching.registration import SwitchExecution
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import NotConnectedError, UnreadError, describe_zookeeper_error
from policies.observations import Outcome
from policies.switching.decisions import LedgerRef, SwitchDecision, SwitchVerdict
from policies.switching.ledgers import Ledger, LedgerKind
from policies.switching.readings import LedgerOutcome, SwitchLedger
from policies.units import UserError

# The ledger copiers of one broker cluster: one for each pair of source and target BookKeeper cluster.


@dataclass(frozen=True)
class JournaledCopier:
    """A copier from one BookKeeper cluster to another, and the journal of its copies."""

    copier: LedgerCopier
    journal: CopyJournal


class LedgerCopiers:
    """Makes each copier at its first use. Thread-safe; must be closed."""

    def __init__(
        self, sessions: ClusterSessions, settings: SwitchExecution, jvm: Callable[[], BookKeeperJvm], concurrency: int
    ) -> None:
        self._sessions = sessions
        self._settings = settings
        self._jvm = jvm
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._bytes_per_second = 0
        self._copiers: dict[tuple[str, str], JournaledCopier] = {}
        self._password = b""
        """The password of these copiers."""

    def get(self, source: str, target: str) -> JournaledCopier:
        """Return the copier from one cluster to another. After the password has changed, it is another one.

        Raises:
            UnreadError: a cluster's identity cannot be read.
            NotConnectedError: its ZooKeeper cannot be reached.
            UserError: the settings have no such cluster, its settings are wrong, or both are the same.
        """
        if (password := self._settings.password()) != self._password:
            self.close()
        with self._lock:
            self._password = password
            if (source, target) not in self._copiers:
                self._copiers[(source, target)] = self._make(source, target)
            return self._copiers[(source, target)]

    def limit(self, bytes_per_second: int) -> None:
        """Limit the bytes per second of each copier from now on; 0: no limit."""
        with self._lock:
            self._bytes_per_second = bytes_per_second
            for each in self._copiers.values():
                each.copier.limit(bytes_per_second)

    def close(self) -> None:
        """Close all copiers."""
        with self._lock:
            copiers, self._copiers = self._copiers, {}
        for each in copiers.values():
            each.copier.close()

    def _make(self, source: str, target: str) -> JournaledCopier:
        one, other = self._describe_cluster(source), self._describe_cluster(target)
        journal = CopyJournal(self._sessions.brokers, COPIES, source=one.instance_id, target=other.instance_id)
        copier = LedgerCopier(
            self._jvm(),
            one,
            other,
            journal,
            replication=self._settings.replication,
            concurrency=self._concurrency,
            timeout=self._settings.copy_timeout,
        )
        copier.limit(self._bytes_per_second)
        return JournaledCopier(copier, journal)

    def _describe_cluster(self, name: str) -> LedgerCluster:
        metadata, seen = self._sessions.find_metadata(name), self._sessions.read_cluster(name)
        if seen.instance_id is None or seen.layout is None:
            raise UnreadError(f"{metadata.ledgers_root}/INSTANCEID", ValueError("its identity or layout is unknown"))
        uri = metadata_service_uri(self._sessions.connection(name), metadata.ledgers_root, seen.layout)
        return LedgerCluster(seen.instance_id, uri, password=self._password)


LEDGER_ORDERS = frozenset(
    {
        SwitchVerdict.START_COPY,
        SwitchVerdict.DELETE_OWN_COPY,
        SwitchVerdict.PROMOTE,
        SwitchVerdict.REQUEST_ROLLOVER,
        SwitchVerdict.REVERT,
        SwitchVerdict.DELETE_OLD,
    }
)

_NOT_WHOLE = frozenset({CopyOutcome.OWN_PARTIAL, CopyOutcome.COPY_DIFFERS})
MOST_DETAIL = 500
"""Limit of the characters of a result's detail."""
_WRITERS = 64
"""Limit of the znodes that are written at the same time."""

_log = structlog.get_logger(__name__)


class LedgerOrder:
    """An order about a ledger, with its required fields.

    Args:
        is_allowed: returns whether it may still write. It must be asked again after a copy, which may take minutes.
    """

    def __init__(self, decision: SwitchDecision, is_allowed: Callable[[], bool] = lambda: True) -> None:
        if decision.ledger is None or decision.source is None or decision.target is None:
            raise ValueError("it names no ledger, or no clusters")
        self.decision = decision
        self.ledger: LedgerRef = decision.ledger
        self.source: str = decision.source
        self.target: str = decision.target
        self.is_allowed = is_allowed

    @property
    def ledger_id(self) -> int:
        """The id of the source's ledger."""
        return self.ledger.ledger_id

    @property
    def target_id(self) -> int:
        """The id of its copy."""
        return self.ledger_id if self.ledger.target_id is None else self.ledger.target_id

    @property
    def is_shared(self) -> bool:
        """Whether another kind of reference names the ledger, so that its copy is never deleted to be made again."""
        return bool(self.decision.args.get("shared"))

    def allowed_owners(self, moved: str) -> frozenset[str | None]:
        """Return the attributions of a reference that may be changed; None stands for no attribution."""
        return frozenset({moved, None} if self.decision.expects.get("legacy") == "or_none" else {moved})

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
    """Carries orders out. Thread-safe.

    Args:
        find_owner: returns the broker that has loaded the topic of a cursor's znode; None: no broker has.
    """

    def __init__(
        self,
        ledgers: ClusterSessions,
        copiers: LedgerCopiers,
        references: ReferenceZnodes,
        find_owner: Callable[[str], str | None],
    ) -> None:
        self._ledgers = ledgers
        self._copiers = copiers
        self._references = references
        self._find_owner = find_owner
        self._writers = tuple(threading.Lock() for _ in range(_WRITERS))
        self._handlers: dict[SwitchVerdict, Callable[[LedgerOrder], SwitchLedger]] = {
            SwitchVerdict.START_COPY: self._copy,
            SwitchVerdict.DELETE_OWN_COPY: self._delete_own,
            SwitchVerdict.PROMOTE: self._promote,
            SwitchVerdict.REQUEST_ROLLOVER: self._refuse_rollover,
            SwitchVerdict.REVERT: self._revert,
            SwitchVerdict.DELETE_OLD: self._delete_old,
        }

    def make_ready(self, source: str, target: str) -> None:
        """Start the copier between two clusters. A failure is only logged here: the first copy reports it."""
        try:
            self._copiers.get(source, target).copier.make_ready()
        except (UnreadError, NotConnectedError, UserError, JvmDiedError, JavaError) as error:
            _log.debug("the ledger copier is not ready yet", source=source, target=target, error=str(error))

    def carry_out(self, decision: SwitchDecision, is_allowed: Callable[[], bool] = lambda: True) -> SwitchLedger:
        """Try to carry out an order; every failure is a result. The next try goes on where this one ended.

        Raises:
            ValueError: the decision is no order about a ledger.
        """
        order = LedgerOrder(decision, is_allowed)
        try:
            return self._handlers[decision.verdict](order)
        except (UnreadError, NotConnectedError) as error:
            return order.result(LedgerOutcome.FAILED, describe_zookeeper_error(error))
        except (ZnodeError, UserError, ValueError) as error:
            return order.result(LedgerOutcome.FAILED, str(error))
        except Exception as error:
            _log.exception("unexpected error", verdict=decision.verdict.value, ledger=order.ledger_id)
            return order.result(LedgerOutcome.FAILED, f"unexpected: {error!r}")

    def limit(self, bytes_per_second: int) -> None:
        """Limit the copied bytes per second from now on; 0: no limit."""
        self._copiers.limit(bytes_per_second)

    def close(self) -> None:
        """Abort all copies."""
        self._copiers.close()

    # --- copying

    def _copy(self, order: LedgerOrder) -> SwitchLedger:
        new_id = order.ledger.remap
        if new_id and order.ledger.kind is LedgerKind.CURSOR:
            return order.result(
                LedgerOutcome.FAILED, "a cursor is never copied under a new id: its owner makes the new ledger"
            )
        result = self._journaled_copier(order).copier.copy(order.ledger_id, new_id=new_id)
        if result.outcome in _NOT_WHOLE and not order.is_shared:
            return self._delete_to_copy_again(order, f"our copy is not whole ({result.outcome.value})")
        if result.outcome is CopyOutcome.SOURCE_OPEN:
            return order.result(LedgerOutcome.FAILED, f"the ledger is still written to; {result.detail}".strip())
        if result.outcome is CopyOutcome.FOREIGN_CONFLICT and result.target is None and not new_id:
            result = self._add_target(order, result)
        return order.result(POLICY_OUTCOMES[result.outcome], result.detail, **_report_ledgers(result))

    def _delete_to_copy_again(self, order: LedgerOrder, why: str) -> SwitchLedger:
        """Delete our copy, so that the next try makes it again."""
        if not order.is_allowed():
            return order.result(LedgerOutcome.FAILED, f"{why}, and the order is recalled")
        deleted = self._delete_own(order)
        then = "it is deleted and made again" if deleted.result is LedgerOutcome.COPY_DELETED else deleted.detail
        return order.result(LedgerOutcome.FAILED, f"{why}: {then}")

    def _add_target(self, order: LedgerOrder, result: CopyResult) -> CopyResult:
        """Add the target's ledger. Its id is journalled for another source, so it is no copy of this ledger."""
        found = self._find_ledger(order.target, order.ledger_id)
        return result if found is None else replace(result, target=structs.replace(found, provenance=NOT_OURS))

    def _delete_own(self, order: LedgerOrder) -> SwitchLedger:
        # The policy may not know the new id of a copy; then no reference has that id either.
        if any(order.target in self._read_owners(order, each) for each in {order.ledger_id, order.target_id}):
            return order.result(
                LedgerOutcome.FAILED, f"a reference attributes it to {order.target}: the copy is in use"
            )
        result = self._journaled_copier(order).copier.delete_own(order.ledger_id)
        if result.outcome is DeleteOutcome.NOT_RECORDED and not self._copy_exists(order):
            result = DeleteResult(order.ledger_id, DeleteOutcome.ABSENT)  # an earlier attempt has deleted it
        return order.result(_parse_deletion(result, LedgerOutcome.COPY_DELETED), result.detail)

    # --- attributing

    def _promote(self, order: LedgerOrder) -> SwitchLedger:
        if order.ledger.remap and order.ledger.target_id is None:
            return order.result(LedgerOutcome.FAILED, "the order does not say which id its copy has")
        if order.ledger.kind is LedgerKind.CURSOR and (member := self._find_owner(order.ledger.paths[0])) is not None:
            # The broker keeps the cursors of loaded topics in memory: it would overwrite our change, or fail on it.
            return order.result(LedgerOutcome.FAILED, f"{member} has its topic loaded: unload it")
        # After an earlier promotion its copy is in use, whatever happened to the source.
        if self._has_advanced(order) and self._read_owners(order, order.target_id) != {order.target}:
            return self._copy_cursor_again(order)
        done = self._attribute(order, (order.source, order.ledger_id), (order.target, order.target_id))
        return self._report_attribution(order, done, LedgerOutcome.PROMOTED)

    def _copy_cursor_again(self, order: LedgerOrder) -> SwitchLedger:
        """Copy a cursor's ledger that is not the one that was copied; the next try promotes it."""
        why = "the cursor moved on since it was copied"
        if order.is_shared:
            return order.result(LedgerOutcome.ADVANCED, f"{why}, and a schema needs the copy")
        deleted = self._delete_to_copy_again(order, why)
        if not order.is_allowed():
            return deleted
        copied = self._copy(order)
        is_ours = copied.target is not None and copied.target.provenance != NOT_OURS
        if is_ours and copied.result in (LedgerOutcome.COPIED, LedgerOutcome.EXISTS):
            return order.result(LedgerOutcome.ADVANCED, f"{why}: it is copied again")
        return order.result(LedgerOutcome.FAILED, f"{why}, and cannot be copied again: {copied.detail or ''}")

    def _has_advanced(self, order: LedgerOrder) -> bool:
        """Whether a cursor's ledger is not the one that was copied; other ledgers are closed and never change."""
        if order.ledger.kind is not LedgerKind.CURSOR:
            return False
        record = self._journaled_copier(order).journal.find(order.ledger_id)
        copied = record.copied if record else None
        found = self._find_ledger(order.source, order.ledger_id)
        if copied is None:
            return True
        if found is None:
            return False
        return (copied.length_bytes, copied.last_entry_id, copied.created_ms) != (
            found.length_bytes,
            found.last_entry_id,
            found.created_ms,
        )

    def _revert(self, order: LedgerOrder) -> SwitchLedger:
        if order.ledger.kind is LedgerKind.CURSOR and (member := self._find_owner(order.ledger.paths[0])) is not None:
            return order.result(LedgerOutcome.FAILED, f"{member} has its topic loaded: unload it")
        is_promoted = order.target in self._read_owners(order, order.target_id)
        if is_promoted and order.ledger_id not in self._ledgers.find_ledgers(order.source, [order.ledger_id]).ids:
            return order.result(
                LedgerOutcome.FAILED, f"{order.source} no longer has this ledger: the copy stays in use"
            )
        done = self._attribute(order, (order.target, order.target_id), (order.source, order.ledger_id))
        return self._report_attribution(order, done, LedgerOutcome.REVERTED)

    def _attribute(self, order: LedgerOrder, moved: tuple[str, int], to: tuple[str, int]) -> Attribution:
        """Move the attribution from one (cluster, ledger id) to another."""
        ledger, (owner, ledger_id), (new_owner, new_id) = order.ledger, moved, to
        with ExitStack() as stack:
            # One locator names many ledgers, and our own orders about them must not conflict with each other.
            for number in sorted({hash(path) % _WRITERS for path in ledger.paths}):
                stack.enter_context(self._writers[number])
            return self._references.attribute(
                ledger.paths, ledger.kind, ledger_id, order.allowed_owners(owner), new_owner, new_id=new_id
            )

    def _refuse_rollover(self, order: LedgerOrder) -> SwitchLedger:
        """A cursor under a new id needs its owner, and no released Pulsar can be asked to roll a cursor over."""
        member = self._find_owner(order.ledger.paths[0]) or "its next owner"
        return order.result(LedgerOutcome.FAILED, f"{member} must roll the cursor over: load and unload its topic")

    @staticmethod
    def _report_attribution(order: LedgerOrder, done: Attribution, result: LedgerOutcome) -> SwitchLedger:
        match done.outcome:
            case AttributionOutcome.DONE | AttributionOutcome.GONE:
                # A ledger without references needs no attribution.
                return order.result(result, done.detail, changed=done.changed)
            case AttributionOutcome.ROLLED_OVER:
                return order.result(
                    LedgerOutcome.ROLLED_OVER, done.detail, new_id=done.new_id, attribution=done.attribution
                )
            case AttributionOutcome.CONFLICT:
                return order.result(LedgerOutcome.CONFLICT, done.detail)
        return order.result(LedgerOutcome.FAILED, done.detail)

    # --- deleting

    def _delete_old(self, order: LedgerOrder) -> SwitchLedger:
        others = self._read_owners(order, order.ledger_id) - {order.target}
        if others:
            named = ", ".join(sorted(owner or "nobody" for owner in others))
            return order.result(LedgerOutcome.FAILED, f"a reference still attributes it to {named}")
        result = self._journaled_copier(order).copier.delete_old(order.ledger_id)
        return order.result(_parse_deletion(result, LedgerOutcome.DELETED), result.detail)

    def _read_owners(self, order: LedgerOrder, ledger_id: int) -> frozenset[str | None]:
        return self._references.read_owners(order.ledger.paths, order.ledger.kind, ledger_id)

    def _copy_exists(self, order: LedgerOrder) -> bool:
        if order.ledger.remap and order.ledger.target_id is None:
            return False  # a ledger with the source's id is not ours
        return order.target_id in self._ledgers.find_ledgers(order.target, [order.target_id]).ids

    def _find_ledger(self, name: str, ledger_id: int) -> Ledger | None:
        """Return a ledger by its metadata; None if it does not exist, or they cannot be parsed."""
        return self._ledgers.find_ledgers(name, [ledger_id]).facts.get(ledger_id)

    def _journaled_copier(self, order: LedgerOrder) -> JournaledCopier:
        return self._copiers.get(order.source, order.target)


def _report_ledgers(result: CopyResult) -> dict[str, object]:
    return {
        "source": make_ledger_reading(result.source) if result.source else None,
        "target": make_ledger_reading(result.target) if result.target else None,
    }


def _parse_deletion(result: DeleteResult, done: LedgerOutcome) -> LedgerOutcome:
    return done if result.outcome in (DeleteOutcome.DELETED, DeleteOutcome.ABSENT) else LedgerOutcome.FAILED
