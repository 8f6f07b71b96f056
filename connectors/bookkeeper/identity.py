"""Reads a BookKeeper cluster's identity: instance id, ledger layout, and the counters of its id generator.

BookKeeper makes ledger ids from sequential znodes below ``idgen``, and once ``idgen-long`` exists, below its largest
child ``HOB-k``. The counters are read without drawing an id. Source: `ZkLedgerIdGenerator` and
`LongZkLedgerIdGenerator` of BookKeeper 4.18.
"""

import re
from typing import Any

from connectors.zookeeper.tree import Reader
from policies.errors import UserError
from policies.switching.clusters import ClusterSnapshot
from policies.switching.id_generators import EMPTY_LONG, EMPTY_SHORT, MAX_HOB, IdGenerator, hob_name, next_sequence
from policies.switching.ledger_paths import Layout, parse_layout

_HOB = re.compile(r"HOB-(\d+)", re.ASCII)


def read_cluster(reader: Reader, name: str, root: str, read_ms: int) -> ClusterSnapshot:
    """Read a cluster's identity, layout and id generator.

    `root` is below the chroot; `read_ms` is the time before the first read.

    Raises:
        UserError: the root does not exist.
        UnreadError: a znode cannot be read.
    """
    reader.read(reader.client.sync_async, root)  # a follower that lags behind would return old counters
    if reader.read(reader.client.exists_async, root) is None:
        raise UserError(f"there is no node {reader.client.chroot}{root}: set ledgers_root of {name} to BookKeeper's.")
    return ClusterSnapshot(
        name=name,
        instance_id=_text(reader, f"{root}/INSTANCEID"),
        # With the chroot, so that a place has the same name for all spellings of the servers.
        root=f"{reader.client.chroot}{root}",
        layout=read_layout(reader, root),
        generator=read_generator(reader, root),
        read_ms=read_ms,
    )


def read_layout(reader: Reader, root: str) -> Layout | None:
    """Return the layout of its ledgers; None if it is unknown or not supported."""
    text = _text(reader, f"{root}/LAYOUT")
    return None if text is None else parse_layout(text)


def read_generator(reader: Reader, root: str) -> IdGenerator | None:
    """Return the present counters of the id generator; None if they make no sense.

    Raises:
        UnreadError: a znode cannot be read.
    """
    exists, long_path = reader.client.exists_async, f"{root}/idgen-long"
    if reader.read(exists, long_path) is None:
        return _generator(None, reader.read(exists, f"{root}/idgen")) or EMPTY_SHORT
    children = reader.read(reader.client.get_children_async, long_path) or ()
    hob = max((int(match[1]) for name in children if (match := _HOB.fullmatch(name))), default=None)
    if hob is None:
        return EMPTY_LONG
    return _generator(hob, reader.read(exists, f"{long_path}/{hob_name(hob)}")) if hob <= MAX_HOB else None


def read_lower_counters(reader: Reader, root: str, hob: int | None) -> dict[int | None, int]:
    """Return how many ids each counter below the present one gave, by the k of its `HOB-k`; None stands for `idgen`.

    A client that stays connected remembers its counter after the cluster was advanced. Raises as `read_generator` does.
    """
    if hob is None:
        return {}
    exists, long_path = reader.client.exists_async, f"{root}/idgen-long"
    names = reader.read(reader.client.get_children_async, long_path) or ()
    lower = sorted(int(match[1]) for name in names if (match := _HOB.fullmatch(name)) and int(match[1]) < hob)
    paths: dict[int | None, str] = {None: f"{root}/idgen", **{each: f"{long_path}/{hob_name(each)}" for each in lower}}
    found = dict(reader.read_all(exists, paths.values()))
    stats = {each: found[path] for each, path in paths.items()}
    return {each: next_sequence(stat.cversion, stat.numChildren) for each, stat in stats.items() if stat is not None}


def _generator(hob: int | None, stat: Any) -> IdGenerator | None:
    return None if stat is None else IdGenerator(hob, stat.cversion, stat.numChildren)


def _text(reader: Reader, path: str) -> str | None:
    answer = reader.read(reader.client.get_async, path)
    if answer is None:
        return None
    try:
        return str(answer[0].decode()).strip() or None
    except UnicodeDecodeError:
        return None
