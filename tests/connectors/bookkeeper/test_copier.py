"""How a copy or a deletion ends, by what the journal knows and what Java answers, and what is never asked of Java."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from msgspec import structs

from connectors.bookkeeper.copier import (
    CopyOutcome,
    CopyResult,
    JavaResult,
    LedgerCluster,
    LedgerCopier,
    copy_result,
    metadata_service_uri,
)
from connectors.bookkeeper.copy_journal import PROVENANCE, CopiedLedger, CopyJournal, CopyRecord
from connectors.bookkeeper.gateway import JavaError, JvmDiedError
from connectors.bookkeeper.settings import CopyReplication
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.switching.ledgers import Layout
from tests.cases import for_each
from tests.fakes.zookeeper import Server

OLD, NEW = LedgerCluster("i-old", "zk://old/ledgers"), LedgerCluster("i-new", "zk://new/ledgers")
LEDGER = 7
FACTS: dict[str, Any] = {
    "ledger_id": LEDGER, "state": "closed", "last_entry_id": 2, "length_bytes": 30, "ensemble_size": 1,
    "write_quorum": 1, "ack_quorum": 1, "created_ms": 5, "custom_metadata": {"a": "YQ=="}, "entries_digest": "d",
}  # fmt: skip
COPY = {**FACTS, "created_ms": 6, "custom_metadata": {"a": "YQ==", PROVENANCE: "c291cmNlL3Rva2Vu"}}
EQUAL = {"source": FACTS, "target": COPY}
COPIED = CopiedLedger(length_bytes=30, last_entry_id=2, entries_digest="d", created_ms=5)


class Java:
    """What stands for the JVM: answers what a test has it answer, one after the other."""

    def __init__(self, journal: CopyJournal) -> None:
        self.answers_ahead: list[dict[str, Any] | Exception] = []
        self.requests: list[dict[str, Any]] = []
        self.settings: list[dict[str, Any]] = []
        self.limits: list[int] = []
        self.closed = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.journalled: list[CopyRecord | None] = []
        """What the journal had at each request."""
        self._journal = journal

    def start(self, settings: str) -> None:
        self.settings.append(json.loads(settings))

    def run(self, request: str, settings: str) -> str:
        self.start(settings)
        self.requests.append(json.loads(request))
        self.journalled.append(self._journal.find(LEDGER))
        self.meanwhile()
        said = self.answers_ahead.pop(0) if len(self.answers_ahead) > 1 else self.answers_ahead[0]
        if isinstance(said, Exception):
            raise said
        return json.dumps(said)

    def limit(self, bytes_per_second: int) -> None:
        self.limits.append(bytes_per_second)
        raise JvmDiedError("the next one starts with the limit")

    def close(self) -> None:
        self.closed += 1


class World:
    """A copier from `old` to `new`, with its journal in memory."""

    def __init__(self, **more: Any) -> None:
        self.server = Server()
        self.journal = self.open_journal("i-old", "i-new")
        self.java = Java(self.journal)
        self.copier = LedgerCopier(self.java, OLD, NEW, self.journal, **more)  # type: ignore[arg-type]

    def open_journal(self, source: str, target: str) -> CopyJournal:
        return CopyJournal(self.server.session(), source=source, target=target)

    def copy(self, *answers: dict[str, Any] | Exception, **more: Any) -> CopyResult:
        self.java.answers_ahead = list(answers)
        return self.copier.copy(LEDGER, **more)

    def copied(self) -> "World":
        """It was copied once."""
        assert self.copy({"status": "copied", **EQUAL}).outcome is CopyOutcome.COPIED
        self.java.requests.clear()
        return self

    def record(self) -> CopyRecord:
        record = self.journal.find(LEDGER)
        assert record is not None
        return record

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
    assert (world.server.tree, world.java.settings) == (Server().tree, [])


def test_the_intent_is_written_before_java_hears_of_it_and_the_copy_noted_after() -> None:
    world = World(replication=CopyReplication(ensemble_size=3, write_quorum=2, ack_quorum=2))
    result = world.copy({"status": "copied", **EQUAL})
    assert result.outcome is CopyOutcome.COPIED
    assert result.target is not None
    assert result.target.provenance == "i-old"
    assert structs.replace(result.target, provenance=None, created_ms=5) == result.source
    record = world.record()
    assert world.java.journalled == [structs.replace(record, copied=None, version=0)]
    assert record.copied == COPIED
    assert world.java.requests == [
        {
            "kind": "copy", "ledger_id": LEDGER, "provenance": record.provenance, "target_id": LEDGER,
            "ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2,
        }
    ]  # fmt: skip


@for_each(
    ("answer", "outcome"),
    [
        ({"status": "copied", **EQUAL}, CopyOutcome.COPIED),
        ({"status": "own_closed", **EQUAL}, CopyOutcome.BUILT),
        ({"status": "own_partial", "source": FACTS}, CopyOutcome.OWN_PARTIAL),
        ({"status": "foreign", **EQUAL}, CopyOutcome.FOREIGN_CONFLICT),
        ({"status": "source_open"}, CopyOutcome.SOURCE_OPEN),
        ({"status": "failed", "phase": "copier", "detail": "a bug"}, CopyOutcome.FAILED),
        (JvmDiedError("killed by signal 9"), CopyOutcome.FAILED),
        (JavaError("a bug"), CopyOutcome.FAILED),
    ],
)
def test_every_end_is_an_outcome_and_only_a_whole_copy_is_noted_as_one(
    answer: dict[str, Any] | Exception, outcome: CopyOutcome
) -> None:
    world = World()
    assert world.copy(answer).outcome is outcome
    is_whole = outcome in (CopyOutcome.COPIED, CopyOutcome.BUILT)
    assert (world.record().copied is not None) is is_whole


@for_each(
    "target",
    [
        {"length_bytes": 11}, {"last_entry_id": 1}, {"entries_digest": "e"}, {"entries_digest": None},
        {"state": "open"}, {"custom_metadata": {}}, {"custom_metadata": {"a": "eA=="}}, {"ledger_id": 9}, None,
    ],
    ids=["length", "last entry", "digest", "no digest", "open", "no metadata", "other metadata", "id", "unknown"],
)  # fmt: skip
@for_each(("status", "outcome"), [("copied", CopyOutcome.COPY_DIFFERS), ("own_closed", CopyOutcome.OWN_PARTIAL)])
def test_a_copy_that_is_not_wholly_equal_is_no_copy(
    target: dict[str, Any] | None, status: str, outcome: CopyOutcome
) -> None:
    answer = {"status": status, "source": FACTS, "target": None if target is None else COPY | target}
    assert World().copy(answer).outcome is outcome


def test_two_unread_digests_prove_nothing() -> None:
    unread = {"entries_digest": None}
    answer = {"status": "copied", "source": FACTS | unread, "target": COPY | unread}
    assert World().copy(answer).outcome is CopyOutcome.COPY_DIFFERS


def test_a_copy_has_the_id_that_was_journalled_for_it_and_its_mark_is_no_part_of_it() -> None:
    record = CopyRecord(ledger_id=LEDGER, source="i-old", target="i-new", token="t", target_id=9)
    answer = JavaResult.model_validate({"status": "copied", "source": FACTS, "target": COPY | {"ledger_id": 9}})
    result = copy_result(record, answer)
    assert (result.outcome, result.target and result.target.ledger_id) == (CopyOutcome.COPIED, 9)
    assert result.target is not None
    assert (result.target.custom_metadata, result.target.provenance) == ({"a": "YQ=="}, "i-old")
    assert copy_result(structs.replace(record, target_id=None), answer).outcome is CopyOutcome.COPY_DIFFERS


@for_each(
    ("phase", "code", "outcome"),
    [
        ("source-connect", None, CopyOutcome.FAILED),
        ("source-connect", -9, CopyOutcome.FAILED),
        ("source-metadata", -25, CopyOutcome.SOURCE_UNREADABLE),
        ("source-metadata", -7, CopyOutcome.SOURCE_UNREADABLE),
        ("source-metadata", -9, CopyOutcome.FAILED),
        ("source-metadata", -23, CopyOutcome.FAILED),
        ("source-metadata", -107, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", -25, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", -9, CopyOutcome.FAILED),
        ("source-read", -105, CopyOutcome.FAILED),
        ("source-read", -8, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", -13, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", -23, CopyOutcome.SOURCE_UNREADABLE),
        ("source-read", 0, CopyOutcome.SOURCE_UNREADABLE),
        ("target-connect", None, CopyOutcome.FAILED),
        ("target-write", -6, CopyOutcome.FAILED),
        ("target-verify", -25, CopyOutcome.FAILED),
        ("copier", None, CopyOutcome.FAILED),
        ("", -9, CopyOutcome.FAILED),
    ],
)
def test_each_failure_has_its_outcome(phase: str, code: int | None, outcome: CopyOutcome) -> None:
    result = World().copy({"status": "failed", "phase": phase, "code": code, "detail": "why"})
    assert (result.outcome, result.detail) == (outcome, f"{phase}: why" if phase else "why")


@for_each(("is_foreign", "outcome"), [(False, CopyOutcome.FAILED), (True, CopyOutcome.FOREIGN_CONFLICT)])
def test_what_cannot_be_written_down_is_not_begun(is_foreign: bool, outcome: CopyOutcome) -> None:
    world = World()
    if is_foreign:
        world.open_journal("another", "i-new").intend(LEDGER)
    else:
        world.lose_zookeeper()
    assert world.copy({"status": "copied", **EQUAL}).outcome is outcome
    assert world.java.requests == []


def test_a_copy_whose_end_cannot_be_written_down_is_no_copy_yet() -> None:
    world = World()
    world.java.meanwhile = world.lose_zookeeper
    result = world.copy({"status": "copied", **EQUAL})
    assert (result.outcome, "the connection was lost" in result.detail) == (CopyOutcome.FAILED, True)


NEW_ID = {"status": "new_id", "new_id": 99}
AT_99 = {"source": FACTS, "target": COPY | {"ledger_id": 99}}


def test_a_new_id_is_drawn_once_and_known_before_anything_is_created() -> None:
    world = World()
    assert world.copy(NEW_ID, {"status": "copied", **AT_99}, new_id=True).outcome is CopyOutcome.COPIED
    assert [(request["kind"], request.get("target_id")) for request in world.java.requests] == [
        ("new_id", None),
        ("copy", 99),
    ]
    assert [each and each.target_id for each in world.java.journalled] == [None, 99]
    world.java.requests.clear()
    assert world.copy({"status": "own_closed", **AT_99}, new_id=True).outcome is CopyOutcome.BUILT
    assert [request["kind"] for request in world.java.requests] == ["copy"]


def test_without_a_new_id_nothing_is_journalled() -> None:
    world = World()
    result = world.copy({"status": "failed", "phase": "target-create", "detail": "no bookie"}, new_id=True)
    assert (result.outcome, result.detail) == (CopyOutcome.FAILED, "target-create: no bookie")
    assert world.journal.find(LEDGER) is None


def test_a_new_id_that_others_took_meanwhile_is_given_up_for_another() -> None:
    world = World()
    result = world.copy(NEW_ID, {"status": "foreign", **AT_99}, new_id=True)
    assert (result.outcome, "id 99" in result.detail) == (CopyOutcome.FAILED, True)
    assert world.journal.find(LEDGER) is None


def test_one_that_was_ours_is_not_given_up_though_it_is_foreign_now() -> None:
    world = World()
    world.copy(NEW_ID, {"status": "copied", **AT_99}, new_id=True)
    assert world.copy({"status": "foreign", **AT_99}, new_id=True).outcome is CopyOutcome.FOREIGN_CONFLICT
    assert world.record().target_id == 99


def test_an_intent_of_the_other_way_stands_only_as_long_as_its_copy_does() -> None:
    world = World()
    world.copy(NEW_ID, {"status": "copied", **AT_99}, new_id=True)
    kept = world.copy({"status": "own"})
    assert (kept.outcome, "has id 99" in kept.detail) == (CopyOutcome.FAILED, True)
    assert world.copy({"status": "missing"}, {"status": "copied", **EQUAL}).outcome is CopyOutcome.COPIED
    assert world.record().target_id is None


DELETIONS = [
    ({"status": "deleted"}, CopyOutcome.DELETED),
    ({"status": "missing"}, CopyOutcome.DELETED),
    ({"status": "refused"}, CopyOutcome.REFUSED),
    ({"status": "failed", "detail": "no answer"}, CopyOutcome.FAILED),
    (JvmDiedError("gone"), CopyOutcome.FAILED),
    (JavaError("a bug"), CopyOutcome.FAILED),
]


@for_each(("answer", "outcome"), DELETIONS)
def test_our_copy_is_forgotten_once_it_is_gone(answer: dict[str, Any] | Exception, outcome: CopyOutcome) -> None:
    world = World().copied()
    provenance = world.record().provenance
    world.java.answers_ahead = [answer]
    assert world.copier.delete(LEDGER, own=True).outcome is outcome
    assert (world.journal.find(LEDGER) is None) is (outcome is CopyOutcome.DELETED)
    assert world.java.requests == [
        {"kind": "delete_own", "ledger_id": LEDGER, "provenance": provenance, "target_id": LEDGER}
    ]


@for_each(("answer", "outcome"), DELETIONS)
def test_the_old_one_is_deleted_only_as_it_was_when_it_was_copied(
    answer: dict[str, Any] | Exception, outcome: CopyOutcome
) -> None:
    world = World().copied()
    world.java.answers_ahead = [answer]
    assert world.copier.delete(LEDGER, own=False).outcome is outcome
    assert world.record().copied == COPIED, "the journal keeps what was copied"
    assert world.java.requests == [
        {"kind": "delete_old", "ledger_id": LEDGER, "length_bytes": 30, "last_entry_id": 2, "created_ms": 5}
    ]


@for_each("own", [True, False])
def test_what_was_never_journalled_is_not_touched(own: bool) -> None:
    world = World()
    assert world.copier.delete(LEDGER, own=own).outcome is CopyOutcome.NOT_RECORDED
    assert world.java.requests == []


def test_an_old_one_whose_copy_is_not_whole_is_not_touched() -> None:
    world = World()
    world.copy({"status": "own_partial", "source": FACTS})
    world.java.requests.clear()
    assert world.copier.delete(LEDGER, own=False).outcome is CopyOutcome.NOT_RECORDED
    assert world.java.requests == []


@for_each("own", [True, False])
@for_each(("is_foreign", "outcome"), [(False, CopyOutcome.FAILED), (True, CopyOutcome.NOT_RECORDED)])
def test_without_the_journal_nothing_is_deleted(own: bool, is_foreign: bool, outcome: CopyOutcome) -> None:
    world = World()
    if is_foreign:
        world.open_journal("another", "i-new").intend(LEDGER)
    else:
        world.copied().lose_zookeeper()
    assert world.copier.delete(LEDGER, own=own).outcome is outcome
    assert world.java.requests == []


def test_made_ready_it_has_its_jvm_before_the_first_copy_and_closed_it_has_none() -> None:
    world = World()
    assert world.java.settings == []
    world.copier.make_ready()
    assert len(world.java.settings) == 1
    world.copier.close()
    assert world.java.closed == 1


def test_a_limit_holds_for_the_jvm_that_is_there_and_for_each_to_come() -> None:
    world = World().copied()
    world.copier.limit(5_000)
    world.copied()
    assert world.java.limits == [5_000]
    assert [settings["bytes_per_second"] for settings in world.java.settings] == [0, 5_000]


def test_the_clients_own_time_outs_end_before_ours_and_passwords_are_not_shown() -> None:
    cluster = LedgerCluster("i", "zk+hierarchical://zk/ledgers", password=b"secret")
    properties: Any = cluster.for_java(30.0)["properties"]
    assert int(properties["readEntryTimeoutSec"]) < 30
    assert int(properties["zkTimeout"]) < 30_000
    assert "secret" not in repr(cluster)


@for_each(("looks", "outcome"), [("missing", CopyOutcome.FOREIGN_CONFLICT), ("foreign", CopyOutcome.COPIED)])
def test_a_ledger_that_was_deleted_from_the_target_comes_back_only_under_a_new_id(
    looks: str, outcome: CopyOutcome
) -> None:
    world = World()
    back = world.open_journal("i-new", "i-old")
    back.complete(back.intend(LEDGER), COPIED)
    result = world.copy({"status": looks}, {"status": "copied", **EQUAL})
    assert result.outcome is outcome
    if outcome is CopyOutcome.FOREIGN_CONFLICT:
        assert "was deleted from the target" in result.detail
        assert [request["kind"] for request in world.java.requests] == ["look"]
        assert world.journal.find(LEDGER) is None, "nothing is meant to be created"
        assert world.copy(NEW_ID, {"status": "copied", **AT_99}, new_id=True).outcome is CopyOutcome.COPIED


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
