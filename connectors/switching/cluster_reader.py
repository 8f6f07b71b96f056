"""The executor's readings for the policy: live brokers, BookKeeper clusters, inventories and prechecks."""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
from msgspec import structs
from pydantic import TypeAdapter, ValidationError

from connectors.bookkeeper.cluster import (
    FoundLedgers,
    ListedLedgers,
    confirm_provenance,
    list_ledgers,
    read_cluster,
    read_ledgers,
)
from connectors.bookkeeper.copy_journal import CopiedLedger
from connectors.pulsar.referrers import Inventory, read_references
from connectors.switching.clusters import ClusterMetadata, ClusterSessions, time_limit
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import (
    NotConnectedError,
    Reader,
    UnreadError,
    ZooKeeperSession,
    describe_zookeeper_error,
    outcome_of,
)
from policies.observations import Outcome, Reading
from policies.switching.ledgers import (
    ClusterSnapshot,
    Layout,
    Ledger,
    Reference,
    StayingLedgers,
    TargetPolicy,
    find_owner,
    with_ledger,
)
from policies.switching.precheck import (
    PrecheckSnapshot,
    TargetLedgers,
    ids_in_target,
    ids_to_import,
    precheck,
)
from policies.switching.readings import (
    LowerCounter,
    SwitchBrokers,
    SwitchCluster,
    SwitchInventory,
    SwitchInventoryPart,
    SwitchPrecheck,
)
from policies.switching.settings import SwitchingSettings
from policies.units import UserError

# Reads the input of a precheck from the ZooKeepers of the brokers and of both BookKeeper clusters.
#
# It writes nothing and takes no id. Values that cannot be read stay unknown in the snapshot, which is not ready then.

Value = TypeVar("Value")

_READ_SECONDS = 10.0
_INVENTORY_SECONDS = 600.0
_UNREAD = (UnreadError, NotConnectedError)


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """The snapshot, and the problems of reading it."""

    snapshot: PrecheckSnapshot
    problems: tuple[str, ...]
    """One line each: place and reason."""


def take_snapshot(
    sessions: ClusterSessions,
    source: str,
    target: str,
    bootstrap: str,
    rules: SwitchingSettings,
    registered: Collection[str] = (),
) -> SnapshotResult:
    """Read the whole input of a precheck, within the validity of a reading.

    Args:
        source: the cluster that the brokers write to now.
        target: the cluster that they will write to.
        bootstrap: name of the cluster of the ledgers without attribution.
        registered: names of clusters that references may be attributed to, beside those of the settings.

    Raises:
        UserError: a file of a connection cannot be used, or a cluster, chroot or root does not exist.
    """
    reader = _SnapshotReader(sessions, time_limit(rules.precheck_validity.total_seconds()))
    seen = reader.read(sessions.find_metadata(source), sessions.find_metadata(target), bootstrap, rules)
    seen = replace(seen, clusters=frozenset({*sessions.settings.clusters, *registered}))
    return SnapshotResult(seen, tuple(dict.fromkeys(reader.problems)))


class _SnapshotReader:
    """Reads the parts one after the other, and collects the problems."""

    def __init__(self, sessions: ClusterSessions, left_seconds: Callable[[], float]) -> None:
        self._sessions = sessions
        self._left_seconds = left_seconds
        self.problems: list[str] = []

    def read(
        self, source: ClusterMetadata, target: ClusterMetadata, bootstrap: str, rules: SwitchingSettings
    ) -> PrecheckSnapshot:
        references_ms, leave_out = _now_ms(), self._sessions.settings.leave_out
        inventory = self._try_read(self._sessions.brokers, lambda reader: read_references(reader, leave_out))
        known = inventory or Inventory()
        self.problems += known.problems
        pair = [(cluster, self._read_cluster(cluster)) for cluster in (source, target)]
        (_, source_seen), (_, target_seen) = pair

        def find_holders(ledger_ids: Collection[int]) -> dict[str, Collection[int]]:
            """Return which cluster has which ledgers. A cluster that cannot be read counts as having all."""
            found = {each.name: self._read_ledgers(each, seen.layout, ledger_ids) for each, seen in pair}
            return {name: ledger_ids if ledgers is None else ledgers.ids for name, ledgers in found.items()}

        seen = PrecheckSnapshot(
            source=source_seen,
            target=target_seen,
            references=tuple(known.references),
            references_complete=inventory is not None and not inventory.problems,
            references_ms=references_ms,
            bootstrap=bootstrap,
            existing=None,
            staying=known.staying(bootstrap, find_holders),
            left_out=tuple(known.left_out),
        )
        wanted = ids_to_import(seen, rules)
        found = self._find_existing(target, target_seen.layout, wanted | ids_in_target(seen), rules.target_policy)
        if found is None:
            return seen
        existing, ledgers = found
        facts = self._read_ledgers(source, source_seen.layout, wanted & existing.ids)
        seen = replace(seen, existing=existing, source_facts=facts.facts if facts is not None else {})
        return self._add_journal(seen, existing, ledgers, wanted - existing.ids)

    def _add_journal(
        self, seen: PrecheckSnapshot, existing: TargetLedgers, found: FoundLedgers, missing: Iterable[int]
    ) -> PrecheckSnapshot:
        """Add which found ledgers are Headgate's own copies, and which missing ones the target once had.

        The policy may have lost its checkpoint, so only the journal shows either.
        """
        journal = self._sessions.open_journal(seen.source, seen.target)
        if journal is None:
            return seen
        try:
            if found.provenances:
                ledgers, proved = confirm_provenance(found, journal)
                facts = {each: _add_digest(ledger, proved.get(each)) for each, ledger in ledgers.items()}
                sources = {i: _add_digest(old, proved.get(i), old.created_ms) for i, old in seen.source_facts.items()}
                seen = replace(seen, existing=replace(existing, facts=facts), source_facts=sources)
            return replace(seen, deleted=frozenset(filter(journal.came_from_target, missing)))
        except ZnodeError as error:
            self.problems.append(f"{self._sessions.brokers.name}: {error}")
            return seen

    def _read_cluster(self, cluster: ClusterMetadata) -> ClusterSnapshot:
        name, session, ledgers_root = cluster
        read_ms = _now_ms()
        found = self._try_read(session, lambda reader: read_cluster(reader, name, ledgers_root, read_ms))
        return found or ClusterSnapshot(
            name=name, instance_id=None, root=None, layout=None, generator=None, read_ms=read_ms
        )

    def _find_existing(
        self, target: ClusterMetadata, layout: Layout | None, wanted: frozenset[int], policy: TargetPolicy
    ) -> tuple[TargetLedgers, FoundLedgers] | None:
        """Find the target's ledgers. If they are listed, only the wanted ones are read."""
        read_ms, listed = _now_ms(), ListedLedgers(frozenset(), is_complete=False)
        if layout is None:
            return None
        if policy is TargetPolicy.DEDICATED:
            whole = self._try_read(target.session, lambda reader: list_ledgers(reader, target.ledgers_root, layout))
            if whole is None:
                return None
            listed = whole
        found = self._read_ledgers(target, layout, wanted & listed.ids if listed.is_complete else wanted)
        if found is None:
            return None
        root = f"{target.session.connection.chroot}{target.ledgers_root}"
        existing = TargetLedgers(
            ids=listed.ids | found.ids,
            read_ms=read_ms,
            listed=listed.is_complete,
            looked_up=wanted,
            facts=found.facts,
            misplaced=tuple(root + path for path in listed.misplaced),
        )
        return existing, found

    def _read_ledgers(
        self, cluster: ClusterMetadata, layout: Layout | None, ledger_ids: Iterable[int]
    ) -> FoundLedgers | None:
        if layout is None:
            return None
        found = self._try_read(
            cluster.session, lambda reader: read_ledgers(reader, cluster.ledgers_root, layout, ledger_ids)
        )
        self.problems += found.problems if found is not None else ()
        return found

    def _try_read(self, session: ZooKeeperSession, read: Callable[[Reader], Value]) -> Value | None:
        """Return the result; None after a failure, which is added to the problems."""
        try:
            return read(session.reader(self._left_seconds))
        except _UNREAD as error:
            self.problems.append(f"{session.name}: {describe_zookeeper_error(error)}")
            return None


def _add_digest(ledger: Ledger, proved: CopiedLedger | None, created_ms: int | None = None) -> Ledger:
    """Add the digest by which the journal proved a copy, to a ledger that is still the one that was compared."""
    if proved is None or created_ms not in (None, proved.created_ms):
        return ledger
    is_same = (ledger.length_bytes, ledger.last_entry_id) == (proved.length_bytes, proved.last_entry_id)
    return structs.replace(ledger, entries_digest=proved.entries_digest) if is_same else ledger


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ClusterReader:
    """Reads one broker cluster. Thread-safe.

    Args:
        brokers_path: the znode in which live brokers register.
    """

    def __init__(self, cluster: str, sessions: ClusterSessions, brokers_path: str, rules: SwitchingSettings) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._brokers_path = brokers_path
        self._rules = rules

    def brokers(self) -> SwitchBrokers:
        """Read the registered brokers."""
        try:
            reader = self._sessions.brokers.reader(time_limit(_READ_SECONDS))
            reader.read(reader.client.sync_async, self._brokers_path)
            names = reader.read(reader.client.get_children_async, self._brokers_path)
        except (*_UNREAD, UserError) as error:
            return SwitchBrokers(cluster=self._cluster, **_describe_failure(error))
        return SwitchBrokers(cluster=self._cluster, outcome=Outcome.OK, brokers=tuple(sorted(names or ())))

    def clusters(self) -> Iterator[SwitchCluster]:
        """Read all BookKeeper clusters of the settings."""
        for name in self._sessions.settings.clusters:
            began = time.monotonic()
            try:
                seen = self._sessions.read_cluster(name)
                lower = self._sessions.read_lower_counters(name, seen.generator.hob if seen.generator else None)
            except (*_UNREAD, UserError) as error:
                yield SwitchCluster(cluster=self._cluster, name=name, **_describe_failure(error))
            else:
                known = {name: getattr(seen, name) for name in ("name", "instance_id", "root", "layout", "generator")}
                yield SwitchCluster(
                    cluster=self._cluster,
                    outcome=Outcome.OK,
                    **known,
                    lower=tuple(LowerCounter(hob=hob, given=given) for hob, given in lower.items()),
                    took_ms=_elapsed_ms(began),
                )

    def precheck(self, source: str, target: str, bootstrap: str) -> SwitchPrecheck:
        """Run a precheck of a switch."""
        try:
            taken = take_snapshot(self._sessions, source, target, bootstrap, self._rules)
        except (*_UNREAD, UserError) as error:
            return SwitchPrecheck(cluster=self._cluster, source=source, target=target, **_describe_failure(error))
        return precheck(self._cluster, taken.snapshot, self._rules, _now_ms())

    def inventory(
        self, bootstrap: str, source: str = "", target: str = "", *, valid_ms: int = 1_200_000, moved_too: bool = False
    ) -> Iterator[Reading]:
        """Yield the parts of an inventory, and its manifest last: all references, and the ledgers found in the target.

        Of the target's ledgers those are looked up that references in the source name; with `moved_too`, also those
        that references in the target name.

        If the inventory cannot be read completely, yields only a manifest with the reason.
        """
        name, began = f"{_now_ms()}-{secrets.token_hex(4)}", time.monotonic()
        try:
            found = self._read_references()
            references, staying = found.references, found.staying(bootstrap, self._find_holders)
            owners = {source, target} if moved_too else {source}
            wanted = {r.ledger_id for r in with_ledger(references) if find_owner(r, bootstrap) in owners}
            existing = self._find_existing(wanted, source, target) if target else {}
            yield from make_inventory(
                self._cluster, name, references, existing, target, _elapsed_ms(began),
                staying=staying, left_out=found.left_out, valid_ms=valid_ms, moved_too=moved_too,
            )  # fmt: skip
        except (*_UNREAD, ZnodeError, UserError, ValueError) as error:
            yield SwitchInventory(cluster=self._cluster, inventory=name, **_describe_failure(error))

    def _read_references(self) -> Inventory:
        reader = self._sessions.brokers.reader(time_limit(_INVENTORY_SECONDS))
        reader.read(reader.client.sync_async, "/")
        found = read_references(reader, self._sessions.settings.leave_out)
        if found.problems:
            raise ValueError(f"{len(found.problems)} references cannot be read: {'; '.join(found.problems[:3])}")
        return found

    def _find_holders(self, ledger_ids: Collection[int]) -> dict[str, set[int]]:
        clusters = self._sessions.settings.clusters
        return {name: self._sessions.find_ledgers(name, ledger_ids).ids for name in clusters}

    def _find_existing(self, wanted: Collection[int], source: str, target: str) -> dict[int, Ledger]:
        found = self._sessions.find_ledgers(target, wanted)
        if found.problems:
            raise ValueError(f"ledgers of {target} cannot be read: {'; '.join(found.problems[:3])}")
        pair = [self._sessions.read_cluster(name) for name in (source, target)]
        journal = self._sessions.open_journal(*pair)
        if journal is None:
            unknown = next(each.name for each in pair if each.instance_id is None)
            raise ValueError(f"the INSTANCEID of {unknown} cannot be read")
        return confirm_provenance(found, journal)[0]


def _describe_failure(error: Exception) -> dict[str, object]:
    if isinstance(error, _UNREAD):
        return {"outcome": outcome_of(error), "detail": describe_zookeeper_error(error)}
    return {"outcome": Outcome.ERROR, "detail": str(error)}


def _elapsed_ms(began: float) -> int:
    """Return the elapsed time, rounded up: a reading may count as older than it is, but never as newer."""
    return int(1000 * (time.monotonic() - began)) + 1


# The records of an inventory: its parts, each well below the record size limit, and the manifest that completes it.
#
# The size of a part as JSON limits it, because topic names, subscription names and metadata can have any length.

MAX_PART_REFERENCES = 1_000
"""Limit of the references in a part."""
MAX_PART_BYTES = 256 * 1024
"""A part is full at this size. Its last reference may exceed it by the size of one znode (at most 1 MiB)."""

_Part = tuple[list[Reference], list[Ledger]]


def make_inventory(
    cluster: str,
    inventory: str,
    references: Iterable[Reference],
    existing: Mapping[int, Ledger],
    target: str,
    took_ms: int,
    *,
    staying: Iterable[StayingLedgers] = (),
    left_out: Iterable[str] = (),
    valid_ms: int = 1_200_000,
    moved_too: bool = False,
) -> Iterator[Reading]:
    """Yield the parts of an inventory, and its manifest last. The iterables are read while the parts are consumed.

    Args:
        inventory: a unique name.
        existing: the ledgers found in the target, by id; each is in one part, with its first reference.
        target: the cluster in which each referenced ledger was looked up; empty: none.
        staying: counts of other znodes that name ledgers.
        left_out: znodes that were not read, by the settings.
        valid_ms: how long it permits what deletes or forgets.
        moved_too: ledgers of references in the target were looked up, too.

    Raises:
        UserError: a reference does not fit a record, such as one to a negative id.
    """
    number = count = 0
    for names, ledgers in _split_parts(references, existing):
        yield SwitchInventoryPart(
            cluster=cluster,
            outcome=Outcome.OK,
            inventory=inventory,
            part=number,
            references=tuple(names),
            existing=tuple(ledgers),
        )
        number += 1
        count += len(names)
    yield SwitchInventory(
        cluster=cluster,
        outcome=Outcome.OK,
        inventory=inventory,
        parts=number,
        references=count,
        target=target,
        took_ms=took_ms,
        staying=tuple(staying),
        left_out=tuple(left_out),
        valid_ms=valid_ms,
        moved_too=moved_too,
    )


def _split_parts(references: Iterable[Reference], existing: Mapping[int, Ledger]) -> Iterator[_Part]:
    """Yield at least one part. A ledger that no reference names stands in one of the last parts."""
    left, size_bytes = dict(existing), 0
    part: _Part = ([], [])

    def pairs() -> Iterator[tuple[Reference | None, Ledger | None]]:
        for reference in references:
            yield reference, left.pop(reference.ledger_id, None)
        for ledger in left.values():
            yield None, ledger

    for reference, ledger in pairs():
        names = [] if reference is None else [_check_reference(reference)]
        ledgers = [] if ledger is None else [ledger]
        part[0].extend(names)
        part[1].extend(ledgers)
        size_bytes += sum(len(msgspec.json.encode(structs.asdict(each))) for each in (*names, *ledgers))
        if size_bytes >= MAX_PART_BYTES or len(part[0]) >= MAX_PART_REFERENCES:
            yield part
            part, size_bytes = ([], []), 0
    yield part


_REFERENCE: TypeAdapter[Reference] = TypeAdapter(Reference)


def _check_reference(reference: Reference) -> Reference:
    try:
        return _REFERENCE.validate_python(reference)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise UserError(
            f"{reference.path}: cannot be part of an inventory ({first['loc'][0]}: {first['msg']}); mend this znode"
        ) from None
