"""The registry of a broker cluster (its BookKeeper clusters, and the one that its brokers write to), and its lease.

All writes are conditional, and an order that is carried out twice, as after a crash, finds its work done. See
docs/design/switching.md.
"""

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import unquote

import msgspec
import structlog
from msgspec.structs import asdict
from pydantic import TypeAdapter, ValidationError

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.collection import first_problem
from connectors.zookeeper.json_znodes import (
    DamagedZnodeError,
    JsonZnodes,
    Node,
    Step,
    ZnodeConflictError,
    ZnodeError,
    check,
    create,
    create_or_put,
    delete,
    put,
    quote_name,
)
from connectors.zookeeper.session import ZooKeeperSession
from policies.observations import Outcome
from policies.switching.decisions import SwitchDecision, SwitchVerdict
from policies.switching.ledgers import Epoch, Name
from policies.switching.readings import StatusAction, SwitchRegistry, SwitchStatus
from policies.switching.state import ClusterStatus, Directive, RegistryEntry, SwitchProgress
from policies.units import MAX_INT64

_ENTRY = TypeAdapter(RegistryEntry)
_DIRECTIVE = TypeAdapter(Directive)
_PROGRESS = TypeAdapter(SwitchProgress)
_EPOCH: TypeAdapter[int] = TypeAdapter(Epoch)
_NAME: TypeAdapter[str] = TypeAdapter(Name)
Document = TypeVar("Document")

_log = structlog.get_logger(__name__)

_ORCHESTRATOR = f"{REGISTRY_ROOT}/orchestrator"
_TRIES = 5
"""Attempts of a write. Another client rarely writes between our read and write; several times in a row is no chance."""


@dataclass(frozen=True, slots=True)
class _Content:
    """The znodes of the whole registry."""

    directive: Node[Directive] | None
    committed: Node[int] | None
    bootstrap: Node[str] | None
    entries: dict[str, Node[RegistryEntry]]

    @property
    def committed_epoch(self) -> int:
        """Epoch of the directive whose target became the active cluster."""
        return 0 if self.committed is None else self.committed.value

    def list_active(self, *, but: Sequence[str] = ()) -> list[str]:
        """Return the active clusters, except some."""
        active = (name for name, node in self.entries.items() if node.value.status is ClusterStatus.ACTIVE)
        return [name for name in active if name not in but]


P = ParamSpec("P")


def _committed(
    make_steps: Callable[Concatenate["Registry", P], list[Step]],
) -> Callable[Concatenate["Registry", P], None]:
    """Make a write of a method that reads afresh and returns the steps to write; without steps it is done already."""

    @wraps(make_steps)
    def write(self: "Registry", /, *args: P.args, **options: P.kwargs) -> None:
        for _ in range(_TRIES):
            steps = make_steps(self, *args, **options)
            if not steps or self.nodes.commit(*steps):
                return
        raise ZnodeConflictError(f"{REGISTRY_ROOT} is changed by others all the time")

    return write


class Registry:
    """Reads and writes the registry of a broker cluster. Safe for many threads and processes.

    Every method raises ZnodeError if ZooKeeper does not answer, or a znode that it needs is damaged. A write may then
    have been done or not. A write that does not fit the present state raises ZnodeConflictError, and changes nothing.
    """

    def __init__(self, session: ZooKeeperSession, cluster: str) -> None:
        self.nodes = JsonZnodes(session)
        self._cluster = cluster

    def read(self, *, contested_too: bool = False) -> SwitchRegistry:
        """Read the whole registry, without the progress of a switch.

        Args:
            contested_too: also if two clusters are active, for callers that only report the state.
        """
        content = self._read_content(contested_too=contested_too)
        return SwitchRegistry(
            cluster=self._cluster,
            outcome=Outcome.OK,
            clusters=tuple(node.value for node in content.entries.values()),
            bootstrap=None if content.bootstrap is None else content.bootstrap.value,
            directive=None if content.directive is None else content.directive.value,
            committed_epoch=content.committed_epoch,
        )

    def read_epoch(self) -> int | None:
        """Read the epoch of the directive in force from the leader; 0: there is none, None: it cannot be read."""
        try:
            self.nodes.catch_up(REGISTRY_ROOT)
            directive = self._get(f"{REGISTRY_ROOT}/directive", _DIRECTIVE)
        except ZnodeError:
            return None
        return 0 if directive is None else directive.value.epoch

    def read_progress(self) -> SwitchProgress | None:
        """Return the progress of the last switch; None if none is kept, or it is damaged.

        A damaged one stops nothing: only a query that has lost its checkpoint needs it.
        """
        kept = list[SwitchProgress]()
        for name in self.nodes.children(_ORCHESTRATOR):
            try:
                if (node := self._get(f"{_ORCHESTRATOR}/{name}", _PROGRESS)) is not None:
                    kept.append(node.value)
            except DamagedZnodeError as error:
                _log.warning("the progress of a switch cannot be used", detail=str(error))
        return max(kept, key=lambda each: each.epoch, default=None)

    def _get(
        self, path: str, shape: TypeAdapter[Document], *, field: str | None = None, **known: object
    ) -> Node[Document] | None:
        """Return a document as a struct of the policy, or one `field` of it.

        `known` are the struct's fields that are no part of the document.
        """
        node = self.nodes.get(path, dict[str, Any])
        if node is None:
            return None
        content: Any = {**node.value, "version": node.version, **known}
        document = msgspec.json.encode(content if field is None else content.get(field))
        try:
            value = shape.validate_json(document, strict=True)
        except ValidationError as error:
            raise DamagedZnodeError(f"{path} is damaged: {first_problem(error)}") from None
        return Node(value, node.version, node.ephemeral_owner, node.czxid, node.mzxid)

    def carry_out(self, order: SwitchDecision) -> SwitchStatus | None:
        """Carry out an order. Returns the result of a status; the next reading of the registry shows the others."""
        args: dict[str, Any] = dict(order.args)
        refusal = None
        try:
            match order.verdict:
                case SwitchVerdict.WRITE_REGISTRY:
                    self.write_cluster(_ENTRY.validate_python(args), args.get("bootstrap"))
                case SwitchVerdict.REMOVE_REGISTRY:
                    self.remove_cluster(args["name"], args.get("version"))
                case SwitchVerdict.WRITE_DIRECTIVE:
                    self.write_directive(args["directive_epoch"], args["target"])
                case SwitchVerdict.WRITE_STATUS:
                    self.make_active(args["name"], args["deprecated"], args.get("expected_version"), order.epoch)
                case SwitchVerdict.CLOSE_CLIENT:
                    self.allow_close(args["name"], order.epoch)
        except (ZnodeConflictError, ValidationError) as error:
            refusal = str(error)
            _log.warning("registry conflict", cluster=self._cluster, subject=order.subject, detail=refusal)
        if order.verdict is not SwitchVerdict.WRITE_STATUS:
            return None
        return SwitchStatus(
            cluster=self._cluster,
            outcome=Outcome.OK,
            detail=refusal,
            action=StatusAction.STATUS_NEW,
            op=order.op,
            written=refusal is None,
        )

    @_committed
    def write_cluster(self, wanted: RegistryEntry, bootstrap: str | None) -> list[Step]:
        """Create an entry (version None), or change the one of its version.

        `bootstrap` is the cluster of legacy references, written with the entry unless one was written before.
        """
        content, name = self._read_content(), wanted.name
        found, steps = content.entries.get(name), list[Step]()
        if content.bootstrap is None and bootstrap is not None:
            steps.append(self._write_step(f"{REGISTRY_ROOT}/bootstrap", {"name": bootstrap}, None))
        if found is None or msgspec.structs.replace(found.value, version=wanted.version) != wanted:
            _require_version(name, found, wanted.version)
            if wanted.status is ClusterStatus.ACTIVE and (others := content.list_active(but=[name])):
                raise ZnodeConflictError(f"{name} cannot become active: {others[0]} is")
            steps.append(self._write_step(_entry_path(name), _content(wanted), found))
        return steps

    @_committed
    def remove_cluster(self, name: str, version: int | None) -> list[Step]:
        """Remove an entry, if it exists, and the permit to close its client: it must not hold for a later cluster."""
        found = self._get(_entry_path(name), _ENTRY, name=name)
        if found is None:
            return []
        if version is not None:
            _require_version(name, found, version)
        if found.value.status is ClusterStatus.ACTIVE:
            raise ZnodeConflictError(f"{name} is active: it cannot be removed")
        permit = self._get(_permit_path(name), _EPOCH, field="epoch")
        return [
            delete(_entry_path(name), found.version),
            *([delete(_permit_path(name), permit.version)] if permit else []),
        ]

    @_committed
    def write_directive(self, epoch: int, target: str) -> list[Step]:
        """Write the directive of an epoch, unless a later one or another one of this epoch exists."""
        wanted, found, committed = Directive(epoch, target), *self._read_directives()
        if found is not None and found.value == wanted:
            return []
        if found is not None and found.value.epoch >= epoch:
            raise ZnodeConflictError(f"epoch {found.value.epoch} directs to {found.value.target}")
        if committed is not None and committed.value >= epoch:
            raise ZnodeConflictError(f"epoch {committed.value} is committed")
        return [self._write_step(f"{REGISTRY_ROOT}/directive", asdict(wanted), found)]

    @_committed
    def make_active(self, name: str, left: str, expected_version: int | None, epoch: int) -> list[Step]:
        """Make a cluster active and the left one deprecated, and commit the epoch: one is active at every moment.

        `expected_version` is that of its entry; None: any. A status that is right already needs none.
        """
        content = self._read_content()
        found, committed = content.entries.get(name), content.committed_epoch
        if found is None:
            raise ZnodeConflictError(f"{name} is not registered")
        wanted = {name: ClusterStatus.ACTIVE, left: ClusterStatus.DEPRECATED}
        statuses = {each: node.value.status for each, node in content.entries.items()}
        if committed >= epoch and statuses == {each: wanted.get(each, status) for each, status in statuses.items()}:
            return []
        if expected_version not in (None, found.version) and found.value.status is not ClusterStatus.ACTIVE:
            text = f"the entry of {name} has version {found.version} ({found.value.status}), not {expected_version}"
            raise ZnodeConflictError(text)
        if committed > epoch:
            raise ZnodeConflictError(f"epoch {committed} is committed, which is later than {epoch}")
        if others := content.list_active(but=[name, left]):
            raise ZnodeConflictError(f"{others[0]} is active")
        steps = [create_or_put(f"{REGISTRY_ROOT}/committed", {"epoch": epoch}, content.committed)]
        for each, node in content.entries.items():
            if each in wanted:
                entry = msgspec.structs.replace(node.value, status=wanted[each])
                steps.append(create_or_put(_entry_path(each), _content(entry), node))
            else:
                steps.append(check(_entry_path(each), node.version))
        return steps

    @_committed
    def allow_close(self, name: str, epoch: int) -> list[Step]:
        """Permit brokers to close their client of a cluster, as of an epoch; a permit of a later epoch stays."""
        found = self._get(_permit_path(name), _EPOCH, field="epoch")
        if found is not None and found.value >= epoch:
            return []
        return [self._write_step(_permit_path(name), {"epoch": epoch}, found)]

    @_committed
    def write_progress(self, progress: SwitchProgress) -> list[Step]:
        """Keep the progress of a switch, unless one of a later epoch or of an earlier start is kept.

        A query that has lost its checkpoint reads old commands again, and begins a switch once more. It began before.
        """
        path = f"{_ORCHESTRATOR}/{quote_name(progress.target)}"
        kept = self._get(path, _PROGRESS)
        if kept and (kept.value.epoch, -kept.value.started_ms) > (progress.epoch, -progress.started_ms):
            return []
        return [self._write_step(path, asdict(progress), kept)]

    def _write_step(self, path: str, value: object, found: Node[Any] | None) -> Step:
        if found is None:
            self.nodes.ensure(path.rpartition("/")[0])
        return create_or_put(path, value, found)

    def _read_content(self, *, contested_too: bool = False) -> _Content:
        # The order matters. After a commit between two of these reads, either the directive looks uncommitted or the
        # entries are the new ones; the active cluster is right in both cases.
        self.nodes.catch_up(REGISTRY_ROOT)
        directive, committed = self._read_directives()
        bootstrap = self._get(f"{REGISTRY_ROOT}/bootstrap", _NAME, field="name")
        folder, entries = f"{REGISTRY_ROOT}/clusters", dict[str, Node[RegistryEntry]]()
        for child in self.nodes.children(folder):
            if (node := self._get(f"{folder}/{child}", _ENTRY, name=unquote(child))) is not None:
                entries[node.value.name] = node
        content = _Content(directive, committed, bootstrap, dict(sorted(entries.items())))
        active = content.list_active()
        if len(active) > 1 and not contested_too:
            raise ZnodeError(f"{REGISTRY_ROOT} is damaged: {active[0]} and {active[1]} are both active")
        return content

    def _read_directives(self) -> tuple[Node[Directive] | None, Node[int] | None]:
        """Return the directive in force, and the committed epoch."""
        directive = self._get(f"{REGISTRY_ROOT}/directive", _DIRECTIVE)
        return directive, self._get(f"{REGISTRY_ROOT}/committed", _EPOCH, field="epoch")


def _entry_path(name: str) -> str:
    return f"{REGISTRY_ROOT}/clusters/{quote_name(name)}"


def _permit_path(name: str) -> str:
    return f"{REGISTRY_ROOT}/clients/{quote_name(name)}"


def _content(entry: RegistryEntry) -> dict[str, Any]:
    """Return an entry as its znode has it: without its name and version, which are the znode's."""
    return {name: value for name, value in asdict(entry).items() if name not in ("name", "version")}


def _require_version(name: str, found: Node[RegistryEntry] | None, version: int | None) -> None:
    there = None if found is None else found.version
    if there != version:
        found_text = "does not exist" if there is None else f"has version {there}"
        raise ZnodeConflictError(f"the entry of {name} {found_text}, expected was {version}")


# The lease for orchestrating a broker cluster's switches: one process at a time, each with a greater token.
#
# The token and the holder's ephemeral znode are written in one transaction. So each token is used once, whatever
# crashes, and it belongs to the holder as long as the same transaction was the last to write both znodes.


class HeldLease(msgspec.Struct, frozen=True):
    """The lease of its holder, as its znode has it."""

    token: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
    """Greater than all earlier tokens."""
    holder: str


class ZooKeeperLease:
    """One process's view of the lease. For one thread, and the only lease of its session.

    No other process can hold it before ZooKeeper has ended this session, at the earliest one session timeout after the
    last successful `renew`. A process that was paused for longer notices only at its next `renew`. So the receivers of
    its orders must refuse a token that is smaller than a later one.

    Args:
        holder: this process's name for operators; by default `host:pid`.
    """

    def __init__(self, session: ZooKeeperSession, holder: str | None = None) -> None:
        self._nodes = JsonZnodes(session)
        self._path = f"{REGISTRY_ROOT}/lease"
        self._ephemeral = f"{self._path}/holder"
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}"

    def renew(self) -> HeldLease | None:
        """Take the lease if it is free, and verify that it is held. Call it every few seconds.

        Returns:
            None while another process holds it, or this one in an earlier session that has not expired yet.

        Raises:
            ZnodeError: ZooKeeper does not answer, or a znode is damaged: whether the lease is held is unknown.
        """
        for _ in range(_TRIES):
            token, holder = self._read()
            if holder is None:
                if (held := self._acquire(token)) is not None:
                    return held
            elif not self._is_ours(holder):
                return None
            elif token is not None and holder.czxid == token.mzxid:
                return token.value
            else:  # an operator changed the token by hand, so it belongs to no holder and a new one is taken
                self._give_up(token, holder)
        raise ZnodeConflictError(f"{self._path} is changed by others all the time")

    def release(self) -> None:
        """Give up the lease if it is held, so that another process need not wait for the end of this session.

        Raises:
            ZnodeError: the result is unknown; the end of the session gives it up.
        """
        token, holder = self._read()
        if holder is not None and self._is_ours(holder):
            self._give_up(token, holder)

    def _read(self) -> tuple[Node[HeldLease] | None, Node[bytes] | None]:
        self._nodes.catch_up(self._path)
        return self._nodes.get(self._path, HeldLease), self._nodes.read(self._ephemeral)

    def _is_ours(self, holder: Node[bytes]) -> bool:
        return holder.ephemeral_owner == self._nodes.session_id()

    def _acquire(self, found: Node[HeldLease] | None) -> HeldLease | None:
        """Write both znodes in one transaction. Returns None if one of them has changed since it was read."""
        if found is None:
            self._nodes.ensure(self._path.rpartition("/")[0])
            self._nodes.require_private(self._path.rpartition("/")[0])
            self._nodes.commit(create(self._path, HeldLease(token=0, holder="")))
            return None
        self._nodes.require_private(self._path.rpartition("/")[0])
        taken = HeldLease(token=found.value.token + 1, holder=self.holder)
        mine = create(self._ephemeral, {"holder": self.holder}, ephemeral=True)
        if self._nodes.commit(put(self._path, taken, found.version), mine):
            return taken
        return None

    def _give_up(self, token: Node[HeldLease] | None, holder: Node[bytes]) -> None:
        """Delete the holder's znode. The token's version distinguishes it from a later holder's: all have version 0."""
        still_ours = [] if token is None else [check(self._path, token.version)]
        self._nodes.commit(*still_ours, delete(self._ephemeral, holder.version))
