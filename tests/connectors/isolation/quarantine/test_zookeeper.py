"""ZooKeeper's answers to a look and a write, each as what it means to the actuator."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError

from connectors.actuation.order_worker import ActionError, UnknownOutcomeError
from connectors.isolation import groups
from connectors.isolation.groups import MAX_RACKS_BYTES, ConflictError, ZooKeeperRacks
from connectors.zookeeper.session import NotConnectedError
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.units import UserError

RACKS = b'{"default":{"bk1:3181":{"rack":"/r1"}}}'


class Answer:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def get(self, timeout: float) -> Any:
        assert 0 <= timeout <= 5.0
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Client:
    """Gives fixed answers; keeps what was asked."""

    def __init__(self) -> None:
        self.content: Any = (RACKS, SimpleNamespace(version=7, mtime=1_000))
        self.registration: Any = SimpleNamespace(ephemeralOwner=-1, czxid=14, ctime=500)
        self.written: Any = SimpleNamespace(mtime=2_000)
        self.asked: list[tuple[Any, ...]] = []

    def sync_async(self, path: str) -> Answer:
        self.asked.append(("sync", path))
        return Answer(path)

    def get_async(self, path: str) -> Answer:
        self.asked.append(("get", path))
        return Answer(self.content)

    def exists_async(self, path: str) -> Answer:
        self.asked.append(("exists", path))
        return Answer(self.registration)

    def get_children_async(self, path: str) -> Answer:
        self.asked.append(("children", path))
        return Answer(["bk1:3181", "readonly"])

    def set_async(self, path: str, content: bytes, version: int) -> Answer:
        self.asked.append(("set", path, version))
        return Answer(self.written)


class Sessions:
    """Counts the sessions that were opened and closed."""

    def __init__(self) -> None:
        self.only = Client()
        self.refusal: Exception | None = None
        self.opened = self.closed = 0

    def __call__(self, cluster: str, connection: ZooKeeperConnection) -> "Sessions":
        self.opened += 1
        return self

    def client(self) -> Client:
        if self.refusal is not None:
            raise self.refusal
        return self.only

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    sessions = Sessions()
    monkeypatch.setattr(groups, "ZooKeeperSession", sessions)
    return sessions


@pytest.fixture
def racks(sessions: Sessions) -> ZooKeeperRacks:
    connection = ZooKeeperConnection.model_validate({"servers": "zk:2181/pulsar"})
    return ZooKeeperRacks("messaging", connection, ledgers_root="/bk/ledgers")


def test_the_registration_is_read_after_the_groups_and_the_write_counts_on_their_version(
    racks: ZooKeeperRacks, sessions: Sessions
) -> None:
    snapshot = racks.read_groups("bk11:3181")
    assert snapshot.write("g", "/g").timestamp() == 2.0
    assert sessions.only.asked == [
        ("sync", "/bookies"),
        ("get", "/bookies"),
        ("children", "/bk/ledgers/available"),
        ("exists", "/bk/ledgers/available/bk11:3181"),
        ("set", "/bookies", 7),
    ]
    assert snapshot.writable == {"bk1:3181"}
    registration = snapshot.registration
    assert registration is not None
    assert (registration.session, registration.czxid) == ("0xffffffffffffffff", 14)
    assert registration.registered_at is not None
    assert registration.registered_at.timestamp() == 0.5
    assert snapshot.changed_at.timestamp() == 1.0


@pytest.mark.parametrize(
    "stat", [None, SimpleNamespace(ephemeralOwner=0, czxid=1, ctime=1)], ids=["absent", "no owner"]
)
def test_what_no_session_owns_is_no_registration(racks: ZooKeeperRacks, sessions: Sessions, stat: Any) -> None:
    sessions.only.registration = stat
    assert racks.read_groups("readonly").registration is None


@pytest.mark.parametrize(
    ("error", "kind", "is_closed"),
    [
        (exceptions.BadVersionError(), ConflictError, False),
        (exceptions.NoNodeError(), ConflictError, False),
        (exceptions.ConnectionLoss(), UnknownOutcomeError, True),
        (exceptions.ConnectionClosedError(), UnknownOutcomeError, True),
        (exceptions.SessionExpiredError(), UnknownOutcomeError, True),
        (exceptions.OperationTimeoutError(), UnknownOutcomeError, True),
        (KazooTimeoutError(), UnknownOutcomeError, True),
        (exceptions.NoAuthError(), ActionError, False),
        (exceptions.NotReadOnlyCallError(), ActionError, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_an_answer_to_a_write_means(
    racks: ZooKeeperRacks, sessions: Sessions, error: Exception, kind: type[Exception], is_closed: bool
) -> None:
    snapshot = racks.read_groups("bk11:3181")
    sessions.only.written = error
    with pytest.raises(ActionError) as raised:
        snapshot.write("g", "/g")
    assert type(raised.value) is kind
    # A request that still waits to be sent must not be sent later.
    assert sessions.closed == is_closed
    racks.read_groups("bk11:3181")
    assert sessions.opened == 1 + is_closed


@pytest.mark.parametrize(
    ("harm", "why", "is_closed"),
    [
        (lambda s: setattr(s.only, "content", exceptions.NoNodeError()), "there is no znode /bookies: give", False),
        (lambda s: setattr(s.only, "content", (b"[]", s.only.content[1])), "is not as Pulsar writes it", False),
        (lambda s: setattr(s.only, "content", exceptions.ConnectionLoss()), "the connection was lost", True),
        (lambda s: setattr(s.only, "registration", KazooTimeoutError()), "no answer in time", True),
        (lambda s: setattr(s, "refusal", NotConnectedError({"zk:2181": OSError(111, "refused")})), "refused", True),
        (lambda s: setattr(s, "refusal", UserError("password_file: /x is empty.")), "/x is empty", True),
    ],
    ids=["absent", "malformed", "lost", "silent", "not connected", "a file"],
)
def test_why_a_look_fails_is_said(
    racks: ZooKeeperRacks, sessions: Sessions, harm: Callable[[Sessions], None], why: str, is_closed: bool
) -> None:
    harm(sessions)
    with pytest.raises(ActionError, match=why):
        racks.read_groups("bk11:3181")
    assert sessions.closed == is_closed


@pytest.mark.parametrize(("room", "fits"), [(0, True), (-1, False)])
def test_no_more_is_written_than_a_znode_may_have(
    racks: ZooKeeperRacks, sessions: Sessions, room: int, fits: bool
) -> None:
    frame, entry = b'{"a":{"b":{"x":""}}}', b',"g":{"c:1":{"rack":"/g","hostname":"c"}}'
    filling = b"y" * (MAX_RACKS_BYTES - len(frame) - len(entry) - room)
    sessions.only.content = (frame.replace(b'""', b'"' + filling + b'"'), sessions.only.content[1])
    write = racks.read_groups("c:1").write
    if fits:
        write("g", "/g")
    else:
        with pytest.raises(ActionError, match=f"would have {MAX_RACKS_BYTES + 1} bytes"):
            write("g", "/g")
    assert (("set", "/bookies", 7) in sessions.only.asked) == fits
