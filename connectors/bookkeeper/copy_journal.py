"""The journal of copies: conditionally written znodes that record each copy before its ledger is created.

A ledger in the target is ours only if its custom metadata carry the token of its journal record. Each intent has a
random token, which is written before the ledger is created. So the rule holds after a kill at any moment.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import msgspec

from connectors.zookeeper.json_znodes import JsonZnodes, ZnodeConflictError, ZnodeError, create, delete, put
from connectors.zookeeper.session import ZooKeeperSession
from policies.switching.ledgers import Layout, Ledger, path_of
from policies.switching.readings import LedgerOutcome

PROVENANCE = "headgate.copy"
"""The custom metadata property of a copy: the source's instance id and the token, with a slash between."""

REGISTRY_ROOT = "/admin/bookie-clusters"
"""The root of the registry of a broker cluster's BookKeeper clusters, in the brokers' ZooKeeper."""

COPIES = f"{REGISTRY_ROOT}/copies"
"""The root of the journal of copies."""

_TOKEN_BYTES = 16
_ONLY_WAY_SECONDS = 60.0
"""How long the journal's answer to `is_one_way` is cached; a switch back comes days later."""


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

    Safe to use from many threads. `source` and `target` are instance ids.
    """

    def __init__(self, session: ZooKeeperSession, *, source: str, target: str) -> None:
        self._session = session
        self._nodes = JsonZnodes(session, "the journal of copies")
        self._source = source
        self._target = target
        self._both_ways, self._only_way_until = False, 0.0

    def find(self, ledger_id: int) -> CopyRecord | None:
        """Return the record of a ledger's copy; None if no copy was intended.

        Raises:
            ZnodeError: the journal cannot be read.
            ZnodeConflictError: the record is of another source.
        """
        found = self._nodes.get(self._node(ledger_id), _Note)
        return None if found is None else self._record(ledger_id, found.value, found.version)

    def intend(self, ledger_id: int, target_id: int | None = None) -> CopyRecord:
        """Record that a copy will be created, and return the record; an earlier one wins. Raises as `find` does.

        `target_id` is the id in the target, if it is another one.
        """
        path, note = self._node(ledger_id), self._intent(target_id)
        if not self._nodes.commit(create(path, note)):
            if (found := self.find(ledger_id)) is not None:
                return found
            self._nodes.ensure(path.rpartition("/")[0])
            if not self._nodes.commit(create(path, note)):
                raise ZnodeConflictError(f"the record of ledger {ledger_id} is changed by others just now")
        return self._record(ledger_id, note)

    def intend_all(self, ledger_ids: Sequence[int]) -> Sequence[CopyRecord | ZnodeError]:
        """Record many copies under their own ids at once; returns for each the result or the error of `intend`.

        It is one transaction if no ledger has a record and all folders exist.
        """
        notes = {ledger_id: self._intent() for ledger_id in ledger_ids}
        steps = [create(self._node(ledger_id), note) for ledger_id, note in notes.items()]
        try:
            if len(notes) == len(ledger_ids) > 1 and self._nodes.commit(*steps):
                return [self._record(ledger_id, note) for ledger_id, note in notes.items()]
        except ZnodeError as error:
            return [error] * len(ledger_ids)
        return [_outcome(partial(self.intend, ledger_id)) for ledger_id in ledger_ids]

    def complete(self, record: CopyRecord, copied: CopiedLedger) -> CopyRecord:
        """Record that the copy is equal.

        Raises:
            ZnodeError: the journal cannot be written.
            ZnodeConflictError: the record was changed since it was read.
        """
        if record.copied == copied:
            return record
        completed = replace(record, copied=copied, version=record.version + 1)
        if not self._nodes.commit(put(self._node(record.ledger_id), _note(completed), record.version)):
            raise ZnodeConflictError(f"the record of ledger {record.ledger_id} was changed by others")
        return completed

    def complete_all(self, copies: Sequence[tuple[CopyRecord, CopiedLedger]]) -> Sequence[CopyRecord | ZnodeError]:
        """Record many equal copies at once; returns for each the result or the error of `complete`.

        It is one transaction if no other process changed a record.
        """
        completed = [replace(record, copied=copied, version=record.version + 1) for record, copied in copies]
        steps = [put(self._node(each.ledger_id), _note(each), each.version - 1) for each in completed]
        try:
            is_new = all(record.copied != copied for record, copied in copies)
            if len(copies) > 1 and is_new and self._nodes.commit(*steps):
                return completed
        except ZnodeError as error:
            return [error] * len(copies)
        return [_outcome(partial(self.complete, record, copied)) for record, copied in copies]

    def forget(self, record: CopyRecord) -> None:
        """Delete a record: a later ledger under its id is not ours. Raises as `complete` does."""
        is_deleted = self._nodes.commit(delete(self._node(record.ledger_id), record.version))
        if not is_deleted and self.find(record.ledger_id) is not None:
            raise ZnodeConflictError(f"the record of ledger {record.ledger_id} was changed by others")

    def came_from_target(self, ledger_id: int) -> bool:
        """Whether the source's ledger is a complete copy of one that the target had under the same id.

        If the target has no such ledger any more, it was deleted there, and bookies may still hold its entries. Raises
        as `find` does.
        """
        if self.is_one_way():
            return False
        try:
            record = self._way_back().find(ledger_id)
        except ZnodeConflictError:
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
        return not self._nodes.children(f"{COPIES}/{self._target}")

    def _way_back(self) -> "CopyJournal":
        return CopyJournal(self._session, source=self._target, target=self._source)

    def _intent(self, target_id: int | None = None) -> _Note:
        token = secrets.token_hex(_TOKEN_BYTES)
        return _Note(source=self._source, target=self._target, token=token, target_id=target_id)

    def _node(self, ledger_id: int) -> str:
        return f"{COPIES}/{self._target}{path_of(Layout.LONG_HIERARCHICAL, ledger_id)}"

    def _record(self, ledger_id: int, note: _Note, version: int = 0) -> CopyRecord:
        if (note.source, note.target) != (self._source, self._target):
            raise ZnodeConflictError(f"ledger {ledger_id} of {note.target} is journalled as a copy from {note.source}")
        return CopyRecord(ledger_id, note.source, note.target, note.token, note.copied, version, note.target_id)


def _note(record: CopyRecord) -> _Note:
    return _Note(
        source=record.source,
        target=record.target,
        token=record.token,
        copied=record.copied,
        target_id=record.target_id,
    )


def _outcome(write: Callable[[], CopyRecord]) -> CopyRecord | ZnodeError:
    try:
        return write()
    except ZnodeError as error:
        return error


# Outcomes of copying or deleting a ledger: closed enums, mapped from BookKeeper's codes and to the policy's.


class CopyOutcome(StrEnum):
    """The outcome of a copy."""

    COPIED = "copied"
    """The copy was written, closed, read back, and is equal."""
    BUILT = "built"
    """Our earlier copy exists, complete and equal."""
    OWN_PARTIAL = "own_partial"
    """Our earlier copy exists and is incomplete: delete it and copy again."""
    FOREIGN_CONFLICT = "foreign_conflict"
    """The id belongs to a ledger of somebody else, or is journalled for another source. It was not changed."""
    SOURCE_OPEN = "source_open"
    """The ledger has a writer, or is in recovery: its owner must close it first."""
    SOURCE_UNREADABLE = "source_unreadable"
    """The ledger does not exist, or not all of its entries can be read."""
    COPY_DIFFERS = "copy_differs"
    """The copy was written and closed, and differs from the source when read back."""
    FAILED = "failed"
    """A cluster, the journal or the JVM does not answer, or refuses: to be tried again."""


class DeleteOutcome(StrEnum):
    """The outcome of a deletion."""

    DELETED = "deleted"
    """The metadata are removed; the bookies delete the entries later."""
    ABSENT = "absent"
    """The ledger does not exist; it counts as deleted."""
    NOT_RECORDED = "not_recorded"
    """The journal does not have it as our copy, or as a complete copy. Nothing was changed."""
    REFUSED = "refused"
    """The existing ledger is not the journalled one. Nothing was changed."""
    FAILED = "failed"
    """The deletion failed or was not answered; try again."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of a copy."""

    ledger_id: int
    outcome: CopyOutcome
    source: Ledger | None = None
    """The source's facts, as far as they were read; with the digest of its entries once all were read."""
    target: Ledger | None = None
    """The target's facts without our provenance property, for comparison with the source."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The result of a deletion."""

    ledger_id: int
    outcome: DeleteOutcome
    detail: str = ""


POLICY_OUTCOMES: Mapping[CopyOutcome, LedgerOutcome] = {
    CopyOutcome.COPIED: LedgerOutcome.COPIED,
    CopyOutcome.COPY_DIFFERS: LedgerOutcome.COPIED,  # the policy compares, and orders the copy deleted and made again
    CopyOutcome.BUILT: LedgerOutcome.EXISTS,
    CopyOutcome.OWN_PARTIAL: LedgerOutcome.EXISTS,
    CopyOutcome.FOREIGN_CONFLICT: LedgerOutcome.EXISTS,
    CopyOutcome.SOURCE_UNREADABLE: LedgerOutcome.SOURCE_UNREADABLE,
    CopyOutcome.SOURCE_OPEN: LedgerOutcome.FAILED,
    CopyOutcome.FAILED: LedgerOutcome.FAILED,
}
"""The outcome that the switching policy receives."""

_ZOOKEEPER, _META_STORE, _QUORUM_TIMEOUT, _TIMEOUT, _BUSY = -9, -18, -21, -23, -105
_UNREACHABLE = frozenset({_ZOOKEEPER, _META_STORE, _BUSY})
_SILENT = _UNREACHABLE | {_TIMEOUT, _QUORUM_TIMEOUT}


def outcome_of_failure(phase: str, code: int | None) -> CopyOutcome:
    """Return the outcome for a failure in Java: a source that answers and cannot be read is not tried again.

    `phase` is `source-…` or `target-…`; `code` is the `BKException.Code`, 0 or None for any other exception.
    """
    side, _, step = phase.partition("-")
    is_unreachable = step == "connect" or code in (_UNREACHABLE if step == "read" else _SILENT)
    return CopyOutcome.SOURCE_UNREADABLE if side == "source" and not is_unreachable else CopyOutcome.FAILED
