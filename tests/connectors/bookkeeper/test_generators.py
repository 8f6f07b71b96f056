"""Which id comes next, from the znodes of an id generator in every shape."""

from dataclasses import dataclass
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError

from connectors.bookkeeper.cluster import read_cluster, read_generator, read_layout
from connectors.zookeeper.session import Reader, UnreadError
from policies.switching.ledgers import Layout
from policies.units import UserError
from tests.cases import for_each
from tests.connectors.switching.memory_zookeeper import Server


@dataclass
class Stat:
    cversion: int
    numChildren: int  # noqa: N815 - as kazoo has it


class FakeResult:
    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self, timeout: float) -> Any:
        if self._value is None:
            raise NoNodeError
        return self._value


class Client:
    """Nodes below `/ledgers`, each with its counters."""

    chroot = ""

    def __init__(self, nodes: dict[str, tuple[int, int]]) -> None:
        self._nodes = {f"/ledgers/{path}": Stat(*counters) for path, counters in nodes.items()}

    def exists_async(self, path: str) -> FakeResult:
        return FakeResult(self._nodes.get(path))

    def get_children_async(self, path: str) -> FakeResult:
        return FakeResult([each.removeprefix(f"{path}/") for each in self._nodes if each.startswith(f"{path}/")])


LONG = {"idgen": (60, 0), "idgen-long": (1, 1)}
SHAPES: dict[str, tuple[dict[str, tuple[int, int]], int | None]] = {
    "no ledger was ever made": ({}, 0),
    "thirty ids were taken": ({"idgen": (60, 0)}, 30),
    "one of them is being made": ({"idgen": (59, 1)}, 30),
    "the counter has wrapped": ({"idgen": (-(2**31), 0)}, 2**30),
    "idgen-long is empty": ({**LONG, "idgen-long": (0, 0)}, 1 << 32),
    "the first long one": ({**LONG, "idgen-long/HOB-0000000001": (0, 0)}, 1 << 32),
    "the largest counts, by number": (
        {**LONG, "idgen-long/HOB-0000000009": (2, 0), "idgen-long/HOB-0000000010": (6, 0)},
        (10 << 32) + 3,
    ),
    "what is no HOB is passed over": (
        {**LONG, "idgen-long/HOB-x": (8, 0), "idgen-long/other": (8, 0), "idgen-long/HOB-0000000002": (0, 0)},
        2 << 32,
    ),
    "a HOB that no id can have": ({**LONG, "idgen-long/HOB-2147483648": (0, 0)}, None),
    "the HOB went away meanwhile": ({**LONG, "idgen-long/HOB-3": (0, 0)}, None),
}


@for_each(("nodes", "next_id"), SHAPES.values(), ids=SHAPES)
def test_the_next_id_is_told_by_counters(nodes: dict[str, tuple[int, int]], next_id: int | None) -> None:
    generator = read_generator(Reader(Client(nodes), 1.0, lambda: 1.0), "/ledgers")
    assert (None if generator is None else generator.next_id) == next_id


# --- What a BookKeeper cluster is, read from its metadata

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
