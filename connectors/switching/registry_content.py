"""The registry of a broker cluster as it was read: each znode with its version."""

from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import unquote

import msgspec

from connectors.switching.json_znodes import JsonZnodes, Node, RegistryError
from connectors.switching.proposed_entries import ProposedEntries, read_proposed
from policies.switching.readings import WrittenDirective
from policies.switching.state import ClusterStatus
from policies.units import MAX_INT64

SWITCH_TARGET = "switch-target"
"""Where the proposal has the directive; `directive` says the same to agents that were made for it."""

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
    """What legacy references belong to. Whoever wrote it, it has one of the two names; ours has both."""

    name: _Name | None = None
    bootstrap_cluster_name: _Name | None = msgspec.field(default=None, name="bootstrapClusterName")
    recorded_at: int | None = msgspec.field(default=None, name="recordedAt")

    @property
    def cluster(self) -> str | None:
        """The one it names."""
        return self.name or self.bootstrap_cluster_name


class DirectiveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Where brokers are to write."""

    epoch: _Epoch
    target: _Name


class SwitchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The directive as the proposal has it."""

    target: _Name
    origin: str | None = None
    """Who orchestrates the switch."""
    epoch: _Epoch = 0
    ts: int | None = None
    """When it was written, in milliseconds since 1970."""


class AtEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed, and since when a client may be closed."""

    epoch: _Epoch


@dataclass(slots=True)
class Content:
    """All of it."""

    directive: WrittenDirective | None
    committed: Node[AtEpoch] | None
    bootstrap: Node[Bootstrap] | None
    proposed: ProposedEntries
    entries: dict[str, Node[ClusterDocument]] = field(default_factory=dict)

    @property
    def committed_epoch(self) -> int:
        """Of the directive whose target became the active cluster."""
        return 0 if self.committed is None else self.committed.value.epoch

    def active(self) -> list[str]:
        """By our entries or by the proposal's: brokers may go by either."""
        ours = [name for name, node in self.entries.items() if node.value.status is ClusterStatus.ACTIVE]
        return sorted({*ours, *self.proposed.active()})

    def others_active(self, name: str) -> list[str]:
        """Which are, but for one."""
        return [other for other in self.active() if other != name]


def read_content(nodes: JsonZnodes, root: str) -> Content:
    """All that lies below a znode.

    Raises:
        RegistryError: it cannot be read, or a znode is damaged; nothing is guessed.
    """
    # In this order: a commit between two of these reads shows either the directive as not committed yet, or the
    # entries as they are after it, so that the view names the right active cluster all the same.
    nodes.catch_up(root)
    directive = standing(*read_directives(nodes, root))
    bootstrap = nodes.get(f"{root}/bootstrap", Bootstrap)
    if bootstrap is not None and bootstrap.value.cluster is None:
        raise RegistryError(f"{root}/bootstrap is damaged: it names no cluster")
    content = Content(directive, read_committed(nodes, root), bootstrap, read_proposed(nodes, root))
    for child in nodes.children(f"{root}/clusters"):
        node = nodes.get(f"{root}/clusters/{child}", ClusterDocument)
        if node is not None:
            content.entries[unquote(child)] = node
    content.entries = dict(sorted(content.entries.items()))
    return content


def read_committed(nodes: JsonZnodes, root: str) -> Node[AtEpoch] | None:
    """The epoch that is committed. Raises as `read_content` does."""
    return nodes.get(f"{root}/committed", AtEpoch)


def read_directives(nodes: JsonZnodes, root: str) -> tuple[Node[DirectiveDocument] | None, Node[SwitchTarget] | None]:
    """As this registry has it, and as the proposal does. Raises as `read_content` does."""
    return nodes.get(f"{root}/directive", DirectiveDocument), nodes.get(f"{root}/{SWITCH_TARGET}", SwitchTarget)


def standing(found: Node[DirectiveDocument] | None, proposed: Node[SwitchTarget] | None) -> WrittenDirective | None:
    """The later of the two. We write both at once, so where they differ the one written last is somebody else's.

    A broker made to the proposal follows that, whatever epoch it has, if any: so it counts as of ours, and shows.
    """
    written = [WrittenDirective(epoch=n.value.epoch, target=n.value.target) for n in (proposed, found) if n is not None]
    last = max(written, key=lambda each: each.epoch, default=None)
    if last is not None and found is not None and proposed is not None and proposed.mzxid > found.mzxid:
        return WrittenDirective(epoch=last.epoch, target=proposed.value.target)
    return last
