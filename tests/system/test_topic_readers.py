"""Topics read by several processes: the same is found, and what goes wrong in one is said by all."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from connectors.pulsar import referrers
from connectors.pulsar.referrers import Inventory, read_references
from connectors.pulsar.topics import TopicReaders
from connectors.zookeeper.session import Reader, UnreadError, ZooKeeperConnection, ZooKeeperSession, outcome_of
from policies.observations import Outcome
from tests.connectors.pulsar.znodes import cursor_info, delayed_info, topic_info
from tests.system.processes import command_line, descendants
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper

TOPICS = "/managed-ledgers/t/n/persistent"


@pytest.fixture
def connection(zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> ZooKeeperConnection:
    """To a small tree, of which a few topics are very many."""
    monkeypatch.setattr(referrers, "SHARED_FROM", 4)
    monkeypatch.setattr(referrers, "_TOPICS_A_PIECE", 3)
    chroot = f"/{uuid4().hex[:8]}"
    with zookeeper.client() as client:
        for number in range(10):
            topic = f"{chroot}{TOPICS}/topic-{number}"
            client.create(topic, topic_info(3 * number, attribution="new" if number % 2 else None), makepath=True)
            client.create(f"{topic}/s1", cursor_info(3 * number + 1))
            client.create(f"{topic}/s2", delayed_info(3 * number + 2, 100 + number))
        client.create(f"{chroot}{TOPICS}/damaged", b"\xff")
    return ZooKeeperConnection(servers=f"{zookeeper.servers}{chroot}")


@contextmanager
def reader_of(connection: ZooKeeperConnection, seconds: float = 60.0) -> Iterator[Reader]:
    session, until = ZooKeeperSession("c1", connection), time.monotonic() + seconds
    try:
        yield session.reader(lambda: until - time.monotonic())
    finally:
        session.close()


def sorted_references(found: Inventory) -> list[tuple[str, int]]:
    return sorted((each.path, each.ledger_id) for each in found.references)


def helpers_running() -> int:
    pids = descendants(int(Path("/proc/self").readlink().name))
    return sum(b"connectors.pulsar.topics" in command_line(pid) for pid in pids)


def test_several_processes_find_what_one_finds(connection: ZooKeeperConnection) -> None:
    left_out = [f"{TOPICS}/topic-7", f"{TOPICS}/topic-8/s1"]
    with reader_of(connection) as reader:
        alone, asked = read_references(reader, left_out), reader.requests
        shared = read_references(reader, left_out, TopicReaders(connection, left_out, 2).read)
    assert sorted_references(shared) == sorted_references(alone)
    assert len(shared.references) == 17
    assert sorted(shared.problems) == sorted(alone.problems)
    assert len(shared.problems) == 1
    assert sorted(shared.left_out) == sorted(left_out)
    nowhere = {"old": set(range(200))}
    assert shared.staying("old", lambda _: nowhere) == alone.staying("old", lambda _: nowhere)
    assert reader.requests - asked < asked / 2, "the topics were read by others"
    assert helpers_running() == 0


def test_what_one_cannot_read_is_unread(connection: ZooKeeperConnection) -> None:
    nowhere = ZooKeeperConnection(servers="127.0.0.1:1", timeout="1s")
    with reader_of(connection) as reader, pytest.raises(UnreadError) as raised:
        read_references(reader, (), TopicReaders(nowhere, (), 2).read)
    assert outcome_of(raised.value) in (Outcome.UNREACHABLE, Outcome.TIMEOUT)
    assert "127.0.0.1:1" in str(raised.value.cause)
    assert helpers_running() == 0


def test_one_that_dies_ends_the_reading(connection: ZooKeeperConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.pulsar.topics._MODULE", "no.such.module")
    with reader_of(connection) as reader, pytest.raises(UnreadError, match="topics"):
        read_references(reader, (), TopicReaders(connection, (), 2).read)
    eventually("all have ended", lambda: helpers_running() == 0 or None)
