"""The journal of copies: conditionally written znodes that record each copy before its ledger is created.

A ledger in the target is ours only if its custom metadata carry the token of its journal record. Each intent has a
random token, which is written before the ledger is created. So the rule holds after a kill at any moment.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from connectors.zookeeper.session import ZooKeeperSession
from policies.errors import UserError
from policies.switching.ledger_paths import Layout, path_of

PROVENANCE = "headgate.copy"
"""The custom metadata property of a copy: the source's instance id and the token, with a slash between."""

REGISTRY_ROOT = "/admin/bookie-clusters"
"""The root of the registry of a broker cluster's BookKeeper clusters, in the brokers' ZooKeeper."""

COPIES = f"{REGISTRY_ROOT}/copies"
"""The root of the journal of copies."""

_TOKEN_BYTES = 16
_ONLY_WAY_SECONDS = 60.0
"""How long the journal's answer to `is_one_way` is cached; a switch back comes days later."""
_FAILURES = (KazooException, KazooTimeoutError, NotConnectedError, UnreadError, UserError, OSError)


class CopyJournalError(Exception):
    """The journal cannot be read or written; the message is one short line. A write may have had its effect or not."""


class CopyJournalConflictError(CopyJournalError):
    """The record is another source's, or another process changed it."""


class CopiedLedger(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a source ledger when its copy was found equal."""

    length_bytes: int
    last_entry_id: int
    entries_digest: str
    created_ms: int
    """When ZooKeeper created its metadata; a later ledger with the same id is another ledger."""


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """A journalled copy."""

    ledger_id: int
    source: str
    """Instance id of the source cluster."""
    target: str
    token: str
    at_ms: int
    """When the intent was written, by ZooKeeper's clock."""
    copied: CopiedLedger | None = None
    """None until the copy is found equal."""
    version: int = 0
    target_id: int | None = None
    """The ledger's new id in the target; None if it keeps its id."""

    @property
    def id_in_target(self) -> int:
        """The id of the copy."""
        return self.ledger_id if self.target_id is None else self.target_id

    @property
    def provenance(self) -> str:
        """The value of the copy's property `PROVENANCE`."""
        return f"{self.source}/{self.token}"


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a record's znode."""

    source: str
    target: str
    token: str
    copied: CopiedLedger | None = None
    target_id: int | None = None


class CopyJournal:
    """The copies from one cluster to another: one znode for each, in the folders of BookKeeper's long layout.

    Safe to use from many threads. `source` and `target` are instance ids; the parent `path` is created if necessary.
    """

    def __init__(self, session: ZooKeeperSession, path: str, *, source: str, target: str) -> None:
        self._session = session
        self._path = path.rstrip("/")
        self._source = source
        self._target = target
        self._both_ways, self._only_way_until = False, 0.0

    def find(self, ledger_id: int) -> CopyRecord | None:
        """Return the record of a ledger's copy; None if no copy was intended.

        Raises:
            CopyJournalError: the journal cannot be read.
            CopyJournalConflictError: the record is of another source.
        """
        try:
            data, stat = self._ask("get_async", self._node(ledger_id))
        except NoNodeError:
            return None
        return self._record(ledger_id, data, stat)

    def intend(self, ledger_id: int, target_id: int | None = None) -> CopyRecord:
        """Record that a copy will be created, and return the record; an earlier one wins. Raises as `find` does.

        `target_id` is the id in the target, if it is another one.
        """
        data = self._intent(target_id)
        try:
            _, stat = self._ask("create_async", self._node(ledger_id), data, makepath=True, include_data=True)
        except NodeExistsError:
            found = self.find(ledger_id)
            if found is None:
                raise CopyJournalConflictError(f"the record of ledger {ledger_id} was removed just now") from None
            return found
        return self._record(ledger_id, data, stat)

    def intend_all(self, ledger_ids: Sequence[int]) -> Sequence[CopyRecord | CopyJournalError]:
        """Record many copies under their own ids at once; returns for each the result or the error of `intend`.

        It is one transaction if no ledger has a record and all folders exist.
        """
        notes = {ledger_id: self._intent() for ledger_id in ledger_ids}

        def create(transaction: Any) -> None:
            for ledger_id, data in notes.items():
                transaction.create(self._node(ledger_id), data)

        try:
            if len(notes) == len(ledger_ids) > 1 and self._together(create) is not None:
                # All nodes of a transaction have the same creation time, which kazoo does not return.
                stat = self._ask("exists_async", self._node(ledger_ids[0]))
                if stat is not None:
                    return [self._record(ledger_id, data, stat) for ledger_id, data in notes.items()]
        except CopyJournalError as error:
            return [error] * len(ledger_ids)
        return [_outcome(partial(self.intend, ledger_id)) for ledger_id in ledger_ids]

    def complete(self, record: CopyRecord, copied: CopiedLedger) -> CopyRecord:
        """Record that the copy is equal.

        Raises:
            CopyJournalError: the journal cannot be written.
            CopyJournalConflictError: the record was changed since it was read.
        """
        if record.copied == copied:
            return record
        try:
            stat = self._ask("set_async", self._node(record.ledger_id), _completed(record, copied), record.version)
        except (BadVersionError, NoNodeError):
            raise CopyJournalConflictError(f"the record of ledger {record.ledger_id} was changed by others") from None
        return replace(record, copied=copied, version=stat.version)

    def complete_all(
        self, copies: Sequence[tuple[CopyRecord, CopiedLedger]]
    ) -> Sequence[CopyRecord | CopyJournalError]:
        """Record many equal copies at once; returns for each the result or the error of `complete`.

        It is one transaction if no other process changed a record.
        """

        def write(transaction: Any) -> None:
            for record, copied in copies:
                transaction.set_data(self._node(record.ledger_id), _completed(record, copied), record.version)

        try:
            if len(copies) > 1 and all(record.copied != copied for record, copied in copies):
                stats = self._together(write)
                if stats is not None:
                    written = zip(copies, stats, strict=True)
                    return [replace(record, copied=copied, version=stat.version) for (record, copied), stat in written]
        except CopyJournalError as error:
            return [error] * len(copies)
        return [_outcome(partial(self.complete, record, copied)) for record, copied in copies]

    def forget(self, record: CopyRecord) -> None:
        """Delete a record: a later ledger under its id is not ours. Raises as `complete` does."""
        try:
            self._ask("delete_async", self._node(record.ledger_id), version=record.version)
        except NoNodeError:
            return
        except BadVersionError:
            raise CopyJournalConflictError(f"the record of ledger {record.ledger_id} was changed by others") from None

    def came_from_target(self, ledger_id: int) -> bool:
        """Whether the source's ledger is a complete copy of one that the target had under the same id.

        If the target has no such ledger any more, it was deleted there, and bookies may still hold its entries. Raises
        as `find` does.
        """
        if self.is_one_way():
            return False
        try:
            record = self._way_back().find(ledger_id)
        except CopyJournalConflictError:
            return False
        return record is not None and record.copied is not None and record.target_id is None

    def is_one_way(self) -> bool:
        """Whether no ledger was ever copied from the target to the source. Raises as `find` does."""
        if time.monotonic() < self._only_way_until:
            return True
        self._both_ways = self._both_ways or not self._way_back().is_empty()
        if not self._both_ways:
            self._only_way_until = time.monotonic() + _ONLY_WAY_SECONDS
        return not self._both_ways

    def is_empty(self) -> bool:
        """Whether the journal has no record for this target. Raises as `find` does."""
        return self._ask("exists_async", f"{self._path}/{self._target}") is None

    def _way_back(self) -> "CopyJournal":
        return CopyJournal(self._session, self._path, source=self._target, target=self._source)

    def _intent(self, target_id: int | None = None) -> bytes:
        token = secrets.token_hex(_TOKEN_BYTES)
        return msgspec.json.encode(_Note(source=self._source, target=self._target, token=token, target_id=target_id))

    def _node(self, ledger_id: int) -> str:
        return f"{self._path}/{self._target}{path_of(Layout.LONG_HIERARCHICAL, ledger_id)}"

    def _record(self, ledger_id: int, data: bytes, stat: Any) -> CopyRecord:
        try:
            note = read_json(data, _Note)
        except UnreadableJsonError as error:
            raise CopyJournalError(f"{self._node(ledger_id)} is no record of a copy: {error}") from None
        if (note.source, note.target) != (self._source, self._target):
            raise CopyJournalConflictError(
                f"ledger {ledger_id} of {note.target} is journalled as a copy from {note.source}"
            )
        return CopyRecord(
            ledger_id, note.source, note.target, note.token, stat.ctime, note.copied, stat.version, note.target_id
        )

    def _ask(self, request: str, *arguments: Any, **options: Any) -> Any:
        return self._answered(lambda client: getattr(client, request)(*arguments, **options))

    def _together(self, add: Callable[[Any], None]) -> list[Any] | None:
        """Commit a transaction, and return the results of its steps; None if one failed, so that none has an effect."""

        def commit(client: Any) -> Any:
            transaction = client.transaction()
            add(transaction)
            return transaction.commit_async()

        results: list[Any] = self._answered(commit)
        return None if any(isinstance(each, Exception) for each in results) else results

    def _answered(self, ask: Callable[[Any], Any]) -> Any:
        try:
            return ask(self._session.client()).get(timeout=self._session.connection.timeout_seconds)
        except (NoNodeError, NodeExistsError, BadVersionError):
            raise
        except _FAILURES as error:
            raise CopyJournalError(f"the journal of copies: {detail_of(error)}") from None


def _completed(record: CopyRecord, copied: CopiedLedger) -> bytes:
    return msgspec.json.encode(
        _Note(source=record.source, target=record.target, token=record.token, copied=copied, target_id=record.target_id)
    )


def _outcome(write: Callable[[], CopyRecord]) -> CopyRecord | CopyJournalError:
    try:
        return write()
    except CopyJournalError as error:
        return error
