"""What a BookKeeper cluster is, and which ledgers it has, by znodes of real clients (captured/ledgers.json)."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from connectors.bookkeeper.cluster import (
    NOT_OURS,
    WORTH_LISTING,
    FoundLedgers,
    confirm_provenance,
    list_ledgers,
    metadata_service_uri,
    now_ms,
    read_cluster,
    read_generator,
    read_layout,
    read_ledgers,
    read_lower_counters,
)
from connectors.bookkeeper.copy_journal import CopiedLedger, CopyJournal
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import UnreadError
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.switching.ledgers import Layout, Ledger, LedgerState, path_of
from policies.units import UserError
from tests.cases import for_each
from tests.fakes.zookeeper import Server, Stat

CAPTURED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "captured" / "ledgers.json").read_text())
CUSTOM = {"a": base64.b64encode("ü".encode()).decode(), "b": base64.b64encode(b'\x00\xff"').decode()}
ROOT = "/ledgers"


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
    generator = read_generator(counting(nodes).reader(), ROOT)
    assert (None if generator is None else generator.next_id) == next_id


def test_the_counters_below_the_present_one_are_told_by_what_they_gave() -> None:
    hobs = {f"idgen-long/HOB-000000000{k}": (cversion, 0) for k, cversion in ((1, 4), (3, 2), (4, 0))}
    reader = counting(LONG | hobs).reader()
    assert read_lower_counters(reader, ROOT, 4) == {None: 30, 1: 2, 3: 1}
    assert read_lower_counters(reader, ROOT, None) == {}


def counting(nodes: dict[str, tuple[int, int]]) -> Server:
    """A cluster's counters: by path, its cversion and its number of children."""
    server = Server()
    for path, (cversion, children) in nodes.items():
        server.tree[f"{ROOT}/{path}"] = b"", Stat(0, 0, 1, 1, cversion=cversion, numChildren=children)
    return server


LONG_LAYOUT = b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"


@pytest.fixture
def server() -> Server:
    server = Server()
    server.write("/ledgers/INSTANCEID", b"9f1c\n")
    server.write("/ledgers/LAYOUT", LONG_LAYOUT)
    return server


def test_it_has_an_instance_id_a_layout_and_a_generator(server: Server) -> None:
    cluster = read_cluster(server.reader(), ROOT, "old")
    assert (cluster.name, cluster.instance_id, cluster.root) == ("old", "9f1c", ROOT)
    assert cluster.layout is Layout.LONG_HIERARCHICAL
    assert cluster.read_ms <= now_ms()
    assert cluster.generator is not None


def test_a_root_that_is_not_there_is_the_settings_mistake(server: Server) -> None:
    with pytest.raises(UserError, match="there is no node /elsewhere: set ledgers_root of old"):
        read_cluster(server.reader(), "/elsewhere", "old")


@for_each(
    ("node", "value"),
    [
        *(("INSTANCEID", value) for value in (None, b"", b" \n", b"\xff\xfe")),
        *(("LAYOUT", value) for value in (None, b"", b"\xff", b"2\norg.example.Own:1")),
    ],
)
def test_what_cannot_be_told_is_unknown(node: str, value: bytes | None) -> None:
    server = Server()
    server.write("/ledgers/INSTANCEID", b"9f1c\n")
    server.write("/ledgers/LAYOUT", LONG_LAYOUT)
    if value is None:
        del server.tree[f"/ledgers/{node}"]
    else:
        server.write(f"/ledgers/{node}", value)
    found = read_cluster(server.reader(), ROOT, "old")
    assert (found.instance_id, found.layout).count(None) == 1
    assert (found.instance_id if node == "INSTANCEID" else read_layout(server.reader(), ROOT)) is None


def test_what_cannot_be_read_is_no_verdict(server: Server) -> None:
    server.away = ConnectionLoss()
    with pytest.raises(UnreadError):
        read_cluster(server.reader(), ROOT, "old")


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
        ledger_id=7, state=state, last_entry_id=last, length_bytes=length, custom_metadata=CUSTOM, ensemble_size=1,
        write_quorum=1, ack_quorum=1, created_ms=1234,
    )  # fmt: skip


def test_a_cursor_ledger_of_pulsar_names_its_cursor() -> None:
    ledger = parse_ledger(28, captured("/ledgers/00/0000/L0028"), 1)
    custom = {name: base64.b64decode(value) for name, value in ledger.custom_metadata.items()}
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
    assert parse_ledger(1, head + entries, 1).custom_metadata == {"a": base64.b64encode(b"b").decode()}


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


def cluster_of(layout: Layout, *ledger_ids: int, others: tuple[str, ...] = ()) -> Server:
    """A cluster with these ledgers and other znodes."""
    server = Server()
    server.write(ROOT, b"")
    for ledger_id in ledger_ids:
        server.write(f"{ROOT}{path_of(layout, ledger_id)}", captured("version 3, closed"))
    for other in others:
        server.write(f"{ROOT}/{other}", b"")
    return server


OTHERS = (
    "available/bk1:3181", "cookies/bk1", "idgen/ID-0000000007", "idgen-long/HOB-0000000001", "INSTANCEID", "LAYOUT",
)  # fmt: skip
SPREAD = (0, 1, 9_999, 10_000, 2**31 - 2, 2**31 - 1, 2**31, 2**32, 2**63 - 1)


@pytest.mark.parametrize("layout", Layout)
def test_all_ledgers_are_listed_and_nothing_else(layout: Layout) -> None:
    assert list_ledgers(cluster_of(layout, *SPREAD, others=OTHERS).reader(), ROOT, layout) == (frozenset(SPREAD), ())
    assert list_ledgers(Server().reader(), ROOT, layout) == (frozenset(), ()), "a folder may go meanwhile"


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
    listed = list_ledgers(cluster_of(layout, others=(*OTHERS, path)).reader(), ROOT, layout)
    is_placed = path == path_of(layout, 5)[1:]
    assert listed == (frozenset(ids), () if is_placed else (f"{ROOT}/{path}",))


def test_a_target_that_is_far_from_empty_is_not_listed() -> None:
    reader = cluster_of(Layout.HIERARCHICAL, *range(0, 8_000_000, 20_000)).reader()
    with pytest.raises(UnreadError) as raised:
        list_ledgers(reader, ROOT, Layout.HIERARCHICAL, most=10)
    assert str(raised.value.cause) == "more than 10 ledgers are there"
    assert reader.requests < 800


@pytest.mark.parametrize("layout", Layout)
def test_a_ledger_is_looked_up_where_the_layout_puts_it(layout: Layout) -> None:
    server = cluster_of(layout, *SPREAD)
    found = read_ledgers(server.reader(), ROOT, layout, [*SPREAD, 5, 2**40])
    assert found.ids == set(found.facts) == set(SPREAD)
    created = {each: server.tree[f"{ROOT}{path_of(layout, each)}"][1].ctime for each in SPREAD}
    assert {each: facts.created_ms for each, facts in found.facts.items()} == created


def test_what_no_ledger_can_have_as_its_id_is_not_looked_up() -> None:
    reader = Server().reader()
    assert read_ledgers(reader, ROOT, Layout.HIERARCHICAL, [-1, -7, 2**63]).ids == set()
    assert reader.requests == 0


def test_many_ids_of_one_folder_cost_one_request() -> None:
    reader = cluster_of(Layout.HIERARCHICAL, 3, 30_000).reader()
    wanted = [*range(WORTH_LISTING), *range(10_000, 10_000 + WORTH_LISTING), 30_000, 30_001]
    assert read_ledgers(reader, ROOT, Layout.HIERARCHICAL, wanted).ids == {3, 30_000}
    # Two folders are listed, one of which does not exist; one ledger was found there, and two ids were asked for alone.
    assert reader.requests == 2 + 1 + 2


def test_a_ledger_whose_metadata_cannot_be_parsed_exists() -> None:
    server = Server()
    server.write("/ledgers/00/0000/L0003", b"?")
    found = read_ledgers(server.reader(), ROOT, Layout.HIERARCHICAL, [3])
    assert (found.ids, found.facts) == ({3}, {})
    assert found.problems == ["/ledgers/00/0000/L0003: it does not begin with BookieMetadataFormatVersion"]


SOURCE, TARGET, LEDGER = "source-id", "target-id", 4_711


@pytest.fixture
def journal(server: Server) -> CopyJournal:
    return CopyJournal(server.session(), source=SOURCE, target=TARGET)


def marked(mark: str | None) -> FoundLedgers:
    ledger = Ledger(ledger_id=LEDGER, state=LedgerState.CLOSED, last_entry_id=0, length_bytes=1)
    return FoundLedgers({LEDGER}, {LEDGER: ledger}, provenances={} if mark is None else {LEDGER: mark})


def test_a_ledger_with_the_mark_that_was_journalled_is_ours(journal: CopyJournal) -> None:
    record = journal.intend(LEDGER)
    ledgers, proved = confirm_provenance(marked(record.provenance), journal)
    assert proved == {}, "its copy was not compared"
    assert ledgers[LEDGER].provenance == SOURCE


def test_a_proved_copy_is_told_with_its_digest(journal: CopyJournal) -> None:
    copied = CopiedLedger(length_bytes=1, last_entry_id=0, entries_digest="d", created_ms=5)
    record = journal.complete(journal.intend(LEDGER), copied)
    assert confirm_provenance(marked(record.provenance), journal)[1] == {LEDGER: copied}


@for_each("journalled", [None, SOURCE, "another"])
@for_each("mark", [None, f"{SOURCE}/forged", "", "another/token"])
def test_any_other_ledger_is_not_ours(journalled: str | None, mark: str | None) -> None:
    server = Server()
    if journalled is not None:
        CopyJournal(server.session(), source=journalled, target=TARGET).intend(LEDGER)
    journal = CopyJournal(server.session(), source=SOURCE, target=TARGET)
    assert confirm_provenance(marked(mark), journal)[0][LEDGER].provenance == NOT_OURS


def test_a_copy_of_another_source_is_not_ours(journal: CopyJournal, server: Server) -> None:
    theirs = CopyJournal(server.session(), source="another", target=TARGET).intend(LEDGER)
    assert confirm_provenance(marked(theirs.provenance), journal)[0][LEDGER].provenance == NOT_OURS


def test_a_journal_that_cannot_be_read_is_no_verdict(journal: CopyJournal, server: Server) -> None:
    server.away = OSError("no route to host")
    with pytest.raises(ZnodeError):
        confirm_provenance(marked("source-id/token"), journal)


# --- The metadata service URI: of its parts, each is where BookKeeper's clients look for it

HIERARCHICAL, LONG_ONE = Layout.HIERARCHICAL, Layout.LONG_HIERARCHICAL


@pytest.mark.parametrize(
    ("servers", "root", "layout", "uri"),
    [
        ("zk-1:2181", "/ledgers", HIERARCHICAL, "zk+hierarchical://zk-1:2181/ledgers"),
        ("zk-1:2181", "/ledgers", LONG_ONE, "zk+longhierarchical://zk-1:2181/ledgers"),
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
