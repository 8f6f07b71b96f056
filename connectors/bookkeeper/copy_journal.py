"""The journal of copies: conditionally written znodes that record each copy before its ledger is created.

A ledger in the target is ours only if its custom metadata carry the token of its journal record. Each intent has a
random token, which is written before the ledger is created. So the rule holds after a kill at any moment.
"""

import secrets
import time

import msgspec
from msgspec.structs import replace

from connectors.zookeeper.json_znodes import JsonZnodes, ZnodeConflictError, create, delete, put
from connectors.zookeeper.session import ZooKeeperSession
from policies.switching.ledgers import NO_LEDGER, Layout, path_of

PROVENANCE = "headgate.copy"
"""The custom metadata property of a copy: the source's instance id and the token, with a slash between."""

REGISTRY_ROOT = "/admin/bookie-clusters"
"""The root of the registry of a broker cluster's BookKeeper clusters, in the brokers' ZooKeeper."""

COPIES = f"{REGISTRY_ROOT}/copies"
"""The root of the journal of copies."""

_TOKEN_BYTES = 16
_ONLY_WAY_SECONDS = 60.0
"""How long it is remembered that no ledger was copied the other way; a switch back comes days later."""


class OtherSourceError(ZnodeConflictError):
    """A ledger's record is of another source, so its copy is none of this one."""


class CopiedLedger(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a source ledger when its copy was found equal."""

    length_bytes: int
    last_entry_id: int
    entries_digest: str
    created_ms: int
    """When ZooKeeper created its metadata; a later ledger with the same id is another ledger."""


class CopyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A journalled copy, as its znode has it."""

    ledger_id: int = NO_LEDGER
    source: str
    """Instance id of the source cluster."""
    target: str
    token: str
    copied: CopiedLedger | None = None
    """None until the copy is found equal."""
    target_id: int | None = None
    """The ledger's new id in the target; None if it keeps its id."""
    version: int = 0
    """The znode's version; its content has no such field, because a default is left out."""

    @property
    def id_in_target(self) -> int:
        """The id of the copy."""
        return self.ledger_id if self.target_id is None else self.target_id

    @property
    def provenance(self) -> str:
        """The value of the copy's property `PROVENANCE`."""
        return f"{self.source}/{self.token}"


class CopyJournal:
    """The copies from one cluster to another: one znode for each, in the folders of BookKeeper's long layout.

    Safe to use from many threads. `source` and `target` are instance ids.
    """

    def __init__(self, session: ZooKeeperSession, *, source: str, target: str) -> None:
        self._session = session
        self._nodes = JsonZnodes(session, "the journal of copies")
        self.source = source
        self.target = target
        self._both_ways, self._only_way_until = False, 0.0

    def find(self, ledger_id: int) -> CopyRecord | None:
        """Return the record of a ledger's copy; None if no copy was intended.

        Raises ZnodeError if the journal cannot be read, OtherSourceError if the record is of another source.
        """
        found = self._nodes.get(self._node(ledger_id), CopyRecord)
        if found is None:
            return None
        if ((record := found.value).source, record.target) != (self.source, self.target):
            raise OtherSourceError(
                f"ledger {ledger_id} of {record.target} is journalled as a copy from {record.source}"
            )
        return replace(record, ledger_id=ledger_id, version=found.version)

    def intend(self, ledger_id: int, target_id: int | None = None) -> CopyRecord:
        """Record that a copy will be created, and return the record; an earlier one wins. Raises as `find` does.

        `target_id` is the id in the target, if it is another one.
        """
        token, path = secrets.token_hex(_TOKEN_BYTES), self._node(ledger_id)
        record = CopyRecord(
            ledger_id=ledger_id, source=self.source, target=self.target, token=token, target_id=target_id
        )
        if not self._nodes.commit(create(path, record)):
            if (found := self.find(ledger_id)) is not None:
                return found
            self._nodes.ensure(path.rpartition("/")[0])
            if not self._nodes.commit(create(path, record)):
                raise ZnodeConflictError(f"the record of ledger {ledger_id} is changed by others just now")
        return record

    def complete(self, record: CopyRecord, copied: CopiedLedger) -> CopyRecord:
        """Record that the copy is equal.

        Raises:
            ZnodeError: the journal cannot be written.
            ZnodeConflictError: the record was changed since it was read.
        """
        if record.copied == copied:
            return record
        completed = replace(record, copied=copied, version=0)
        if not self._nodes.commit(put(self._node(record.ledger_id), completed, record.version)):
            raise ZnodeConflictError(f"the record of ledger {record.ledger_id} was changed by others")
        return replace(completed, version=record.version + 1)

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
        if not self._both_ways and time.monotonic() >= self._only_way_until:
            self._both_ways = bool(self._nodes.children(f"{COPIES}/{self.source}"))
            self._only_way_until = time.monotonic() + _ONLY_WAY_SECONDS
        if not self._both_ways:
            return False
        try:
            record = CopyJournal(self._session, source=self.target, target=self.source).find(ledger_id)
        except OtherSourceError:
            return False
        return record is not None and record.copied is not None and record.target_id is None

    def _node(self, ledger_id: int) -> str:
        return f"{COPIES}/{self.target}{path_of(Layout.LONG_HIERARCHICAL, ledger_id)}"
