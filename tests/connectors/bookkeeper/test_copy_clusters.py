"""The metadata service URI: of its parts, each is where BookKeeper's clients look for it."""

import pytest

from connectors.bookkeeper.copier import metadata_service_uri
from connectors.zookeeper.session import ZooKeeperConnection
from policies.switching.ledgers import Layout

HIERARCHICAL, LONG = Layout.HIERARCHICAL, Layout.LONG_HIERARCHICAL


@pytest.mark.parametrize(
    ("servers", "root", "layout", "uri"),
    [
        ("zk-1:2181", "/ledgers", HIERARCHICAL, "zk+hierarchical://zk-1:2181/ledgers"),
        ("zk-1:2181", "/ledgers", LONG, "zk+longhierarchical://zk-1:2181/ledgers"),
        ("zk-1:2181,zk-2:2182", "/ledgers", HIERARCHICAL, "zk+hierarchical://zk-1:2181;zk-2:2182/ledgers"),
        ("zk-1:2181, zk-2:2181", "/ledgers", HIERARCHICAL, "zk+hierarchical://zk-1:2181;zk-2:2181/ledgers"),
        ("zk-1:2181/a/b", "/ledgers", HIERARCHICAL, "zk+hierarchical://zk-1:2181/a/b/ledgers"),
        ("zk-1:2181/a/", "/ledgers", HIERARCHICAL, "zk+hierarchical://zk-1:2181/a/ledgers"),
        ("zk-1:2181/", "/ledgers/", HIERARCHICAL, "zk+hierarchical://zk-1:2181/ledgers"),
        ("[::1]:2181", "/bk/ledgers", HIERARCHICAL, "zk+hierarchical://[::1]:2181/bk/ledgers"),
    ],
    ids=["one server", "long", "two servers", "a blank", "chroot", "slash after it", "only slashes", "IPv6 and deep"],
)
def test_the_uri_has_layout_servers_chroot_and_root(servers: str, root: str, layout: Layout, uri: str) -> None:
    assert metadata_service_uri(ZooKeeperConnection(servers=servers), root, layout) == uri


def test_the_uri_holds_no_credential() -> None:
    connection = ZooKeeperConnection.model_validate({"servers": "zk-1:2181", "user": "bk", "password": "secret"})
    assert metadata_service_uri(connection, "/ledgers", HIERARCHICAL) == "zk+hierarchical://zk-1:2181/ledgers"
