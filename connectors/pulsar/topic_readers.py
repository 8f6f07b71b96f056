"""Reads very many topics in several helper processes, each with its own ZooKeeper session.

One process reads a thousand znodes a second, limited by its processor, because kazoo is Python. So helper processes get
topics piece by piece over a pipe, and return their inventories. A helper ends when its input ends, however the parent
dies.
"""

import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import IO

import msgspec
import structlog

from connectors.pulsar.referrers import Inventory, read_topics
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of, outcome_of
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.tree import Reader
from policies.environment import without_settings
from policies.errors import UserError
from policies.observations import Outcome

MOST_PROCESSES = 4
"""More helpers would overload the brokers' ZooKeeper."""
_MODULE = "connectors.pulsar.topic_readers"
_END_SECONDS = 5.0


class _Task(msgspec.Struct, frozen=True):
    """The topics that a helper reads next, and the time limit."""

    topics: list[str]
    seconds: float


class _Answer(msgspec.Struct, frozen=True):
    """The result of a task."""

    found: Inventory | None = None
    outcome: Outcome = Outcome.OK
    detail: str = ""


class _Setup(msgspec.Struct, frozen=True):
    """The first message to a helper. Credentials go through the pipe only."""

    connection: bytes
    """Pickled, because JSON would mask its secrets."""
    leave_out: list[str]


def processes() -> int:
    """Return the default number of helpers: one for each available processor, at most 4."""
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)))


class TopicReaders:
    """Reads topics in helper processes; each reading starts and ends its own helpers.

    Znodes in `leave_out` are skipped.
    """

    def __init__(self, connection: ZooKeeperConnection, leave_out: Collection[str], count: int | None = None) -> None:
        self._setup = _Setup(pickle.dumps(connection), sorted(leave_out))
        self._count = processes() if count is None else count

    def read(self, pieces: Iterable[list[str]], left_seconds: Callable[[], float]) -> Iterator[Inventory]:
        """Yield the inventory of each piece, in order.

        Raises:
            UnreadError: a znode cannot be read, or a helper ended.
        """
        with ExitStack() as stack:
            helpers = [stack.enter_context(_Helper(self._setup)) for _ in range(self._count)]
            pool = ThreadPoolExecutor(self._count, thread_name_prefix="topic readers")
            stack.callback(pool.shutdown, cancel_futures=True)
            free = deque(helpers)
            waiting: deque[Future[Inventory]] = deque()

            def ask(topics: list[str]) -> Inventory:
                helper = free.popleft()
                try:
                    return helper.ask(_Task(topics, left_seconds()))
                finally:
                    free.append(helper)

            for piece in pieces:
                waiting.append(pool.submit(ask, piece))
                if len(waiting) > 2 * self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


class _Helper:
    """One helper process, used by one thread at a time."""

    def __init__(self, setup: _Setup) -> None:
        self._setup = setup

    def __enter__(self) -> "_Helper":
        command = [sys.executable, "-m", _MODULE]
        environment = {**without_settings(os.environ), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(  # noqa: S603 - our own code, no shell
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        with suppress(OSError):  # if the helper has ended already, `ask` raises
            _send(self._process.stdin, msgspec.msgpack.encode(self._setup))
        return self

    def __exit__(self, *error: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        timer = threading.Timer(_END_SECONDS, self._process.kill)
        timer.start()
        self._process.wait()
        timer.cancel()

    def ask(self, task: _Task) -> Inventory:
        """Read some topics. Raises UnreadError."""
        # Kills a helper that hangs, which ends the wait for its answer.
        timer = threading.Timer(max(0.0, task.seconds) + _END_SECONDS, self._process.kill)
        timer.start()
        try:
            _send(self._process.stdin, msgspec.msgpack.encode(task))
            data = _receive(self._process.stdout)
        except OSError as error:
            raise UnreadError("topics", error) from None
        finally:
            timer.cancel()
        if data is None:
            raise UnreadError("topics", ChildProcessError("the process that read them ended"))
        answer = msgspec.msgpack.decode(data, type=_Answer)
        if answer.found is None:
            raise UnreadError("topics", _CAUSES.get(answer.outcome, RuntimeError)(answer.detail))
        return answer.found


_CAUSES: dict[Outcome, type[Exception]] = {Outcome.TIMEOUT: TimeoutError, Outcome.UNREACHABLE: ConnectionError}
"""The exceptions to raise for a helper's error, so that the reading has the same outcome as without helpers."""


def _send(pipe: IO[bytes] | None, data: bytes) -> None:
    assert pipe is not None  # noqa: S101 - a pipe was asked for
    pipe.write(len(data).to_bytes(8, "big") + data)
    pipe.flush()


def _receive(pipe: IO[bytes] | None) -> bytes | None:
    """Return the next message; None at the end."""
    assert pipe is not None  # noqa: S101 - a pipe was asked for
    size = pipe.read(8)
    data = pipe.read(int.from_bytes(size, "big")) if len(size) == 8 else b""
    return data or None


# --- in the helper process


def _answer(session: ZooKeeperSession, task: _Task, leave_out: Collection[str]) -> _Answer:
    until = time.monotonic() + task.seconds
    try:
        reader: Reader = session.reader(lambda: until - time.monotonic())
        return _Answer(read_topics(reader, task.topics, leave_out))
    except (UnreadError, NotConnectedError, UserError) as error:
        return _Answer(outcome=outcome_of(error), detail=detail_of(error))


def _serve() -> None:
    """Answer tasks until the input ends."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # log lines must not mix with answers
    received = _receive(sys.stdin.buffer)
    if received is None:
        return
    setup = msgspec.msgpack.decode(received, type=_Setup)
    session = ZooKeeperSession("topics", pickle.loads(setup.connection))  # noqa: S301 - written by our own parent
    try:
        while (asked := _receive(sys.stdin.buffer)) is not None:
            task = msgspec.msgpack.decode(asked, type=_Task)
            _send(answers, msgspec.msgpack.encode(_answer(session, task, frozenset(setup.leave_out))))
    finally:
        session.close()


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the parent has ended
        _serve()
