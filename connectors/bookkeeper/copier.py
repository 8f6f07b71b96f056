"""Copies ledgers from one BookKeeper cluster to another, with the real client in a JVM of its own.

A copy has the id of the source's ledger, or a new one from the target; the journal records the id before the ledger is
created.

The source is never changed: ledgers are opened without recovery, so no live owner is fenced. The target is never
overwritten, and only ledgers that both the journal and their provenance property mark as ours are deleted there. After
a kill at any moment, the same call finds the existing copy and reports it.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from msgspec import structs
from pydantic import BaseModel, ConfigDict

from connectors.bookkeeper.copy_journal import PROVENANCE, CopiedLedger, CopyJournal, CopyRecord, OtherSourceError
from connectors.bookkeeper.gateway import BookKeeperJvm
from connectors.bookkeeper.settings import CopyReplication
from policies.switching.ledgers import Ledger, same_ledger
from policies.switching.readings import LedgerOutcome
from policies.units import MAX_INT64, UserError

CONCURRENCY = 16
WINDOW_BYTES = 1024 * 1024
"""All copies together read 16 MiB at a time, because bookies have other readers, too."""


class NotPossibleError(Exception):
    """An order about a ledger cannot be carried out now; the message has the reason. It is tried again."""


class SourceUnreadableError(NotPossibleError):
    """The source answers, but lacks the ledger or some of its entries. So the copy is not tried again."""


class NotRecordedError(NotPossibleError):
    """The journal does not have a ledger as our copy, or as a complete copy. Nothing was deleted."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The target's ledger under the id of a copy."""

    outcome: LedgerOutcome
    """`copied`: it was made now, closed and read back. `exists`: it was there before, and was not changed."""
    source: Ledger | None = None
    """The source's ledger; with the digest of its entries once all were read."""
    target: Ledger | None = None
    """The target's ledger without our provenance property; None if its id is journalled for another source."""
    detail: str = ""
    is_ours: bool = False
    """Whether it is our copy; else it was made by somebody else."""
    is_equal: bool = False
    """Whether it is complete and equal to the source's. Our copy that is not must be deleted and made again."""


class JavaResult(BaseModel):
    """Java's answer to a request."""

    model_config = ConfigDict(frozen=True)

    status: str
    source: Ledger | None = None
    target: Ledger | None = None
    phase: str = ""
    """The failed phase: `source-…` or `target-…`."""
    code: int | None = None
    """The failure's `BKException.Code`; 0 or None for any other exception."""
    detail: str = ""
    new_id: int | None = None

    def error(self) -> NotPossibleError:
        """Return the error of a failure: a source that answers and cannot be read is not tried again."""
        side, _, step = self.phase.partition("-")
        is_unreachable = step == "connect" or self.code in (_UNREACHABLE if step == "read" else _SILENT)
        kind = SourceUnreadableError if side == "source" and not is_unreachable else NotPossibleError
        return kind(": ".join(filter(None, (self.phase, self.detail))) or self.status)


_ZOOKEEPER, _META_STORE, _QUORUM_TIMEOUT, _TIMEOUT, _BUSY = -9, -18, -21, -23, -105
_UNREACHABLE = frozenset({_ZOOKEEPER, _META_STORE, _BUSY})
_SILENT = _UNREACHABLE | {_TIMEOUT, _QUORUM_TIMEOUT}

_OURS = frozenset({"copied", "own_closed", "own_partial"})
"""States in which Java found the journalled provenance in the target's ledger."""
COMPARED = ("length_bytes", "last_entry_id", "created_ms")
"""The source's facts that must be as they were when it was copied."""


class LedgerCopier:
    """Copies and deletes ledgers. Safe to use from many threads.

    Args:
        jvm: the JVM of the client, which belongs to this copier; close it. Its next use starts another one.
        journal: the journal of copies from this source to this target.
        source_uri: BookKeeper's address of the source's metadata, such as
            `zk+hierarchical://zk-1:2181;zk-2:2181/ledgers`; `target_uri` is the target's.
        password: of the ledgers; Pulsar's managed ledgers have an empty one by default.
        replication: the copies' ensemble and quorums; None for those of the source.
        concurrency: number of ledgers to copy in parallel.
        window_bytes: bytes of a ledger to read at once, estimated by its entries so far; a copy holds two windows.

    Raises:
        UserError: source and target are the same cluster.
    """

    def __init__(
        self,
        jvm: BookKeeperJvm,
        journal: CopyJournal,
        source_uri: str,
        target_uri: str,
        *,
        password: bytes = b"",
        replication: CopyReplication | None = None,
        concurrency: int = CONCURRENCY,
        timeout: timedelta = timedelta(seconds=30),
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        if journal.source == journal.target:
            raise UserError(f"source and target are the same BookKeeper cluster ({journal.source}): name another.")
        self.jvm = jvm
        self.journal = journal
        self._sizes = replication.model_dump() if replication else {}
        seconds = timeout.total_seconds()
        jvm.settings = {
            "source": _client_settings(source_uri, password, seconds),
            "target": _client_settings(target_uri, password, seconds),
            "provenance_name": PROVENANCE,
            "timeout_ms": round(seconds * 1000),
            "window_bytes": window_bytes,
            "concurrency": concurrency,
            "bytes_per_second": 0,
        }

    def copy(self, ledger_id: int, *, new_id: bool = False) -> CopyResult:
        """Copy one ledger, or return the ledger that has its id in the target.

        Args:
            new_id: copy the ledger under an id from the target. Another call for the ledger uses the same id. If our
                copy already exists under the old id, it counts; so take the id from the target's ledger.

        Raises:
            SourceUnreadableError: the source's ledger cannot be read.
            NotPossibleError: a cluster does not answer, or refuses; or the ledger is still written to.
            ZnodeError: the journal cannot be read or written.
            JvmDiedError: the JVM cannot be started, or ended; JavaError: Java threw an unexpected exception.
            ValueError: this is no ledger's id; -1 means "no ledger".
        """
        _check(ledger_id)
        try:
            return self._copy_under_new_id(ledger_id) if new_id else self._copy_under_own_id(ledger_id)
        except OtherSourceError as error:
            return CopyResult(LedgerOutcome.EXISTS, detail=str(error))

    def delete(self, ledger_id: int, *, own: bool) -> None:
        """Delete our copy from the target and from the journal; or a ledger from the source.

        The metadata are removed, now or before; the bookies delete the entries later. The source's ledger must be
        unchanged since it was copied completely. Raises as `copy` does, NotRecordedError if there is no such copy, and
        OtherSourceError if the journal has it of another source; then nothing was deleted.
        """
        _check(ledger_id)
        record = self.journal.find(ledger_id)
        if record is None or not (own or record.copied):
            raise NotRecordedError("no complete copy of it is journalled")
        expected = _identity(record) if own else {name: getattr(record.copied, name) for name in COMPARED}
        if self._run(ledger_id, "delete_own" if own else "delete_old", expected).status == "refused":
            raise NotPossibleError("the ledger there is not the journalled one")
        if own:
            self.journal.forget(record)

    def _copy_under_own_id(self, ledger_id: int) -> CopyResult:
        if self.journal.came_from_target(ledger_id) and self._find_state(ledger_id, "", ledger_id) == "missing":
            detail = f"ledger {ledger_id} was deleted from the target, which may still hold entries of it"
            return CopyResult(LedgerOutcome.EXISTS, detail=detail)
        # An earlier intent for a new id counts only while our copy under that id exists.
        while (record := self.journal.intend(ledger_id)).target_id is not None:
            if self._exists(record):
                raise NotPossibleError(
                    f"our copy of it has id {record.target_id} in the target: it cannot have its own as well"
                )
            self.journal.forget(record)
        return self._copy(record)

    def _copy_under_new_id(self, ledger_id: int) -> CopyResult:
        """Draw the new id before the intent is written, so that it is drawn once.

        An earlier intent for the ledger's own id counts only while our copy under that id exists.
        """
        record = self.journal.find(ledger_id)
        if record is not None and record.target_id is None and not self._exists(record):
            self.journal.forget(record)
            record = None
        if record is None:
            record = self.journal.intend(ledger_id, self._run(ledger_id, "new_id", {}).new_id)
        result = self._copy(record)
        # A copied ledger that became foreign needs a person.
        if result.is_ours or record.target_id is None or record.copied is not None:
            return result
        self.journal.forget(record)
        raise NotPossibleError(
            f"id {record.target_id}, which the target gave, was taken by others: the next try gets another one"
        )

    def _copy(self, record: CopyRecord) -> CopyResult:
        """Make the copy of a journalled intent, and record in the journal that the copy is equal.

        The policy's own rule decides whether it is equal. But for the id in the target, which may be another one,
        everything must be equal.
        """
        answer = self._run(record.ledger_id, "copy", {**_identity(record), **self._sizes})
        if answer.status == "source_open":
            raise NotPossibleError("the ledger is still written to: its owner must close it first")
        source, target, is_ours = _without_mark(answer.source), _without_mark(answer.target), answer.status in _OURS
        if target is not None:
            target = structs.replace(target, provenance=record.source if is_ours else "")
        is_equal = (
            source is not None
            and target is not None
            and target.ledger_id == record.id_in_target
            and same_ledger(source, structs.replace(target, ledger_id=source.ledger_id))
        )
        if source is not None and is_ours and is_equal:
            copied = CopiedLedger(
                length_bytes=source.length_bytes,
                last_entry_id=source.last_entry_id,
                entries_digest=source.entries_digest or "",
                created_ms=source.created_ms or 0,
            )
            self.journal.complete(record, copied)
        outcome = LedgerOutcome.COPIED if answer.status == "copied" else LedgerOutcome.EXISTS
        return CopyResult(outcome, source, target, is_ours=is_ours, is_equal=is_equal)

    def _exists(self, record: CopyRecord) -> bool:
        return self._find_state(record.ledger_id, record.provenance, record.id_in_target) == "own"

    def _find_state(self, ledger_id: int, provenance: str, target_id: int) -> str:
        """Return the state of an id in the target: `own`, `foreign`, or `missing`."""
        return self._run(ledger_id, "look", {"provenance": provenance, "target_id": target_id}).status

    def _run(self, ledger_id: int, kind: str, more: Mapping[str, object]) -> JavaResult:
        request = msgspec.json.encode({"ledger_id": ledger_id, "kind": kind, **more}).decode()
        answer = JavaResult.model_validate_json(self.jvm.run(request))
        if answer.status == "failed":
            raise answer.error()
        return answer


def _client_settings(uri: str, password: bytes, timeout_seconds: float) -> dict[str, object]:
    """Return the settings of BookKeeper's client of a cluster."""
    # The client's own timeouts end first, with a reason; each of its requests may take several attempts.
    seconds = max(1, round(timeout_seconds / 3))
    properties = {
        "metadataServiceUri": uri,
        "zkTimeout": str(1000 * seconds),
        "addEntryTimeoutSec": str(seconds),
        "readEntryTimeoutSec": str(seconds),
        # Pulsar's brokers use this protocol, too. Without protobuf, client and bookies do less work.
        "useV2WireProtocol": "true",
        "numIOThreads": "2",
        "numWorkerThreads": "2",
    }
    return {"properties": properties, "password": base64.b64encode(password).decode()}


def _without_mark(ledger: Ledger | None) -> Ledger | None:
    """Return a ledger without our provenance property, which is not part of the copied ledger."""
    if ledger is None:
        return None
    custom = {name: value for name, value in ledger.custom_metadata.items() if name != PROVENANCE}
    return structs.replace(ledger, custom_metadata=custom)


def _identity(record: CopyRecord) -> dict[str, object]:
    """Return the identity of the copy in the target, for Java."""
    return {"provenance": record.provenance, "target_id": record.id_in_target}


def _check(ledger_id: int) -> None:
    if not 0 <= ledger_id <= MAX_INT64:
        raise ValueError(f"{ledger_id} is no ledger id: it must lie between 0 and {MAX_INT64}")
