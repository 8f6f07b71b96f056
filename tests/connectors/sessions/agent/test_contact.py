"""When a server last heard from this client: only an answer to a request of the same session counts."""

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from connectors.sessions.agent.contact import Heartbeat, NegotiatedTimeout, boot_seconds, read_session

TIMEOUT_MS = 6_000
A_DAY_MS = 86_400_000
HANGS_SECONDS = 60


class Connection:
    """What stands for kazoo's connection handler."""

    def _connect(self, *_: Any) -> tuple[float, float]:
        return 4_000.0, 1_000.0


@dataclass
class Client:
    """What stands for kazoo's client, as far as a heartbeat uses one."""

    client_id: tuple[int, bytes] | None = (1, b"")
    failure: Exception | None = None
    becomes: tuple[int, bytes] | None = None
    """The session it has by the time the answer is there."""
    asked: list[str] = field(default_factory=list)
    beats: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """One more for each request."""
    _session_timeout: float = TIMEOUT_MS
    _connection: Connection = field(default_factory=Connection)

    def exists_async(self, path: str) -> Any:
        self.asked.append(path)
        self.beats.release()
        return SimpleNamespace(get=self._answer)

    def _answer(self, timeout: float) -> None:
        if self.becomes is not None:
            self.client_id = self.becomes
        if self.failure is not None:
            raise self.failure


class Beats:
    """A heartbeat of one client, beaten by hand."""

    def __init__(self, client: Client, *, work_done: bool = True) -> None:
        self.seconds = 100.0
        self.greeted: list[str] = []
        self._work_done = work_done
        kazoo = cast("KazooClient", client)
        self.heartbeat = Heartbeat(kazoo, NegotiatedTimeout(kazoo), lambda: self.seconds, self._greet)

    def _greet(self, session: str) -> bool:
        self.greeted.append(session)
        return self._work_done

    def beat(self) -> None:
        self.heartbeat._beat()


@pytest.mark.parametrize(
    ("client_id", "session"), [(None, None), ((0, b""), None), ((0x10, b""), "0x10"), ((-1, b""), "0xffffffffffffffff")]
)
def test_a_session_is_named_as_servers_name_it(client_id: tuple[int, bytes] | None, session: str | None) -> None:
    assert read_session(cast("KazooClient", Client(client_id))) == session


def test_the_timeout_is_what_is_asked_for_until_the_server_grants_another() -> None:
    client = Client()
    timeout = NegotiatedTimeout(cast("KazooClient", client))
    assert (timeout.ms, timeout.granted) == (TIMEOUT_MS, False)
    client._connection._connect()
    assert (timeout.ms, timeout.granted) == (6_000, True)  # kazoo waits two thirds of it for an answer


def test_the_age_counts_from_the_sending_of_a_request_that_was_answered() -> None:
    beats = Beats(Client())
    assert beats.heartbeat.age_seconds("0x1") is None
    beats.beat()
    beats.seconds += 2.5
    assert beats.heartbeat.age_seconds("0x1") == 2.5


@pytest.mark.parametrize(
    "client",
    [Client(client_id=None), Client(failure=ConnectionLoss()), Client(becomes=(2, b""))],
    ids=["no session", "no answer", "another session by now"],
)
def test_nothing_else_counts(client: Client) -> None:
    beats = Beats(client)
    beats.beat()
    assert beats.heartbeat.age_seconds("0x1") is None
    assert beats.heartbeat.age_seconds("0x2") is None
    assert beats.greeted == []


def test_the_age_of_one_session_says_nothing_of_another() -> None:
    client = Client()
    beats = Beats(client)
    beats.beat()
    client.client_id = (2, b"")
    assert beats.heartbeat.age_seconds("0x2") is None


@pytest.mark.parametrize(("work_done", "greetings"), [(True, ["0x1"]), (False, ["0x1", "0x1"])])
def test_a_session_is_greeted_until_its_work_could_be_done(work_done: bool, greetings: list[str]) -> None:
    beats = Beats(Client(), work_done=work_done)
    beats.beat()
    beats.beat()
    assert beats.greeted == greetings


def test_it_beats_at_once_when_asked_and_ends_at_once() -> None:
    client = Client(_session_timeout=A_DAY_MS)
    beats = Beats(client)
    beats.heartbeat.start()
    assert client.beats.acquire(timeout=HANGS_SECONDS)
    beats.heartbeat.beat_now()
    assert client.beats.acquire(timeout=HANGS_SECONDS)
    beats.heartbeat.close()
    assert "ownership heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_one_that_never_began_can_be_closed() -> None:
    Beats(Client()).heartbeat.close()


def test_the_clock_goes_on() -> None:
    assert boot_seconds() <= boot_seconds()
