"""The registry of a broker cluster: its BookKeeper clusters, and which one its brokers write to.

The directive and the entries exist in two formats, written in one transaction: that of PIP-477, revision 3
(`switch-target`, `<name>`) and that of agents made for this registry (`directive`, `clusters/<name>`). All writes are
conditional, and an order that is carried out twice, as after a crash, finds its work done. See
docs/design/switching.md.
"""

import time
from collections.abc import Callable
from urllib.parse import unquote

import msgspec

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.switching.json_znodes import (
    JsonZnodes,
    Node,
    RegistryConflictError,
    RegistryError,
    Step,
    check,
    create,
    create_or_put,
    delete,
    quoted,
)
from connectors.switching.proposed_entries import read_proposed
from connectors.switching.registry_content import (
    SWITCH_TARGET,
    AtEpoch,
    Bootstrap,
    ClusterDocument,
    Content,
    DirectiveDocument,
    SwitchTarget,
    read_committed,
    read_content,
    read_directives,
    standing,
)
from connectors.switching.registry_view import ClusterWrite, DirectiveOutcome, DirectiveWrite, RegistryView, StatusWrite
from connectors.zookeeper.session import ZooKeeperSession
from policies.switching.readings import RegisteredCluster, WrittenDirective
from policies.switching.state import ClusterStatus

__all__ = [
    "SWITCH_TARGET",
    "ClusterWrite",
    "DirectiveOutcome",
    "DirectiveWrite",
    "Registry",
    "RegistryConflictError",
    "RegistryError",
    "RegistryView",
    "StatusWrite",
]

_TRIES = 5
"""Somebody else writing between our reading and writing is rare; so many times in a row is no coincidence."""


class Registry:
    """Reads and writes it. Safe to use from many threads and processes.

    Args:
        session: of the brokers' ZooKeeper.
        root: the znode it lies below.
        origin: who writes the directive, as the proposal has it said.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        root: str = REGISTRY_ROOT,
        *,
        origin: str = "headgate",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._origin, self._clock = origin, clock
        self._nodes = JsonZnodes(session)
        self._root = root.rstrip("/")

    def read(self, *, contested_too: bool = False) -> RegistryView:
        """All of it.

        Args:
            contested_too: also where two clusters are active: for who only tells what is there.

        Raises:
            RegistryError: it cannot be read, or a znode is damaged; nothing is guessed.
        """
        content = self._content(contested_too=contested_too)
        return RegistryView(
            tuple(self._registered(name, node) for name, node in content.entries.items()),
            None if content.bootstrap is None else content.bootstrap.value.cluster,
            content.directive,
            content.committed_epoch,
            tuple(content.proposed.active()),
        )

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
    ) -> ClusterWrite:
        """Make or change an entry.

        Args:
            name: of the BookKeeper cluster.
            uri: its metadata service URI.
            instance_id: its INSTANCEID.
            root: the path of its ledgers.
            status: what it is to the brokers.
            version: of the entry to change; None: there must be none.
            bootstrap: what legacy references belong to, written with the entry, if that was never written; one that was
                stays. None: nothing is written.

        Raises:
            RegistryConflictError: the entry is another one than expected, or a second one would be active.
            RegistryError: it could not be written, or it is not known whether it was.
        """
        wanted, path = ClusterDocument(uri=uri, instance_id=instance_id, root=root, status=status), self._entry(name)
        for _ in range(_TRIES):
            content = self._content()
            found, named = content.entries.get(name), content.bootstrap
            steps: list[Step] = []
            if named is None and bootstrap is not None:
                marker = Bootstrap(name=bootstrap, bootstrap_cluster_name=bootstrap, recorded_at=self._now_ms())
                steps.append(create(f"{self._root}/bootstrap", marker))
            if found is not None and found.value == wanted:
                written = found.version
            else:
                _must_be(name, found, version)
                if status is ClusterStatus.ACTIVE and (others := content.others_active(name)):
                    raise RegistryConflictError(f"{name} cannot become active: {others[0]} is")
                steps.append(create_or_put(path, wanted, found))
                written = 0 if found is None else found.version + 1
            steps += content.proposed.put(name, uri, status)
            if steps:
                self._nodes.ensure(f"{self._root}/clusters")
            if not steps or self._nodes.commit(*steps):
                return ClusterWrite(written, bootstrap if named is None else named.value.cluster)
        raise RegistryConflictError(f"{path} is changed by others all the time")

    def remove_cluster(self, name: str, version: int | None) -> None:
        """Remove an entry; one that is not there is done.

        Args:
            name: of the BookKeeper cluster.
            version: of the entry; None: whichever is there.

        Raises:
            RegistryConflictError: the entry is another one, or active.
            RegistryError: it could not be removed, or it is not known whether it was.
        """
        allowed = f"{self._root}/clients/{quoted(name)}"
        for _ in range(_TRIES):
            found = self._nodes.get(self._entry(name), ClusterDocument)
            if found is None:
                return
            if version is not None:
                _must_be(name, found, version)
            if found.value.status is ClusterStatus.ACTIVE:
                raise RegistryConflictError(f"{name} is active: it cannot be removed")
            steps = [delete(self._entry(name), found.version)]
            if (permit := self._nodes.get(allowed, AtEpoch)) is not None:
                # It must not be taken for a permit about a later cluster of the same name.
                steps.append(delete(allowed, permit.version))
            steps += read_proposed(self._nodes, self._root).drop(name)
            if self._nodes.commit(*steps):
                return
        raise RegistryConflictError(f"{self._entry(name)} is changed by others all the time")

    def write_directive(self, epoch: int, target: str) -> DirectiveWrite:
        """Direct the brokers where to write from this epoch on, unless that or something later was written already.

        Raises:
            RegistryError: it could not be written, or it is not known whether it was.
        """
        wanted = WrittenDirective(epoch=epoch, target=target)
        for _ in range(_TRIES):
            found, proposed = read_directives(self._nodes, self._root)
            stands, committed = standing(found, proposed), read_committed(self._nodes, self._root)
            if stands == wanted and found is not None and proposed is not None:
                return DirectiveWrite(DirectiveOutcome.ALREADY_THERE, wanted)
            if stands is not None and stands != wanted and stands.epoch >= epoch:
                detail = f"epoch {stands.epoch} directs to {stands.target}"
                return DirectiveWrite(DirectiveOutcome.SUPERSEDED, stands, detail)
            if committed is not None and committed.value.epoch >= epoch:
                detail = f"epoch {committed.value.epoch} is committed"
                return DirectiveWrite(DirectiveOutcome.SUPERSEDED, stands, detail)
            if found is None or proposed is None:
                self._nodes.ensure(self._root)
            plain = DirectiveDocument(epoch=epoch, target=target)
            named = SwitchTarget(target=target, origin=self._origin, epoch=epoch, ts=self._now_ms())
            if self._nodes.commit(
                create_or_put(f"{self._root}/directive", plain, found),
                create_or_put(f"{self._root}/{SWITCH_TARGET}", named, proposed),
            ):
                return DirectiveWrite(DirectiveOutcome.WRITTEN, wanted)
        raise RegistryConflictError(f"{self._root}/directive is changed by others all the time")

    def write_status(
        self, name: str, status: ClusterStatus, expected_version: int | None, commit_epoch: int | None = None
    ) -> StatusWrite:
        """Change what a cluster is to the brokers; what is so already is done, whatever version it has.

        Args:
            name: of the BookKeeper cluster.
            status: what it is to become.
            expected_version: of its entry; None: it is not known which.
            commit_epoch: the epoch that is committed with it, in one transaction; None: none is.

        Returns:
            Not done, and why: the entry is gone or another one, another cluster is active, or a later epoch is
            committed.

        Raises:
            RegistryError: it could not be written, or it is not known whether it was.
        """
        for _ in range(_TRIES):
            content = self._content()
            found = content.entries.get(name)
            if found is None:
                return StatusWrite(done=False, detail=f"{name} is not registered")
            is_committed = commit_epoch is None or content.committed_epoch >= commit_epoch
            if found.value.status is status and is_committed:
                return StatusWrite(done=True)
            if why := _obstacle(content, name, status, expected_version, commit_epoch):
                return StatusWrite(done=False, detail=why)
            if self._nodes.commit(*self._status_steps(content, name, status, commit_epoch)):
                return StatusWrite(done=True)
        return StatusWrite(done=False, detail=f"{self._entry(name)} is changed by others all the time")

    def allow_close(self, name: str, epoch: int) -> None:
        """Let brokers close their client of a cluster, as of an epoch; one that was allowed later stays so.

        Raises:
            RegistryError: it could not be written, or it is not known whether it was.
        """
        path = f"{self._root}/clients/{quoted(name)}"
        for _ in range(_TRIES):
            found = self._nodes.get(path, AtEpoch)
            if found is not None and found.value.epoch >= epoch:
                return
            if found is None:
                self._nodes.ensure(f"{self._root}/clients")
            if self._nodes.commit(create_or_put(path, AtEpoch(epoch=epoch), found)):
                return
        raise RegistryConflictError(f"{path} is changed by others all the time")

    def show_as_proposed(self) -> None:
        """Write the entries that the proposal's place lacks, as where an earlier version wrote the registry.

        Raises:
            RegistryError: they could not be written, or it is not known whether they were.
        """
        content = self._content(contested_too=True)
        for name, node in content.entries.items():
            steps = content.proposed.put(name, node.value.uri, node.value.status)
            if name not in content.proposed.nodes and steps and not self._nodes.commit(*steps):
                raise RegistryConflictError(f"the entry of {name} where the proposal has it was changed meanwhile")

    def closable(self) -> dict[str, int]:
        """The clusters that brokers may close their client of, each with the epoch as of which that was allowed.

        Raises:
            RegistryError: they cannot be read, or one is damaged.
        """
        folder = f"{self._root}/clients"
        permits = ((name, self._nodes.get(f"{folder}/{name}", AtEpoch)) for name in self._nodes.children(folder))
        return {unquote(name): permit.value.epoch for name, permit in permits if permit is not None}

    def _content(self, *, contested_too: bool = False) -> Content:
        content = read_content(self._nodes, self._root)
        active = content.active()
        if len(active) > 1 and not contested_too:
            raise RegistryError(f"{self._root} is damaged: {active[0]} and {active[1]} are both active")
        return content

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _entry(self, name: str) -> str:
        return f"{self._root}/clusters/{quoted(name)}"

    def _registered(self, name: str, node: Node[ClusterDocument]) -> RegisteredCluster:
        try:
            return RegisteredCluster(name=name, version=node.version, **msgspec.structs.asdict(node.value))
        except ValueError:
            raise RegistryError(f"{self._entry(name)} is damaged: its name is no cluster's") from None

    def _status_steps(self, content: Content, name: str, status: ClusterStatus, commit_epoch: int | None) -> list[Step]:
        found = content.entries[name]
        steps = [create_or_put(self._entry(name), msgspec.structs.replace(found.value, status=status), found)]
        steps += content.proposed.put(name, found.value.uri, status)
        if status is ClusterStatus.ACTIVE:
            others = ((other, node) for other, node in content.entries.items() if other != name)
            steps += [check(self._entry(other), node.version) for other, node in others]
        if commit_epoch is not None and content.committed_epoch < commit_epoch:
            steps.append(create_or_put(f"{self._root}/committed", AtEpoch(epoch=commit_epoch), content.committed))
        return steps


def _must_be(name: str, found: Node[ClusterDocument] | None, version: int | None) -> None:
    there = None if found is None else found.version
    if there != version:
        raise RegistryConflictError(f"the entry of {name} {_is(there)}, expected was {_as(version)}")


def _is(version: int | None) -> str:
    return "does not exist" if version is None else f"has version {version}"


def _as(version: int | None) -> str:
    return "none" if version is None else f"version {version}"


def _obstacle(
    content: Content, name: str, status: ClusterStatus, expected_version: int | None, commit_epoch: int | None
) -> str | None:
    """Why a status cannot be written."""
    found = content.entries[name]
    if expected_version is not None and found.version != expected_version and found.value.status is not status:
        return f"the entry of {name} has version {found.version} ({found.value.status}), not {expected_version}"
    if commit_epoch is not None and content.committed_epoch > commit_epoch:
        return f"epoch {content.committed_epoch} is committed, which is later than {commit_epoch}"
    if status is ClusterStatus.ACTIVE and (others := content.others_active(name)):
        return f"{others[0]} is active"
    return None
