"""The content of a broker cluster's registry: each znode with its version."""

from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec

from connectors.switching.proposed_entries import ProposedEntries, read_proposed
from connectors.zookeeper.json_znodes import JsonZnodes, Node, ZnodeError
from policies.switching.readings import WrittenDirective
from policies.switching.state import ClusterStatus
from policies.units import MAX_INT64

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
