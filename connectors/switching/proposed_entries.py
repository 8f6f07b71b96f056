"""The registry's entries in the format of PIP-477, revision 3 (`<root>/<name>`), for plugins and clients built to it.

Our own entries (`<root>/clusters/<name>`) hold more and are authoritative; these are written with them, in one
transaction. An entry that somebody else makes active here is still read: a broker's plugin that starts writes to
whatever is active.
"""

from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

from connectors.switching.json_znodes import DamagedZnodeError, JsonZnodes, Node, Step, create_or_put, delete, quoted
from policies.switching.clusters import RESERVED_NAMES
from policies.switching.state import ClusterStatus


class ProposedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """As the proposal spells it."""

    name: str
    metadata_service_uri: str = msgspec.field(name="metadataServiceUri")
    status: str
    """In capitals."""


@dataclass(frozen=True, slots=True)
class ProposedEntries:
    """Those that are there, by name."""

    root: str
    nodes: dict[str, Node[ProposedEntry]] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    """Names that something else has, which is left alone."""

    def active(self) -> list[str]:
        """Which of them say that brokers write there."""
        return sorted(n for n, node in self.nodes.items() if node.value.status.lower() == ClusterStatus.ACTIVE.value)

    def put(self, name: str, uri: str, status: ClusterStatus) -> list[Step]:
        """Write one as ours is to be; nothing where it is so, or another thing has that name."""
        entry = ProposedEntry(name=name, metadata_service_uri=uri, status=status.value.upper())
        found = self.nodes.get(name)
        if name in RESERVED_NAMES or name in self.foreign or (found is not None and found.value == entry):
            return []
        return [create_or_put(self._path(name), entry, found)]

    def drop(self, name: str) -> list[Step]:
        """Remove one, if it is there."""
        found = self.nodes.get(name)
        return [] if found is None else [delete(self._path(name), found.version)]

    def _path(self, name: str) -> str:
        return f"{self.root}/{quoted(name)}"


def read_proposed(nodes: JsonZnodes, root: str) -> ProposedEntries:
    """Those that are there; what is none, such as an empty znode of somebody's, is left out.

    Raises:
        RegistryError: ZooKeeper cannot be asked.
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
