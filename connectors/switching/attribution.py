"""Attributes ledgers to a cluster in the schema locators and cursors that name them, znode by znode, conditionally."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kazoo.exceptions import BadVersionError, ConnectionLoss, KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from connectors.pulsar.attribution import ValuePart, attributed, difference, references_in
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from connectors.zookeeper.session import ZooKeeperSession
from policies.errors import UserError
from policies.switching.references import LedgerKind, Reference, with_ledger

_FAILURES = (KazooException, KazooTimeoutError, NotConnectedError, UnreadError, UserError, OSError)
_USUAL_LIMIT_BYTES = 2**20 - 1
"""ZooKeeper's `jute.maxbuffer`, unless it is set: on a larger request it hangs up."""


class ReferenceZnodeError(Exception):
    """A znode cannot be read, parsed or written now; the message names it and says why in one short line."""


class AttributionOutcome(StrEnum):
    """How attributing a ledger ended."""

    DONE = "done"
    """All that names the ledger attributes it to the cluster; also when it did so before."""
    CONFLICT = "conflict"
    """Others wrote meanwhile, or it is attributed to a cluster that was not expected. Nobody's change is lost."""
    ROLLED_OVER = "rolled_over"
    """The cursor names another ledger now."""
    GONE = "gone"
    """Nothing names the ledger any more, and as no id is given twice, nothing ever will."""
    FAILED = "failed"
    """ZooKeeper or a value is in the way. A write may have been done or not: the same order again finds out."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """What became of a ledger's references."""

    outcome: AttributionOutcome
    changed: tuple[ValuePart, ...] = ()
    """What the writes changed: nothing but the attribution, and the id where that is new, or something is wrong."""
    new_id: int | None = None
    """rolled_over: the cursor's ledger now."""
    attribution: str | None = None
    """rolled_over: the cluster that ledger is attributed to."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Goal:
    """What every znode is to say."""

    kind: LedgerKind
    ledger_id: int
    owners: frozenset[str | None]
    to: str
    new_id: int | None

    @property
    def there(self) -> tuple[int, str]:
        """The id and the cluster that a position names in the end."""
        return self.ledger_id if self.new_id is None else self.new_id, self.to

    @property
    def changes(self) -> frozenset[ValuePart]:
        """What may differ between before and after."""
        return frozenset(
            {ValuePart.ATTRIBUTION} if self.new_id is None else {ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID}
        )


@dataclass(frozen=True, slots=True)
class _Znode:
    """A znode as it was read."""

    path: str
    data: bytes
    version: int
    created: int
    """The transaction that created it: whoever deletes a znode and makes it anew, counts its versions anew."""
    modified: int


class ReferenceZnodes:
    """The schema locators and cursors of a broker cluster. Safe to use from many threads.

    Args:
        session: of the brokers' ZooKeeper; its time limit is that of one request.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def attribute(
        self,
        paths: Iterable[str],
        kind: LedgerKind,
        ledger_id: int,
        owners: Collection[str | None],
        to: str,
        *,
        new_id: int | None = None,
    ) -> Attribution:
        """Attribute a ledger to a cluster in all znodes that name it, trying once for each.

        One conflict does not keep the others from being written, and after a failure the rest is left alone: the same
        order again completes what was begun.

        Args:
            paths: of the znodes, without the chroot.
            kind: what they are.
            ledger_id: the ledger.
            owners: whom it may be attributed to before; None among them stands for no attribute.
            to: the cluster.
            new_id: the ledger's id there, written with the attribution; None: the same one.
        """
        goal = _Goal(kind, ledger_id, frozenset(owners), to, None if new_id == ledger_id else new_id)
        found: list[Attribution] = []
        for path in paths:
            found.append(self._attribute(path, goal))
            if found[-1].outcome is AttributionOutcome.FAILED:
                break
        return _combined(found, goal)

    def owners_of(self, paths: Iterable[str], kind: LedgerKind, ledger_id: int) -> frozenset[str | None]:
        """Whom those znodes that still name a ledger attribute it to; None: a position without an attribute.

        Raises:
            ReferenceZnodeError: one cannot be read or parsed: nothing is known then.
        """
        znodes = [znode for path in paths if (znode := self._read(path)) is not None]
        references = [each for znode in znodes for each in _references(kind, znode)]
        return frozenset(each.attribution for each in references if each.ledger_id == ledger_id)

    def _attribute(self, path: str, goal: _Goal) -> Attribution:
        try:
            before = self._read(path)
            return _settled(path, before, goal) or self._write(before, goal)
        except ReferenceZnodeError as error:
            return Attribution(AttributionOutcome.FAILED, detail=str(error))
        except ValueError as error:
            return Attribution(AttributionOutcome.FAILED, detail=f"{path}: {error}")

    def _write(self, before: _Znode | None, goal: _Goal) -> Attribution:
        assert before is not None  # noqa: S101 - one that is gone stands as it is
        path = before.path
        data = attributed(goal.kind, before.data, goal.ledger_id, goal.owners, goal.to, goal.new_id)
        if wider := [part for part in _changed(goal, before.data, data) if part not in goal.changes]:
            raise ReferenceZnodeError(f"{path}: not written, as this would change more: {', '.join(wider)}")
        try:
            stat = self._set(path, data, before.version)
        except BadVersionError:
            return Attribution(AttributionOutcome.CONFLICT, detail=f"{path}: others wrote it meanwhile")
        except NoNodeError:
            return Attribution(AttributionOutcome.GONE, detail=f"{path} was deleted meanwhile")
        if stat.czxid != before.created:
            # Deleted and made anew between our reading and our writing, with the same version: a person must look.
            return Attribution(
                AttributionOutcome.DONE,
                (ValuePart.ATTRIBUTION, ValuePart.OTHER),
                detail=f"{path}: a new one was overwritten",
            )
        now = self._read(path)
        # What others wrote after us is none of our changes.
        ours = now.data if now is not None and now.modified == stat.mzxid else data
        settled = _settled(path, now, goal) or Attribution(
            AttributionOutcome.CONFLICT, detail=f"{path}: others took it back"
        )
        return replace(settled, changed=_changed(goal, before.data, ours))

    def _read(self, path: str) -> _Znode | None:
        """A znode as it is now, None when there is none."""
        try:
            self._ask("sync_async", path)  # a server that lags behind would show what was
            data, stat = self._ask("get_async", path)
        except NoNodeError:
            return None
        except _FAILURES as error:
            raise ReferenceZnodeError(f"{path}: {detail_of(error)}") from None
        return _Znode(path, data, stat.version, stat.czxid, stat.mzxid)

    def _set(self, path: str, data: bytes, version: int) -> Any:
        try:
            return self._ask("set_async", path, data, version=version)
        except (BadVersionError, NoNodeError):
            raise
        except NoAuthError:
            raise ReferenceZnodeError(f"{path}: its ACL does not let us write it") from None
        except _FAILURES as error:
            large = isinstance(error, ConnectionLoss) and len(path) + len(data) > _USUAL_LIMIT_BYTES - 100
            hint = f": its {len(data)} bytes may be more than the server's jute.maxbuffer allows" if large else ""
            raise ReferenceZnodeError(f"{path}: {detail_of(error)}{hint}") from None

    def _ask(self, request: str, *arguments: Any, **options: Any) -> Any:
        asked = getattr(self._session.client(), request)(*arguments, **options)
        return asked.get(timeout=self._session.connection.timeout_seconds)


def _settled(path: str, znode: _Znode | None, goal: _Goal) -> Attribution | None:
    """What there is to say of a znode without writing it; None when it is to be written."""
    if znode is None:
        return Attribution(AttributionOutcome.GONE, detail=f"{path} is deleted")
    references = _references(goal.kind, znode)
    places = {(each.ledger_id, each.attribution) for each in references}
    left = {attribution for ledger_id, attribution in places - {goal.there} if ledger_id == goal.ledger_id}
    if strangers := left - goal.owners:
        clusters = ", ".join(sorted(each or "no cluster" for each in strangers))
        return Attribution(
            AttributionOutcome.CONFLICT, detail=f"{path}: ledger {goal.ledger_id} is attributed to {clusters}"
        )
    if left:
        return None
    return Attribution(AttributionOutcome.DONE) if goal.there in places else _elsewhere(path, references, goal)


def _elsewhere(path: str, references: Iterable[Reference], goal: _Goal) -> Attribution:
    now = next(iter(with_ledger(references)), None)
    if goal.kind is LedgerKind.CURSOR and now is not None:
        return Attribution(AttributionOutcome.ROLLED_OVER, new_id=now.ledger_id, attribution=now.attribution)
    return Attribution(AttributionOutcome.GONE, detail=f"{path} does not name ledger {goal.ledger_id} any more")


def _references(kind: LedgerKind, znode: _Znode) -> Iterable[Reference]:
    try:
        return references_in(kind, znode.path, znode.data)
    except ValueError as error:
        raise ReferenceZnodeError(f"{znode.path}: {error}") from None


def _changed(goal: _Goal, before: bytes, after: bytes) -> tuple[ValuePart, ...]:
    return difference(goal.kind, goal.ledger_id, before, after, goal.new_id)


_PRECEDENCE = (
    AttributionOutcome.FAILED,
    AttributionOutcome.CONFLICT,
    AttributionOutcome.ROLLED_OVER,
    AttributionOutcome.DONE,
    AttributionOutcome.GONE,
)
"""Of several results that which counts: the ledger is done only when no znode says otherwise."""


def _combined(found: list[Attribution], goal: _Goal) -> Attribution:
    """One result for all znodes; a change that went too far is reported whatever became of the others."""
    if not found:
        return Attribution(AttributionOutcome.FAILED, detail="the order names no znode")
    parts = {part for each in found for part in each.changed}
    changed = tuple(part for part in ValuePart if part in parts)
    telling = min(found, key=lambda each: _PRECEDENCE.index(each.outcome))
    outcome = AttributionOutcome.DONE if parts - goal.changes else telling.outcome
    return replace(telling, outcome=outcome, changed=changed)
