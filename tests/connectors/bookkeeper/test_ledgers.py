"""Ledgers' metadata, as real BookKeeper 4.18 clients and a Pulsar 4.2.4 broker wrote it (captured/ledgers.json)."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from connectors.bookkeeper.cluster import WORTH_LISTING, FoundLedgers, list_ledgers, read_ledgers
from connectors.zookeeper.session import Reader
from policies.switching.ledgers import Layout, Ledger, LedgerState, path_of
from tests.cases import for_each

CAPTURED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "captured" / "ledgers.json").read_text())
CUSTOM = (("a", base64.b64encode("ü".encode()).decode()), ("b", base64.b64encode(b'\x00\xff"').decode()))
ROOT = "/ledgers"


def captured(name: str) -> bytes:
    return base64.b64decode(CAPTURED[name]["data"])


def parse_ledger(ledger_id: int, data: bytes, created_ms: int) -> Ledger:
    found = FoundLedgers()
    found.add(ledger_id, data, created_ms)
    return found.facts[ledger_id]


VERSIONS = {
    f"version {version}, {state}": (version, state, last, length)
    for version in (2, 3)
    for state, last, length in ((LedgerState.CLOSED, 2, 21), (LedgerState.OPEN, -1, 0))
}


@pytest.mark.parametrize(("version", "state", "last", "length"), VERSIONS.values(), ids=VERSIONS)
def test_both_versions_of_the_metadata_say_the_same(version: int, state: LedgerState, last: int, length: int) -> None:
    assert parse_ledger(7, captured(f"version {version}, {state.value}"), 1234) == Ledger(
        ledger_id=7,
        state=state,
        last_entry_id=last,
        length_bytes=length,
        custom_metadata=CUSTOM,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        created_ms=1234,
    )


def test_a_cursor_ledger_of_pulsar_names_its_cursor() -> None:
    ledger = parse_ledger(28, captured("/ledgers/00/0000/L0028"), 1)
    custom = {name: base64.b64decode(value) for name, value in ledger.custom_metadata}
    assert ledger.state is LedgerState.OPEN
    assert (custom["pulsar/cursor"], custom["pulsar/managed-ledger"]) == (b"s1", b"t/n/persistent/snappy")


def test_without_an_ack_quorum_the_write_quorum_counts() -> None:
    text = b"BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: 3\nlength: 0\nstate: IN_RECOVERY\n"
    ledger = parse_ledger(1, text, 1)
    assert (ledger.ensemble_size, ledger.write_quorum, ledger.ack_quorum) == (3, 2, 2)
    assert ledger.state is LedgerState.IN_RECOVERY


def test_what_marks_a_copy_as_ours_is_no_part_of_what_was_copied() -> None:
    head = b"BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nstate: OPEN\n"
    entries = b'customMetadata { key: "headgate.copy" value: "x" }\ncustomMetadata { key: "a" value: "b" }\n'
    assert parse_ledger(1, head + entries, 1).custom_metadata == (("a", base64.b64encode(b"b").decode()),)


def test_only_a_closed_ledger_has_an_end() -> None:
    numbers = b"quorumSize: 1\nensembleSize: 1\nlength: 40\nlastEntryId: 9\n"
    ends = {}
    for state in (b"OPEN", b"IN_RECOVERY", b"CLOSED"):
        ledger = parse_ledger(1, b"BookieMetadataFormatVersion\t2\n" + numbers + b"state: " + state, 1)
        ends[state] = (ledger.last_entry_id, ledger.length_bytes)
    assert ends == {b"OPEN": (-1, 0), b"IN_RECOVERY": (-1, 0), b"CLOSED": (9, 40)}


UNREADABLE = {
    "version 1": (captured("version 1, closed"), "of version 1; 2 and 3 are known"),
    "nothing": (b"", "does not begin with"),
    "no header": (b"\x08\x01", "does not begin with"),
    "a version to come": (b"BookieMetadataFormatVersion\t4\n\x08", "of version 4"),
    "text that is none": (b'BookieMetadataFormatVersion\t2\npassword: "geheim\n', "of version 2 cannot be parsed"),
    "text of another kind": (b'BookieMetadataFormatVersion\t2\ngeheim: "geheim"\n', "of version 2 cannot be parsed"),
    "text without a state": (b"BookieMetadataFormatVersion\t2\nlength: 0\n", "lacks quorumSize"),
    "text that is no UTF-8": (b"BookieMetadataFormatVersion\t2\n\xff", "of version 2 cannot be parsed"),
    "an empty message": (b"BookieMetadataFormatVersion\t3\n", "lacks quorumSize"),
    "a state to come": (captured("version 3, closed").replace(b"(\x03", b"(\x07"), "lacks state"),
}


@for_each(("data", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_parsed_is_said_and_never_quoted(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_ledger(1, data, 1)
    assert "geheim" not in str(caught.value)


@for_each("length", range(len(captured("version 3, closed"))))
def test_metadata_that_is_cut_short_is_never_taken_for_whole(length: int) -> None:
    with pytest.raises(ValueError, match=r"BookieMetadataFormatVersion|cannot be parsed|lacks"):
        parse_ledger(1, captured("version 3, closed")[:length], 1)


# --- which ledgers exist


class Stat:
    ctime = 99


class FakeResult:
    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def get(self, timeout: float) -> Any:
        return self._find()


class Tree:
    """The znodes of ledgers, as kazoo's client shows them."""

    chroot = "/c"

    def __init__(self, layout: Layout, *ledger_ids: int, others: tuple[str, ...] = ()) -> None:
        data = captured("version 3, closed")
        paths = {f"{ROOT}{path_of(layout, i)}": data for i in ledger_ids} | {f"{ROOT}/{o}": b"" for o in others}
        self.nodes = {ROOT: b""}
        for path in paths:
            parts = path.split("/")
            self.nodes |= {"/".join(parts[: n + 1]): b"" for n in range(1, len(parts))}
        self.nodes |= paths
        self.asked: list[str] = []

    def get_async(self, path: str) -> FakeResult:
        return FakeResult(lambda: (self._at(path), Stat))

    def get_children_async(self, path: str) -> FakeResult:
        def children() -> list[str]:
            self._at(path)
            return [each.rpartition("/")[2] for each in self.nodes if each.rpartition("/")[0] == path]

        return FakeResult(children)

    def reader(self) -> Reader:
        return Reader(self, 1.0, lambda: 1.0)

    def _at(self, path: str) -> bytes:
        self.asked.append(path)
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path]


OTHERS = (
    "available/bk1:3181",
    "cookies/bk1",
    "idgen/ID-0000000007",
    "idgen-long/HOB-0000000001",
    "INSTANCEID",
    "LAYOUT",
)
SPREAD = (0, 1, 9_999, 10_000, 2**31 - 2, 2**31 - 1, 2**31, 2**32, 2**63 - 1)


@pytest.mark.parametrize("layout", Layout)
def test_all_ledgers_are_listed_and_nothing_else(layout: Layout) -> None:
    assert list_ledgers(Tree(layout, *SPREAD, others=OTHERS).reader(), ROOT, layout) == (frozenset(SPREAD), True, ())


@for_each(
    ("path", "ids"),
    [
        ("00/0000/L0005", {5}),
        ("000/0000/0000/0000/L0005", {5}),
        ("L0000000005", {5}),
        ("L5", set()),
        ("00/L0005", set()),
        ("00/0000/0000/L0005", set()),
        ("0/0000/L0005", set()),
        ("00/0000/X0005", set()),
        ("999/9999/9999/9999/L9999", set()),
        ("something", set()),
    ],
)
@for_each("layout", Layout)
def test_an_id_is_an_id_wherever_its_ledger_lies_and_what_cannot_be_placed_is_named(
    layout: Layout, path: str, ids: set[int]
) -> None:
    listed = list_ledgers(Tree(layout, others=(*OTHERS, path)).reader(), ROOT, layout)
    is_placed = path == path_of(layout, 5)[1:]
    assert listed == (frozenset(ids), True, () if is_placed else (f"/{path}",))


def test_a_target_that_is_far_from_empty_is_not_listed_whole() -> None:
    tree = Tree(Layout.HIERARCHICAL, *range(0, 8_000_000, 20_000))
    found, is_all, _ = list_ledgers(tree.reader(), ROOT, Layout.HIERARCHICAL, most=10)
    assert not is_all
    assert 10 < len(found) < 400
    assert len(tree.asked) < 800


@pytest.mark.parametrize("layout", Layout)
def test_a_ledger_is_looked_up_where_the_layout_puts_it(layout: Layout) -> None:
    found = read_ledgers(Tree(layout, *SPREAD).reader(), ROOT, layout, [*SPREAD, 5, 2**40])
    assert found.ids == set(found.facts) == set(SPREAD)
    assert {facts.created_ms for facts in found.facts.values()} == {Stat.ctime}


def test_what_no_ledger_can_have_as_its_id_is_not_looked_up() -> None:
    tree = Tree(Layout.HIERARCHICAL)
    assert read_ledgers(tree.reader(), ROOT, Layout.HIERARCHICAL, [-1, -7, 2**63]).ids == set()
    assert tree.asked == []


def test_many_ids_of_one_folder_cost_one_request() -> None:
    tree = Tree(Layout.HIERARCHICAL, 3, 30_000)
    wanted = [*range(WORTH_LISTING), *range(10_000, 10_000 + WORTH_LISTING), 30_000, 30_001]
    assert read_ledgers(tree.reader(), ROOT, Layout.HIERARCHICAL, wanted).ids == {3, 30_000}
    # Two folders are listed, one of which does not exist; one ledger was found there, and two ids were asked for alone.
    assert len(tree.asked) == 2 + 1 + 2


def test_a_ledger_whose_metadata_cannot_be_parsed_exists() -> None:
    tree = Tree(Layout.HIERARCHICAL, 3)
    tree.nodes["/ledgers/00/0000/L0003"] = b"?"
    found = read_ledgers(tree.reader(), ROOT, Layout.HIERARCHICAL, [3])
    assert (found.ids, found.facts) == ({3}, {})
    assert found.problems == ["/c/ledgers/00/0000/L0003: it does not begin with BookieMetadataFormatVersion"]
