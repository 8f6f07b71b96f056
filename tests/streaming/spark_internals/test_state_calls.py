"""Calls to Spark's state as its own client makes them, to a server that answers when the test lets it."""

import gc
import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.streaming.value_state_client import ValueStateClient
from pyspark.sql.types import LongType, StringType, StructField, StructType

from streaming.spark_internals import state_calls


def put_off_calls(client: StatefulProcessorApiClient) -> state_calls.StateCalls:
    return state_calls.StateCalls(SimpleNamespace(_statefulProcessorApiClient=client))


KEYS = StructType([StructField("policy", StringType()), StructField("cluster", StringType())])
VALUES = StructType([StructField("n", LongType())])
HEAD = struct.Struct("!ii")
Message: Any = messages


class Server:
    """Spark's side of the socket: keeps one value a key, and answers nothing before it was asked for something."""

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        self.most_waiting = 0
        self.fails: str | None = None
        self.answers_at: int | None = None
        """So many at once, whether it was asked for something or not."""
        self._kept: dict[bytes, bytes] = {}
        self._key = b""
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait until the client has gone."""
        self._thread.join(10)
        self._listening.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        with connection, connection.makefile("rwb") as file:
            waiting: list[Any] = []
            while True:
                if not (head := file.read(HEAD.size)):
                    return
                version, size = HEAD.unpack(head)
                assert version == 0
                request = Message.StateRequest()
                request.ParseFromString(file.read(size))
                name, answer = self._answered(request)
                self.asked.append(name)
                waiting.append(answer)
                if name in ("get", "end") or len(waiting) == self.answers_at:
                    self.most_waiting = max(self.most_waiting, len(waiting))
                    for each in waiting:
                        file.write(struct.pack("!i", each.ByteSize()) + each.SerializeToString())
                    file.flush()
                    waiting = []

    def _answered(self, request: Any) -> tuple[str, Any]:
        key, call = request.implicitGroupingKeyRequest, request.stateVariableRequest.valueStateCall
        timer = request.statefulProcessorCall.timerStateCall
        value = b""
        if key.HasField("setImplicitKey"):
            name, self._key = "key", key.setImplicitKey.key
        elif call.HasField("get"):
            name, value = "get", self._kept.get(self._key, b"")
        elif call.HasField("valueStateUpdate"):
            name, self._kept[self._key] = "update", call.valueStateUpdate.value
        elif request.statefulProcessorCall.HasField("timerStateCall"):
            name = "register" if timer.HasField("register") else "delete"
        else:
            name = "end"
        failed = name == self.fails
        return name, Message.StateResponse(statusCode=int(failed), errorMessage="no" if failed else "", value=value)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    serving = Server(tmp_path / "state.sock")
    yield serving
    serving.close()


@pytest.fixture
def client(server: Server, tmp_path: Path) -> Iterator[StatefulProcessorApiClient]:
    connected = StatefulProcessorApiClient(str(tmp_path / "state.sock"), KEYS)
    yield connected
    if hasattr(connected, "sockfile"):  # else it was closed
        connected.sockfile.close()
        connected._client_socket.close()


def test_a_key_waits_once_whatever_it_says_and_all_is_said_in_order(
    server: Server, client: StatefulProcessorApiClient
) -> None:
    state = ValueStateClient(client, VALUES)
    update = put_off_calls(client).put_off(lambda n: state.update("state", (n,)))
    read = []
    for cluster, n in (("a", 1), ("b", 2), ("a", 3), ("b", 4)):
        client.set_implicit_key(("throttle", cluster))
        read.append(state.get("state"))
        client.delete_timer(5)
        client.register_timer(7)
        update(n)
    client.remove_implicit_key()
    assert read == [None, None, (1,), (2,)]
    assert server.asked == [*["key", "get", "delete", "register", "update"] * 4, "end"]
    assert server.most_waiting == 5
    client.set_implicit_key(("throttle", "b"))
    assert state.get("state") == (4,)


@pytest.mark.parametrize("wrong", ["key", "delete", "register", "update"])
def test_what_went_wrong_with_a_call_put_off_ends_the_batch(
    server: Server, client: StatefulProcessorApiClient, wrong: str
) -> None:
    server.fails = wrong
    state = ValueStateClient(client, VALUES)
    update = put_off_calls(client).put_off(lambda n: state.update("state", (n,)))
    client.set_implicit_key(("throttle", "a"))
    client.delete_timer(5)
    client.register_timer(7)
    update(1)
    with pytest.raises(PySparkRuntimeError, match="of an earlier call to the state: no"):
        client.remove_implicit_key()


def test_what_is_asked_for_is_given_as_without(server: Server, client: StatefulProcessorApiClient) -> None:
    put_off_calls(client)
    server.fails = "get"
    with pytest.raises(PySparkRuntimeError, match="Error getting value state: no"):
        ValueStateClient(client, VALUES).get("state")


def test_the_value_is_sent_as_spark_sends_it(server: Server, client: StatefulProcessorApiClient) -> None:
    state = ValueStateClient(client, VALUES)
    put_off_calls(client).put_off(lambda: state.update("state", (9,)))()
    client.remove_implicit_key()
    (sent,) = server._kept.values()
    assert pickle.loads(sent) == (9,)


def test_the_connection_of_a_batch_that_is_over_is_closed(server: Server, client: StatefulProcessorApiClient) -> None:
    calls = put_off_calls(client)
    client.set_implicit_key(("throttle", "a"))
    client.remove_implicit_key()
    calls.close()
    server._thread.join(10)
    assert not server._thread.is_alive(), "it read to the end"


def test_a_batch_leaves_no_cycle_a_key_behind(server: Server, tmp_path: Path) -> None:
    server.answers_at = 64

    def batch() -> None:
        client = StatefulProcessorApiClient(str(tmp_path / "state.sock"), KEYS)
        calls, state = put_off_calls(client), ValueStateClient(client, VALUES)
        update = calls.put_off(lambda n: state.update("state", (n,)))
        for n in range(100):
            client.set_implicit_key(("throttle", "a"))
            update(n)
        client.remove_implicit_key()
        calls.close()

    gc.collect()
    gc.disable()
    try:
        batch()
        assert gc.collect() < 50
    finally:
        gc.enable()


def test_no_more_answers_are_owed_than_the_connection_holds(server: Server, client: StatefulProcessorApiClient) -> None:
    """Else the server would wait for us to read, and we for it."""
    state = ValueStateClient(client, VALUES)
    update = put_off_calls(client).put_off(lambda n: state.update("state", (n,)))
    server.answers_at = 64
    for n in range(100):
        client.set_implicit_key(("throttle", "a"))
        update(n)
    assert server.asked[:64] == ["key", "update"] * 32
    server.answers_at = None
    client.remove_implicit_key()
    assert server.most_waiting <= 64 + 1


class _Schema:
    """As Spark's rows of the state name theirs."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def __reduce__(self) -> tuple[Any, ...]:
        return types._parse_datatype_json_string, (self._schema.json(),)


def test_the_schema_that_comes_with_each_row_is_parsed_once(client: StatefulProcessorApiClient) -> None:
    put_off_calls(client)
    first, second = (client._deserialize_from_bytes(pickle.dumps(_Schema(VALUES))) for _ in range(2))
    assert first == VALUES
    assert first is second
