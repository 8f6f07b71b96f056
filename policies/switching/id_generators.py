"""Which ledger id a cluster will give next, derived from its id generator in ZooKeeper without using up an id.

BookKeeper takes ids from sequential znodes: below ``idgen`` while they fit 31 bits, and once ``idgen-long`` exists,
below its largest child ``HOB-k``, whose number is the high half of the id.
Rules: docs/design/switching.md.
"""

from msgspec import Struct

MAX_HOB = 2**31 - 1
_HALF_BITS = 32
_COUNTER = 2**32
_NEARLY_FULL = 2**31 - 2**20
"""From this sequence number on a cluster may begin its next ``HOB`` while a switch goes on."""


def next_sequence(cversion: int, num_children: int) -> int:
    """The number the next sequential child of a znode gets: how many were ever created below it.

    ZooKeeper shows ``cversion`` = 2 * created - children, in 32 bits with a sign; so both may be negative or wrapped.
    """
    return (cversion + num_children) % _COUNTER // 2


class IdGenerator(Struct, array_like=True, frozen=True):
    """An id generator as read: the counters of the znode whose sequential children are the ids."""

    hob: int | None
    """The largest k of ``idgen-long/HOB-k``; None where there is no ``idgen-long``."""
    cversion: int
    num_children: int

    @property
    def next_id(self) -> int:
        """The id the cluster gives next."""
        return first_id(self.hob or 0) | next_sequence(self.cversion, self.num_children)

    @property
    def given(self) -> int:
        """The greatest id that is known to be given: those before the present ``HOB`` may be skipped; -1: none is."""
        return self.next_id - 1 if next_sequence(self.cversion, self.num_children) else -1

    @property
    def ceiling(self) -> int:
        """The greatest id the cluster may give while a switch goes on: the end of its ``HOB``, or of the next one."""
        full = next_sequence(self.cversion, self.num_children) >= _NEARLY_FULL
        return last_id(min((self.hob or 0) + full, MAX_HOB))


EMPTY_SHORT = IdGenerator(hob=None, cversion=0, num_children=0)
"""No ledger was ever created: there is neither ``idgen`` nor ``idgen-long``."""
EMPTY_LONG = IdGenerator(hob=1, cversion=0, num_children=0)
"""``idgen-long`` has no child yet: BookKeeper then begins with ``HOB-0000000001``."""


def first_id(hob: int) -> int:
    """The least id of ``HOB-k``."""
    return hob << _HALF_BITS


def last_id(hob: int) -> int:
    """The greatest id of ``HOB-k``: a sequence number has 31 bits."""
    return first_id(hob) | (2**31 - 1)


def hob_beyond(ledger_id: int) -> int:
    """The least ``HOB`` all of whose ids are greater than an id."""
    return (ledger_id >> _HALF_BITS) + 1


def remedy_beyond(ledger_id: int, cluster: str) -> str:
    """What brings a cluster's ids beyond one: never what cannot be done."""
    hob = hob_beyond(ledger_id)
    return f"advance to {hob_name(hob)}" if hob <= MAX_HOB else f"no HOB lies beyond, so {cluster} cannot be used"


def hob_name(hob: int) -> str:
    """The znode's name, such as ``HOB-0000000001``."""
    return f"HOB-{hob:010d}"
