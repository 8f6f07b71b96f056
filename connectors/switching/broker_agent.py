"""The reference agent of a broker: follows the directive of a switch, acknowledges it, and reports the broker's state.

A library that runs beside or inside a broker. No Pulsar can write to several BookKeeper clusters yet (PIP-477 is a
proposal). An implementation of it would use this agent, or one that behaves like it.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

import structlog
from kazoo.exceptions import BadVersionError, ConnectionLoss, NoAuthError, NoNodeError

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.pulsar.topics import ValuePart, difference, references_in, set_attribution
from connectors.switching.registry import Registry
from connectors.zookeeper.json_znodes import JsonZnodes, Node, ZnodeError
from connectors.zookeeper.session import ZOOKEEPER_FAILURES, ZooKeeperSession, describe_zookeeper_error
from policies.observations import Outcome, Reading
from policies.switching.ledgers import LedgerKind, Reference, with_ledger
from policies.switching.readings import LedgerOutcome, SwitchBroker, SwitchRegistry

_REACTION_SECONDS = 0.1
"""Longest delay of the reaction to a changed directive, and to the stop event."""

_log = structlog.get_logger(__name__)


class BookKeeperClients(Protocol):
    """The broker's clients of BookKeeper clusters. Called from the agent's thread."""

    def open(self, name: str) -> None:
        """Open a new client of a cluster, and create all new ledgers through it from now on.

        It must be a new one also if a client of the cluster is open: an open client remembers the `HOB` from which it
        takes ids, and would go on with lower ones after the cluster was advanced.

        When it returns, ledgers of other clusters are not written to any more, except open ones that are being closed.
        If the client cannot be opened, it raises any exception, and the broker continues as before.
        """

    def writes_since_ack(self) -> tuple[str, ...]:
        """Return the clusters that were written to since `open` last returned."""

    def reads(self) -> tuple[str, ...]:
        """Return the clusters with open readers."""

    def close(self, name: str) -> None:
        """Close the client of a cluster, if there is one. Raises if it has readers again."""


@dataclass(frozen=True, slots=True)
class _Followed:
    epoch: int
    """Epoch of the directive, committed or not; 0 if there is none."""
    target: str
    failed: bool
    """Whether the client of the target could not be opened."""


class BrokerAgent:
    """The agent of one broker.

    It keeps no state over a restart: a broker that starts again reads its target from the registry.

    Args:
        broker: its name, as the brokers' registrations have it.
        session: of the brokers' ZooKeeper; not closed here.
        report: called in the agent's thread with each `headgate.switch-broker.v1`, such as the result of
            `connectors.kafka.publisher.observations_to`.
        interval_seconds: between two reports. The registry is read as often, in case a watch was lost.
        clock: seconds since 1970: reports of a broker that starts again are numbered on from there.
    """

    def __init__(
        self,
        cluster: str,
        broker: str,
        session: ZooKeeperSession,
        clients: BookKeeperClients,
        report: Callable[[Reading], None],
        *,
        interval_seconds: float = 3.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._registry = Registry(session, cluster)
        self._clients = clients
        self._report = report
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._changed = threading.Event()
        self._followed: _Followed | None = None
        self.writing_to: str | None = None
        """The cluster of the last successful `open`."""
        self._opened_epoch: int | None = None
        self._closed: dict[str, int] = {}
        self._sequence = 0
        self._trouble = ""

    def run(self, stop: threading.Event) -> None:
        """Follow and report until `stop` is set, whatever goes wrong."""
        due = time.monotonic()
        while not stop.is_set():
            if self._changed.is_set() or time.monotonic() >= due:
                self._changed.clear()
                due = time.monotonic() + self._interval_seconds
                try:
                    self.poll_once()
                except Exception:  # a fault in the broker's code or ours must not stop the agent
                    _log.exception("the agent continues after an error", broker=self._broker)
            stop.wait(_REACTION_SECONDS)

    def poll_once(self) -> None:
        """Read the registry, follow it, and report."""
        try:
            for name in ("directive", "committed"):
                self._registry.nodes.watch(f"{REGISTRY_ROOT}/{name}", self._on_change)
            view = self._registry.read()
            if self._follow(view):
                self._close_unneeded(view)
            self._trouble = ""
        except ZnodeError as error:
            if (trouble := str(error)) != self._trouble:
                _log.warning("the registry cannot be followed", broker=self._broker, detail=trouble)
            self._trouble = trouble
        if (followed := self._followed) is None:
            return
        self._sequence = max(self._sequence + 1, int(self._clock() * 1000))
        self._report(
            SwitchBroker(
                cluster=self._cluster,
                outcome=Outcome.OK,
                broker=self._broker,
                sequence=self._sequence,
                epoch=followed.epoch,
                client_init_failed=followed.failed,
                writes=tuple(sorted(set(self._clients.writes_since_ack()))),
                reads=tuple(sorted(set(self._clients.reads()))),
                client_epoch=self._opened_epoch,
            )
        )

    def _on_change(self, _event: object) -> None:
        self._changed.set()  # from kazoo's thread, which must not wait

    def _follow(self, view: SwitchRegistry) -> bool:
        """Open the registry's target. Returns False if the registry is older than the followed directive."""
        epoch, target = 0 if view.directive is None else view.directive.epoch, view.active()
        before = self._followed
        if before is not None and epoch < before.epoch:
            _log.warning("an older directive is ignored", broker=self._broker, epoch=epoch, followed=before.epoch)
            return False
        if target is None or before == _Followed(epoch, target, failed=False):
            return True
        if before is not None:  # a broker that starts must write somewhere, even below znodes that others may change
            self._registry.nodes.require_private(REGISTRY_ROOT)
        try:
            self._clients.open(target)
        except Exception as error:  # the broker's own code
            _log.warning("a BookKeeper client cannot be opened", broker=self._broker, target=target, error=repr(error))
            self._followed = _Followed(epoch, target, failed=True)
            return True
        _log.info("writing", broker=self._broker, target=target, epoch=epoch)
        self._closed.pop(target, None)
        self._opened_epoch = epoch
        self.writing_to, self._followed = target, _Followed(epoch, target, failed=False)
        return True

    def _close_unneeded(self, view: SwitchRegistry) -> None:
        """Close clients with a permit. One from before the last directive is void, because roles have changed."""
        directed = max(0 if view.directive is None else view.directive.epoch, view.committed_epoch)
        permits = self._registry.read_permits()
        in_use = {self.writing_to, view.active(), *self._clients.reads()} if permits else set()
        for name, epoch in permits.items():
            if epoch < directed or name in in_use or self._closed.get(name) == epoch:
                continue
            try:
                self._clients.close(name)
            except Exception as error:  # the broker's own code
                _log.warning("a client was not closed", broker=self._broker, name=name, error=repr(error))
                continue
            self._closed[name] = epoch
            _log.info("a client was closed", broker=self._broker, name=name, epoch=epoch)


# Attributes ledgers to a cluster: writes the schema locators and cursors that name them, one znode at a time.

_USUAL_LIMIT_BYTES = 2**20 - 1
"""Default of ZooKeeper's `jute.maxbuffer`; it closes the connection on a larger request."""


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
        return frozenset({ValuePart.ATTRIBUTION} | (set() if self.new_id is None else {ValuePart.LEDGER_ID}))

    def find_changes(self, before: bytes, after: bytes) -> tuple[ValuePart, ...]:
        """Return the parts in which two values differ."""
        return difference(self.kind, self.ledger_id, before, after, self.new_id)


class ReferenceZnodes:
    """The schema locators and cursors of a broker cluster, in the brokers' ZooKeeper. Thread-safe."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._nodes = JsonZnodes(session, "")

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
            if found[-1].failure is LedgerOutcome.FAILED:
                break
        return _combine(found, goal)

    def read_owners(self, paths: Iterable[str], kind: LedgerKind, ledger_id: int) -> frozenset[str | None]:
        """Return the clusters that these znodes attribute a ledger to; None stands for a position without attribute.

        Raises ZnodeError if a znode cannot be read or parsed.
        """
        znodes = {path: self._read(path) for path in paths}
        found = [_parse_references(kind, path, znode.value) for path, znode in znodes.items() if znode is not None]
        return frozenset(each.attribution for each in chain(*found) if each.ledger_id == ledger_id)

    def _attribute(self, path: str, goal: _Goal) -> Attribution:
        try:
            before = self._read(path)
            return _judge_znode(path, before, goal) or self._write(path, before, goal)
        except ZnodeError as error:
            return Attribution(LedgerOutcome.FAILED, detail=str(error))
        except ValueError as error:
            return Attribution(LedgerOutcome.FAILED, detail=f"{path}: {error}")

    def _write(self, path: str, before: Node[bytes] | None, goal: _Goal) -> Attribution:
        assert before is not None  # noqa: S101 - an absent znode needs no write
        data = set_attribution(goal.kind, before.value, goal.ledger_id, goal.owners, goal.to, goal.new_id)
        if wider := [part for part in goal.find_changes(before.value, data) if part not in goal.changes]:
            raise ZnodeError(f"{path}: not written, as this would change more: {', '.join(wider)}")
        try:
            stat = self._set(path, data, before.version)
        except BadVersionError:
            return Attribution(LedgerOutcome.CONFLICT, detail=f"{path}: others wrote it meanwhile")
        except NoNodeError:
            return Attribution(detail=f"{path} was deleted meanwhile")
        if stat.czxid != before.czxid:
            # Deleted and created again between our read and write, with the same version: an operator must look.
            wide = (ValuePart.ATTRIBUTION, ValuePart.OTHER)
            return Attribution(changed=wide, detail=f"{path}: a new one was overwritten")
        now = self._read(path)
        # Writes of other clients after ours are not our changes.
        ours = now.value if now is not None and now.mzxid == stat.mzxid else data
        taken_back = Attribution(LedgerOutcome.CONFLICT, detail=f"{path}: others took it back")
        return replace(_judge_znode(path, now, goal) or taken_back, changed=goal.find_changes(before.value, ours))

    def _read(self, path: str) -> Node[bytes] | None:
        """Return a znode; None if it does not exist."""
        try:
            self._nodes.catch_up(path)  # a follower that lags behind would return old data
            return self._nodes.read(path)
        except ZnodeError as error:
            raise ZnodeError(f"{path}: {error}") from None

    def _set(self, path: str, data: bytes, version: int) -> Any:
        try:
            asked = self._session.client().set_async(path, data, version=version)
            return asked.get(timeout=self._session.connection.timeout_seconds)
        except (BadVersionError, NoNodeError):
            raise
        except NoAuthError:
            raise ZnodeError(f"{path}: its ACL does not let us write it") from None
        except ZOOKEEPER_FAILURES as error:
            large = isinstance(error, ConnectionLoss) and len(path) + len(data) > _USUAL_LIMIT_BYTES - 100
            hint = f": its {len(data)} bytes may be more than the server's jute.maxbuffer allows" if large else ""
            raise ZnodeError(f"{path}: {describe_zookeeper_error(error)}{hint}") from None


def _judge_znode(path: str, znode: Node[bytes] | None, goal: _Goal) -> Attribution | None:
    """Return the result for a znode that needs no write; None if it must be written."""
    if znode is None:
        return Attribution(detail=f"{path} is deleted")
    references = _parse_references(goal.kind, path, znode.value)
    places = {(each.ledger_id, each.attribution) for each in references}
    left = {attribution for ledger_id, attribution in places - {goal.wanted} if ledger_id == goal.ledger_id}
    if strangers := left - goal.owners:
        clusters = ", ".join(sorted(each or "no cluster" for each in strangers))
        detail = f"{path}: ledger {goal.ledger_id} is attributed to {clusters}"
        return Attribution(LedgerOutcome.CONFLICT, detail=detail)
    if left or goal.wanted in places:
        return None if left else Attribution()
    now = next(iter(with_ledger(references)), None)
    if goal.kind is LedgerKind.CURSOR and now is not None:
        return Attribution(LedgerOutcome.ROLLED_OVER, new_id=now.ledger_id, attribution=now.attribution)
    return Attribution(detail=f"{path} does not name ledger {goal.ledger_id} any more")


def _parse_references(kind: LedgerKind, path: str, data: bytes) -> Iterable[Reference]:
    try:
        return references_in(kind, path, data)
    except ValueError as error:
        raise ZnodeError(f"{path}: {error}") from None


_PRECEDENCE = (LedgerOutcome.FAILED, LedgerOutcome.CONFLICT, LedgerOutcome.ROLLED_OVER, None)
"""The first one found counts for the ledger: it is done only if no znode has another outcome."""


def _combine(found: list[Attribution], goal: _Goal) -> Attribution:
    """Return one result for all znodes. A change of other parts is reported whatever the other results are."""
    if not found:
        return Attribution(LedgerOutcome.FAILED, detail="the order names no znode")
    parts = {part for each in found for part in each.changed}
    changed = tuple(part for part in ValuePart if part in parts)
    telling = min(found, key=lambda each: _PRECEDENCE.index(each.failure))
    return replace(telling, failure=None if parts - goal.changes else telling.failure, changed=changed)
