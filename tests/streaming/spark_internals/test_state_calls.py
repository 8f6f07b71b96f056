"""State calls of PySpark's own client, to a server that answers late."""

import gc
import pickle
import socket
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages
from pyspark.sql.streaming.stateful_processor import ValueState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.streaming.value_state_client import ValueStateClient
from pyspark.sql.types import LongType, StringType, StructField, StructType

from streaming.spark_internals import pipeline_state_calls

KEYS = StructType([StructField("policy", StringType()), StructField("cluster", StringType())])
VALUES = StructType([StructField("n", LongType())])
HEAD = struct.Struct("!ii")
Message: Any = messages
Update = Callable[[tuple[Any, ...]], None]


class Server:
    """Spark's side of the socket: stores one value per key, and answers only when a call must wait."""

    def __init__(self, path: Path) -> None:
        self.calls: list[str] = []
        self.most_waiting = 0
        self.fails: str | None = None
        self.answers_at: int | None = None
        """Answer each time that so many answers wait."""
        self._stored: dict[bytes, bytes] = {}
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
                name, answer = self._answer(request)
                self.calls.append(name)
                waiting.append(answer)
                if name in ("get", "end") or len(waiting) == self.answers_at:
                    self.most_waiting = max(self.most_waiting, len(waiting))
                    for each in waiting:
                        file.write(struct.pack("!i", each.ByteSize()) + each.SerializeToString())
                    file.flush()
                    waiting = []

    def _answer(self, request: Any) -> tuple[str, Any]:
        key, call = request.implicitGroupingKeyRequest, request.stateVariableRequest.valueStateCall
        timer = request.statefulProcessorCall.timerStateCall
        value = b""
        if key.HasField("setImplicitKey"):
            name, self._key = "key", key.setImplicitKey.key
        elif call.HasField("get"):
            name, value = "get", self._stored.get(self._key, b"")
        elif call.HasField("valueStateUpdate"):
            name, self._stored[self._key] = "update", call.valueStateUpdate.value
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
    connected.sockfile.close()
    connected._client_socket.close()


@pytest.fixture
def state(client: StatefulProcessorApiClient) -> ValueState:
    return ValueState(ValueStateClient(client, VALUES), "state")


@pytest.fixture
def update(client: StatefulProcessorApiClient, state: ValueState) -> Update:
    handle: Any = SimpleNamespace(_statefulProcessorApiClient=client)
    return pipeline_state_calls(handle, state)


def test_a_key_waits_once_and_all_calls_arrive_in_order(
    server: Server, client: StatefulProcessorApiClient, state: ValueState, update: Update
) -> None:
    read = []
    for cluster, n in (("a", 1), ("b", 2), ("a", 3), ("b", 4)):
        client.set_implicit_key(("throttle", cluster))
        read.append(state.get())
        client.delete_timer(5)
        client.register_timer(7)
        update((n,))
    client.remove_implicit_key()
    assert read == [None, None, (1,), (2,)]
    assert server.calls == [*["key", "get", "delete", "register", "update"] * 4, "end"]
    assert server.most_waiting == 5
    client.set_implicit_key(("throttle", "b"))
    assert state.get() == (4,)


@pytest.mark.parametrize("refused", ["key", "delete", "register", "update"])
def test_a_refused_call_ends_the_batch(
    server: Server, client: StatefulProcessorApiClient, update: Update, refused: str
) -> None:
    server.fails = refused
    client.set_implicit_key(("throttle", "a"))
    client.delete_timer(5)
    client.register_timer(7)
    update((1,))
    with pytest.raises(PySparkRuntimeError, match="refused an earlier call to the state: no"):
        client.remove_implicit_key()


@pytest.mark.usefixtures("update")
def test_a_call_that_waits_fails_as_without_pipelining(server: Server, state: ValueState) -> None:
    server.fails = "get"
    with pytest.raises(PySparkRuntimeError, match="Error getting value state: no"):
        state.get()


def test_a_value_is_sent_as_pyspark_does(server: Server, client: StatefulProcessorApiClient, update: Update) -> None:
    update((9,))
    client.remove_implicit_key()
    (sent,) = server._stored.values()
    assert pickle.loads(sent) == (9,)


def test_unread_answers_never_fill_the_pipe(server: Server, client: StatefulProcessorApiClient, update: Update) -> None:
    """Otherwise the server would wait for us to read, and we for it."""
    server.answers_at = 64
    for n in range(100):
        client.set_implicit_key(("throttle", "a"))
        update((n,))
    assert server.calls[:64] == ["key", "update"] * 32
    server.answers_at = None
    client.remove_implicit_key()
    assert server.most_waiting <= 64 + 1


def test_a_batch_leaves_no_cycle_behind(server: Server, tmp_path: Path) -> None:
    """The collector ignores what was alive at the end of a batch; so a cycle would hold the connection open."""
    client = StatefulProcessorApiClient(str(tmp_path / "state.sock"), KEYS)
    state = ValueState(ValueStateClient(client, VALUES), "state")
    update = pipeline_state_calls(cast("Any", SimpleNamespace(_statefulProcessorApiClient=client)), state)
    client.set_implicit_key(("throttle", "a"))
    update((1,))
    client.remove_implicit_key()
    client.sockfile.close()
    client._client_socket.close()
    gone = weakref.ref(client)
    gc.disable()
    try:
        del client, state, update
        assert gone() is None
    finally:
        gc.enable()
