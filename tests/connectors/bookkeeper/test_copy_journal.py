"""The copies' journal: written before a ledger is created, by conditional writes, and never about another's copy."""

from collections.abc import Callable

import pytest
from kazoo.exceptions import ConnectionLoss

from connectors.bookkeeper.copy_journal import COPIES, CopiedLedger, CopyJournal
from connectors.zookeeper.json_znodes import ZnodeConflictError, ZnodeError
from policies.switching.ledgers import Layout, path_of
from tests.fakes.zookeeper import Server

SOURCE, TARGET, LEDGER = "source-id", "target-id", 4_711
COPIED = CopiedLedger(length_bytes=100, last_entry_id=9, entries_digest="abc", created_ms=1)
ZNODE = f"{COPIES}/{TARGET}{path_of(Layout.LONG_HIERARCHICAL, LEDGER)}"


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def journal(server: Server) -> CopyJournal:
    return CopyJournal(server.session(), source=SOURCE, target=TARGET)


def test_an_intent_is_found_again_as_it_was_written(journal: CopyJournal, server: Server) -> None:
    intended = journal.intend(LEDGER)
    assert journal.find(LEDGER) == intended
    assert (intended.source, intended.target, intended.copied, intended.id_in_target) == (SOURCE, TARGET, None, LEDGER)
    assert intended.provenance == f"{SOURCE}/{intended.token}"
    assert ZNODE in server.tree
    assert journal.intend(1).token != intended.token


def test_an_earlier_intent_stands_with_its_token_and_its_id_in_the_target(journal: CopyJournal) -> None:
    first = journal.intend(LEDGER, target_id=7)
    assert journal.intend(LEDGER, target_id=8) == first
    assert first.id_in_target == 7


def test_a_copy_that_was_found_equal_is_written_down_once(journal: CopyJournal, server: Server) -> None:
    completed = journal.complete(journal.intend(LEDGER), COPIED)
    assert journal.find(LEDGER) == completed
    writes = server.zxid
    assert journal.complete(completed, COPIED) == completed
    assert server.zxid == writes


def test_what_others_changed_since_is_not_overwritten(journal: CopyJournal, server: Server) -> None:
    intended = journal.intend(LEDGER)
    server.write(ZNODE, server.tree[ZNODE][0])
    with pytest.raises(ZnodeConflictError, match="changed by others"):
        journal.complete(intended, COPIED)
    with pytest.raises(ZnodeConflictError, match="changed by others"):
        journal.forget(intended)


def test_what_is_forgotten_is_gone_and_forgetting_it_again_is_nothing(journal: CopyJournal) -> None:
    intended = journal.intend(LEDGER)
    journal.forget(intended)
    assert journal.find(LEDGER) is None
    journal.forget(intended)
    with pytest.raises(ZnodeConflictError):
        journal.complete(intended, COPIED)


def test_a_copy_of_another_source_is_a_conflict_and_stays(journal: CopyJournal, server: Server) -> None:
    other = CopyJournal(server.session(), source="another", target=TARGET)
    theirs = other.intend(LEDGER)
    with pytest.raises(ZnodeConflictError, match="journalled as a copy from another"):
        journal.intend(LEDGER)
    with pytest.raises(ZnodeConflictError):
        journal.find(LEDGER)
    assert other.find(LEDGER) == theirs


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff", b"null"])
def test_a_damaged_record_is_named_and_never_taken_for_none(
    journal: CopyJournal, server: Server, damage: bytes
) -> None:
    journal.intend(LEDGER)
    server.write(ZNODE, damage)
    with pytest.raises(ZnodeError, match="is damaged"):
        journal.find(LEDGER)


def test_without_zookeeper_nothing_is_said_of_a_copy(journal: CopyJournal, server: Server) -> None:
    intended = journal.intend(LEDGER)
    server.away = ConnectionLoss()
    asked: list[Callable[[], object]] = [
        lambda: journal.find(LEDGER),
        lambda: journal.intend(LEDGER),
        lambda: journal.complete(intended, COPIED),
        lambda: journal.forget(intended),
    ]
    for ask in asked:
        with pytest.raises(ZnodeError, match="the connection was lost"):
            ask()


def test_what_was_copied_the_other_way_came_from_the_target(server: Server) -> None:
    back = CopyJournal(server.session(), source=TARGET, target=SOURCE)
    back.complete(back.intend(LEDGER), COPIED)
    back.intend(LEDGER + 1)
    back.complete(back.intend(LEDGER + 2, target_id=7), COPIED)
    foreign = CopyJournal(server.session(), source="third-id", target=SOURCE)
    foreign.complete(foreign.intend(LEDGER + 3), COPIED)
    journal = CopyJournal(server.session(), source=SOURCE, target=TARGET)
    came = [journal.came_from_target(LEDGER + n) for n in range(5)]
    assert came == [True, False, False, False, False], "only a complete copy, under its own id, from that very cluster"


def test_where_nothing_went_the_other_way_it_is_asked_once(journal: CopyJournal, server: Server) -> None:
    assert not journal.came_from_target(LEDGER)
    server.away = ConnectionLoss()
    assert not journal.came_from_target(LEDGER + 1)
