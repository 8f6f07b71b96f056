"""Which id comes next, from the znodes of an id generator in every shape."""

from dataclasses import dataclass
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from connectors.bookkeeper.cluster import read_generator
from connectors.zookeeper.session import Reader


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


@pytest.mark.parametrize(("nodes", "next_id"), SHAPES.values(), ids=SHAPES)
def test_the_next_id_is_told_by_counters(nodes: dict[str, tuple[int, int]], next_id: int | None) -> None:
    generator = read_generator(Reader(Client(nodes), 1.0, lambda: 1.0), "/ledgers")
    assert (None if generator is None else generator.next_id) == next_id
