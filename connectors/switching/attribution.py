"""Attributes ledgers to a cluster: writes the schema locators and cursors that name them, one znode at a time."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

from kazoo.exceptions import BadVersionError, NoAuthError, NoNodeError

from connectors.pulsar.metadata import ValuePart, difference, references_in, set_attribution
from connectors.zookeeper.json_znodes import JsonZnodes, Node, ZnodeError
from connectors.zookeeper.session import ZOOKEEPER_FAILURES, ZooKeeperSession, describe_zookeeper_error
from policies.switching.ledgers import LedgerKind, Reference, with_ledger
from policies.switching.readings import LedgerOutcome


@dataclass(frozen=True, slots=True)
class Attribution:
    """The result of attributing a ledger, for all its references."""

    failure: LedgerOutcome | None = None
    """None: every znode that names the ledger attributes it to the cluster, or none names it any more.

    Else `conflict`: another client wrote meanwhile, or it is attributed to an unexpected cluster; no change is lost.
    `rolled_over`: the cursor names another ledger. `failed`: ZooKeeper or a value prevents it. A write may have been
    done or not; the same order again finds out.
    """
    changed: tuple[ValuePart, ...] = ()
    """The changed parts of values: without a fault only the attribution, and the id if it is new."""
    new_id: int | None = None
    """rolled_over: the cursor's present ledger."""
    attribution: str | None = None
    """rolled_over: the cluster that ledger is attributed to."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """A ledger's way to a cluster, in every znode that names it."""

    kind: LedgerKind
    ledger_id: int
    owners: frozenset[str | None]
    """The clusters that it may be attributed to before; None stands for no attribute."""
    to: str
    new_id: int
    """The ledger's id in that cluster, which is written with the attribution if it is another one."""

    @property
    def changes(self) -> frozenset[ValuePart]:
        """The parts of a value that the write may change."""
        return frozenset({ValuePart.ATTRIBUTION} | (set() if self.new_id == self.ledger_id else {ValuePart.LEDGER_ID}))


class ReferenceZnodes:
    """The schema locators and cursors of a broker cluster, in the brokers' ZooKeeper. Thread-safe."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._nodes = JsonZnodes(session, "")

    def attribute(self, paths: Iterable[str], move: Move) -> Attribution:
        """Attribute a ledger to a cluster in all znodes that name it, with one attempt for each.

        After a conflict the other znodes are still written. After a failure the rest is left alone, and the same order
        again completes it.
        """
        found: list[Attribution] = []
        for path in paths:
            found.append(self._attribute(path, move))
            if found[-1].failure is LedgerOutcome.FAILED:
                break
        return _combine(found, move)

    def read_owners(self, paths: Iterable[str], kind: LedgerKind, ledger_id: int) -> frozenset[str | None]:
        """Return the clusters that these znodes attribute a ledger to; None stands for a position without attribute.

        Raises ZnodeError if a znode cannot be read or parsed.
        """
        znodes = {path: self._read(path) for path in paths}
        found = [_parse_references(kind, path, znode.value) for path, znode in znodes.items() if znode is not None]
        return frozenset(each.attribution for each in chain(*found) if each.ledger_id == ledger_id)

    def _attribute(self, path: str, move: Move) -> Attribution:
        try:
            before = self._read(path)
            return _judge_znode(path, before, move) or self._write(path, before, move)
        except ZnodeError as error:
            return Attribution(LedgerOutcome.FAILED, detail=str(error))
        except ValueError as error:
            return Attribution(LedgerOutcome.FAILED, detail=f"{path}: {error}")

    def _write(self, path: str, before: Node[bytes] | None, move: Move) -> Attribution:
        assert before is not None  # noqa: S101 - an absent znode needs no write
        data = set_attribution(move.kind, before.value, move.ledger_id, move.owners, move.to, move.new_id)
        new_id = None if move.new_id == move.ledger_id else move.new_id
        changed = difference(move.kind, move.ledger_id, before.value, data, new_id)
        if wider := [part for part in changed if part not in move.changes]:
            raise ZnodeError(f"{path}: not written, as this would change more: {', '.join(wider)}")
        try:
            asked = self._session.client().set_async(path, data, version=before.version)
            stat = asked.get(timeout=self._session.connection.timeout_seconds)
        except BadVersionError:
            return Attribution(LedgerOutcome.CONFLICT, detail=f"{path}: others wrote it meanwhile")
        except NoNodeError:
            return Attribution(detail=f"{path} was deleted meanwhile")
        except NoAuthError:
            raise ZnodeError(f"{path}: its ACL does not let us write it") from None
        except ZOOKEEPER_FAILURES as error:
            raise ZnodeError(f"{path}: {describe_zookeeper_error(error)}") from None
        if stat.czxid != before.czxid:
            # Deleted and created again between our read and write, with the same version: an operator must look.
            wide = (ValuePart.ATTRIBUTION, ValuePart.OTHER)
            return Attribution(changed=wide, detail=f"{path}: a new one was overwritten")
        return Attribution(changed=changed)

    def _read(self, path: str) -> Node[bytes] | None:
        """Return a znode; None if it does not exist."""
        try:
            self._nodes.catch_up(path)  # a follower that lags behind would return old data
            return self._nodes.read(path)
        except ZnodeError as error:
            raise ZnodeError(f"{path}: {error}") from None


def _judge_znode(path: str, znode: Node[bytes] | None, move: Move) -> Attribution | None:
    """Return the result for a znode that needs no write; None if it must be written."""
    if znode is None:
        return Attribution(detail=f"{path} is deleted")
    wanted = (move.new_id, move.to)
    references = _parse_references(move.kind, path, znode.value)
    places = {(each.ledger_id, each.attribution) for each in references}
    left = {attribution for ledger_id, attribution in places - {wanted} if ledger_id == move.ledger_id}
    if strangers := left - move.owners:
        clusters = ", ".join(sorted(each or "no cluster" for each in strangers))
        detail = f"{path}: ledger {move.ledger_id} is attributed to {clusters}"
        return Attribution(LedgerOutcome.CONFLICT, detail=detail)
    if left or wanted in places:
        return None if left else Attribution()
    now = next(iter(with_ledger(references)), None)
    if move.kind is LedgerKind.CURSOR and now is not None:
        return Attribution(LedgerOutcome.ROLLED_OVER, new_id=now.ledger_id, attribution=now.attribution)
    return Attribution(detail=f"{path} does not name ledger {move.ledger_id} any more")


def _parse_references(kind: LedgerKind, path: str, data: bytes) -> Iterable[Reference]:
    try:
        return references_in(kind, path, data)
    except ValueError as error:
        raise ZnodeError(f"{path}: {error}") from None


_PRECEDENCE = (LedgerOutcome.FAILED, LedgerOutcome.CONFLICT, LedgerOutcome.ROLLED_OVER, None)
"""The first one found counts for the ledger: it is done only if no znode has another outcome."""


def _combine(found: list[Attribution], move: Move) -> Attribution:
    """Return one result for all znodes. A change of other parts is reported whatever the other results are."""
    if not found:
        return Attribution(LedgerOutcome.FAILED, detail="the order names no znode")
    parts = {part for each in found for part in each.changed}
    changed = tuple(part for part in ValuePart if part in parts)
    telling = min(found, key=lambda each: _PRECEDENCE.index(each.failure))
    return replace(telling, failure=None if parts - move.changes else telling.failure, changed=changed)
