"""How a copy or a deletion ends, by what the journal knows and what Java answers, and what is never asked of Java."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from msgspec import structs

from connectors.bookkeeper.copier import CopyResult, LedgerCopier
from connectors.bookkeeper.copy_journal import PROVENANCE, CopiedLedger, CopyJournal, CopyRecord
from connectors.bookkeeper.gateway import JavaError, JvmDiedError
from connectors.bookkeeper.settings import CopyReplication
from tests.cases import for_each
from tests.connectors.bookkeeper.copies import COPIED, DELETED, EXISTS, FOREIGN, PARTIAL, UNRECORDED, end
from tests.fakes.zookeeper import Server

OLD, NEW = "zk://old/ledgers", "zk://new/ledgers"
LEDGER = 7
FACTS: dict[str, Any] = {
    "ledger_id": LEDGER, "state": "closed", "last_entry_id": 2, "length_bytes": 30, "ensemble_size": 1,
    "write_quorum": 1, "ack_quorum": 1, "created_ms": 5, "custom_metadata": {"a": "YQ=="}, "entries_digest": "d",
}  # fmt: skip
COPY = {**FACTS, "created_ms": 6, "custom_metadata": {"a": "YQ==", PROVENANCE: "c291cmNlL3Rva2Vu"}}
EQUAL = {"source": FACTS, "target": COPY}
FACTS_OF_COPIED = CopiedLedger(length_bytes=30, last_entry_id=2, entries_digest="d", created_ms=5)


class Java:
    """What stands for the JVM: answers what a test has it answer, one after the other."""

    def __init__(self, journal: CopyJournal) -> None:
        self.answers_ahead: list[dict[str, Any] | Exception] = []
        self.requests: list[dict[str, Any]] = []
        self.settings: dict[str, Any] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.journalled: list[CopyRecord | None] = []
        """What the journal had at each request."""
        self._journal = journal

    def run(self, request: str) -> str:
        self.requests.append(json.loads(request))
        self.journalled.append(self._journal.find(LEDGER))
        self.meanwhile()
        said = self.answers_ahead.pop(0) if len(self.answers_ahead) > 1 else self.answers_ahead[0]
        if isinstance(said, Exception):
            raise said
        return json.dumps(said)


class World:
    """A copier from `old` to `new`, with its journal in memory."""

    def __init__(self, **more: Any) -> None:
        self.server = Server()
        self.journal = self.open_journal("i-old", "i-new")
        self.java = Java(self.journal)
        self.copier = LedgerCopier(self.java, self.journal, OLD, NEW, **more)  # type: ignore[arg-type]

    def open_journal(self, source: str, target: str) -> CopyJournal:
        return CopyJournal(self.server.session(), source=source, target=target)

    def copy(self, *answers: dict[str, Any] | Exception, **more: Any) -> CopyResult:
        self.java.answers_ahead = list(answers)
        return self.copier.copy(LEDGER, **more)

    def end(self, *answers: dict[str, Any] | Exception, **more: Any) -> str:
        return end(lambda: self.copy(*answers, **more))

    def copied(self) -> "World":
        """It was copied once."""
        self.copy({"status": "copied", **EQUAL})
        self.java.requests.clear()
        return self

    def record(self) -> CopyRecord:
        record = self.journal.find(LEDGER)
        assert record is not None
        return record

    def change_record(self) -> None:
        self.journal.complete(
            self.record(), CopiedLedger(length_bytes=0, last_entry_id=0, entries_digest="", created_ms=0)
        )

    def lose_zookeeper(self) -> None:
        self.server.away = ConnectionLoss()


@pytest.mark.parametrize("ledger_id", [-1, 2**63])
def test_what_is_no_ledgers_id_is_refused_before_anything(ledger_id: int) -> None:
    world = World()
    with pytest.raises(ValueError, match="no ledger id"):
        world.copier.copy(ledger_id)
    for own in (True, False):
        with pytest.raises(ValueError, match="no ledger id"):
            world.copier.delete(ledger_id, own=own)
    assert (world.server.tree, world.java.requests) == (Server().tree, [])


def test_the_intent_is_written_before_java_hears_of_it_and_the_copy_noted_after() -> None:
    world = World(replication=CopyReplication(ensemble_size=3, write_quorum=2, ack_quorum=2))
    result = world.copy({"status": "copied", **EQUAL})
    assert result.target is not None
    assert result.target.provenance == "i-old"
    assert structs.replace(result.target, provenance=None, created_ms=5) == result.source
    record = world.record()
    assert world.java.journalled == [structs.replace(record, copied=None, version=0)]
    assert record.copied == FACTS_OF_COPIED
    assert world.java.requests == [
        {
            "kind": "copy", "ledger_id": LEDGER, "provenance": record.provenance, "target_id": LEDGER,
            "ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2,
        }
    ]  # fmt: skip


OTHERS: list[dict[str, Any]] = [
    {"length_bytes": 11}, {"last_entry_id": 1}, {"entries_digest": "e"}, {"entries_digest": None}, {"state": "open"},
    {"custom_metadata": {}}, {"custom_metadata": {"a": "eA=="}}, {"ledger_id": 9},
]  # fmt: skip
UNEQUAL = (None, *(COPY | other for other in OTHERS))


@for_each(
    ("answer", "ends"),
    [
        ({"status": "copied", **EQUAL}, COPIED),
        ({"status": "own_closed", **EQUAL}, EXISTS),
        ({"status": "own_partial", "source": FACTS}, PARTIAL),
        ({"status": "foreign", **EQUAL}, FOREIGN),
        ({"status": "source_open"}, "the ledger is still written to: its owner must close it first"),
        ({"status": "failed", "phase": "copier", "detail": "a bug"}, "copier: a bug"),
        (JvmDiedError("killed by signal 9"), "killed by signal 9"),
        (JavaError("a bug"), "a bug"),
        *(({"status": status, "source": FACTS, "target": each}, PARTIAL)
          for status in ("copied", "own_closed") for each in UNEQUAL),
    ],
)  # fmt: skip
def test_only_a_copy_that_is_wholly_equal_is_journalled_as_one(answer: dict[str, Any] | Exception, ends: str) -> None:
    world = World()
    assert world.end(answer) == ends
    assert (world.record().copied is not None) is (ends in (COPIED, EXISTS))


def test_two_unread_digests_prove_nothing() -> None:
    unread = {"entries_digest": None}
    answer = {"status": "copied", "source": FACTS | unread, "target": COPY | unread}
    assert World().end(answer) == PARTIAL


@for_each(
    ("phase", "code", "is_unreadable"),
    [
        ("source-connect", None, False),
        ("source-connect", -9, False),
        ("source-metadata", -25, True),
        ("source-metadata", -7, True),
        ("source-metadata", -9, False),
        ("source-metadata", -23, False),
        ("source-metadata", -107, True),
        ("source-read", -25, True),
        ("source-read", -9, False),
        ("source-read", -105, False),
        ("source-read", -8, True),
        ("source-read", -13, True),
        ("source-read", -23, True),
        ("source-read", 0, True),
        ("target-connect", None, False),
        ("target-write", -6, False),
        ("target-verify", -25, False),
        ("", -9, False),
    ],
)
def test_a_source_that_answers_and_cannot_be_read_is_unreadable(
    phase: str, code: int | None, is_unreadable: bool
) -> None:
    why = f"{phase}: why" if phase else "why"
    ends = World().end({"status": "failed", "phase": phase, "code": code, "detail": "why"})
    assert ends == (f"unreadable: {why}" if is_unreadable else why)


def test_what_cannot_be_written_down_is_not_begun() -> None:
    for is_foreign, ends in ((False, "the connection was lost"), (True, FOREIGN)):
        world = World()
        if is_foreign:
            world.open_journal("another", "i-new").intend(LEDGER)
        else:
            world.lose_zookeeper()
        assert ends in world.end({"status": "copied", **EQUAL})
        assert world.java.requests == []


@pytest.mark.parametrize("is_conflict", [False, True])
def test_a_copy_whose_end_cannot_be_written_down_is_no_copy_yet(is_conflict: bool) -> None:
    world = World()
    world.java.meanwhile = world.change_record if is_conflict else world.lose_zookeeper
    ends = world.end({"status": "copied", **EQUAL})
    assert ("was changed by others" if is_conflict else "the connection was lost") in ends


NEW_ID = {"status": "new_id", "new_id": 99}
AT_99 = {"source": FACTS, "target": COPY | {"ledger_id": 99}}


def test_a_new_id_is_drawn_once_and_known_before_anything_is_created() -> None:
    world = World()
    result = world.copy(NEW_ID, {"status": "copied", **AT_99}, new_id=True)
    assert (result.is_equal, result.target and result.target.ledger_id) == (True, 99)
    assert [(request["kind"], request.get("target_id")) for request in world.java.requests] == [
        ("new_id", None),
        ("copy", 99),
    ]
    assert [each and each.target_id for each in world.java.journalled] == [None, 99]
    world.java.requests.clear()
    assert world.end({"status": "own_closed", **AT_99}, new_id=True) == EXISTS
    assert [request["kind"] for request in world.java.requests] == ["copy"]


def test_without_a_new_id_nothing_is_journalled() -> None:
    world = World()
    ends = world.end({"status": "failed", "phase": "target-create", "detail": "no bookie"}, new_id=True)
    assert (ends, world.journal.find(LEDGER)) == ("target-create: no bookie", None)


def test_a_new_id_that_others_took_meanwhile_is_given_up_for_another() -> None:
    world = World()
    assert "id 99" in world.end(NEW_ID, {"status": "foreign", **AT_99}, new_id=True)
    assert world.journal.find(LEDGER) is None


def test_one_that_was_ours_is_not_given_up_though_it_is_foreign_now() -> None:
    world = World()
    world.copy(NEW_ID, {"status": "copied", **AT_99}, new_id=True)
    assert world.end({"status": "foreign", **AT_99}, new_id=True) == FOREIGN
    assert world.record().target_id == 99


def test_an_intent_of_the_other_way_stands_only_as_long_as_its_copy_does() -> None:
    world = World()
    world.copy(NEW_ID, {"status": "copied", **AT_99}, new_id=True)
    assert "has id 99" in world.end({"status": "own"})
    assert world.end({"status": "missing"}, {"status": "copied", **EQUAL}) == COPIED
    assert world.record().target_id is None


@for_each("own", [True, False])
@for_each(
    ("answer", "ends"),
    [
        ({"status": "deleted"}, DELETED),
        ({"status": "missing"}, DELETED),
        ({"status": "refused"}, "the ledger there is not the journalled one"),
        ({"status": "failed", "detail": "no answer"}, "no answer"),
        (JvmDiedError("gone"), "gone"),
        (JavaError("a bug"), "a bug"),
    ],
)
def test_only_the_journalled_ledger_is_deleted_and_only_our_copy_is_forgotten(
    own: bool, answer: dict[str, Any] | Exception, ends: str
) -> None:
    world = World().copied()
    provenance = world.record().provenance
    world.java.answers_ahead = [answer]
    assert end(lambda: world.copier.delete(LEDGER, own=own)) == ends
    assert (world.journal.find(LEDGER) is None) is (own and ends == DELETED)
    expected: dict[str, Any] = {"kind": "delete_own", "provenance": provenance, "target_id": LEDGER}
    if not own:
        expected = {"kind": "delete_old", "length_bytes": 30, "last_entry_id": 2, "created_ms": 5}
    assert world.java.requests == [{"ledger_id": LEDGER, **expected}]


@for_each("own", [True, False])
@for_each(
    ("before", "ends"),
    [
        ("nothing", UNRECORDED),
        ("a record of another source", "journalled as a copy from another"),
        ("ZooKeeper is away", "the connection was lost"),
    ],
)
def test_without_a_record_of_its_copy_no_ledger_is_touched(own: bool, before: str, ends: str) -> None:
    world = World()
    if before == "a record of another source":
        world.open_journal("another", "i-new").intend(LEDGER)
    elif before == "ZooKeeper is away":
        world.copied().lose_zookeeper()
    assert ends in end(lambda: world.copier.delete(LEDGER, own=own))
    assert world.java.requests == []


def test_an_old_one_whose_copy_is_not_whole_is_not_touched() -> None:
    world = World()
    world.copy({"status": "own_partial", "source": FACTS})
    world.java.requests.clear()
    assert end(lambda: world.copier.delete(LEDGER, own=False)) == UNRECORDED
    assert world.java.requests == []


def test_the_clients_own_time_outs_end_before_ours() -> None:
    properties = World(password=b"secret").java.settings["source"]["properties"]
    assert int(properties["readEntryTimeoutSec"]) < 30
    assert int(properties["zkTimeout"]) < 30_000


def test_a_ledger_that_was_deleted_from_the_target_comes_back_only_under_a_new_id() -> None:
    for looks in ("missing", "foreign"):
        world = World()
        back = world.open_journal("i-new", "i-old")
        back.complete(back.intend(LEDGER), FACTS_OF_COPIED)
        result = world.copy({"status": looks}, {"status": "copied", **EQUAL})
        assert result.is_ours is (looks == "foreign")
        if looks == "missing":
            assert "was deleted from the target" in result.detail
            assert [request["kind"] for request in world.java.requests] == ["look"]
            assert world.journal.find(LEDGER) is None, "nothing is meant to be created"
            assert world.end(NEW_ID, {"status": "copied", **AT_99}, new_id=True) == COPIED
