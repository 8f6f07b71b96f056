"""What a BookKeeper cluster is, read from its metadata."""

import pytest
from kazoo.exceptions import ConnectionLoss

from connectors.bookkeeper.cluster import read_cluster, read_layout
from connectors.zookeeper.session import Reader, UnreadError
from policies.switching.ledgers import Layout
from policies.units import UserError
from tests.connectors.switching.memory_zookeeper import Server

LONG_LAYOUT = b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"


@pytest.fixture
def server() -> Server:
    server = Server()
    server.write("/ledgers", b"")
    server.write("/ledgers/INSTANCEID", b"9f1c\n")
    server.write("/ledgers/LAYOUT", LONG_LAYOUT)
    return server


def reader(server: Server) -> Reader:
    return Reader(server.session().client(), 1.0, lambda: 1.0)


def test_it_has_an_instance_id_a_layout_and_a_generator(server: Server) -> None:
    cluster = read_cluster(reader(server), "old", "/ledgers", 5)
    assert (cluster.name, cluster.instance_id, cluster.root) == ("old", "9f1c", "/ledgers")
    assert (cluster.layout, cluster.read_ms) == (Layout.LONG_HIERARCHICAL, 5)
    assert cluster.generator is not None


def test_a_root_that_is_not_there_is_the_settings_mistake(server: Server) -> None:
    with pytest.raises(UserError, match="there is no node /elsewhere: set ledgers_root of old"):
        read_cluster(reader(server), "old", "/elsewhere", 0)


@pytest.mark.parametrize("value", [None, b"", b" \n", b"\xff\xfe"])
def test_an_instance_id_that_cannot_be_told_is_unknown(server: Server, value: bytes | None) -> None:
    if value is None:
        del server.tree["/ledgers/INSTANCEID"]
    else:
        server.write("/ledgers/INSTANCEID", value)
    assert read_cluster(reader(server), "old", "/ledgers", 0).instance_id is None


@pytest.mark.parametrize("value", [b"", b"\xff", b"2\norg.example.Own:1"])
def test_a_layout_that_cannot_be_served_is_unknown(server: Server, value: bytes) -> None:
    server.write("/ledgers/LAYOUT", value)
    assert read_layout(reader(server), "/ledgers") is None


def test_what_cannot_be_read_is_no_verdict(server: Server) -> None:
    server.away = ConnectionLoss()
    with pytest.raises(UnreadError):
        read_cluster(reader(server), "old", "/ledgers", 0)
