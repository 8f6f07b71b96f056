"""The content of a broker cluster's registry: each znode with its version."""

from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec

from connectors.zookeeper.json_znodes import (
    DamagedZnodeError,
    JsonZnodes,
    Node,
    Step,
    ZnodeError,
    create_or_put,
    delete,
    quote_name,
)
from policies.observations import Outcome
from policies.switching.clusters import RESERVED_NAMES
from policies.switching.readings import RegisteredCluster, SwitchProgress, SwitchRegistry, WrittenDirective
from policies.switching.state import ClusterStatus
from policies.units import MAX_INT64

# The registry's entries in the format of PIP-477, revision 3 (`<root>/<name>`), for plugins and clients that use it.
#
# Our own entries (`<root>/clusters/<name>`) contain more and are authoritative; one transaction writes both. An entry
# that another client makes active here is read, too, because a broker's plugin writes to any active cluster.


class ProposedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in the proposal's format."""

    name: str
    metadata_service_uri: str = msgspec.field(name="metadataServiceUri")
    status: str
    """In capital letters."""


@dataclass(frozen=True, slots=True)
class ProposedEntries:
    """The present entries, by name."""

    root: str
    nodes: dict[str, Node[ProposedEntry]] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    """Names of znodes with other content, which are not changed."""

    def active(self) -> list[str]:
        """Return the names of the active clusters."""
        return sorted(n for n, node in self.nodes.items() if node.value.status.lower() == ClusterStatus.ACTIVE.value)

    def put(self, name: str, uri: str, status: ClusterStatus) -> list[Step]:
        """Return the step that writes an entry like ours; none if it is equal, or the name is not ours."""
        entry = ProposedEntry(name=name, metadata_service_uri=uri, status=status.value.upper())
        found = self.nodes.get(name)
        if name in RESERVED_NAMES or name in self.foreign or (found is not None and found.value == entry):
            return []
        return [create_or_put(self._path(name), entry, found)]

    def drop(self, name: str) -> list[Step]:
        """Return the step that deletes an entry, if it exists."""
        found = self.nodes.get(name)
        return [] if found is None else [delete(self._path(name), found.version)]

    def _path(self, name: str) -> str:
        return f"{self.root}/{quote_name(name)}"


def read_proposed(nodes: JsonZnodes, root: str) -> ProposedEntries:
    """Read the entries; znodes with other content are left out.

    Raises:
        ZnodeError: ZooKeeper does not answer.
    """
    found = ProposedEntries(root)
    for child in sorted(set(nodes.children(root)) - RESERVED_NAMES):
        try:
            node = nodes.get(f"{root}/{child}", ProposedEntry)
        except DamagedZnodeError:
            found.foreign.add(unquote(child))
            continue
        if node is not None:
            found.nodes[unquote(child)] = node
    return found


SWITCH_TARGET = "switch-target"
"""The znode of the directive in the proposal's format; `directive` has the same content for our own agents."""

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]


class ClusterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A BookKeeper cluster."""

    uri: _Text
    instance_id: _Text
    root: _Text
    status: ClusterStatus


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster of legacy references. Other writers use one of the two names; ours has both."""

    name: _Name | None = None
    bootstrap_cluster_name: _Name | None = msgspec.field(default=None, name="bootstrapClusterName")
    recorded_at: int | None = msgspec.field(default=None, name="recordedAt")

    @property
    def cluster(self) -> str | None:
        """The named cluster."""
        return self.name or self.bootstrap_cluster_name


class DirectiveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The directive: the cluster that brokers must write to."""

    epoch: _Epoch
    target: _Name


class SwitchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The directive in the proposal's format."""

    target: _Name
    origin: str | None = None
    """The orchestrator of the switch."""
    epoch: _Epoch = 0
    ts: int | None = None
    """Time of the write, in milliseconds since 1970."""


class ProgressDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a switch, for an executor whose query has lost its checkpoint."""

    epoch: _Epoch
    started_ms: int
    progress: dict[str, Any]


class AtEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """The committed epoch, or the epoch of a permit to close a client."""

    epoch: _Epoch


@dataclass(slots=True)
class Content:
    """The whole registry."""

    directive: WrittenDirective | None
    committed: Node[AtEpoch] | None
    bootstrap: Node[Bootstrap] | None
    proposed: ProposedEntries
    entries: dict[str, Node[ClusterDocument]] = field(default_factory=dict)

    @property
    def committed_epoch(self) -> int:
        """Epoch of the directive whose target became the active cluster."""
        return 0 if self.committed is None else self.committed.value.epoch

    def active(self) -> list[str]:
        """Return the active clusters by entries in either format, because brokers may use either."""
        ours = [name for name, node in self.entries.items() if node.value.status is ClusterStatus.ACTIVE]
        return sorted({*ours, *self.proposed.active()})

    def list_other_active(self, name: str) -> list[str]:
        """Return the other active clusters."""
        return [other for other in self.active() if other != name]


def read_content(nodes: JsonZnodes, root: str) -> Content:
    """Read the whole registry below a znode.

    Raises:
        ZnodeError: it cannot be read, or a znode is damaged.
    """
    # The order matters. After a commit between two of these reads, either the directive looks uncommitted or the
    # entries are the new ones; the active cluster is right in both cases.
    nodes.catch_up(root)
    directive = latest_directive(*read_directives(nodes, root))
    bootstrap = nodes.get(f"{root}/bootstrap", Bootstrap)
    if bootstrap is not None and bootstrap.value.cluster is None:
        raise ZnodeError(f"{root}/bootstrap is damaged: it names no cluster")
    content = Content(directive, read_committed(nodes, root), bootstrap, read_proposed(nodes, root))
    for child in nodes.children(f"{root}/clusters"):
        node = nodes.get(f"{root}/clusters/{child}", ClusterDocument)
        if node is not None:
            content.entries[unquote(child)] = node
    content.entries = dict(sorted(content.entries.items()))
    return content


def read_committed(nodes: JsonZnodes, root: str) -> Node[AtEpoch] | None:
    """Read the committed epoch. Raises as `read_content` does."""
    return nodes.get(f"{root}/committed", AtEpoch)


def read_directives(nodes: JsonZnodes, root: str) -> tuple[Node[DirectiveDocument] | None, Node[SwitchTarget] | None]:
    """Read the directive in our format, and in the proposal's. Raises as `read_content` does."""
    return nodes.get(f"{root}/directive", DirectiveDocument), nodes.get(f"{root}/{SWITCH_TARGET}", SwitchTarget)


def latest_directive(
    found: Node[DirectiveDocument] | None, proposed: Node[SwitchTarget] | None
) -> WrittenDirective | None:
    """Return the later of the two. One transaction writes both, so if they differ, another client wrote the last one.

    A broker that uses the proposal's format follows its directive whatever its epoch. So a later write there counts
    with the epoch of ours.
    """
    written = [WrittenDirective(epoch=n.value.epoch, target=n.value.target) for n in (proposed, found) if n is not None]
    last = max(written, key=lambda each: each.epoch, default=None)
    if last is not None and found is not None and proposed is not None and proposed.mzxid > found.mzxid:
        return WrittenDirective(epoch=last.epoch, target=proposed.value.target)
    return last


# The content of a broker cluster's registry, for those who only read it.


@dataclass(frozen=True, slots=True)
class RegistryView:
    """The content of the registry."""

    clusters: tuple[RegisteredCluster, ...] = ()
    """By name, each with the version of its znode."""
    bootstrap: str | None = None
    directive: WrittenDirective | None = None
    committed_epoch: int = 0
    active_as_proposed: tuple[str, ...] = ()
    """The active clusters by the entries in the proposal's format."""

    def active(self) -> str | None:
        """Return the cluster that brokers write to: the directive's until it is committed, then the registry's."""
        if self.directive is not None and self.directive.epoch > self.committed_epoch:
            return self.directive.target
        return self.committed()

    def committed(self) -> str | None:
        """Return the active cluster by the registry alone: the source of a switch."""
        return next((each.name for each in self.clusters if each.status is ClusterStatus.ACTIVE), None)

    def cluster(self, name: str) -> RegisteredCluster | None:
        """Return a registered cluster by its name."""
        return next((each for each in self.clusters if each.name == name), None)

    def make_reading(self, cluster: str, progress: SwitchProgress | None = None) -> SwitchRegistry:
        """Return the reading for the broker cluster of this name, with the progress of its last switch."""
        return SwitchRegistry(
            cluster=cluster,
            outcome=Outcome.OK,
            clusters=self.clusters,
            bootstrap=self.bootstrap,
            directive=self.directive,
            committed_epoch=self.committed_epoch,
            active_as_proposed=self.active_as_proposed,
            progress=progress,
        )
