"""The highest ledger ids of each BookKeeper cluster over all switches: what this fleet's topics may refer to.

They are stored by the cluster's identity, so neither a new name nor removal from the registry loses them.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from policies.switching.precheck.snapshot import ClusterSnapshot


class IdMark(Struct, array_like=True, frozen=True):
    """One BookKeeper cluster."""

    instance: str
    name: str
    """As it was last called."""
    given: int = -1
    """The greatest id that it is known to have given. An advance to a later ``HOB`` skips ids, and gives none."""
    ceiling: int = -1
    """The greatest that it may have given, or may still, while brokers write there."""
    written: bool = False
    """Whether brokers of this fleet were ever sent there: then some may have written to it, heard or not."""
    floor: int = -1
    """Its next id when they were: what it gave before was not theirs."""

    @property
    def given_to_us(self) -> int:
        """The greatest id that brokers of this fleet may have got there; -1: none."""
        return self.given if self.given >= self.floor else -1


def marked(marks: Iterable[IdMark], seen: ClusterSnapshot) -> tuple[IdMark, ...]:
    """The marks with what was just read of a cluster; as they are when that says nothing of ids."""
    known = {m.instance: m for m in marks}
    if seen.instance_id is None or seen.generator is None:
        return _sorted(known.values())
    before, generator = known.get(seen.instance_id) or IdMark(seen.instance_id, seen.name), seen.generator
    known[seen.instance_id] = replace(
        before, name=seen.name, given=max(before.given, generator.given), ceiling=max(before.ceiling, generator.ceiling)
    )
    return _sorted(known.values())


def written(marks: Iterable[IdMark], seen: ClusterSnapshot | None, *, from_now: bool) -> tuple[IdMark, ...]:
    """The marks once brokers may have written to a cluster; one that was never read has no ids to keep.

    Args:
        marks: those of before.
        seen: the cluster as last read.
        from_now: they are only sent there now: what it gave before was not theirs.
    """
    known = {m.instance: m for m in marks}
    if seen is not None and seen.instance_id is not None:
        before = known.get(seen.instance_id) or IdMark(seen.instance_id, seen.name)
        next_id = seen.generator.next_id if seen.generator and from_now else -1
        floor = before.floor if before.written else next_id
        known[seen.instance_id] = replace(before, written=True, floor=floor)
    return _sorted(known.values())


def _sorted(marks: Iterable[IdMark]) -> tuple[IdMark, ...]:
    return tuple(sorted(marks, key=lambda m: m.instance))
