"""Copies that are asked for together: written down and begun together, and each with an end of its own."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from connectors.bookkeeper.copier import metadata_service_uri
from connectors.bookkeeper.copy_groups import CopyGroups, CopyTask, JavaTask, NewIdIntendedError
from connectors.bookkeeper.copy_journal import CopiedLedger, CopyOutcome, CopyRecord, CopyResult
from connectors.bookkeeper.gateway import JavaResult, JvmDiedError
from connectors.zookeeper.json_znodes import ZnodeConflictError, ZnodeError
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.switching.ledgers import Layout
from tests.system.waiting import eventually


def equal(ledger_id: int, **more: Any) -> JavaResult:
    facts: dict[str, Any] = {
        "ledger_id": ledger_id, "state": "closed", "last_entry_id": 2, "length_bytes": 30, "ensemble_size": 1,
        "write_quorum": 1, "ack_quorum": 1, "created_ms": 5, "custom_metadata": {}, "entries_digest": "d",
    }  # fmt: skip
    return msgspec.convert({"status": "copied", "source": facts, "target": {**facts, **more}}, JavaResult)


class Journal:
    """Takes what is written in groups; what a test has it say of a ledger instead of a new record."""

    def __init__(self, says: Mapping[int, CopyRecord | ZnodeError] | None = None) -> None:
        self.says = says or {}
        self.intended: list[list[int]] = []
        self.completed: list[list[int]] = []
        self.fails_to_complete: frozenset[int] = frozenset()
        self.may_write = threading.Event()
        self.may_write.set()

    def intend_all(self, ledger_ids: Sequence[int]) -> list[CopyRecord | ZnodeError]:
        if ledger_ids:
            self.intended.append(list(ledger_ids))
        self.may_write.wait()
        return [self.says.get(each) or CopyRecord(each, "i-old", "i-new", f"token-{each}") for each in ledger_ids]

    def complete_all(self, copies: Sequence[tuple[CopyRecord, CopiedLedger]]) -> list[CopyRecord | ZnodeError]:
        self.completed.append([record.ledger_id for record, _ in copies])
        failed = ZnodeError("no ZooKeeper")
        return [failed if record.ledger_id in self.fails_to_complete else record for record, _ in copies]


class Java:
    """Notes what is begun by each call, and what was journalled by then."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.begun: list[list[JavaTask]] = []
        self.intended_by_then: list[set[int]] = []

    def begin(self, tasks: Sequence[JavaTask]) -> None:
        self.begun.append(list(tasks))
        self.intended_by_then.append({each for group in self.journal.intended for each in group})


class World:
    def __init__(self, **says: Any) -> None:
        self.journal = Journal(**says)
        self.java = Java(self.journal)
        self.groups = CopyGroups(self.journal, lambda: self.java, {})  # type: ignore[arg-type,return-value]

    def asked_together(self, pool: ThreadPoolExecutor, ids: Sequence[int]) -> list[Future[CopyResult]]:
        """While the first one's intent is being written, all others are asked for."""
        self.journal.may_write.clear()
        copies = [pool.submit(self.groups.copy, CopyTask(ids[0]))]
        eventually("the first is being written", lambda: self.journal.intended or None)
        copies += [pool.submit(self.groups.copy, CopyTask(each)) for each in ids[1:]]
        eventually("the others wait", lambda: len(self.groups._waiting) == len(ids) - 1 or None)
        self.journal.may_write.set()
        return copies

    def end(self, answer: Any) -> None:
        """What was begun has ended, all at once."""
        tasks = [task for group in self.java.begun for task in group if isinstance(task, CopyTask)]
        self.groups.end([(task, answer(task.ledger_id)) for task in tasks])


def outcomes_of(copies: Sequence[Future[CopyResult]]) -> list[CopyOutcome | str]:
    errors = (copy.exception() for copy in copies)
    return [
        copy.result().outcome if error is None else type(error).__name__
        for copy, error in zip(copies, errors, strict=True)
    ]


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(20) as pool:
        yield pool


def test_what_is_asked_for_meanwhile_is_written_down_and_begun_together(pool: ThreadPoolExecutor) -> None:
    world = World()
    copies = world.asked_together(pool, range(10, 20))
    eventually("all are begun", lambda: sum(map(len, world.java.begun)) == 10 or None)
    assert [sorted(group) for group in world.journal.intended] == [[10], list(range(11, 20))]
    for group, intended in zip(world.java.begun, world.java.intended_by_then, strict=True):
        assert {task.ledger_id for task in group} <= intended, "an intent comes first"
    assert not any(copy.done() for copy in copies)
    world.end(equal)
    assert outcomes_of(copies) == [CopyOutcome.COPIED] * 10
    assert [sorted(group) for group in world.journal.completed] == [list(range(10, 20))]


def test_of_a_group_what_cannot_be_written_down_is_not_begun_and_the_others_are(pool: ThreadPoolExecutor) -> None:
    elsewhere = CopyRecord(12, "i-old", "i-new", "token", target_id=99)
    world = World(says={11: ZnodeConflictError("of another source"), 12: elsewhere, 14: ZnodeError("away")})
    copies = world.asked_together(pool, range(10, 16))
    eventually("the others are begun", lambda: sum(map(len, world.java.begun)) == 3 or None)
    world.end(equal)
    assert outcomes_of(copies) == [
        CopyOutcome.COPIED, "ZnodeConflictError", NewIdIntendedError.__name__, CopyOutcome.COPIED,
        "ZnodeError", CopyOutcome.COPIED,
    ]  # fmt: skip


def test_of_a_group_each_has_its_own_end_and_only_whole_copies_are_noted(pool: ThreadPoolExecutor) -> None:
    world = World()
    world.journal.fails_to_complete = frozenset({11})
    copies = world.asked_together(pool, range(10, 15))
    eventually("all are begun", lambda: sum(map(len, world.java.begun)) == 5 or None)
    ends: dict[int, Any] = {
        10: equal(10), 11: equal(11), 12: equal(12, length_bytes=29), 13: JvmDiedError("killed"),
        14: JavaResult(status="source_open"),
    }  # fmt: skip
    world.end(ends.__getitem__)
    assert outcomes_of(copies) == [
        CopyOutcome.COPIED, CopyOutcome.FAILED, CopyOutcome.COPY_DIFFERS, "JvmDiedError",
        CopyOutcome.SOURCE_OPEN,
    ]  # fmt: skip
    assert [sorted(group) for group in world.journal.completed] == [[10, 11]]


def test_nobody_waits_for_ever_when_something_is_wrong_that_nobody_thought_of() -> None:
    world = World()
    world.java.begin = lambda tasks: [].pop()  # type: ignore[method-assign]
    with pytest.raises(IndexError):
        world.groups.copy(CopyTask(10))
    copy = CopyTask(11, CopyRecord(11, "i-old", "i-new", "token"))
    world.journal.complete_all = lambda copies: [].pop()  # type: ignore[method-assign]
    world.groups.end([(copy, equal(11))])
    assert isinstance(copy.result.exception(), IndexError)


# --- The metadata service URI: of its parts, each is where BookKeeper's clients look for it

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
