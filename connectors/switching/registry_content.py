"""The content of a broker cluster's registry: each znode with its version."""

from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec

from connectors.zookeeper.json_znodes import JsonZnodes, Node
from policies.observations import Outcome
from policies.switching.readings import RegisteredCluster, SwitchProgress, SwitchRegistry, WrittenDirective
from policies.switching.state import ClusterStatus
from policies.units import MAX_INT64

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]


class ClusterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A BookKeeper cluster."""

    uri: _Text
    instance_id: _Text
    root: _Text
    status: ClusterStatus


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster of legacy references."""

    name: _Name


class DirectiveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The directive: the cluster that brokers must write to."""

    epoch: _Epoch
    target: _Name


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

    directive: Node[DirectiveDocument] | None
    committed: Node[AtEpoch] | None
    bootstrap: Node[Bootstrap] | None
    entries: dict[str, Node[ClusterDocument]] = field(default_factory=dict)

    @property
    def committed_epoch(self) -> int:
        """Epoch of the directive whose target became the active cluster."""
        return 0 if self.committed is None else self.committed.value.epoch

    def active(self) -> list[str]:
        """Return the active clusters."""
        return [name for name, node in self.entries.items() if node.value.status is ClusterStatus.ACTIVE]

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
    directive = read_directive(nodes, root)
    content = Content(directive, read_committed(nodes, root), nodes.get(f"{root}/bootstrap", Bootstrap))
    for child in nodes.children(f"{root}/clusters"):
        node = nodes.get(f"{root}/clusters/{child}", ClusterDocument)
        if node is not None:
            content.entries[unquote(child)] = node
    content.entries = dict(sorted(content.entries.items()))
    return content


def read_committed(nodes: JsonZnodes, root: str) -> Node[AtEpoch] | None:
    """Read the committed epoch. Raises as `read_content` does."""
    return nodes.get(f"{root}/committed", AtEpoch)


def read_directive(nodes: JsonZnodes, root: str) -> Node[DirectiveDocument] | None:
    """Read the directive. Raises as `read_content` does."""
    return nodes.get(f"{root}/directive", DirectiveDocument)


# The content of a broker cluster's registry, for those who only read it.


@dataclass(frozen=True, slots=True)
class RegistryView:
    """The content of the registry."""

    clusters: tuple[RegisteredCluster, ...] = ()
    """By name, each with the version of its znode."""
    bootstrap: str | None = None
    directive: WrittenDirective | None = None
    committed_epoch: int = 0

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
            progress=progress,
        )
