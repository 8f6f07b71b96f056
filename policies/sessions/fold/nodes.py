"""Folds the znodes by which members own bundles and register themselves: the last good reading of each."""

from collections.abc import Iterable

from policies.confirmation import MOST_CHANGES
from policies.observations import Observation, Outcome
from policies.sessions.fold.session_machine import Timeouts
from policies.sessions.readings import LEADER, NodeKind, OwnedNode, Ownership, Ownerships, is_bundle
from policies.sessions.settings import IN_A_ROW_MS
from policies.sessions.state import NEVER, NodeRecord


class OwnershipNodes:
    """The nodes by path, while one step changes them.

    Args:
        timeouts: after a gap longer than `validity_ms`, a member may have been registered in between, so its absence
            starts again. Changes of a registration are remembered for `settle_ms`.
    """

    def __init__(self, nodes: Iterable[NodeRecord], timeouts: Timeouts) -> None:
        self.by_path = {n.path: n for n in nodes}
        self._timeouts = timeouts
        self._by_owner: dict[str | None, list[NodeRecord]] | None = None
        self._bundles: list[NodeRecord] | None = None

    def bundles(self) -> list[NodeRecord]:
        """The nodes that stand for bundles."""
        if self._bundles is None:
            self._bundles = [node for path, node in self.by_path.items() if is_bundle(path)]
        return self._bundles

    def find_bundles(self, member: str) -> list[NodeRecord]:
        """The bundles a member owns, or was the last to own."""
        if self._by_owner is None:
            self._by_owner = {}
            for node in self.bundles():
                for owner in {node.owner, node.prior}:
                    self._by_owner.setdefault(owner, []).append(node)
        return self._by_owner.get(member, [])

    def fold(self, seen: Observation, reading: Ownership) -> None:
        """Fold in a reading of one node; a failed one changes nothing."""
        if reading.outcome is Outcome.OK:
            self._forget_derived()
            self._record(reading, seen.at_ms, seen.id)

    def fold_tree(
        self, seen: Observation, reading: Ownerships, expected: Iterable[str], failed_ms: int = NEVER
    ) -> None:
        """Fold in a complete reading of a tree: known and `expected` paths that it does not list are absent.

        Args:
            failed_ms: the last failed attempt to read the tree.
        """
        self._forget_derived()
        at_ms, id_ = seen.at_ms, seen.id  # the time is computed once, not for each of 9,000 nodes
        for node in reading.nodes:
            self._record(node, at_ms, id_)
        listed = {node.path for node in reading.nodes}
        below = f"{reading.tree.rstrip('/')}/"
        for path in expected:
            if path not in listed and path.startswith(below):
                self.by_path.setdefault(path, NodeRecord(path, NEVER, "", exists=False, changed_ms=at_ms))
        for path in self.by_path.keys() - listed:
            if path.startswith(below):
                self._record_absence(self.by_path[path], at_ms, id_, failed_ms)

    def _forget_derived(self) -> None:
        self._by_owner = self._bundles = None

    def _record(self, node: OwnedNode, at_ms: int, id_: str) -> None:
        path, kind, owner = node.path, node.kind, node.owner_member
        if kind is NodeKind.LEADER or (kind is None and path == LEADER):
            return
        last = self.by_path.get(path) or NodeRecord(path, NEVER, "", exists=False, changed_ms=at_ms)
        if at_ms <= last.read_ms and (at_ms, id_) <= (last.read_ms, last.read_id):
            return
        if not node.exists:
            self._record_absence(last, at_ms, id_)
            return
        changed_ms, prior, changes = last.changed_ms, last.prior, last.changes
        if not last.exists:
            changed_ms, changes = at_ms, self._add_change(last, at_ms)
        elif owner != last.owner:
            changed_ms = changed_ms if owner is None else at_ms
            # The last owner other than the present one; while the value is unreadable, the last known owner.
            prior = prior if last.owner is None else last.owner
        # The arguments have the order of the fields: keywords cost a third of a step with 9,000 nodes.
        self.by_path[path] = NodeRecord(
            path, at_ms, id_, True, node.ephemeral, owner, node.session, node.czxid, node.version,  # noqa: FBT003
            changed_ms, prior if prior != owner else None, last.unreadable_times + 1 if owner is None else 0,
            last.read_ms if at_ms > last.read_ms else last.before_ms, NEVER, changes,
        )  # fmt: skip

    def _record_absence(self, last: NodeRecord, at_ms: int, id_: str, failed_ms: int = NEVER) -> None:
        if at_ms <= last.read_ms and (at_ms, id_) <= (last.read_ms, last.read_id):
            return
        owner = last.owner if last.exists and last.owner is not None else last.prior
        # While ZooKeeper could not be read, a member could not register itself, so it has its time after that.
        longest_ms = self._timeouts.validity_ms if failed_ms <= last.read_ms else IN_A_ROW_MS
        has_gap = last.read_ms != NEVER and at_ms - last.read_ms > longest_ms and not is_bundle(last.path)
        self.by_path[last.path] = NodeRecord(
            last.path,
            at_ms,
            id_,
            exists=False,
            changed_ms=at_ms if last.exists or has_gap else last.changed_ms,
            prior=owner,
            before_ms=_previous_ms(last, at_ms),
            existed_ms=last.read_ms if last.exists else last.existed_ms,
            changes=self._add_change(last, at_ms) if last.exists else last.changes,
        )

    def _add_change(self, last: NodeRecord, at_ms: int) -> tuple[int, ...]:
        """Return the changes of a registration with this one; a bundle may have no owner for a while at any time."""
        if is_bundle(last.path) or last.read_ms == NEVER:
            return ()
        return (*(ms for ms in last.changes if ms > at_ms - self._timeouts.settle_ms), at_ms)[-MOST_CHANGES - 1 :]


def _previous_ms(last: NodeRecord, at_ms: int) -> int:
    """The time of the reading before this one; two readings of one moment count as one."""
    return last.read_ms if at_ms > last.read_ms else last.before_ms
