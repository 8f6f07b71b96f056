"""Batches calls to Spark's state: one round trip for many keys, instead of several for each key.

Spark keeps the state in its JVM, and a Python worker waits for the answer to each call, which takes a good part of a
step. Most answers only confirm success: the current key was set, a timer was set, a value was written. Such calls are
sent together, in order, and their answers are read together. A batch ends with a call that waits, so no answer is left
unread.
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
"""Before each message: version and length."""
_DONE = (0, "", b"")
_MOST_UNREAD = 64
"""Unread answers would fill the connection, and then both sides would wait for each other."""

Arguments = ParamSpec("Arguments")

_parse_schema = lru_cache(maxsize=16)(types._parse_datatype_json_string)


class _RowReader(pickle.Unpickler):
    """Reads a row of the state. Its schema comes with each row as JSON, and is parsed once."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class or function that the row names."""
        if (module, name) == (types.__name__, types._parse_datatype_json_string.__name__):
            return _parse_schema
        return super().find_class(module, name)


class StateCalls:
    """Makes the client of one batch's state put calls off.

    Args:
        handle: the batch's `StatefulProcessorHandle`; parts of its client are replaced.
    """

    def __init__(self, handle: Any) -> None:
        client = handle._statefulProcessorApiClient
        self._client = client
        self._read_answer = client._receive_proto_message
        self._puts_off = False
        self._unread = 0
        # Without a watermark the client would ask the JVM for it again with each key.
        client._watermark_timestamp = 0
        client._send_proto_message = self._send
        client._receive_proto_message = self._receive
        client._deserialize_from_bytes = lambda pickled: _RowReader(io.BytesIO(pickled)).load()
        client._serialize_to_bytes = self._pickle
        for name in ("set_implicit_key", "register_timer", "delete_timer"):
            setattr(client, name, self.put_off(getattr(client, name)))

    def close(self) -> None:
        """Close the connection of a finished batch, and its reference cycles, which are seldom collected."""
        self._client.sockfile.close()
        self._client._client_socket.close()
        vars(self._client).clear()

    def put_off(self, call: Callable[Arguments, None]) -> Callable[Arguments, None]:
        """Return the same call, which does not wait for its answer; the next call that waits raises its error."""

        def calling(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
            self._puts_off = True
            try:
                call(*args, **kwargs)
            finally:
                self._puts_off = False

        return calling

    def _pickle(self, schema: types.StructType, row: tuple[Any, ...]) -> bytes:
        """Pickle a row as the client does, without its search for numpy's values, which leaves a cycle each time."""
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
            return self._read_answer()
        self._unread += 1
        if self._unread == _MOST_UNREAD:
            self._client.sockfile.flush()
            self._settle()
        return _DONE

    def _settle(self) -> None:
        """Read the unread answers, which all come before the answer to the present call.

        Raises:
            PySparkRuntimeError: one of the earlier calls failed.
        """
        unread, self._unread = self._unread, 0
        for _ in range(unread):
            status, message, _value = self._read_answer()
            if status != 0:
                raise PySparkRuntimeError(f"Error of an earlier call to the state: {message}")
