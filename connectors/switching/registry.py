"""The registry of a broker cluster: its BookKeeper clusters, and the one that its brokers write to.

All writes are conditional, and an order that is carried out twice, as after a crash, finds its work done. See
docs/design/switching.md.
"""

from urllib.parse import unquote

import msgspec
import structlog
from pydantic import ValidationError

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.switching.registry_content import (
    AtEpoch,
    Bootstrap,
    ClusterDocument,
    Content,
    DirectiveDocument,
    ProgressDocument,
    RegistryView,
    read_committed,
    read_content,
    read_directive,
)
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
    quote_name,
)
from connectors.zookeeper.session import ZooKeeperSession
from policies.observations import Outcome
from policies.switching.decisions import SwitchDecision, SwitchVerdict
from policies.switching.readings import RegisteredCluster, StatusAction, SwitchProgress, SwitchStatus, WrittenDirective
from policies.switching.state import ClusterStatus

_log = structlog.get_logger(__name__)

_TRIES = 5
"""Attempts of a write. Another client rarely writes between our read and write; several times in a row is no chance."""


class Registry:
    """Reads and writes the registry. Safe for many threads and processes."""

    def __init__(self, session: ZooKeeperSession, root: str = REGISTRY_ROOT) -> None:
        self._nodes = JsonZnodes(session)
        self._root = root.rstrip("/")

    def read(self, *, contested_too: bool = False) -> RegistryView:
        """Read the whole registry.

        Args:
            contested_too: also if two clusters are active, for callers that only report the state.

        Raises:
            ZnodeError: it cannot be read, or a znode is damaged.
        """
        content = self._read_content(contested_too=contested_too)
        return RegistryView(
            tuple(self._describe_entry(name, node) for name, node in content.entries.items()),
            None if content.bootstrap is None else content.bootstrap.value.name,
            _describe_directive(content.directive),
            content.committed_epoch,
        )

    def require_private(self) -> None:
        """Check that nobody else may change the registry. Raises as `JsonZnodes.require_private` does."""
        self._nodes.require_private(self._root)

    def read_epoch(self) -> int | None:
        """Read the epoch of the directive in force from the leader; 0: there is none, None: it cannot be read."""
        try:
            self._nodes.catch_up(self._root)
            directive = read_directive(self._nodes, self._root)
        except ZnodeError:
            return None
        return 0 if directive is None else directive.value.epoch

    def write_cluster(
        self,
        name: str,
        *,
        uri: str,
        instance_id: str,
        root: str,
        status: ClusterStatus,
        version: int | None,
        bootstrap: str | None,
    ) -> None:
        """Create or change an entry.

        Args:
            version: of the entry to change; None: it must not exist.
            bootstrap: the cluster of legacy references, written with the entry unless one was written before; None:
                it is not written.

        Raises:
            ZnodeConflictError: the entry differs from the expected one, or a second one would be active.
            ZnodeError: it could not be written, or the result is unknown.
        """
        wanted, path = (
            ClusterDocument(uri=uri, instance_id=instance_id, root=root, status=status),
            self._entry_path(name),
        )
        for _ in range(_TRIES):
            content = self._read_content()
            found, named = content.entries.get(name), content.bootstrap
            steps: list[Step] = []
            if named is None and bootstrap is not None:
                steps.append(create(f"{self._root}/bootstrap", Bootstrap(name=bootstrap)))
            if found is None or found.value != wanted:
                _require_version(name, found, version)
                if status is ClusterStatus.ACTIVE and (others := content.list_other_active(name)):
                    raise ZnodeConflictError(f"{name} cannot become active: {others[0]} is")
                steps.append(create_or_put(path, wanted, found))
            if steps:
                self._nodes.ensure(f"{self._root}/clusters")
            if not steps or self._nodes.commit(*steps):
                return
        raise ZnodeConflictError(f"{path} is changed by others all the time")

    def remove_cluster(self, name: str, version: int | None) -> None:
        """Remove an entry, if it exists.

        Args:
            version: of the entry; None: any.

        Raises:
            ZnodeConflictError: the entry has another version, or is active.
            ZnodeError: it could not be removed, or the result is unknown.
        """
        allowed = f"{self._root}/clients/{quote_name(name)}"
        for _ in range(_TRIES):
            found = self._nodes.get(self._entry_path(name), ClusterDocument)
            if found is None:
                return
            if version is not None:
                _require_version(name, found, version)
            if found.value.status is ClusterStatus.ACTIVE:
                raise ZnodeConflictError(f"{name} is active: it cannot be removed")
            steps = [delete(self._entry_path(name), found.version)]
            if (permit := self._nodes.get(allowed, AtEpoch)) is not None:
                # The permit must not hold for a later cluster of the same name.
                steps.append(delete(allowed, permit.version))
            if self._nodes.commit(*steps):
                return
        raise ZnodeConflictError(f"{self._entry_path(name)} is changed by others all the time")

    def write_directive(self, epoch: int, target: str) -> str:
        """Write the directive of an epoch, unless an equal or later one exists.

        Returns:
            What supersedes it; empty if it is in force, now or since before.

        Raises:
            ZnodeError: it could not be written, or the result is unknown.
        """
        wanted = DirectiveDocument(epoch=epoch, target=target)
        for _ in range(_TRIES):
            found, committed = read_directive(self._nodes, self._root), read_committed(self._nodes, self._root)
            if found is not None and found.value == wanted:
                return ""
            if found is not None and found.value.epoch >= epoch:
                return f"epoch {found.value.epoch} directs to {found.value.target}"
            if committed is not None and committed.value.epoch >= epoch:
                return f"epoch {committed.value.epoch} is committed"
            if found is None:
                self._nodes.ensure(self._root)
            if self._nodes.commit(create_or_put(f"{self._root}/directive", wanted, found)):
                return ""
        raise ZnodeConflictError(f"{self._root}/directive is changed by others all the time")

    def write_status(
        self,
        name: str,
        status: ClusterStatus,
        expected_version: int | None,
        commit_epoch: int | None = None,
        deprecated: str | None = None,
    ) -> str:
        """Change the status of a cluster. A status that is right already needs no version.

        Args:
            expected_version: of its entry; None: any.
            commit_epoch: the epoch that the same transaction commits; None: none.
            deprecated: a cluster that the same transaction deprecates, so that one is active at every moment.

        Returns:
            Why it is not done: the entry is missing or has another version, another cluster is active, or a later
            epoch is committed. Empty if it is done.

        Raises:
            ZnodeError: it could not be written, or the result is unknown.
        """
        for _ in range(_TRIES):
            content = self._read_content()
            found = content.entries.get(name)
            if found is None:
                return f"{name} is not registered"
            is_committed = commit_epoch is None or content.committed_epoch >= commit_epoch
            left = content.entries.get(deprecated or "")
            is_left = left is None or left.value.status is ClusterStatus.DEPRECATED
            if found.value.status is status and is_committed and is_left:
                return ""
            if reason := _find_obstacle(content, name, status, expected_version, commit_epoch, deprecated):
                return reason
            if self._nodes.commit(*self._status_steps(content, name, status, commit_epoch, deprecated)):
                return ""
        return f"{self._entry_path(name)} is changed by others all the time"

    def allow_close(self, name: str, epoch: int) -> None:
        """Permit brokers to close their client of a cluster, as of an epoch; a permit of a later epoch stays.

        Raises:
            ZnodeError: it could not be written, or the result is unknown.
        """
        path = f"{self._root}/clients/{quote_name(name)}"
        for _ in range(_TRIES):
            found = self._nodes.get(path, AtEpoch)
            if found is not None and found.value.epoch >= epoch:
                return
            if found is None:
                self._nodes.ensure(f"{self._root}/clients")
            if self._nodes.commit(create_or_put(path, AtEpoch(epoch=epoch), found)):
                return
        raise ZnodeConflictError(f"{path} is changed by others all the time")

    def write_progress(self, progress: SwitchProgress) -> None:
        """Keep the progress of a switch, unless one of a later epoch or of an earlier start is kept.

        A query that has lost its checkpoint reads old commands again, and begins a switch once more. It began before.

        Raises:
            ZnodeError: it could not be written, or the result is unknown.
        """
        path = f"{self._root}/orchestrator/{quote_name(progress.target)}"
        document = ProgressDocument(
            epoch=progress.epoch, started_ms=progress.started_ms, progress=progress.model_dump(mode="json")
        )
        for _ in range(_TRIES):
            found = self._nodes.get(path, ProgressDocument)
            if found is None:
                self._nodes.ensure(f"{self._root}/orchestrator")
            elif found.value.epoch > document.epoch or (
                found.value.epoch == document.epoch and found.value.started_ms < document.started_ms
            ):
                return
            if self._nodes.commit(create_or_put(path, document, found)):
                return
        raise ZnodeConflictError(f"{path} is changed by others all the time")

    def read_progress(self) -> SwitchProgress | None:
        """Return the progress of the last switch; None if none is kept, or it is damaged.

        A damaged one stops nothing: only a query that has lost its checkpoint needs it.

        Raises:
            ZnodeError: it cannot be read.
        """
        folder, found = f"{self._root}/orchestrator", list[ProgressDocument]()
        for name in self._nodes.children(folder):
            try:
                node = self._nodes.get(f"{folder}/{name}", ProgressDocument)
            except DamagedZnodeError as error:
                _log.warning("the progress of a switch cannot be used", detail=str(error))
                continue
            found += [node.value] if node is not None else []
        last = max(found, key=lambda each: each.epoch, default=None)
        try:
            return None if last is None else SwitchProgress.model_validate(last.progress)
        except ValidationError as error:
            _log.warning("the progress of a switch cannot be used", detail=str(error.errors(include_input=False)[:1]))
            return None

    def read_permits(self) -> dict[str, int]:
        """Return the clusters whose clients brokers may close, each with the epoch of the permit.

        Raises:
            ZnodeError: they cannot be read, or one is damaged.
        """
        folder = f"{self._root}/clients"
        permits = ((name, self._nodes.get(f"{folder}/{name}", AtEpoch)) for name in self._nodes.children(folder))
        return {unquote(name): permit.value.epoch for name, permit in permits if permit is not None}

    def _read_content(self, *, contested_too: bool = False) -> Content:
        content = read_content(self._nodes, self._root)
        active = content.active()
        if len(active) > 1 and not contested_too:
            raise ZnodeError(f"{self._root} is damaged: {active[0]} and {active[1]} are both active")
        return content

    def _entry_path(self, name: str) -> str:
        return f"{self._root}/clusters/{quote_name(name)}"

    def _describe_entry(self, name: str, node: Node[ClusterDocument]) -> RegisteredCluster:
        try:
            return RegisteredCluster(name=name, version=node.version, **msgspec.structs.asdict(node.value))
        except ValueError:
            raise ZnodeError(f"{self._entry_path(name)} is damaged: its name is no cluster's") from None

    def _status_steps(
        self, content: Content, name: str, status: ClusterStatus, commit_epoch: int | None, deprecated: str | None
    ) -> list[Step]:
        wanted = {name: status} | ({deprecated: ClusterStatus.DEPRECATED} if deprecated in content.entries else {})
        steps: list[Step] = []
        for each, its_status in wanted.items():
            found = content.entries[each]
            changed = msgspec.structs.replace(found.value, status=its_status)
            steps.append(create_or_put(self._entry_path(each), changed, found))
        if status is ClusterStatus.ACTIVE:
            others = ((other, node) for other, node in content.entries.items() if other not in wanted)
            steps += [check(self._entry_path(other), node.version) for other, node in others]
        if commit_epoch is not None and content.committed_epoch < commit_epoch:
            steps.append(create_or_put(f"{self._root}/committed", AtEpoch(epoch=commit_epoch), content.committed))
        return steps


def _describe_directive(found: Node[DirectiveDocument] | None) -> WrittenDirective | None:
    return None if found is None else WrittenDirective(epoch=found.value.epoch, target=found.value.target)


def _require_version(name: str, found: Node[ClusterDocument] | None, version: int | None) -> None:
    there = None if found is None else found.version
    if there != version:
        found_text = "does not exist" if there is None else f"has version {there}"
        expected_text = "none" if version is None else f"version {version}"
        raise ZnodeConflictError(f"the entry of {name} {found_text}, expected was {expected_text}")


def _find_obstacle(
    content: Content,
    name: str,
    status: ClusterStatus,
    expected_version: int | None,
    commit_epoch: int | None,
    deprecated: str | None,
) -> str | None:
    """Return the reason why a status cannot be written."""
    found = content.entries[name]
    if expected_version is not None and found.version != expected_version and found.value.status is not status:
        return f"the entry of {name} has version {found.version} ({found.value.status}), not {expected_version}"
    if commit_epoch is not None and content.committed_epoch > commit_epoch:
        return f"epoch {content.committed_epoch} is committed, which is later than {commit_epoch}"
    others = [other for other in content.list_other_active(name) if other != deprecated]
    return f"{others[0]} is active" if status is ClusterStatus.ACTIVE and others else None


# Carries out orders about the registry: clusters, directive, statuses, permits to close clients.

REGISTRY_ORDERS = frozenset(
    {
        SwitchVerdict.WRITE_REGISTRY,
        SwitchVerdict.REMOVE_REGISTRY,
        SwitchVerdict.WRITE_DIRECTIVE,
        SwitchVerdict.WRITE_STATUS,
        SwitchVerdict.CLOSE_CLIENT,
    }
)


class RegistryOrders:
    """Carries orders out. For one thread."""

    def __init__(self, cluster: str, registry: Registry) -> None:
        self._cluster = cluster
        self._registry = registry

    def carry_out(self, order: SwitchDecision) -> SwitchStatus | None:
        """Carry out an order. Returns the result of a status; the next reading of the registry shows the others.

        Raises:
            ZnodeError: ZooKeeper does not answer, or a znode cannot be read: try again.
        """
        try:
            return self._carry_out(order)
        except ZnodeConflictError as error:
            # Another client wrote there, and the next reading shows it.
            _log.warning("registry conflict", cluster=self._cluster, subject=order.subject, detail=str(error))
            return None

    def _carry_out(self, order: SwitchDecision) -> SwitchStatus | None:
        args, name = order.args, str(order.args.get("name") or "")
        match order.verdict:
            case SwitchVerdict.WRITE_REGISTRY:
                self._registry.write_cluster(
                    name,
                    uri=str(args["uri"]),
                    instance_id=str(args["instance_id"]),
                    root=str(args["root"]),
                    status=ClusterStatus(str(args["status"])),
                    version=_parse_version(order, "version"),
                    bootstrap=str(args["bootstrap"]) if args.get("bootstrap") else None,
                )
            case SwitchVerdict.REMOVE_REGISTRY:
                self._registry.remove_cluster(name, _parse_version(order, "version"))
            case SwitchVerdict.WRITE_DIRECTIVE:
                epoch = int(args["directive_epoch"] or 0)
                if detail := self._registry.write_directive(epoch, str(args["target"])):
                    _log.warning("a later directive is in force", cluster=self._cluster, epoch=epoch, detail=detail)
            case SwitchVerdict.WRITE_STATUS:
                return self._write_status(order, name)
            case SwitchVerdict.CLOSE_CLIENT:
                self._registry.allow_close(name, order.epoch)
        return None

    def _write_status(self, order: SwitchDecision, name: str) -> SwitchStatus:
        status = ClusterStatus(str(order.args["status"]))
        deprecated = str(order.args["deprecated"]) if order.args.get("deprecated") else None
        version = _parse_version(order, "expected_version")
        commit = order.epoch if status is ClusterStatus.ACTIVE else None
        refused = self._registry.write_status(name, status, version, commit, deprecated)
        if refused:
            _log.warning("a status cannot be written", cluster=self._cluster, name=name, detail=refused)
        return SwitchStatus(
            cluster=self._cluster,
            outcome=Outcome.OK,
            detail=refused or None,
            action=StatusAction.STATUS_NEW,
            op=order.op,
            written=not refused,
        )


def _parse_version(order: SwitchDecision, name: str) -> int | None:
    version = order.args.get(name)
    return version if isinstance(version, int) else None
