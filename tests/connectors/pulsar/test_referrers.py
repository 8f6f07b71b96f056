"""All that names a ledger is found in a tree of znodes, or the inventory is not complete."""

import base64
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from connectors.pulsar.referrers import Inventory, read_references
from policies.switching.ledgers import ANY_CLUSTER, LedgerKind, StayingKind, StayingLedgers
from tests.cases import for_each
from tests.connectors.pulsar.znodes import compaction_info, cursor_info, delayed_info, schema_locator, topic_info
from tests.fakes.zookeeper import Server

TOPICS = "/managed-ledgers/t/n/persistent"
TOPIC = f"{TOPICS}/topic"
PACKAGES = "/pulsar/packages"


def found(tree: Mapping[str, bytes], leave_out: Collection[str] = ()) -> Inventory:
    server = Server()
    for path, data in tree.items():
        server.write(path, data)
    return read_references(server.reader(), "old", leave_out)


def held_by(**ids: Collection[int]) -> Callable[[Collection[int]], Mapping[str, Collection[int]]]:
    return lambda asked: {name: set(each) & set(asked) for name, each in ids.items()}


def staying(tree: Mapping[str, bytes], **ids: Collection[int]) -> dict[tuple[str, str], tuple[int, int]]:
    """Count and greatest id by kind and cluster."""
    inventory = found(tree)
    assert inventory.problems == []
    return {(s.kind.value, s.cluster): (s.count, s.greatest_id) for s in inventory.staying(held_by(**ids))}


@for_each(
    ("topic", "expected"),
    [
        pytest.param(topic_info(3, 7), {("topic", "old"): (2, 7)}, id="no attribution: the bootstrap cluster"),
        pytest.param(topic_info(3, 7, attribution="new"), {("topic", "new"): (2, 7)}, id="attributed"),
        pytest.param(topic_info(3, offloaded=True), {("offloaded", "old"): (1, 3)}, id="offloaded, and still there"),
        pytest.param(topic_info(3, offloaded=True, deleted=True), {}, id="offloaded and deleted"),
        pytest.param(b"", {}, id="an empty znode"),
        pytest.param(b"\n\x00", {}, id="a ledger of which nothing is said"),
    ],
)
def test_topics_count_by_the_cluster_that_holds_them(
    topic: bytes, expected: dict[tuple[str, str], tuple[int, int]]
) -> None:
    assert staying({TOPIC: topic}) == expected


def test_system_topics_count_by_what_they_are() -> None:
    above = "/managed-ledgers/pulsar/system/persistent"
    tree = {
        f"{above}/__transaction_log_0": topic_info(1),
        f"{TOPIC}-s1__transaction_pending_ack": topic_info(2),
        f"{above}/__transaction_log_0/transaction.subscription": cursor_info(5),
    }
    assert staying(tree) == {("transaction_log", "old"): (1, 1), ("pending_ack", "old"): (1, 2)}
    assert [each.ledger_id for each in found(tree).references] == [5]


def test_what_says_no_cluster_is_where_the_ledger_is() -> None:
    tree = {
        f"{TOPIC}/__compaction": compaction_info(20),
        f"{TOPIC}/s1": delayed_info(4, 21, 30),
        f"{PACKAGES}/f/<default>/ledgers/logrecs_1_1": b"66560;40;1;1;1790000000000;1;0;0;0;0;0",
        f"{PACKAGES}/f/<default>/allocation": b"41",
        f"{PACKAGES}/f/<default>/maxtxid": b"1",
    }
    assert staying(tree, old={20, 21, 40, 41}, new={30}) == {
        ("compacted", "old"): (1, 20),
        ("delayed_index", "new"): (1, 30),
        ("delayed_index", "old"): (1, 21),
        ("log", "old"): (2, 41),
    }


def test_what_a_real_pulsar_wrote_is_counted() -> None:
    captured = json.loads((Path(__file__).parent / "captured" / "referrers.json").read_text())
    tree = {path: base64.b64decode(data) for path, data in captured.items() if path.startswith("/")}
    had = staying(tree, old={26, 28, 36, 37})
    assert had == {
        ("topic", "old"): (4, 32),
        ("transaction_log", "old"): (1, 9),
        ("pending_ack", "old"): (1, 35),
        ("delayed_index", "old"): (2, 28),
        ("log", "old"): (1, 36),
        ("compacted", ANY_CLUSTER): (1, -1),
    }
    unloaded = tree | {
        f"{TOPICS}/compacted/__compaction": base64.b64decode(captured[f"closed {TOPICS}/compacted/__compaction"])
    }
    assert staying(unloaded, old={26, 28, 36, 37})["compacted", "old"] == (1, 37)


def test_a_log_counts_whatever_its_namespace_is_called() -> None:
    mine = "/pulsar/mine"
    tree = {mine: b"1\nBKDL\n{}", f"{mine}/a/<default>/ledgers/inprogress_1": b"5;40;1", "/pulsar/empty": b""}
    tree["/pulsar/migration-coordinator"] = b"no ledger"
    assert staying(tree, old={40}) == {("log", "old"): (1, 40)}


def test_what_nobody_has_any_more_counts_for_nobody() -> None:
    assert staying({f"{TOPIC}/__compaction": compaction_info(20)}, old=set(), new=set()) == {}


def test_what_a_running_compaction_keeps_may_be_anywhere() -> None:
    counted = staying({f"{TOPIC}/__compaction": compaction_info(20, ledger_id=5)}, old={20})
    assert counted == {("compacted", ANY_CLUSTER): (1, -1), ("compacted", "old"): (1, 20)}


def test_some_znodes_stand_for_the_others() -> None:
    inventory = found({f"{TOPIC}{number}": topic_info(number) for number in range(9)})
    assert inventory.staying(held_by()) == (
        StayingLedgers(StayingKind.TOPIC, "old", 9, 8, (f"{TOPIC}0", f"{TOPIC}1", f"{TOPIC}2")),
    )


UNPLACED = {
    "/managed-ledgers/mine": b"\n\x00",
    "/managed-ledgers/t/n/odd/topic": topic_info(1),
    f"{TOPIC}/s1/below": b"",
    "/pulsar/other": b"something",
    f"{PACKAGES}/f/<default>/ledgers/inprogress_1": b"no segment",
    f"{PACKAGES}/f/<default>/allocation": b"no id",
    TOPIC: b"\n\x02\x10\x01",
    "/schemas/t/n/damaged": b"\xff",
}


@for_each(("path", "data"), UNPLACED.items(), ids=UNPLACED)
def test_a_path_that_cannot_be_placed_is_a_problem_until_it_is_left_out(path: str, data: bytes) -> None:
    tree = {path: data} | ({f"{TOPIC}/s1": cursor_info(4)} if "s1" in path else {})
    problems = found(tree).problems
    assert len(problems) == 1
    named = problems[0].split(": ")[0]
    assert path.startswith(named)
    inventory = found(tree, [named])
    assert (inventory.problems, inventory.left_out) == ([], [named])


def test_a_locator_that_does_not_name_its_first_versions_is_a_problem() -> None:
    whole = found({"/schemas/t/n/s": schema_locator(5, 6)})
    assert (len(whole.references), whole.problems) == (3, [])
    inventory = found({"/schemas/t/n/s": schema_locator(6, first_version=1)})
    assert [each.ledger_id for each in inventory.references] == [6, 6]
    assert "versions before 1" in inventory.problems[0]


def test_cursors_are_found_below_old_and_new_topic_names_and_a_damaged_znode_hides_no_other() -> None:
    tree = {
        TOPIC: b"\n\x00",
        f"{TOPIC}/s1": cursor_info(1),
        f"{TOPIC}/persistent": cursor_info(2),
        f"{TOPIC}/damaged": b"\xff",
        "/managed-ledgers/t/cluster/n/persistent/topic/s1": cursor_info(3),
        "/managed-ledgers/t/empty": b"",
        "/schemas/t/n/topic": schema_locator(5),
        "/schemas/t/n/damaged": b"\xff",
    }
    inventory = found(tree)
    assert sorted(each.ledger_id for each in inventory.references) == [1, 2, 3, 5, 5]
    assert len(inventory.problems) == 2
    assert found({}) == Inventory()


def test_what_is_left_out_hides_nothing_else() -> None:
    tree = {f"{TOPIC}/s1": cursor_info(1), f"{TOPIC}/s2": cursor_info(2)}
    inventory = found(tree, [f"{TOPIC}/s1"])
    assert [(each.kind, each.ledger_id) for each in inventory.references] == [(LedgerKind.CURSOR, 2)]
