"""Attributes ledgers to a cluster: writes the schema locators and cursors that name them, one znode at a time."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kazoo.exceptions import BadVersionError, ConnectionLoss, KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from connectors.pulsar.attribution import ValuePart, difference, references_in, set_attribution
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from connectors.zookeeper.session import ZooKeeperSession
from policies.errors import UserError
from policies.switching.references import LedgerKind, Reference, with_ledger

_FAILURES = (KazooException, KazooTimeoutError, NotConnectedError, UnreadError, UserError, OSError)
_USUAL_LIMIT_BYTES = 2**20 - 1
"""Default of ZooKeeper's `jute.maxbuffer`; it closes the connection on a larger request."""


class AttributionOutcome(StrEnum):
    """The outcome of attributing a ledger."""

    DONE = "done"
    """Every znode that names the ledger attributes it to the cluster, now or since before."""
    CONFLICT = "conflict"
    """Another client wrote meanwhile, or the ledger is attributed to an unexpected cluster. No change is lost."""
    ROLLED_OVER = "rolled_over"
    """The cursor names another ledger now."""
    GONE = "gone"
    """No znode names the ledger any more, and none ever will, because ids are not reused."""
    FAILED = "failed"
    """ZooKeeper or a value prevents it. A write may have been done or not; the same order again finds out."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The result for all references of a ledger."""

    outcome: AttributionOutcome
    changed: tuple[ValuePart, ...] = ()
    """The changed parts of values: without a fault only the attribution, and the id if it is new."""
    new_id: int | None = None
    """rolled_over: the cursor's present ledger."""
    attribution: str | None = None
    """rolled_over: the cluster that ledger is attributed to."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Goal:
    """The wanted content of every znode."""

    kind: LedgerKind
    ledger_id: int
    owners: frozenset[str | None]
    to: str
    new_id: int | None

    @property
    def wanted(self) -> tuple[int, str]:
        """The wanted id and cluster of a position."""
        return self.ledger_id if self.new_id is None else self.new_id, self.to

    @property
    def changes(self) -> frozenset[ValuePart]:
        """The parts of a value that the write may change."""
        return frozenset(
            {ValuePart.ATTRIBUTION} if self.new_id is None else {ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID}
        )


@dataclass(frozen=True, slots=True)
class _Znode:
    """The content of a znode."""

    path: str
    data: bytes
    version: int
    created: int
    """The transaction that created it. A znode that is deleted and created again starts at version 0 again."""
    modified: int


class ReferenceZnodes:
    """The schema locators and cursors of a broker cluster. Thread-safe.

    Args:
        session: of the brokers' ZooKeeper; its time limit holds for each request.
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
        """Attribute a ledger to a cluster in all znodes that name it, with one attempt for each.

        After a conflict the other znodes are still written. After a failure the rest is left alone, and the same order
        again completes it.

        Args:
            paths: of the znodes, without the chroot.
            owners: the clusters that it may be attributed to before; None stands for no attribute.
            new_id: the ledger's id there, written with the attribution; None: the same id.
        """
        goal = _Goal(kind, ledger_id, frozenset(owners), to, None if new_id == ledger_id else new_id)
        found: list[Attribution] = []
        for path in paths:
            found.append(self._attribute(path, goal))
            if found[-1].outcome is AttributionOutcome.FAILED:
                break
        return _combine(found, goal)

    def read_owners(self, paths: Iterable[str], kind: LedgerKind, ledger_id: int) -> frozenset[str | None]:
        """Return the clusters that these znodes attribute a ledger to; None stands for a position without attribute.

        Raises:
            ZnodeError: a znode cannot be read or parsed.
        """
        znodes = [znode for path in paths if (znode := self._read(path)) is not None]
        references = [each for znode in znodes for each in _parse_references(kind, znode)]
        return frozenset(each.attribution for each in references if each.ledger_id == ledger_id)

    def _attribute(self, path: str, goal: _Goal) -> Attribution:
        try:
            before = self._read(path)
            return _judge_znode(path, before, goal) or self._write(before, goal)
        except ZnodeError as error:
            return Attribution(AttributionOutcome.FAILED, detail=str(error))
        except ValueError as error:
            return Attribution(AttributionOutcome.FAILED, detail=f"{path}: {error}")

    def _write(self, before: _Znode | None, goal: _Goal) -> Attribution:
        assert before is not None  # noqa: S101 - an absent znode needs no write
        path = before.path
        data = set_attribution(goal.kind, before.data, goal.ledger_id, goal.owners, goal.to, goal.new_id)
        if wider := [part for part in _find_changes(goal, before.data, data) if part not in goal.changes]:
            raise ZnodeError(f"{path}: not written, as this would change more: {', '.join(wider)}")
        try:
            stat = self._set(path, data, before.version)
        except BadVersionError:
            return Attribution(AttributionOutcome.CONFLICT, detail=f"{path}: others wrote it meanwhile")
        except NoNodeError:
            return Attribution(AttributionOutcome.GONE, detail=f"{path} was deleted meanwhile")
        if stat.czxid != before.created:
            # Deleted and created again between our read and write, with the same version: an operator must look.
            return Attribution(
                AttributionOutcome.DONE,
                (ValuePart.ATTRIBUTION, ValuePart.OTHER),
                detail=f"{path}: a new one was overwritten",
            )
        now = self._read(path)
        # Writes of other clients after ours are not our changes.
        ours = now.data if now is not None and now.modified == stat.mzxid else data
        settled = _judge_znode(path, now, goal) or Attribution(
            AttributionOutcome.CONFLICT, detail=f"{path}: others took it back"
        )
        return replace(settled, changed=_find_changes(goal, before.data, ours))

    def _read(self, path: str) -> _Znode | None:
        """Return a znode; None if it does not exist."""
        try:
            self._ask("sync_async", path)  # a follower that lags behind would return old data
            data, stat = self._ask("get_async", path)
        except NoNodeError:
            return None
        except _FAILURES as error:
            raise ZnodeError(f"{path}: {detail_of(error)}") from None
        return _Znode(path, data, stat.version, stat.czxid, stat.mzxid)

    def _set(self, path: str, data: bytes, version: int) -> Any:
        try:
            return self._ask("set_async", path, data, version=version)
        except (BadVersionError, NoNodeError):
            raise
        except NoAuthError:
            raise ZnodeError(f"{path}: its ACL does not let us write it") from None
        except _FAILURES as error:
            large = isinstance(error, ConnectionLoss) and len(path) + len(data) > _USUAL_LIMIT_BYTES - 100
            hint = f": its {len(data)} bytes may be more than the server's jute.maxbuffer allows" if large else ""
            raise ZnodeError(f"{path}: {detail_of(error)}{hint}") from None

    def _ask(self, request: str, *arguments: Any, **options: Any) -> Any:
        asked = getattr(self._session.client(), request)(*arguments, **options)
        return asked.get(timeout=self._session.connection.timeout_seconds)


def _judge_znode(path: str, znode: _Znode | None, goal: _Goal) -> Attribution | None:
    """Return the result for a znode that needs no write; None if it must be written."""
    if znode is None:
        return Attribution(AttributionOutcome.GONE, detail=f"{path} is deleted")
    references = _parse_references(goal.kind, znode)
    places = {(each.ledger_id, each.attribution) for each in references}
    left = {attribution for ledger_id, attribution in places - {goal.wanted} if ledger_id == goal.ledger_id}
    if strangers := left - goal.owners:
        clusters = ", ".join(sorted(each or "no cluster" for each in strangers))
        return Attribution(
            AttributionOutcome.CONFLICT, detail=f"{path}: ledger {goal.ledger_id} is attributed to {clusters}"
        )
    if left:
        return None
    return Attribution(AttributionOutcome.DONE) if goal.wanted in places else _judge_absent(path, references, goal)


def _judge_absent(path: str, references: Iterable[Reference], goal: _Goal) -> Attribution:
    now = next(iter(with_ledger(references)), None)
    if goal.kind is LedgerKind.CURSOR and now is not None:
        return Attribution(AttributionOutcome.ROLLED_OVER, new_id=now.ledger_id, attribution=now.attribution)
    return Attribution(AttributionOutcome.GONE, detail=f"{path} does not name ledger {goal.ledger_id} any more")


def _parse_references(kind: LedgerKind, znode: _Znode) -> Iterable[Reference]:
    try:
        return references_in(kind, znode.path, znode.data)
    except ValueError as error:
        raise ZnodeError(f"{znode.path}: {error}") from None


def _find_changes(goal: _Goal, before: bytes, after: bytes) -> tuple[ValuePart, ...]:
    return difference(goal.kind, goal.ledger_id, before, after, goal.new_id)


_PRECEDENCE = (
    AttributionOutcome.FAILED,
    AttributionOutcome.CONFLICT,
    AttributionOutcome.ROLLED_OVER,
    AttributionOutcome.DONE,
    AttributionOutcome.GONE,
)
"""The first one found counts for the ledger: it is done only if no znode has another outcome."""


def _combine(found: list[Attribution], goal: _Goal) -> Attribution:
    """Return one result for all znodes. A change of other parts is reported whatever the other results are."""
    if not found:
        return Attribution(AttributionOutcome.FAILED, detail="the order names no znode")
    parts = {part for each in found for part in each.changed}
    changed = tuple(part for part in ValuePart if part in parts)
    telling = min(found, key=lambda each: _PRECEDENCE.index(each.outcome))
    outcome = AttributionOutcome.DONE if parts - goal.changes else telling.outcome
    return replace(telling, outcome=outcome, changed=changed)
