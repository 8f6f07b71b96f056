"""Reads the registered bookies and their groups from ZooKeeper."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from connectors.collection.read_errors import parse_document
from connectors.zookeeper.server_status import session_name
from connectors.zookeeper.tree import Reader
from policies.bookie_readings import BookieRacks, BookieRegistration, Bookies, RackInfo
from policies.errors import UserError
from policies.observations import Outcome
from policies.units import from_millis

Hint = Callable[[Any], None]
"""A kazoo watch: something may have changed. It must not block."""

READ_ONLY = "readonly"
"""The child of `available` that is no bookie: the folder of the read-only ones."""
LEDGERS_ELSEWHERE = "set bookies.ledgers, or ledgers_root, to the brokers' bookkeeperMetadataServiceUri"
_MAX_ROUNDS = 5  # a bookie that goes during the reading causes another round


def none_as_empty(value: object) -> object:
    """Replace the null that Pulsar writes for an empty map."""
    return {} if value is None else value


_Members = Annotated[dict[str, Annotated[RackInfo, BeforeValidator(none_as_empty)]], BeforeValidator(none_as_empty)]
RackGroups = dict[str, _Members]
"""Groups of bookies, each with its members' racks, as Pulsar writes them."""

_GROUPS: TypeAdapter[dict[str, dict[str, RackInfo]]] = TypeAdapter(RackGroups)


def read_bookies(reader: Reader, cluster: str, ledgers_root: str, hint: Hint) -> Bookies:
    """Read the whole registration tree, and leave watches on it.

    Raises:
        UserError: the tree has no metadata of BookKeeper.
        UnreadError: a node cannot be read.
    """
    available, cookies = f"{ledgers_root}/available", f"{ledgers_root}/cookies"
    read_only = f"{available}/{READ_ONLY}"

    def children(path: str) -> Any:
        return reader.client.get_children_async(path, watch=hint)

    for _ in range(_MAX_ROUNDS):
        names = dict(reader.read_all(children, (available, read_only, cookies)))
        if names[available] is None:
            raise UserError(f"there is no node {reader.client.chroot}{available}: {LEDGERS_ELSEWHERE}")
        writable = [f"{available}/{name}" for name in sorted(names[available]) if name != READ_ONLY]
        others = [f"{read_only}/{name}" for name in sorted(names[read_only] or ())]
        stats = dict(reader.read_all(reader.client.exists_async, [*writable, *others]))
        if None not in stats.values():
            break
    return Bookies(
        cluster=cluster,
        outcome=Outcome.OK,
        writable=_registrations(writable, stats),
        read_only=_registrations(others, stats),
        known=tuple(sorted(names[cookies] or ())),
    )


def _registrations(paths: list[str], stats: dict[str, Any]) -> tuple[BookieRegistration, ...]:
    found = ((path.rpartition("/")[2], stats[path]) for path in paths)
    return tuple(parse_registration(bookie, stat) for bookie, stat in found if stat is not None)


def parse_registration(bookie: str, stat: Any) -> BookieRegistration:
    """Return a bookie's registration from the stat of its node."""
    return BookieRegistration(
        bookie=bookie,
        session=session_name(stat.ephemeralOwner) if stat.ephemeralOwner else None,
        czxid=stat.czxid,
        registered_at=from_millis(stat.ctime),
    )


def read_racks(reader: Reader, cluster: str, path: str, hint: Hint) -> BookieRacks:
    """Read the groups of bookies, and leave a watch on their node.

    Raises:
        UserError: the node cannot be parsed.
        UnreadError: the node cannot be read.
    """
    # `get` leaves no watch on a missing node, `exists` does.
    watched = reader.read(lambda node: reader.client.exists_async(node, watch=hint), path)
    answer = None if watched is None else reader.read(reader.client.get_async, path)
    if answer is None:
        return BookieRacks(
            cluster=cluster, outcome=Outcome.ABSENT, detail=f"there is no node {reader.client.chroot}{path}"
        )
    try:
        groups = parse_groups(answer[0])
    except ValueError as error:
        raise UserError(f"{reader.client.chroot}{path} cannot be parsed: {error}") from None
    return BookieRacks(cluster=cluster, outcome=Outcome.OK, groups=groups)


def parse_groups(data: bytes) -> dict[str, dict[str, RackInfo]]:
    """Return the groups of `/bookies` with their members; raises ValueError if they cannot be parsed."""
    return parse_document(_GROUPS, data) if data.strip() else {}
