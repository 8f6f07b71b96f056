"""The nodes that stand for ownership: what a read tells, and that no write hits another's node."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from connectors.sessions.agent.nodes import ClientNodes, LostRaceError, NodeRead, NoZooKeeperAnswerError
from policies.sessions.judge.ownership_table import NodeNow

PATH = "/namespace/t/ns/0x00000000_0xffffffff"
MINE = "0x1"
VALUE = b'{"brokerId": "b1:8080"}'
NO_ANSWER: list[Exception] = [ConnectionLoss(), SessionExpiredError(), KazooTimeoutError()]


def stat(owner: int, version: int = 3) -> ZnodeStat:
    return ZnodeStat(1, 1, 0, 0, version, 0, 0, owner, len(VALUE), 0, 1)


class Result:
    """What stands for kazoo's result to come."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self, timeout: float) -> Any:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class Client:
    """What stands for kazoo's client: it answers as it is told, and notes what was asked."""

    client_id = (1, b"")

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.asked: list[tuple[Any, ...]] = []

    def transaction(self) -> "Client":
        return self

    def delete(self, path: str, version: int) -> None:
        self.asked.append(("delete in one", path, version))

    def create(self, path: str, value: bytes, *, ephemeral: bool) -> None:
        self.asked.append(("create in one", path, value, ephemeral))

    def __getattr__(self, name: str) -> Callable[..., Result]:
        def ask(*arguments: Any, **options: Any) -> Result:
            self.asked.append((name, *arguments, *options.values()))
            return Result(self._answers[name])

        return ask


def nodes(client: Client) -> ClientNodes:
    return ClientNodes(cast("KazooClient", client), lambda: 1.0)


def read(**answers: Any) -> NodeRead:
    return nodes(Client(**answers)).read([PATH], lambda _: None)[PATH]


def test_a_node_tells_its_owner_its_session_and_its_version() -> None:
    found = read(get_async=(VALUE, stat(owner=1)), exists_async=stat(owner=1))
    assert found == NodeRead(NodeNow(exists=True, ephemeral=True, owner="b1:8080", session="0x1", version=3))


def test_a_node_that_stays_has_no_session() -> None:
    found = read(get_async=(VALUE, stat(owner=0)), exists_async=stat(owner=0))
    assert found.node == NodeNow(exists=True, ephemeral=False, owner="b1:8080", session=None, version=3)


@pytest.mark.parametrize(
    ("exists", "found"),
    [
        (None, NodeRead(NodeNow(exists=False))),
        (stat(owner=2), NodeRead(None, "it was created just now")),
        (NoAuthError(), NodeRead(None, "NoAuthError")),
    ],
    ids=["absent", "created between the two requests", "not allowed"],
)
def test_a_node_that_is_not_there_is_absent_only_when_both_requests_say_so(exists: Any, found: NodeRead) -> None:
    assert read(get_async=NoNodeError(), exists_async=exists) == found


def test_what_may_not_be_read_is_not_taken_for_absent() -> None:
    assert read(get_async=NoAuthError(), exists_async=None) == NodeRead(None, "NoAuthError")


@pytest.mark.parametrize("failure", NO_ANSWER)
def test_without_a_connection_nothing_is_known(failure: Exception) -> None:
    with pytest.raises(NoZooKeeperAnswerError):
        read(get_async=failure, exists_async=failure)


def test_a_node_is_made_for_as_long_as_the_session_lives() -> None:
    client = Client(create_async=PATH)
    nodes(client).create(PATH, VALUE, MINE)
    assert client.asked == [("create_async", PATH, VALUE, True, True)]


def test_only_the_version_that_was_read_is_deleted() -> None:
    client = Client(delete_async=None)
    nodes(client).delete(PATH, 3, MINE)
    assert client.asked == [("delete_async", PATH, 3)]


def test_a_node_is_replaced_in_one_transaction() -> None:
    client = Client(commit_async=[True, PATH])
    nodes(client).replace(PATH, VALUE, 3, MINE)
    assert client.asked == [("delete in one", PATH, 3), ("create in one", PATH, VALUE, True), ("commit_async",)]


@pytest.mark.parametrize(
    ("results", "error"),
    [
        ([BadVersionError(), RuntimeInconsistency()], LostRaceError),
        ([RolledBackError(), NodeExistsError()], LostRaceError),
        ([NoNodeError(), RuntimeInconsistency()], NoZooKeeperAnswerError),
        ([NoAuthError(), RuntimeInconsistency()], NoAuthError),
    ],
    ids=["changed since", "another was faster", "it went by itself", "not allowed"],
)
def test_a_replacement_that_failed_says_why(results: list[Exception], error: type[Exception]) -> None:
    with pytest.raises(error):
        nodes(Client(commit_async=results)).replace(PATH, VALUE, 3, MINE)


WRITES: list[Callable[[ClientNodes, str], None]] = [
    lambda n, session: n.create(PATH, VALUE, session),
    lambda n, session: n.replace(PATH, VALUE, 3, session),
    lambda n, session: n.delete(PATH, 3, session),
]


@pytest.mark.parametrize("write", WRITES, ids=["create", "replace", "delete"])
def test_nothing_is_written_for_another_session_than_the_one_it_was_decided_for(
    write: Callable[[ClientNodes, str], None],
) -> None:
    client = Client()
    with pytest.raises(NoZooKeeperAnswerError):
        write(nodes(client), "0x2")
    assert client.asked == []


@pytest.mark.parametrize("write", WRITES, ids=["create", "replace", "delete"])
@pytest.mark.parametrize("failure", NO_ANSWER)
def test_a_write_without_an_answer_may_have_been_done(
    write: Callable[[ClientNodes, str], None], failure: Exception
) -> None:
    with pytest.raises(NoZooKeeperAnswerError):
        write(nodes(Client(create_async=failure, commit_async=failure, delete_async=failure)), MINE)
