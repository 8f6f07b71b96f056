"""Identity of a BookKeeper cluster: its instance id, its ledger layout, and the position of its id generator."""

from connectors.bookkeeper.generators import read_generator
from connectors.zookeeper.tree import Reader
from policies.errors import UserError
from policies.switching.clusters import ClusterSnapshot
from policies.switching.ledger_paths import Layout, layout_of


def read_cluster(reader: Reader, name: str, root: str, read_ms: int) -> ClusterSnapshot:
    """Read a cluster's identity, layout and id generator.

    Args:
        reader: of its ZooKeeper.
        name: what it is called in the settings.
        root: of its metadata, below the chroot.
        read_ms: the moment, taken before anything was read.

    Raises:
        UserError: there is no such root.
        UnreadError: a znode cannot be read.
    """
    if reader.one(reader.client.exists_async, root) is None:
        raise UserError(f"there is no node {reader.client.chroot}{root}: set ledgers_root of {name} to BookKeeper's.")
    return ClusterSnapshot(
        name=name,
        instance_id=_text(reader, f"{root}/INSTANCEID"),
        # With the chroot: one place has one name, however the servers are spelled.
        root=f"{reader.client.chroot}{root}",
        layout=read_layout(reader, root),
        generator=read_generator(reader, root),
        read_ms=read_ms,
    )


def read_layout(reader: Reader, root: str) -> Layout | None:
    """How it arranges its ledgers; None when that is unknown, or is not one that can be served."""
    text = _text(reader, f"{root}/LAYOUT")
    return None if text is None else layout_of(text)


def _text(reader: Reader, path: str) -> str | None:
    answer = reader.one(reader.client.get_async, path)
    if answer is None:
        return None
    try:
        return str(answer[0].decode()).strip() or None
    except UnicodeDecodeError:
        return None
