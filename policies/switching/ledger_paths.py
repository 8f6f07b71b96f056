"""Paths of ledgers' metadata in ZooKeeper, and the ledger of a path.

BookKeeper's default layout (`hierarchical`) writes an id that fits 31 bits as ten digits split 2/4/4 and a larger one
as nineteen digits split 3/4/4/4/4; `longhierarchical` always does the latter. Rules: docs/design/switching.md, Ids.
"""

import re

from policies.closed_enum import ClosedEnum
from policies.units import MAX_INT64

_FIRST_LONG_ID = 2**31 - 1
"""The layout's own boundary: the greatest 31-bit id is already written the long way."""
_SHORT_SPLIT = (2, 4, 4)
_LONG_SPLIT = (3, 4, 4, 4, 4)
_SHORT_PATH = re.compile(r"/(\d{2})/(\d{4})/L(\d{4})", re.ASCII)
_LONG_PATH = re.compile(r"/(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})", re.ASCII)


class Layout(ClosedEnum):
    """The layout of a cluster's ledger metadata."""

    HIERARCHICAL = "hierarchical", "Ids below 2147483647 split 2/4/4, greater ones 3/4/4/4/4."
    LONG_HIERARCHICAL = "longhierarchical", "Every id split 3/4/4/4/4."


_FACTORIES = {
    "hierarchical": Layout.HIERARCHICAL,
    "longhierarchical": Layout.LONG_HIERARCHICAL,
    "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory": Layout.HIERARCHICAL,
    "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory": Layout.LONG_HIERARCHICAL,
}


def parse_layout(text: str) -> Layout | None:
    """Return the layout that a ``LAYOUT`` znode names (a version, then ``factory:version``).

    None if the layout is not known to hold every id, such as the flat and the legacy layout.
    """
    lines = text.strip().splitlines()
    return _FACTORIES.get(lines[1].rpartition(":")[0]) if len(lines) == 2 else None


def path_of(layout: Layout, ledger_id: int) -> str:
    """Return the path of a ledger's metadata below the cluster's root, such as ``/00/1695/L6902``.

    Raises:
        ValueError: the id is negative (-1 means "no ledger") or larger than 63 bits.
    """
    if not 0 <= ledger_id <= MAX_INT64:
        raise ValueError(f"{ledger_id} is no ledger id: it must lie between 0 and {MAX_INT64}")
    short = layout is Layout.HIERARCHICAL and ledger_id < _FIRST_LONG_ID
    split = _SHORT_SPLIT if short else _LONG_SPLIT
    digits, parts = f"{ledger_id:0{sum(split)}d}", []
    for width in split:
        parts.append(digits[:width])
        digits = digits[width:]
    return "/" + "/".join((*parts[:-1], f"L{parts[-1]}"))


_FLAT_PATH = re.compile(r"/L(\d{10})", re.ASCII)


def id_of_any_layout(path: str) -> int | None:
    """Return the ledger of a path of any layout of BookKeeper, the flat one included; None if it is none's path."""
    for pattern in (_SHORT_PATH, _LONG_PATH, _FLAT_PATH):
        if (matched := pattern.fullmatch(path)) is not None:
            ledger_id = int("".join(matched.groups()))
            return ledger_id if ledger_id <= MAX_INT64 else None
    return None


def id_at(layout: Layout, path: str) -> int | None:
    """Return the ledger of a path below the cluster's root; None if it is no ledger's path."""
    ledger_id = id_of_any_layout(path)
    # BookKeeper itself must write this path for the id: else it is not the ledger's.
    return ledger_id if ledger_id is not None and path_of(layout, ledger_id) == path else None
