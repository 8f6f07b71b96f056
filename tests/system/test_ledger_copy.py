"""Ledgers copied between two real BookKeeper clusters, and everything that may befall a copy on its way."""

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from connectors.bookkeeper import gateway
from connectors.bookkeeper.copier import CONCURRENCY, CopyOutcome, CopyResult, LedgerCluster, LedgerCopier
from connectors.bookkeeper.copy_journal import PROVENANCE, CopyJournal, CopyRecord
from connectors.bookkeeper.gateway import BookKeeperJvm
from connectors.switching.reconciler import REQUESTED_COPIES
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.java.jvm import find_java
from policies.switching.ledgers import Layout, path_of
from tests.system.bookkeeper import Bookie, init_cluster
from tests.system.ledgers import LedgerClient
from tests.system.processes import freeze
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper

TIMEOUT = timedelta(hours=1)
"""No test waits until it ends."""
MEBIBYTE = 1024 * 1024
BORDERS = (2**31 - 2, 2**31 - 1, 2**31, 2**31 + 7, 2**32 - 1, 2**32, 2**32 + 9, 2**63 - 1)
"""Ids around which the layout of metadata, or the type of a number, changes."""


def copy_all(copier: LedgerCopier, ledger_ids: Iterable[int]) -> list[CopyResult]:
    """Copy ledgers as the executor of a switch does: each on a thread, more of them than are copied at once."""
    with ThreadPoolExecutor(REQUESTED_COPIES * CONCURRENCY, thread_name_prefix="ledgers") as pool:
        return list(pool.map(copier.copy, ledger_ids))


@dataclass(frozen=True)
class Two:
    """Two clusters of one bookie each below two chroots of one ZooKeeper, and a client of both."""

    zookeeper: ZooKeeper
    jars: tuple[Path, ...]
    old: str
    new: str
    old_bookie: Bookie
    new_bookie: Bookie
    ledgers: LedgerClient
    jvm: BookKeeperJvm
    session: ZooKeeperSession

    def cluster(self, servers: str) -> LedgerCluster:
        with self.zookeeper.client() as client:
            path = "/" + servers.partition("/")[2]
            instance = client.get(f"{path}/ledgers/INSTANCEID")[0].decode()
        return LedgerCluster(instance, f"zk+hierarchical://{servers}/ledgers")

    @contextmanager
    def copier(self, *, wrap: Callable[[Any], Any] = lambda journal: journal, **options: Any) -> Iterator[LedgerCopier]:
        """A copier in the JVM of all; one with other options than those before it needs a new JVM."""
        source, target = self.cluster(self.old), self.cluster(self.new)
        journal = wrap(self.journal(source.instance_id))
        if options:
            self.jvm.close()
        yield LedgerCopier(self.jvm, source, target, journal, **{"timeout": TIMEOUT, **options})
        if options:
            self.jvm.close()

    def journal(self, source: str | None = None) -> CopyJournal:
        source = source or self.cluster(self.old).instance_id
        return CopyJournal(self.session, source=source, target=self.cluster(self.new).instance_id)

    def tree(self, servers: str) -> dict[str, tuple[bytes, Any]]:
        """Every znode of a cluster's metadata, with its data and all of its stat."""
        with self.zookeeper.client() as client:
            found: dict[str, tuple[bytes, Any]] = {}
            ahead = ["/" + servers.partition("/")[2]]
            while ahead:
                path = ahead.pop()
                found[path] = client.get(path)
                ahead += [f"{path}/{child}" for child in client.get_children(path)]
            return found

    def znode(self, servers: str, ledger_id: int) -> tuple[bytes, Any]:
        """A ledger's metadata with all of its stat."""
        path = "/" + servers.partition("/")[2] + "/ledgers" + path_of(Layout.HIERARCHICAL, ledger_id)
        with self.zookeeper.client() as client:
            found: tuple[bytes, Any] = client.get(path)
            return found

    def exists(self, servers: str, ledger_id: int) -> bool:
        path = "/" + servers.partition("/")[2] + "/ledgers" + path_of(Layout.HIERARCHICAL, ledger_id)
        with self.zookeeper.client() as client:
            return client.exists(path) is not None


@pytest.fixture(scope="module")
def two(
    zookeeper: ZooKeeper, bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Two]:
    folder, jars = tmp_path_factory.mktemp("two-clusters"), bookkeeper_jars
    old, new = f"{zookeeper.servers}/copy-old", f"{zookeeper.servers}/copy-new"
    with ExitStack() as stack:
        for name, servers in (("old", old), ("new", new)):
            init_cluster(folder / f"init-{name}", jars, servers)
        bookies = (Bookie(folder / "old", jars, old), Bookie(folder / "new", jars, new))
        for bookie in bookies:
            stack.enter_context(bookie)
        client = stack.enter_context(LedgerClient(folder / "client", jars))
        jvm = BookKeeperJvm(find_java(), jars, folder / "jvm", heap_mebibytes=64)
        stack.callback(jvm.close)
        session = ZooKeeperSession("journal", ZooKeeperConnection(servers=zookeeper.servers))
        stack.callback(session.close)
        yield Two(zookeeper, jars, old, new, *bookies, client, jvm, session)


_ids = iter(range(5_000_000, 6_000_000))


@pytest.fixture
def ledger_id() -> int:
    """An id of this test's own."""
    return next(_ids)


def some_entries(number: int) -> list[bytes]:
    """Of a ledger by its number: none, one, an empty one, all bytes there are, one of 300 KB among short ones."""
    shapes: tuple[list[bytes], ...] = (
        [],
        [b"a single entry"],
        [b""],
        [bytes(range(256)), b"\x00", b"\xff\xfe\n\r\x00"],
        [b"short", secrets.token_bytes(300_000), b"", b"short"],
        [secrets.token_bytes(50 + i) for i in range(5)],
    )
    return shapes[number % len(shapes)]


@pytest.mark.parametrize(
    "ids",
    [(*BORDERS, *range(100, 124), 0), pytest.param(range(200, 400), marks=pytest.mark.long)],
    ids=["dozens", "hundreds"],
)
def test_ledgers_are_copied_byte_for_byte_and_the_source_is_not_touched(two: Two, ids: Sequence[int]) -> None:
    custom = {"application": b"pulsar", "pulsar/cursor": b"\x00\xffbinary"}
    for number, each in enumerate(ids):
        two.ledgers.write(two.old, each, some_entries(number), custom)
    before = two.tree(two.old)

    with two.copier() as copier:
        results = copy_all(copier, ids)
        again = {result.outcome for result in copy_all(copier, ids)}

    assert {result.outcome for result in results} == {CopyOutcome.COPIED}
    assert [result.source and result.source.ledger_id for result in results] == list(ids)
    assert two.tree(two.old) == before
    for number, each in enumerate(ids):
        entries = two.ledgers.read(two.old, each)
        assert two.ledgers.read(two.new, each) == entries
        assert len(entries) == len(some_entries(number))
        copied = two.ledgers.custom_metadata(two.new, each)
        assert copied.pop(PROVENANCE).startswith(two.cluster(two.old).instance_id.encode() + b"/")
        assert copied == custom
    assert again == {CopyOutcome.BUILT}
    assert all(r.source == replace_created(r.target, r.source) for r in results)


def replace_created(target: Any, source: Any) -> Any:
    """The target's facts with the source's time of creation, and as if it were no copy: all else must be the same."""
    assert target.created_ms > source.created_ms
    assert target.provenance
    return structs.replace(target, created_ms=source.created_ms, provenance=None)


def test_a_foreign_ledger_of_equal_length_and_last_entry_is_neither_overwritten_nor_deleted(
    two: Two, ledger_id: int
) -> None:
    two.ledgers.write(two.old, ledger_id, [b"ours"])
    two.ledgers.write(two.new, ledger_id, [b"else"])
    before = two.tree(two.new)
    with two.copier() as copier:
        result = copier.copy(ledger_id)
        deleted = copier.delete(ledger_id, own=True)
    assert result.outcome is CopyOutcome.FOREIGN_CONFLICT
    assert result.target is not None
    assert (result.target.length_bytes, result.target.last_entry_id) == (4, 0)
    assert deleted.outcome is CopyOutcome.REFUSED
    assert two.tree(two.new) == before
    assert two.ledgers.read(two.new, ledger_id) == [b"else"]


def test_even_the_same_content_is_foreign_when_we_did_not_make_it(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"same"])
    two.ledgers.write(two.new, ledger_id, [b"same"], {PROVENANCE: b"another/token"})
    with two.copier() as copier:
        assert copier.copy(ledger_id).outcome is CopyOutcome.FOREIGN_CONFLICT


@pytest.mark.long  # varies `test_a_foreign_ledger_of_equal_length`
def test_a_foreign_ledger_with_a_writer_is_not_fenced(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"ours"])
    writer = two.ledgers.create(two.new, ledger_id, password=b"theirs")
    with two.copier() as copier:
        assert copier.copy(ledger_id).outcome is CopyOutcome.FOREIGN_CONFLICT
    assert writer.addEntry(0, b"goes on") == 0
    writer.close()


def test_an_open_ledger_is_not_copied_and_its_writer_goes_on(two: Two, ledger_id: int) -> None:
    writer = two.ledgers.create(two.old, ledger_id)
    writer.addEntry(0, b"before")
    with two.copier() as copier:
        result = copier.copy(ledger_id)
        assert result.outcome is CopyOutcome.SOURCE_OPEN
        assert not two.exists(two.new, ledger_id)
        writer.addEntry(1, b"after")
        writer.close()
        assert copier.copy(ledger_id).outcome is CopyOutcome.COPIED
    assert two.ledgers.read(two.new, ledger_id) == [b"before", b"after"]


# --- killed on the way


class KillsAfterIntent:
    """A journal, and a JVM that is killed as soon as an intent is written."""

    def __init__(self, journal: CopyJournal, jvm: BookKeeperJvm) -> None:
        self._journal, self._jvm, self._armed = journal, jvm, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def intend(self, ledger_id: int) -> CopyRecord:
        record = self._journal.intend(ledger_id)
        if self._armed and self._jvm.pid is not None:
            os.kill(self._jvm.pid, signal.SIGKILL)
            eventually("the JVM is dead", lambda: self._jvm.pid is None)
        self._armed = False
        return record


def test_killed_between_intent_and_creation_the_next_copy_succeeds(two: Two) -> None:
    warm, ledger_id = next(_ids), next(_ids)
    for each in (warm, ledger_id):
        two.ledgers.write(two.old, each, [b"1", b"2"])
    with two.copier() as copier:
        assert copier.copy(warm).outcome is CopyOutcome.COPIED
    with two.copier(wrap=lambda journal: KillsAfterIntent(journal, two.jvm)) as copier:
        # The copier starts a JVM in place of the dead one, in the same breath.
        assert copier.copy(ledger_id).outcome is CopyOutcome.COPIED
    assert two.ledgers.read(two.new, ledger_id) == [b"1", b"2"]


def test_killed_while_writing_the_partial_copy_is_known_as_ours_and_made_again(two: Two, ledger_id: int) -> None:
    entries = [secrets.token_bytes(10_000) for _ in range(20)]
    two.ledgers.write(two.old, ledger_id, entries)
    with two.copier(window_bytes=20_000) as copier, ThreadPoolExecutor(1) as pool:
        two.ledgers.write(two.old, warm := next(_ids), [b"1"])
        assert copier.copy(warm).outcome is CopyOutcome.COPIED, "a frozen bookie loses its session before a JVM starts"
        with two.new_bookie.frozen():
            copying = pool.submit(copier.copy, ledger_id)
            eventually("the copy exists", lambda: two.exists(two.new, ledger_id))
            assert two.jvm.pid is not None
            os.kill(two.jvm.pid, signal.SIGKILL)
            died = copying.result()
        assert died.outcome is CopyOutcome.FAILED
        assert copier.delete(ledger_id, own=False).outcome is CopyOutcome.NOT_RECORDED
        assert copier.copy(ledger_id).outcome is CopyOutcome.OWN_PARTIAL
        assert copier.delete(ledger_id, own=True).outcome is CopyOutcome.DELETED
        assert not two.exists(two.new, ledger_id)
        assert copier.copy(ledger_id).outcome is CopyOutcome.COPIED
    assert two.ledgers.read(two.new, ledger_id) == entries


@pytest.mark.long  # varies `test_killed_while_writing`
def test_a_partial_copy_that_somebody_else_closed_is_partial_still(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1", b"2"])
    record = two.journal().intend(ledger_id)
    two.ledgers.write(two.new, ledger_id, [b"1"], {PROVENANCE: record.provenance.encode()})
    with two.copier() as copier:
        assert copier.copy(ledger_id).outcome is CopyOutcome.OWN_PARTIAL


@pytest.mark.long  # varies `test_killed_while_writing`
@pytest.mark.parametrize("others", [[b"1", b"23"], [b"12", b"4"]], ids=["other borders", "other content"])
def test_a_copy_of_ours_with_other_entries_of_the_same_length_is_partial(
    two: Two, ledger_id: int, others: list[bytes]
) -> None:
    two.ledgers.write(two.old, ledger_id, [b"12", b"3"])
    record = two.journal().intend(ledger_id)
    two.ledgers.write(two.new, ledger_id, others, {PROVENANCE: record.provenance.encode()})
    with two.copier() as copier:
        assert copier.copy(ledger_id).outcome is CopyOutcome.OWN_PARTIAL


@pytest.mark.long  # varies `test_killed_while_writing`
def test_a_jvm_that_hangs_is_ended_and_replaced(two: Two, ledger_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"])
    two.jvm.close()
    monkeypatch.setattr(gateway, "ANSWER_SECONDS", 30.0)
    with two.copier() as copier:
        copier.copy(ledger_id)
        pid = two.jvm.pid
        assert pid is not None
        freeze(pid)
        died = copier.copy(ledger_id)
        assert died.outcome is CopyOutcome.FAILED
        assert not Path(f"/proc/{pid}").exists()
        assert copier.copy(ledger_id).outcome is CopyOutcome.BUILT


# --- what is down


def test_a_source_whose_bookie_is_dead_is_unreadable(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"])
    two.old_bookie.kill()
    try:
        with two.copier() as copier:
            result = copier.copy(ledger_id)
    finally:
        two.old_bookie.start()
    assert result.outcome is CopyOutcome.SOURCE_UNREADABLE
    with two.copier(timeout=TIMEOUT) as copier:  # a client anew: the one before avoids the bookie for a while
        copier.delete(ledger_id, own=True)
        assert copier.copy(ledger_id).outcome is CopyOutcome.COPIED


def test_a_source_ledger_that_does_not_exist_is_missing(two: Two, ledger_id: int) -> None:
    with two.copier() as copier:
        assert copier.copy(ledger_id).outcome is CopyOutcome.SOURCE_UNREADABLE
    assert not two.exists(two.new, ledger_id)


def test_a_wrong_password_opens_nothing(two: Two, ledger_id: int) -> None:
    writer = two.ledgers.create(two.old, ledger_id, password=b"secret")
    writer.addEntry(0, b"1")
    writer.close()
    with two.copier() as copier:
        result = copier.copy(ledger_id)
    assert result.outcome is CopyOutcome.SOURCE_UNREADABLE
    assert "UnauthorizedAccess" in result.detail
    assert not two.exists(two.new, ledger_id)


@pytest.mark.long
def test_a_large_ledger_needs_little_memory(two: Two, ledger_id: int, tmp_path: Path) -> None:
    entries = [b"s" * 10] * 20 + [secrets.token_bytes(MEBIBYTE) for _ in range(40)]
    two.ledgers.write(two.old, ledger_id, entries)
    jvm = BookKeeperJvm(find_java(), two.jars, tmp_path, heap_mebibytes=32)
    source, target = two.cluster(two.old), two.cluster(two.new)
    copier = LedgerCopier(jvm, source, target, two.journal(), timeout=TIMEOUT, window_bytes=2 * MEBIBYTE)
    try:
        result = copier.copy(ledger_id)
    finally:
        copier.close()
        jvm.close()
    assert result.outcome is CopyOutcome.COPIED, result
    assert two.ledgers.read(two.new, ledger_id) == entries


@pytest.mark.long  # varies `test_ledgers_are_copied_byte_for_byte`
def test_a_limit_holds_over_all_ledgers_that_are_copied_at_once(two: Two) -> None:
    ids, size, limit = [next(_ids) for _ in range(7)], 50_000, 100_000
    for each in ids:
        two.ledgers.write(two.old, each, [secrets.token_bytes(size // 5) for _ in range(5)])
    with two.copier() as copier:
        assert copier.copy(ids.pop()).outcome is CopyOutcome.COPIED, "JVM and clients have started"
        copier.limit(limit)
        began = time.monotonic()
        outcomes = {result.outcome for result in copy_all(copier, ids[:4])}
        limited_seconds = time.monotonic() - began
        copier.limit(0)
        began = time.monotonic()
        outcomes |= {result.outcome for result in copy_all(copier, ids[4:])}
        free_seconds = time.monotonic() - began
    print(f"4 ledgers at {limit} B/s: {limited_seconds:.1f} s, 2 without a limit: {free_seconds:.1f} s")  # noqa: T201
    assert outcomes == {CopyOutcome.COPIED}
    assert limited_seconds >= 3 * size / limit, "the last one is written as soon as those before it were paid for"


# --- deleting


def test_the_old_ledger_is_deleted_once_it_was_copied_and_again_counts_as_deleted(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"])
    with two.copier() as copier:
        assert copier.copy(ledger_id).outcome is CopyOutcome.COPIED
        assert copier.delete(ledger_id, own=False).outcome is CopyOutcome.DELETED
        assert copier.delete(ledger_id, own=False).outcome is CopyOutcome.DELETED
    assert not two.exists(two.old, ledger_id)
    assert two.ledgers.read(two.new, ledger_id) == [b"1"]


def test_another_ledger_under_the_old_id_is_not_deleted(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"])
    with two.copier() as copier:
        copier.copy(ledger_id)
        copier.delete(ledger_id, own=False)
        two.ledgers.write(two.old, ledger_id, [b"2"])  # of the same length
        assert copier.delete(ledger_id, own=False).outcome is CopyOutcome.REFUSED
    assert two.exists(two.old, ledger_id)


def test_our_copy_is_deleted_once_and_then_forgotten(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"])
    with two.copier() as copier:
        copier.copy(ledger_id)
        assert copier.delete(ledger_id, own=True).outcome is CopyOutcome.DELETED
        assert copier.delete(ledger_id, own=True).outcome is CopyOutcome.NOT_RECORDED
        two.ledgers.write(two.new, ledger_id, [b"1"])
        assert copier.copy(ledger_id).outcome is CopyOutcome.FOREIGN_CONFLICT


# --- under a new id

under_new_ids = pytest.mark.usefixtures("past_taken_ids")


@pytest.fixture
def past_taken_ids(two: Two) -> None:
    """Other tests choose ids themselves, so that the target's generator is behind: it goes on beyond those."""
    two.ledgers.make(two.new, [])


def new_id_of(result: CopyResult) -> int:
    assert result.outcome in (CopyOutcome.COPIED, CopyOutcome.BUILT), result
    assert result.target is not None
    return result.target.ledger_id


def foreign(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.new, ledger_id, [b"else"], {PROVENANCE: b"another/token"})


@under_new_ids
def test_a_copy_under_a_new_id_is_the_same_and_the_foreign_ledger_of_the_old_id_is_not_touched(two: Two) -> None:
    ids = [next(_ids) for _ in range(6)]
    custom = {"application": b"pulsar"}
    for number, each in enumerate(ids):
        two.ledgers.write(two.old, each, some_entries(number), custom)
        foreign(two, each)
    before = {each: two.znode(two.new, each) for each in ids}
    with two.copier() as copier:
        results = {each: copier.copy(each, new_id=True) for each in ids}
        again = {each: copier.copy(each, new_id=True) for each in ids}
    given = {each: new_id_of(result) for each, result in results.items()}
    assert {result.outcome for result in results.values()} == {CopyOutcome.COPIED}
    assert {each: (result.outcome, new_id_of(result)) for each, result in again.items()} == {
        each: (CopyOutcome.BUILT, made) for each, made in given.items()
    }
    follows = two.ledgers.make(two.new, [])
    assert sorted({*given.values(), follows}) == list(range(min(given.values()), follows + 1)), "from its generator"
    for each, made in given.items():
        assert two.ledgers.read(two.new, made) == two.ledgers.read(two.old, each)
        copied = two.ledgers.custom_metadata(two.new, made)
        assert copied.pop(PROVENANCE).startswith(two.cluster(two.old).instance_id.encode() + b"/")
        assert copied == custom
    assert {each: two.znode(two.new, each) for each in ids} == before


@under_new_ids
def test_a_new_id_is_one_of_those_that_an_advanced_generator_gives(two: Two) -> None:
    first, second = next(_ids), next(_ids)
    for each in (first, second):
        two.ledgers.write(two.old, each, [b"1"])
    with two.copier() as copier, two.zookeeper.client() as client:
        assert new_id_of(copier.copy(first, new_id=True)) < 2**31
        client.ensure_path("/" + two.new.partition("/")[2] + "/ledgers/idgen-long/HOB-0000000003")
        try:
            assert new_id_of(copier.copy(second, new_id=True)) >> 32 == 3, "by the same client"
        finally:
            client.delete("/" + two.new.partition("/")[2] + "/ledgers/idgen-long", recursive=True)


@under_new_ids
def test_our_copy_under_a_new_id_is_deleted_and_nothing_else_is(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"])
    foreign(two, ledger_id)
    with two.copier() as copier:
        made = new_id_of(copier.copy(ledger_id, new_id=True))
        assert copier.delete(ledger_id, own=True).outcome is CopyOutcome.DELETED
        assert copier.delete(ledger_id, own=True).outcome is CopyOutcome.NOT_RECORDED
        assert (two.exists(two.new, made), two.exists(two.new, ledger_id)) == (False, True)
        assert new_id_of(copier.copy(ledger_id, new_id=True)) > made, "no id is given twice"
        assert copier.delete(ledger_id, own=False).outcome is CopyOutcome.DELETED
    assert not two.exists(two.old, ledger_id)
    assert two.ledgers.read(two.new, ledger_id) == [b"else"]


@under_new_ids
def test_a_new_id_that_others_took_is_left_to_them_and_another_one_is_drawn(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"])
    taken = next(_ids)
    two.journal().intend(ledger_id, taken)
    foreign(two, taken)
    with two.copier() as copier:
        assert copier.copy(ledger_id, new_id=True).outcome is CopyOutcome.FAILED
        assert new_id_of(copier.copy(ledger_id, new_id=True)) != taken
    assert two.ledgers.read(two.new, taken) == [b"else"]
