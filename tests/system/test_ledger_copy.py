"""Ledgers copied between two real BookKeeper clusters, and everything that may befall a copy on its way."""

import os
import re
import secrets
import signal
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from connectors.bookkeeper import gateway
from connectors.bookkeeper.copier import CONCURRENCY, CopyResult, LedgerCopier
from connectors.bookkeeper.copy_journal import PROVENANCE, CopyJournal
from connectors.bookkeeper.gateway import BookKeeperJvm
from connectors.switching.reconciler import REQUESTED_COPIES
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.java.jvm import find_java
from tests.connectors.bookkeeper.copies import COPIED, DELETED, EXISTS, FOREIGN, PARTIAL, UNRECORDED, end, word
from tests.system.processes import freeze
from tests.system.switching import NEW, OLD, Clusters
from tests.system.waiting import eventually

TIMEOUT = timedelta(hours=1)
"""No test waits until it ends."""
MEBIBYTE = 1024 * 1024
BORDERS = (2**31 - 2, 2**31 - 1, 2**31, 2**31 + 7, 2**32 - 1, 2**32, 2**32 + 9, 2**63 - 1)
"""Ids around which the layout of metadata, or the type of a number, changes."""


def copy_all(copier: LedgerCopier, ledger_ids: Iterable[int]) -> list[CopyResult]:
    """Copy ledgers as the executor of a switch does: each on a thread, more of them than are copied at once."""
    with ThreadPoolExecutor(REQUESTED_COPIES * CONCURRENCY, thread_name_prefix="ledgers") as pool:
        return list(pool.map(copier.copy, ledger_ids))


def copy(copier: LedgerCopier, ledger_id: int, *, new_id: bool = False) -> str:
    return end(lambda: copier.copy(ledger_id, new_id=new_id))


def delete(copier: LedgerCopier, ledger_id: int, *, own: bool = False) -> str:
    return end(lambda: copier.delete(ledger_id, own=own))


class Two(Clusters):
    """Two clusters, and what copies from the one to the other."""

    bookie_session_ms = 3_000  # a bookie that was killed comes back

    def __init__(self, folder: Path, jars: tuple[Path, ...]) -> None:
        super().__init__(folder, jars)
        self.jars = jars
        self.old, self.new = self.servers(OLD), self.servers(NEW)
        self.jvm = BookKeeperJvm(find_java(), jars, folder / "jvm", heap_mebibytes=64)
        self.session = ZooKeeperSession("journal", ZooKeeperConnection(servers=self.zookeeper.servers))

    def __exit__(self, *error: object) -> None:
        self.session.close()
        self.jvm.close()
        super().__exit__(*error)

    def instance(self, name: str) -> str:
        with self.zookeeper.client(chroot=f"/{name}") as client:
            return str(client.get("/ledgers/INSTANCEID")[0].decode())

    def uris(self) -> tuple[str, str]:
        return f"zk+hierarchical://{self.old}/ledgers", f"zk+hierarchical://{self.new}/ledgers"

    @contextmanager
    def copier(self, **options: Any) -> Iterator[LedgerCopier]:
        """A copier in the JVM of all; one with other options than those before it needs a new JVM."""
        if options:
            self.jvm.close()
        yield LedgerCopier(self.jvm, self.journal(), *self.uris(), **{"timeout": TIMEOUT, **options})
        if options:
            self.jvm.close()

    def journal(self) -> CopyJournal:
        return CopyJournal(self.session, source=self.instance(OLD), target=self.instance(NEW))

    def exists(self, name: str, ledger_id: int) -> bool:
        return bool(self.ledger_ids(name, [ledger_id]))


@pytest.fixture(scope="module")
def two(bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    two = Two(tmp_path_factory.mktemp("two-clusters"), bookkeeper_jars)
    with two:
        yield two


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


def test_ledgers_are_copied_byte_for_byte_and_the_source_is_not_touched(two: Two) -> None:
    ids = (*BORDERS, *range(100, 124), 0)
    custom = {"application": b"pulsar", "pulsar/cursor": b"\x00\xffbinary"}
    for number, each in enumerate(ids):
        two.ledgers.write(two.old, each, some_entries(number), custom)
    before = two.tree(f"/{OLD}")

    with two.copier() as copier:
        results = copy_all(copier, ids)
        again = set(map(word, copy_all(copier, ids)))

    assert {end(lambda each=each: each) for each in results} == {COPIED}  # type: ignore[misc]
    assert [result.source and result.source.ledger_id for result in results] == list(ids)
    assert two.tree(f"/{OLD}") == before
    for number, each in enumerate(ids):
        entries = two.ledgers.read(two.old, each)
        assert two.ledgers.read(two.new, each) == entries
        assert len(entries) == len(some_entries(number))
        copied = two.ledgers.custom_metadata(two.new, each)
        assert copied.pop(PROVENANCE).startswith(two.instance(OLD).encode() + b"/")
        assert copied == custom
    assert again == {EXISTS}
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
    with two.copier() as copier:
        result = copier.copy(ledger_id)
        assert "not the journalled one" in delete(copier, ledger_id, own=True)
        same = next(_ids)
        for servers, custom in ((two.old, {}), (two.new, {PROVENANCE: b"another/token"})):
            two.ledgers.write(servers, same, [b"same"], custom)
        assert copy(copier, same) == FOREIGN, "we did not make it"
    assert not result.is_ours
    assert result.target is not None
    assert (result.target.length_bytes, result.target.last_entry_id) == (4, 0)
    assert two.ledgers.read(two.new, ledger_id) == [b"else"]


def test_an_open_ledger_is_not_copied_and_its_writer_goes_on(two: Two, ledger_id: int) -> None:
    writer = two.ledgers.create(two.old, ledger_id)
    writer.addEntry(0, b"before")
    with two.copier() as copier:
        assert "still written to" in copy(copier, ledger_id)
        assert not two.exists(NEW, ledger_id)
        writer.addEntry(1, b"after")
        writer.close()
        assert copy(copier, ledger_id) == COPIED
    assert two.ledgers.read(two.new, ledger_id) == [b"before", b"after"]


# --- killed on the way


def test_killed_while_writing_the_partial_copy_is_known_as_ours_and_made_again(two: Two, ledger_id: int) -> None:
    entries = [secrets.token_bytes(10_000) for _ in range(20)]
    two.ledgers.write(two.old, ledger_id, entries)
    with two.copier(window_bytes=20_000) as copier, ThreadPoolExecutor(1) as pool:
        two.ledgers.write(two.old, warm := next(_ids), [b"1"])
        assert copy(copier, warm) == COPIED, "a frozen bookie loses its session before a JVM starts"
        with two.bookies[NEW].frozen():
            copying = pool.submit(copy, copier, ledger_id)
            eventually("the copy exists", lambda: two.exists(NEW, ledger_id))
            assert two.jvm.pid is not None
            os.kill(two.jvm.pid, signal.SIGKILL)
            assert "the JVM of the BookKeeper client is gone" in copying.result()
        assert delete(copier, ledger_id) == UNRECORDED
        assert copy(copier, ledger_id) == PARTIAL
        assert delete(copier, ledger_id, own=True) == DELETED
        assert not two.exists(NEW, ledger_id)
        assert copy(copier, ledger_id) == COPIED
    assert two.ledgers.read(two.new, ledger_id) == entries


@pytest.mark.long  # varies `test_killed_while_writing`
@pytest.mark.parametrize("others", [[b"1"], [b"1", b"23"], [b"12", b"4"]], ids=["fewer", "borders", "content"])
def test_a_copy_of_ours_with_other_entries_is_partial(two: Two, ledger_id: int, others: list[bytes]) -> None:
    two.ledgers.write(two.old, ledger_id, [b"12", b"3"])
    record = two.journal().intend(ledger_id)
    two.ledgers.write(two.new, ledger_id, others, {PROVENANCE: record.provenance.encode()})
    with two.copier() as copier:
        assert copy(copier, ledger_id) == PARTIAL


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
        assert "it hangs" in copy(copier, ledger_id)
        assert not Path(f"/proc/{pid}").exists()
        assert copy(copier, ledger_id) == EXISTS


# --- what is down


def test_a_source_whose_bookie_is_dead_is_unreadable(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"])
    two.bookies[OLD].kill()
    try:
        with two.copier() as copier:
            assert copy(copier, ledger_id).startswith("unreadable")
    finally:
        two.bookies[OLD].start()
    with two.copier(timeout=TIMEOUT) as copier:  # a client anew: the one before avoids the bookie for a while
        copier.delete(ledger_id, own=True)
        assert copy(copier, ledger_id) == COPIED


def test_a_ledger_that_is_gone_or_has_another_password_is_unreadable(two: Two, ledger_id: int) -> None:
    with two.copier() as copier:
        assert copy(copier, ledger_id).startswith("unreadable")
        writer = two.ledgers.create(two.old, ledger_id, password=b"secret")
        writer.addEntry(0, b"1")
        writer.close()
        assert re.match("unreadable.*UnauthorizedAccess", copy(copier, ledger_id))
    assert not two.exists(NEW, ledger_id)


@pytest.mark.long
def test_a_large_ledger_needs_little_memory(two: Two, ledger_id: int, tmp_path: Path) -> None:
    entries = [b"s" * 10] * 20 + [secrets.token_bytes(MEBIBYTE) for _ in range(40)]
    two.ledgers.write(two.old, ledger_id, entries)
    jvm = BookKeeperJvm(find_java(), two.jars, tmp_path, heap_mebibytes=32)
    copier = LedgerCopier(jvm, two.journal(), *two.uris(), timeout=TIMEOUT, window_bytes=2 * MEBIBYTE)
    try:
        assert copy(copier, ledger_id) == COPIED
    finally:
        jvm.close()
    assert two.ledgers.read(two.new, ledger_id) == entries


@pytest.mark.long  # varies `test_ledgers_are_copied_byte_for_byte`
def test_a_limit_holds_over_all_ledgers_that_are_copied_at_once(two: Two) -> None:
    ids, size, limit = [next(_ids) for _ in range(7)], 50_000, 100_000
    for each in ids:
        two.ledgers.write(two.old, each, [secrets.token_bytes(size // 5) for _ in range(5)])
    with two.copier() as copier:
        assert copy(copier, ids.pop()) == COPIED, "JVM and clients have started"
        two.jvm.limit(limit)
        began = time.monotonic()
        results = copy_all(copier, ids[:4])
        limited_seconds = time.monotonic() - began
        two.jvm.limit(0)
        began = time.monotonic()
        results += copy_all(copier, ids[4:])
        free_seconds = time.monotonic() - began
    print(f"4 ledgers at {limit} B/s: {limited_seconds:.1f} s, 2 without a limit: {free_seconds:.1f} s")  # noqa: T201
    assert all(result.is_equal for result in results)
    assert limited_seconds >= 3 * size / limit, "the last one is written as soon as those before it were paid for"


# --- deleting


def test_only_the_old_ledger_that_was_copied_is_deleted(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"])
    with two.copier() as copier:
        assert copy(copier, ledger_id) == COPIED
        assert delete(copier, ledger_id) == DELETED
        assert not two.exists(OLD, ledger_id)
        assert delete(copier, ledger_id) == DELETED, "it was gone before"
        two.ledgers.write(two.old, ledger_id, [b"2"])  # of the same length
        assert "not the journalled one" in delete(copier, ledger_id)
    assert two.exists(OLD, ledger_id)
    assert two.ledgers.read(two.new, ledger_id) == [b"1"]


# --- under a new id

under_new_ids = pytest.mark.usefixtures("past_taken_ids")


@pytest.fixture
def past_taken_ids(two: Two) -> None:
    """Other tests choose ids themselves, so that the target's generator is behind: it goes on beyond those."""
    two.ledgers.make(two.new, [])


def new_id_of(result: CopyResult) -> int:
    assert result.is_equal
    assert result.target is not None
    return result.target.ledger_id


def foreign(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.new, ledger_id, [b"else"], {PROVENANCE: b"another/token"})


@under_new_ids
def test_a_new_id_is_one_of_those_that_an_advanced_generator_gives(two: Two) -> None:
    first, second = next(_ids), next(_ids)
    for each in (first, second):
        two.ledgers.write(two.old, each, [b"1"])
    with two.copier() as copier, two.zookeeper.client() as client:
        assert new_id_of(copier.copy(first, new_id=True)) < 2**31
        client.ensure_path(f"/{NEW}/ledgers/idgen-long/HOB-0000000003")
        try:
            assert new_id_of(copier.copy(second, new_id=True)) >> 32 == 3, "by the same client"
        finally:
            client.delete(f"/{NEW}/ledgers/idgen-long", recursive=True)


@under_new_ids
def test_a_copy_under_a_new_id_leaves_the_foreign_ledger_of_the_old_id_alone(two: Two, ledger_id: int) -> None:
    two.ledgers.write(two.old, ledger_id, [b"1"], custom := {"application": b"pulsar"})
    two.ledgers.write(two.new, ledger_id, [b"else"], {PROVENANCE: b"another/token"})
    with two.copier() as copier:
        made = new_id_of(copier.copy(ledger_id, new_id=True))
        assert new_id_of(copier.copy(ledger_id, new_id=True)) == made, "it is drawn once"
        assert two.ledgers.make(two.new, []) == made + 1, "from its generator"
        assert two.ledgers.read(two.new, made) == [b"1"]
        copied = two.ledgers.custom_metadata(two.new, made)
        assert copied.pop(PROVENANCE).startswith(two.instance(OLD).encode() + b"/")
        assert copied == custom
        assert delete(copier, ledger_id, own=True) == DELETED
        assert delete(copier, ledger_id, own=True) == UNRECORDED
        assert (two.exists(NEW, made), two.exists(NEW, ledger_id)) == (False, True)
        assert new_id_of(copier.copy(ledger_id, new_id=True)) > made, "no id is given twice"
        assert delete(copier, ledger_id) == DELETED
    assert not two.exists(OLD, ledger_id)
    assert two.ledgers.read(two.new, ledger_id) == [b"else"]
