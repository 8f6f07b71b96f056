"""Batches calls to Spark's state: one round trip for many keys, instead of four for each.

Spark keeps the state in its JVM, and a Python worker waits for the answer of each call, which costs as much as a good
part of a step. Most answers only confirm success: the current key was set, a timer was set, a value was written. Such
calls are sent together, in the order in which they were made, and their answers are read together. A batch ends with a
call that waits, so no answer is left unread.
"""

import io
import pickle
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types

_HEAD, _VERSION = struct.Struct("!ii"), 0
"""Before each message, as Spark's own client writes it: version and length."""
_DONE = (0, "", b"")
_MOST_OWED = 64
"""Answers that are not read fill the connection in the end; then neither side would hear the other."""

Arguments = ParamSpec("Arguments")


_schema = lru_cache(maxsize=16)(types._parse_datatype_json_string)


class _RowReader(pickle.Unpickler):
    """Reads a row of the state: its schema comes with each one, as JSON, and is parsed once."""

    def find_class(self, module: str, name: str) -> Any:
        """What the row names."""
        if (module, name) == (types.__name__, types._parse_datatype_json_string.__name__):
            return _schema
        return super().find_class(module, name)


def _row(pickled: bytes) -> Any:
    return _RowReader(io.BytesIO(pickled)).load()


class StateCalls:
    """Has Spark's client of one batch put off what it need not wait for.

    Args:
        client: Spark's `StatefulProcessorApiClient`; what it sends and how it reads answers is replaced.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._answer = client._receive_proto_message
        self._puts_off = False
        self._owed = 0
        client._send_proto_message = self._send
        client._receive_proto_message = self._receive
        client._deserialize_from_bytes = _row
        client._serialize_to_bytes = self._pickled
        for name in ("set_implicit_key", "register_timer", "delete_timer"):
            setattr(client, name, self.put_off(getattr(client, name)))

    def close(self) -> None:
        """Close the connection of a batch that is over, and undo the cycles it is in: those are seldom searched for."""
        self._client.sockfile.close()
        self._client._client_socket.close()
        vars(self._client).clear()

    def put_off(self, call: Callable[Arguments, None]) -> Callable[Arguments, None]:
        """The same call, not waiting for its answer: the next one that waits raises what went wrong with it."""

        def calling(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
            self._puts_off = True
            try:
                call(*args, **kwargs)
            finally:
                self._puts_off = False

        return calling

    def _pickled(self, schema: types.StructType, row: tuple[Any, ...]) -> bytes:
        """As Spark's client does it, which looks for numpy's values and leaves a cycle behind each time."""
        pickled: bytes = self._client.pickleSer.dumps(schema.toInternal(row))
        return pickled

    def _send(self, message: bytes) -> None:
        out = self._client.sockfile
        out.write(_HEAD.pack(_VERSION, len(message)))
        out.write(message)
        if not self._puts_off:
            out.flush()
            self._settle()

    def _receive(self) -> Any:
        if not self._puts_off:
            return self._answer()
        self._owed += 1
        if self._owed == _MOST_OWED:
            self._client.sockfile.flush()
            self._settle()
        return _DONE

    def _settle(self) -> None:
        """Read the answers that are owed, all of which come before the one that is waited for.

        Raises:
            PySparkRuntimeError: one of those calls went wrong.
        """
        owed, self._owed = self._owed, 0
        for _ in range(owed):
            status, said, _value = self._answer()
            if status != 0:
                raise PySparkRuntimeError(f"Error of the state, of a call before: {said}")
