"""Folds the znodes by which members own bundles and register themselves: the last good reading of each."""

from collections.abc import Iterable

from policies.observations import Observation, Outcome
from policies.sessions.readings import NodeKind, OwnedNode, Ownership, Ownerships, find_kind, is_bundle
from policies.sessions.state import NEVER, NodeRecord


class OwnershipNodes:
    """The nodes by path, while one step changes them.

    Args:
        nodes: the nodes before the step.
        validity_ms: after a longer gap a member may have been registered in between, so its absence starts again.
    """

    def __init__(self, nodes: Iterable[NodeRecord], validity_ms: int) -> None:
        self.by_path = {n.path: n for n in nodes}
        self._validity_ms = validity_ms
        self._by_owner: dict[str, list[NodeRecord]] | None = None

    def bundles(self) -> list[NodeRecord]:
        """The nodes that stand for bundles."""
        return [node for path, node in self.by_path.items() if is_bundle(path)]

    def find_bundles(self, member: str) -> list[NodeRecord]:
        """The bundles a member owns, or was the last to own."""
        if self._by_owner is None:
            self._by_owner = {}
            for node in self.bundles():
                for owner in {node.owner, node.prior} - {None}:
                    self._by_owner.setdefault(owner or "", []).append(node)
        return self._by_owner.get(member, [])

    def fold(self, seen: Observation, reading: Ownership) -> None:
        """Fold in a reading of one node; a failed one changes nothing."""
        if reading.outcome is Outcome.OK:
            self._by_owner = None
            self._record(reading, seen)

    def fold_tree(self, seen: Observation, reading: Ownerships, expected: Iterable[str]) -> None:
        """Fold in a complete reading of a tree: known and `expected` paths that it does not list are absent."""
        self._by_owner = None
        listed = set()
        for node in reading.nodes:
            listed.add(node.path)
            self._record(node, seen)
        below = f"{reading.tree.rstrip('/')}/"
        for path in expected:
            if path not in listed and path.startswith(below):
                self.by_path.setdefault(path, NodeRecord(path, NEVER, "", exists=False, changed_ms=seen.at_ms))
        for path, last in list(self.by_path.items()):
            if path not in listed and path.startswith(below):
                self._record_absence(last, seen)

    def _record(self, node: OwnedNode, seen: Observation) -> None:
        if find_kind(node) is NodeKind.LEADER:
            return
        last = self.by_path.get(node.path)
        if last is not None and (seen.at_ms, seen.id) <= (last.read_ms, last.read_id):
            return
        if not node.exists:
            absent = NodeRecord(node.path, NEVER, "", exists=False, changed_ms=seen.at_ms)
            self._record_absence(last or absent, seen)
            return
        owner, changed_ms, prior, unreadable_times = node.owner_member, seen.at_ms, None, 0
        if last is not None:
            last_owner = last.owner if last.exists else None
            if last.exists and owner in (None, last.owner):
                changed_ms = last.changed_ms
            # The last owner other than the present one; while the value is unreadable, the last known owner.
            prior = last.prior if last.prior != owner else None
            if last_owner is not None and last_owner != owner:
                prior = last_owner
        if owner is None:
            unreadable_times = last.unreadable_times + 1 if last else 1
        self.by_path[node.path] = NodeRecord(
            node.path,
            seen.at_ms,
            seen.id,
            exists=True,
            ephemeral=node.ephemeral,
            owner=owner,
            session=node.session,
            czxid=node.czxid,
            version=node.version,
            changed_ms=changed_ms,
            prior=prior,
            unreadable_times=unreadable_times,
            before_ms=_previous_ms(last, seen),
        )

    def _record_absence(self, last: NodeRecord, seen: Observation) -> None:
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
            before_ms=_previous_ms(last, seen),
            existed_ms=last.read_ms if last.exists else last.existed_ms,
        )


def _previous_ms(last: NodeRecord | None, seen: Observation) -> int:
    """The time of the reading before this one; two readings of one moment count as one."""
    if last is None:
        return NEVER
    return last.read_ms if seen.at_ms > last.read_ms else last.before_ms
