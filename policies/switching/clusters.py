"""BookKeeper clusters: valid names, the last snapshot of each, and the highest ledger ids over all switches.

Id marks are stored by the cluster's identity, so neither a new name nor removal from the registry loses them.
"""

import re
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from policies.switching.ledgers import IdGenerator, Layout
from policies.units import InstantMs

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def why_not_a_name(name: str) -> str | None:
    """Return why a text cannot be the name of a cluster; None if it can."""
    if _NAME.fullmatch(name):
        return None
    return (
        "becomes the name of a znode: 1 to 63 letters, digits, dots, underscores and hyphens, the first of them a "
        "letter or digit"
    )


class ClusterSnapshot(Struct, array_like=True, frozen=True, kw_only=True):
    """A BookKeeper cluster as last read. None: the value could not be read."""

    name: str
    instance_id: str | None
    """Its ``INSTANCEID``. With the root it is the cluster's identity, however its address is spelled."""
    root: str | None
    """The path of its ledgers in its ZooKeeper."""
    layout: Layout | None
    generator: IdGenerator | None
    read_ms: InstantMs
    epoch: int | None = None
    """The epoch of the directive that ZooKeeper had before the reading; -1: none that is known. None: not reported."""
    lower_counters: int = 0
    """The number of counters below the present one: `idgen` and every lower ``HOB``."""
    lower_given: int = 0
    """The number of ids that all counters below the present one gave; only clients that remember them use them."""
    lower_moved_ms: InstantMs = -1
    """When one of these last gave an id."""
    raised_epoch: int = -1
    """The epoch of the reading that first showed the present ``HOB``: a client opened at that epoch or before may use a
    lower one. -1: no later ``HOB`` was made since the cluster was first read."""


def are_same_cluster(one: ClusterSnapshot, other: ClusterSnapshot) -> bool:
    """Whether two snapshots have the same identity: instance id and root, not the name."""
    return (
        one.instance_id is not None
        and one.instance_id == other.instance_id
        and (one.root or "").rstrip("/") == (other.root or "").rstrip("/")
    )


class IdMark(Struct, array_like=True, frozen=True):
    """The highest ledger ids of one BookKeeper cluster."""

    instance: str
    name: str
    """The cluster's name when it was last read."""
    given: int = -1
    """The greatest id known to be given. An advance to a later ``HOB`` skips ids: they do not count."""
    ceiling: int = -1
    """The greatest id that the cluster may have given, or may still give while brokers write there."""
    written: bool = False
    """Whether brokers of this fleet were ever sent there: then some may have written to it, reported or not."""
    floor: int = -1
    """The cluster's next id when brokers were first sent there: this fleet got none of the ids below."""

    @property
    def given_to_us(self) -> int:
        """The greatest id that brokers of this fleet may have got there; -1 if they got none."""
        return self.given if self.given >= self.floor else -1


def raise_marks(marks: Iterable[IdMark], seen: ClusterSnapshot) -> tuple[IdMark, ...]:
    """Raise a cluster's mark to the ids just read; a snapshot without identity or generator changes nothing."""
    known = {m.instance: m for m in marks}
    if seen.instance_id is not None and seen.generator is not None:
        before, generator = known.get(seen.instance_id) or IdMark(seen.instance_id, seen.name), seen.generator
        known[seen.instance_id] = replace(
            before,
            name=seen.name,
            given=max(before.given, generator.given),
            ceiling=max(before.ceiling, generator.ceiling),
        )
    return tuple(known[instance] for instance in sorted(known))


def mark_written(marks: Iterable[IdMark], seen: ClusterSnapshot | None, *, from_now: bool) -> tuple[IdMark, ...]:
    """Mark a cluster as one that brokers may have written to; a cluster that was never read gets no mark.

    Args:
        from_now: brokers are sent there only now, so they got none of the ids that it gave before.
    """
    known = {m.instance: m for m in marks}
    if seen is not None and seen.instance_id is not None:
        before = known.get(seen.instance_id) or IdMark(seen.instance_id, seen.name)
        next_id = seen.generator.next_id if seen.generator and from_now else -1
        floor = before.floor if before.written else next_id
        known[seen.instance_id] = replace(before, written=True, floor=floor)
    return tuple(known[instance] for instance in sorted(known))
