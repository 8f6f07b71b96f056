"""Reads the next ledger id of a cluster without taking one, from the counters of its id generator's znodes.

BookKeeper makes ids from sequential znodes below ``idgen``, and once ``idgen-long`` exists, below its largest child
``HOB-k``. Source: `ZkLedgerIdGenerator` and `LongZkLedgerIdGenerator` of BookKeeper 4.18.
"""

import re
from collections.abc import Iterable
from typing import Any

from connectors.zookeeper.tree import Reader
from policies.switching.id_generators import EMPTY_LONG, EMPTY_SHORT, MAX_HOB, IdGenerator, hob_name

_HOB = re.compile(r"HOB-(\d+)", re.ASCII)


def read_generator(reader: Reader, root: str) -> IdGenerator | None:
    """Its counters at this moment; None when they cannot be made sense of.

    Raises:
        UnreadError: a znode cannot be read.
    """
    exists, long_path = reader.client.exists_async, f"{root}/idgen-long"
    if reader.one(exists, long_path) is None:
        return _generator(None, reader.one(exists, f"{root}/idgen")) or EMPTY_SHORT
    hob = _largest(reader.one(reader.client.get_children_async, long_path) or ())
    if hob is None:
        return EMPTY_LONG
    return _generator(hob, reader.one(exists, f"{long_path}/{hob_name(hob)}")) if hob <= MAX_HOB else None


def _largest(children: Iterable[str]) -> int | None:
    return max((int(match[1]) for name in children if (match := _HOB.fullmatch(name))), default=None)


def _generator(hob: int | None, stat: Any) -> IdGenerator | None:
    return None if stat is None else IdGenerator(hob, stat.cversion, stat.numChildren)
