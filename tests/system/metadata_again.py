"""The metadata of a new cluster in ZooKeeper: a tool writes it once per process, and the next clusters get a copy.

The tool is a JVM, whose start takes longer than all its work.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kazoo.client import KazooClient

from tests.system.server import zookeeper_client

_INSTANCE = "/ledgers/INSTANCEID"
"""What tells one BookKeeper cluster from another."""
_SERVERS_OWN = "/zookeeper"
_made: dict[tuple[Path, ...], dict[str, bytes]] = {}


def make(zookeeper_servers: str, jars: Sequence[Path], run_tool: Callable[[], None]) -> None:
    """Run the tool of these jars for a new cluster, or copy the nodes that it wrote for an earlier one.

    Args:
        zookeeper_servers: `host:port[/chroot]`; a missing chroot is created.
        jars: of the tool.
        run_tool: runs it on this cluster.
    """
    host, _, chroot = zookeeper_servers.partition("/")
    with zookeeper_client(host) as client:
        client.ensure_path(f"/{chroot}")
    with zookeeper_client(zookeeper_servers) as client:
        if (made := _made.get(tuple(jars))) is None:
            before = dict(_below(client, "/"))
            run_tool()
            _made[tuple(jars)] = {path: content for path, content in _below(client, "/") if path not in before}
            return
        for path, content in made.items():
            client.create(path, str(uuid.uuid4()).encode() if path == _INSTANCE else content)


def _below(client: KazooClient, path: str) -> Iterator[tuple[str, bytes]]:
    """All nodes below a path, parents before their children."""
    for name in client.get_children(path):
        if (child := f"{path.rstrip('/')}/{name}") != _SERVERS_OWN:
            yield child, client.get(child)[0]
            yield from _below(client, child)
