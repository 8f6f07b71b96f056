"""Folds the znodes by which members own bundles and register themselves: the last good reading of each."""

from collections.abc import Iterable

from policies.observations import Observation, Outcome
from policies.sessions.readings import NodeKind, OwnedNode, Ownership, Ownerships, is_bundle, kind_of
from policies.sessions.state import NEVER, NodeRecord


class OwnershipNodes:
    """The nodes by path, while one step works on them.

    Args:
        nodes: as remembered.
        validity_ms: after a longer gap nobody knows whether a member was registered in between, and its absence
            begins anew.
    """

    def __init__(self, nodes: Iterable[NodeRecord], validity_ms: int) -> None:
        self.by_path = {n.path: n for n in nodes}
        self._validity_ms = validity_ms
        self._by_owner: dict[str, list[NodeRecord]] | None = None

    def get(self, path: str) -> NodeRecord | None:
        """The last good reading of a node."""
        return self.by_path.get(path)

    def bundles(self) -> list[NodeRecord]:
        """Those by which bundles are owned."""
        return [node for path, node in self.by_path.items() if is_bundle(path)]

    def bundles_of(self, member: str) -> list[NodeRecord]:
        """Those a member owns, or was the last to own."""
        if self._by_owner is None:
            self._by_owner = {}
            for node in self.bundles():
                for owner in {node.owner, node.prior} - {None}:
                    self._by_owner.setdefault(owner or "", []).append(node)
        return self._by_owner.get(member, [])

    def fold(self, seen: Observation, reading: Ownership) -> None:
        """One reading of one node; a failed one tells nothing."""
        if reading.outcome is Outcome.OK:
            self._by_owner = None
            self._put(reading, seen)

    def fold_tree(self, seen: Observation, reading: Ownerships, expected: Iterable[str]) -> None:
        """One complete reading of a tree: what it does not list is absent, `expected` paths as well as known ones."""
        self._by_owner = None
        listed = set()
        for node in reading.nodes:
            listed.add(node.path)
            self._put(node, seen)
        below = f"{reading.tree.rstrip('/')}/"
        for path in expected:
            if path not in listed and path.startswith(below):
                self.by_path.setdefault(path, NodeRecord(path, NEVER, "", exists=False, changed_ms=seen.at_ms))
        for path, last in list(self.by_path.items()):
            if path not in listed and path.startswith(below):
                self._absent(last, seen)

    def _put(self, node: OwnedNode, seen: Observation) -> None:
        if kind_of(node) is NodeKind.LEADER:
            return
        last = self.by_path.get(node.path)
        if last is not None and (seen.at_ms, seen.id) <= (last.read_ms, last.read_id):
            return
        if not node.exists:
            self._absent(last or NodeRecord(node.path, NEVER, "", exists=False, changed_ms=seen.at_ms), seen)
            return
        unreadable = node.owner_member is None
        before = None if last is None else (last.owner if last.exists else None)
        changed = last is None or not last.exists or (not unreadable and node.owner_member != last.owner)
        self.by_path[node.path] = NodeRecord(
            node.path,
            seen.at_ms,
            seen.id,
            exists=True,
            ephemeral=node.ephemeral,
            owner=node.owner_member,
            session=node.session,
            czxid=node.czxid,
            version=node.version,
            changed_ms=seen.at_ms if changed or last is None else last.changed_ms,
            prior=_prior(last, before, node.owner_member),
            unreadable_times=(last.unreadable_times + 1 if last else 1) if unreadable else 0,
            before_ms=_before_ms(last, seen),
        )

    def _absent(self, last: NodeRecord, seen: Observation) -> None:
        if (seen.at_ms, seen.id) <= (last.read_ms, last.read_id):
            return
        owner = last.owner if last.exists and last.owner is not None else last.prior
        has_gap = last.read_ms != NEVER and seen.at_ms - last.read_ms > self._validity_ms and not is_bundle(last.path)
        changed_ms = seen.at_ms if last.exists or has_gap else last.changed_ms
        self.by_path[last.path] = NodeRecord(
            last.path,
            seen.at_ms,
            seen.id,
            exists=False,
            changed_ms=changed_ms,
            prior=owner,
            before_ms=_before_ms(last, seen),
        )


def _before_ms(last: NodeRecord | None, seen: Observation) -> int:
    """When it was read before; two readings of one moment are one look."""
    if last is None:
        return NEVER
    return last.read_ms if seen.at_ms > last.read_ms else last.before_ms


def _prior(last: NodeRecord | None, before: str | None, owner: str | None) -> str | None:
    """The last owner other than the present one; while its value is unreadable, the last one at all."""
    if last is None:
        return None
    return before if before is not None and before != owner else (last.prior if last.prior != owner else None)
