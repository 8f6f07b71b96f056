"""What is known of the nodes by which members own bundles and register themselves: the last good reading of each."""

from collections.abc import Iterable, Iterator

from policies.observations import Observation, Outcome
from policies.sessions.readings import BROKERS, NodeKind, OwnedNode, Ownership, Ownerships, kind_of
from policies.sessions.state import NEVER, Node

FORGET_MS = 3_600_000
"""A node that has been absent for so long is forgotten, and with it what is said of it."""


class Nodes:
    """The nodes by path, while one step works on them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {n.path: n for n in nodes}
        self._by_owner: dict[str, list[Node]] | None = None

    def get(self, path: str) -> Node | None:
        """The last good reading of a node."""
        return self._nodes.get(path)

    def all(self) -> tuple[Node, ...]:
        """Sorted by path."""
        return tuple(self._nodes[path] for path in sorted(self._nodes))

    def bundles(self) -> Iterator[Node]:
        """Those by which bundles are owned."""
        return (node for path, node in self._nodes.items() if is_bundle(path))

    def bundles_of(self, member: str) -> list[Node]:
        """Those a member owns, or was the last to own."""
        if self._by_owner is None:
            self._by_owner = {}
            for node in self.bundles():
                for owner in {node.owner, node.prior} - {None}:
                    self._by_owner.setdefault(owner or "", []).append(node)
        return self._by_owner.get(member, [])

    def observe(self, seen: Observation, reading: Ownership) -> None:
        """One reading of one node; a failed one tells nothing."""
        if reading.outcome is Outcome.OK:
            self._by_owner = None
            self._put(reading, seen)

    def observe_tree(self, seen: Observation, reading: Ownerships, expected: Iterable[str]) -> None:
        """One complete reading of a tree: what it does not list is absent, `expected` paths as well as known ones."""
        self._by_owner = None
        listed = set()
        for node in reading.nodes:
            listed.add(node.path)
            self._put(node, seen)
        below = f"{reading.tree.rstrip('/')}/"
        for path in expected:
            if path not in listed and path.startswith(below):
                self._nodes.setdefault(path, Node(path, NEVER, "", exists=False, changed_ms=seen.at_ms))
        for path, known in list(self._nodes.items()):
            if path not in listed and path.startswith(below):
                self._absent(known, seen)

    def forget(self, now_ms: int, kept: set[str]) -> None:
        """Nodes that have long been absent, but for those that somebody still claims."""
        for path, node in list(self._nodes.items()):
            if not node.exists and path not in kept and now_ms - node.changed_ms >= FORGET_MS:
                del self._nodes[path]

    def _put(self, node: OwnedNode, seen: Observation) -> None:
        if kind_of(node) is NodeKind.LEADER:
            return
        known = self._nodes.get(node.path)
        if known is not None and (seen.at_ms, seen.id) <= (known.read_ms, known.read_id):
            return
        if not node.exists:
            self._absent(known or Node(node.path, NEVER, "", exists=False, changed_ms=seen.at_ms), seen)
            return
        unreadable = node.owner_member is None
        before = None if known is None else (known.owner if known.exists else None)
        changed = known is None or not known.exists or (not unreadable and node.owner_member != known.owner)
        self._nodes[node.path] = Node(
            node.path,
            seen.at_ms,
            seen.id,
            exists=True,
            ephemeral=node.ephemeral,
            owner=node.owner_member,
            session=node.session,
            czxid=node.czxid,
            version=node.version,
            changed_ms=seen.at_ms if changed or known is None else known.changed_ms,
            prior=_prior(known, before, node.owner_member),
            unreadable_times=(known.unreadable_times + 1 if known else 1) if unreadable else 0,
        )

    def _absent(self, known: Node, seen: Observation) -> None:
        if (seen.at_ms, seen.id) <= (known.read_ms, known.read_id):
            return
        owner = known.owner if known.exists and known.owner is not None else known.prior
        changed_ms = seen.at_ms if known.exists else known.changed_ms
        self._nodes[known.path] = Node(
            known.path, seen.at_ms, seen.id, exists=False, changed_ms=changed_ms, prior=owner
        )


def _prior(known: Node | None, before: str | None, owner: str | None) -> str | None:
    """The last owner other than the present one; while its value is unreadable, the last one at all."""
    if known is None:
        return None
    return before if before is not None and before != owner else (known.prior if known.prior != owner else None)


def is_bundle(path: str) -> bool:
    """Whether a node stands for a bundle rather than a registration."""
    return not path.startswith(f"{BROKERS}/")
