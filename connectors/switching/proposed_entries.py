"""The registry's entries in the format of PIP-477, revision 3 (`<root>/<name>`), for plugins and clients that use it.

Our own entries (`<root>/clusters/<name>`) contain more and are authoritative; one transaction writes both. An entry
that another client makes active here is read, too, because a broker's plugin writes to any active cluster.
"""

from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

from connectors.zookeeper.json_znodes import (
    DamagedZnodeError,
    JsonZnodes,
    Node,
    Step,
    create_or_put,
    delete,
    quote_name,
)
from policies.switching.clusters import RESERVED_NAMES
from policies.switching.state import ClusterStatus


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
