"""The ledger id that a cluster gives next, derived from its id generator in ZooKeeper without using up an id.

BookKeeper takes ids from sequential znodes: below ``idgen`` while they fit 31 bits. Once ``idgen-long`` exists, it
takes them below the largest child ``HOB-k``, whose number is the high half of the id.
Rules: docs/design/switching.md.
"""

from msgspec import Struct

MAX_HOB = 2**31 - 1
_HALF_BITS = 32
_COUNTER = 2**32
_NEARLY_FULL = 2**31 - 2**20
"""From this sequence number on, a cluster may begin its next ``HOB`` during a switch."""


def next_sequence(cversion: int, num_children: int) -> int:
    """Return the number of the next sequential child of a znode: the count of children ever created.

    ZooKeeper shows ``cversion`` = 2 * created - children, in 32 bits with a sign, so it may be negative or wrapped.
    """
    return (cversion + num_children) % _COUNTER // 2


class IdGenerator(Struct, array_like=True, frozen=True):
    """An id generator as read: the counters of the znode whose sequential children are the ids."""

    hob: int | None
    """The largest k of ``idgen-long/HOB-k``; None if there is no ``idgen-long``."""
    cversion: int
    num_children: int

    @property
    def next_id(self) -> int:
        """The id that the cluster gives next."""
        return (self.hob or 0) << _HALF_BITS | next_sequence(self.cversion, self.num_children)

    @property
    def given(self) -> int:
        """The greatest id known to be given; -1: none is. Ids before the present ``HOB`` may have been skipped."""
        return self.next_id - 1 if next_sequence(self.cversion, self.num_children) else -1

    @property
    def ceiling(self) -> int:
        """The greatest id that the cluster may give during a switch: the end of its ``HOB``, or of the next one."""
        full = next_sequence(self.cversion, self.num_children) >= _NEARLY_FULL
        return min((self.hob or 0) + full, MAX_HOB) << _HALF_BITS | (2**31 - 1)


EMPTY_SHORT = IdGenerator(hob=None, cversion=0, num_children=0)
"""The generator of a cluster without ``idgen`` and ``idgen-long``: no ledger was ever created."""
EMPTY_LONG = IdGenerator(hob=1, cversion=0, num_children=0)
"""The generator of an ``idgen-long`` without children: BookKeeper begins with ``HOB-0000000001``."""


def hob_beyond(ledger_id: int) -> int:
    """Return the least ``HOB`` of which every id is greater than an id."""
    return (ledger_id >> _HALF_BITS) + 1


def remedy_beyond(ledger_id: int, cluster: str) -> str:
    """Name the remedy that brings a cluster's ids beyond an id, if there is one."""
    hob = hob_beyond(ledger_id)
    return f"advance to {hob_name(hob)}" if hob <= MAX_HOB else f"no HOB lies beyond, so {cluster} cannot be used"


def hob_name(hob: int) -> str:
    """Return the znode's name, such as ``HOB-0000000001``."""
    return f"HOB-{hob:010d}"
