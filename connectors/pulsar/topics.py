"""Edits a schema locator or cursor: sets the cluster that holds a ledger, and the ledger's id there.

Nothing else changes. The messages are edited in place: on every level protobuf preserves unknown fields, and writes
them after the known ones. Pulsar reads the same message in any order of fields; repeated fields keep their order.

A compressed cursor is written uncompressed, which every Pulsar reads. Pulsar 4.2.4 cannot read properties of a
compressed cursor, because it looks for their text in a buffer that it has released (`refCnt: 0`), and then does not
load the topic. The topic's owner compresses the cursor again at its next write.
"""

import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Any

import msgspec
import structlog

from connectors.pulsar.metadata import (
    CLUSTER_PROPERTY,
    attribution_of,
    cursor_message,
    locator_message,
    parse_cursor,
    parse_locator,
)
from connectors.pulsar.referrers import Inventory, read_topics
from connectors.zookeeper.session import (
    NotConnectedError,
    Reader,
    UnreadError,
    ZooKeeperConnection,
    ZooKeeperSession,
    describe_zookeeper_error,
    outcome_of,
)
from policies.observations import Outcome
from policies.switching.ledgers import LedgerKind, Reference
from policies.units import UserError, without_settings

# Reads very many topics in several helper processes, each with its own ZooKeeper session.
#
# One process reads a thousand znodes a second, limited by its processor, because kazoo is Python. So helper processes
# get topics piece by piece over a pipe, and return their inventories. A helper ends when its input ends, however the
# parent dies.

MOST_PROCESSES = 4
"""More helpers would overload the brokers' ZooKeeper."""
_MODULE = "connectors.pulsar.topics"
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
        return _Answer(outcome=outcome_of(error), detail=describe_zookeeper_error(error))


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


class ValuePart(StrEnum):
    """The parts in which two values of a znode may differ."""

    ATTRIBUTION = "attribution"
    """The cluster that holds the ledger."""
    LEDGER_ID = "ledger_id"
    ENTRY_ID = "entry_id"
    PROPERTIES = "properties"
    OTHER = "other"
    """Anything else: the attribution of other ledgers, the number of positions, a cursor's mark-delete …"""


@dataclass(frozen=True, slots=True)
class _ParsedValue:
    """A znode's parsed value."""

    message: Any
    fields: tuple["_LedgerField", ...]


@dataclass(frozen=True, slots=True)
class _LedgerField:
    """A field that names a ledger."""

    message: Any
    id_field: str
    properties_field: str

    @property
    def ledger_id(self) -> int:
        return int(getattr(self.message, self.id_field))

    @property
    def properties(self) -> Any:
        return getattr(self.message, self.properties_field)


def references_in(kind: LedgerKind, path: str, data: bytes) -> Sequence[Reference]:
    """Return the ledgers that a znode's value names. Raises ValueError if it is no locator, or no cursor."""
    return parse_locator(path, data) if kind is LedgerKind.SCHEMA else (parse_cursor(path, data),)


def set_attribution(
    kind: LedgerKind, data: bytes, ledger_id: int, owners: Collection[str | None], to: str, new_id: int | None = None
) -> bytes:
    """Return a znode's value with a ledger attributed to a cluster, wherever one of `owners` held it.

    Args:
        kind: a schema's locator, or a cursor.
        ledger_id: the ledger; positions with other ledgers stay.
        owners: the clusters to replace; None among them stands for no attribute.
        new_id: the ledger's id there; None for the same id. The ids of its entries stay.

    Raises:
        ValueError: it is no locator, or no cursor.
    """
    opened = _open(kind, data)
    same_ledger = [field for field in opened.fields if field.ledger_id == ledger_id]
    edited = [field for field in same_ledger if attribution_of(field.properties) in owners]
    for field in edited:
        # All duplicates are set: we would read the first one, and Pulsar, which makes a map of them, the last.
        present = [each for each in field.properties if each.name == CLUSTER_PROPERTY]
        for each in present or [field.properties.add(name=CLUSTER_PROPERTY)]:
            each.value = to
        if new_id is not None:
            setattr(field.message, field.id_field, new_id)
    return bytes(opened.message.SerializeToString()) if edited else data


def difference(
    kind: LedgerKind, ledger_id: int, before: bytes, after: bytes, new_id: int | None = None
) -> tuple[ValuePart, ...]:
    """Return the parts in which two values of a znode differ, in the order of `ValuePart`; compression does not count.

    It is independent of the code that edits values, so that it finds unwanted effects of an edit.

    Args:
        kind: a schema's locators, or cursors.
        ledger_id: the ledger whose attribution is compared; the attribution of other ledgers is `other`.
        new_id: the ledger's id in the other cluster if it has another one there. Then attribution and id must change
            together, from the one id to the other; any other change of them is `other`.

    Raises:
        ValueError: one is no locator, or no cursor.
    """
    one, two = _open(kind, before), _open(kind, after)
    parts = set() if len(one.fields) == len(two.fields) else {ValuePart.OTHER}
    for left, right in zip(one.fields, two.fields, strict=False):
        parts.update(_differs(left, right, ledger_id, new_id))
    if _rest(one) != _rest(two):
        parts.add(ValuePart.OTHER)
    return tuple(part for part in ValuePart if part in parts)


def _differs(left: _LedgerField, right: _LedgerField, ledger_id: int, new_id: int | None) -> Iterator[ValuePart]:
    if getattr(left.message, "entryId", None) != getattr(right.message, "entryId", None):
        yield ValuePart.ENTRY_ID
    clusters, others = _halves(left.properties)
    clusters_then, others_then = _halves(right.properties)
    ids = (left.ledger_id, right.ledger_id)
    is_moved = [each.value for each in clusters] != [each.value for each in clusters_then]
    if new_id is None:
        if ids[0] != ids[1]:
            yield ValuePart.LEDGER_ID
        if is_moved:
            yield ValuePart.ATTRIBUTION if ids[0] == ledger_id else ValuePart.OTHER
    elif is_moved or ids[0] != ids[1]:
        is_wanted = is_moved and ids == (ledger_id, new_id)
        yield from (ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID) if is_wanted else (ValuePart.OTHER,)
    # A new attribute is not another property; of an existing attribute only the value may differ.
    if others != others_then or (clusters and _without_values(clusters) != _without_values(clusters_then)):
        yield ValuePart.PROPERTIES


def _halves(properties: Any) -> tuple[list[Any], list[Any]]:
    """Return the attributes, and the other properties."""
    clusters = [each for each in properties if each.name == CLUSTER_PROPERTY]
    return clusters, [each for each in properties if each.name != CLUSTER_PROPERTY]


def _without_values(clusters: list[Any]) -> list[Any]:
    copies = [type(each).FromString(each.SerializeToString()) for each in clusters]
    for each in copies:
        each.ClearField("value")
    return copies


def _rest(opened: _ParsedValue) -> Any:
    """Return the message without the fields that have a `ValuePart` of their own."""
    for field in opened.fields:
        for name in (field.id_field, "entryId", field.properties_field):
            if name in field.message.DESCRIPTOR.fields_by_name:
                field.message.ClearField(name)
    return opened.message


def _open(kind: LedgerKind, data: bytes) -> _ParsedValue:
    if kind is LedgerKind.CURSOR:
        cursor = cursor_message(data)
        return _ParsedValue(cursor, (_LedgerField(cursor, "cursorsLedgerId", "cursorProperties"),))
    locator = locator_message(data)
    positions = (entry.position for entry in (locator.info, *locator.index))
    return _ParsedValue(locator, tuple(_LedgerField(each, "ledgerId", "properties") for each in positions))
