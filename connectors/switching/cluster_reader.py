"""The executor's readings for the policy: live brokers, BookKeeper clusters, inventories and prechecks."""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from msgspec import structs

from connectors.bookkeeper.cluster import (
    FoundLedgers,
    ListedLedgers,
    confirm_provenance,
    deleted_from_target,
    list_ledgers,
    read_cluster,
    read_ledgers,
)
from connectors.bookkeeper.copy_journal import COPIES, CopiedLedger, CopyJournal
from connectors.pulsar.referrers import Inventory, read_references
from connectors.switching.clusters import ClusterMetadata, ClusterSessions, make_inventory, time_limit
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
from policies.switching.ledgers import ClusterSnapshot, Layout, Ledger, TargetPolicy, find_owner, with_ledger
from policies.switching.precheck import (
    PrecheckRules,
    PrecheckSnapshot,
    TargetLedgers,
    ids_in_target,
    ids_to_import,
    precheck,
    to_reading,
)
from policies.switching.readings import (
    GeneratorReading,
    LowerCounter,
    SwitchBrokers,
    SwitchCluster,
    SwitchInventory,
    SwitchPrecheck,
)
from policies.units import UserError

# Reads the input of a precheck from the ZooKeepers of the brokers and of both BookKeeper clusters.
#
# It writes nothing and takes no id. Values that cannot be read stay unknown in the snapshot, which is not ready then.

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """The snapshot, and the problems of reading it."""

    snapshot: PrecheckSnapshot
    problems: tuple[str, ...]
    """One line each: place and reason."""


def take_snapshot(
    brokers: ZooKeeperSession,
    source: ClusterMetadata,
    target: ClusterMetadata,
    bootstrap: str,
    rules: PrecheckRules,
    leave_out: Collection[str] = (),
    clusters: Collection[str] = (),
) -> SnapshotResult:
    """Read the whole input of a precheck, within the validity of a reading.

    Args:
        brokers: of the ZooKeeper with schema locators and cursors.
        source: the cluster that the brokers write to now.
        target: the cluster that they will write to.
        bootstrap: name of the cluster of the ledgers without attribution.
        clusters: names of all BookKeeper clusters that references may be attributed to.

    Raises:
        UserError: a file of a connection cannot be used, or a chroot or root does not exist.
    """
    reader = _SnapshotReader(time.monotonic() + rules.validity_ms / 1000, leave_out)
    taken = reader.read(brokers, source, target, bootstrap, rules)
    return replace(taken, snapshot=replace(taken.snapshot, clusters=frozenset(clusters)))


class _SnapshotReader:
    """Reads the parts one after the other, and collects the problems."""

    def __init__(self, until: float, leave_out: Collection[str]) -> None:
        self._until = until
        self._leave_out = leave_out
        self._problems: list[str] = []

    def read(
        self,
        brokers: ZooKeeperSession,
        source: ClusterMetadata,
        target: ClusterMetadata,
        bootstrap: str,
        rules: PrecheckRules,
    ) -> SnapshotResult:
        references_ms = _now_ms()
        inventory = self._try_read(brokers, lambda reader: read_references(reader, self._leave_out))
        source_seen, target_seen = self._read_cluster(source), self._read_cluster(target)
        known = inventory or Inventory()
        self._problems += known.problems
        seen = PrecheckSnapshot(
            source=source_seen,
            target=target_seen,
            references=tuple(known.references),
            references_complete=inventory is not None and not inventory.problems,
            references_ms=references_ms,
            bootstrap=bootstrap,
            existing=None,
            staying=known.staying(
                bootstrap, lambda ids: self._find_holders((source, target), (source_seen, target_seen), ids)
            ),
            left_out=tuple(known.left_out),
        )
        wanted = ids_to_import(seen, rules)
        known_ids = self._find_existing(target, target_seen.layout, wanted | ids_in_target(seen), rules.policy)
        if known_ids is not None:
            existing, found = known_ids
            facts = self._read_ledgers(source, source_seen.layout, wanted & existing.ids)
            seen = replace(seen, existing=existing, source_facts=facts.facts if facts is not None else {})
            seen = self._add_journal(brokers, seen, existing, found)
            seen = self._add_deleted(brokers, seen, wanted - existing.ids)
        return SnapshotResult(seen, tuple(dict.fromkeys(self._problems)))

    def _find_holders(
        self, clusters: Iterable[ClusterMetadata], seen: Iterable[ClusterSnapshot], ledger_ids: Collection[int]
    ) -> dict[str, Collection[int]]:
        """Return which cluster has which of these ledgers. A cluster that cannot be read counts as having all."""
        found = {}
        for cluster, snapshot in zip(clusters, seen, strict=True):
            ledgers = self._read_ledgers(cluster, snapshot.layout, ledger_ids)
            found[cluster.name] = ledger_ids if ledgers is None else ledgers.ids
        return found

    def _add_journal(
        self, brokers: ZooKeeperSession, seen: PrecheckSnapshot, existing: TargetLedgers, found: FoundLedgers
    ) -> PrecheckSnapshot:
        """Add which found ledgers are Headgate's own copies; none if the journal cannot be read."""
        if not found.provenances or seen.source.instance_id is None or seen.target.instance_id is None:
            return seen
        journal = CopyJournal(brokers, COPIES, source=seen.source.instance_id, target=seen.target.instance_id)
        try:
            ledgers, proved = confirm_provenance(found, journal)
        except ZnodeError as error:
            self._problems.append(f"{brokers.name}: {error}")
            return seen
        facts = {ledger_id: _add_digest(ledger, proved.get(ledger_id)) for ledger_id, ledger in ledgers.items()}
        sources = {i: _add_digest(ledger, proved.get(i), ledger.created_ms) for i, ledger in seen.source_facts.items()}
        return replace(seen, existing=replace(existing, facts=facts), source_facts=sources)

    def _add_deleted(
        self, brokers: ZooKeeperSession, seen: PrecheckSnapshot, missing: Iterable[int]
    ) -> PrecheckSnapshot:
        """Add which missing ledgers the target once had, because the policy may have lost its checkpoint."""
        if seen.source.instance_id is None or seen.target.instance_id is None:
            return seen
        journal = CopyJournal(brokers, COPIES, source=seen.source.instance_id, target=seen.target.instance_id)
        try:
            return replace(seen, deleted=deleted_from_target(journal, missing))
        except ZnodeError as error:
            self._problems.append(f"{brokers.name}: {error}")
            return seen

    def _read_cluster(self, cluster: ClusterMetadata) -> ClusterSnapshot:
        read_ms = _now_ms()
        found = self._try_read(
            cluster.session, lambda reader: read_cluster(reader, cluster.name, cluster.ledgers_root, read_ms)
        )
        return found or ClusterSnapshot(
            name=cluster.name, instance_id=None, root=None, layout=None, generator=None, read_ms=read_ms
        )

    def _find_existing(
        self, target: ClusterMetadata, layout: Layout | None, wanted: Iterable[int], policy: TargetPolicy
    ) -> tuple[TargetLedgers, FoundLedgers] | None:
        """Find the target's ledgers. If they are listed, only the wanted ones are read."""
        read_ms, wanted = _now_ms(), frozenset(wanted)
        listed = ListedLedgers(frozenset(), is_complete=False)
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
        self._problems += found.problems if found is not None else ()
        return found

    def _try_read(self, session: ZooKeeperSession, read: Callable[[Reader], Value]) -> Value | None:
        """Return the result; None after a failure, which is added to the problems."""
        try:
            return read(session.reader(lambda: self._until - time.monotonic()))
        except (UnreadError, NotConnectedError) as error:
            self._problems.append(f"{session.name}: {describe_zookeeper_error(error)}")
            return None


def _add_digest(ledger: Ledger, proved: CopiedLedger | None, created_ms: int | None = None) -> Ledger:
    """Add the digest by which the journal proved a copy, to a ledger that is still the one that was compared."""
    if proved is None or created_ms not in (None, proved.created_ms):
        return ledger
    is_same = (ledger.length_bytes, ledger.last_entry_id) == (proved.length_bytes, proved.last_entry_id)
    return structs.replace(ledger, entries_digest=proved.entries_digest) if is_same else ledger


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_READ_SECONDS = 10.0
_INVENTORY_SECONDS = 600.0

_UNREAD = (UnreadError, NotConnectedError)


class ClusterReader:
    """Reads one broker cluster. Thread-safe.

    Args:
        brokers_path: the znode in which live brokers register.
    """

    def __init__(self, cluster: str, sessions: ClusterSessions, brokers_path: str, rules: PrecheckRules) -> None:
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
        for name in self._sessions.names:
            began = time.monotonic()
            try:
                seen = self._sessions.read_cluster(name)
                lower = self._sessions.read_lower_counters(name, seen.generator.hob if seen.generator else None)
            except (*_UNREAD, UserError) as error:
                yield SwitchCluster(cluster=self._cluster, name=name, **_describe_failure(error))
            else:
                yield _make_reading(self._cluster, seen, lower, _elapsed_ms(began))

    def precheck(self, source: str, target: str, bootstrap: str) -> SwitchPrecheck:
        """Run a precheck of a switch."""
        try:
            taken = take_snapshot(
                self._sessions.brokers,
                self._sessions.find_metadata(source),
                self._sessions.find_metadata(target),
                bootstrap,
                self._rules,
                self._sessions.leave_out,
                self._sessions.names,
            )
        except (*_UNREAD, UserError) as error:
            return SwitchPrecheck(cluster=self._cluster, source=source, target=target, **_describe_failure(error))
        return to_reading(precheck(taken.snapshot, self._rules, time.time_ns() // 1_000_000), self._cluster)

    def inventory(
        self, bootstrap: str, source: str = "", target: str = "", *, valid_ms: int = 1_200_000, moved_too: bool = False
    ) -> Iterator[Reading]:
        """Yield the parts of an inventory, and its manifest last: all references, and the ledgers found in the target.

        Of the target's ledgers those are looked up that references in the source name; with `moved_too`, also those
        that references in the target name.

        If the inventory cannot be read completely, yields only a manifest with the reason.
        """
        name, began = f"{time.time_ns() // 1_000_000}-{secrets.token_hex(4)}", time.monotonic()
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
        found = read_references(reader, self._sessions.leave_out)
        if found.problems:
            raise ValueError(f"{len(found.problems)} references cannot be read: {'; '.join(found.problems[:3])}")
        return found

    def _find_holders(self, ledger_ids: Collection[int]) -> dict[str, set[int]]:
        return {name: self._sessions.find_ledgers(name, ledger_ids).ids for name in self._sessions.names}

    def _find_existing(self, wanted: Collection[int], source: str, target: str) -> dict[int, Ledger]:
        found = self._sessions.find_ledgers(target, wanted)
        if found.problems:
            raise ValueError(f"ledgers of {target} cannot be read: {'; '.join(found.problems[:3])}")
        ids = [self._read_instance_id(name) for name in (source, target)]
        journal = CopyJournal(self._sessions.brokers, COPIES, source=ids[0], target=ids[1])
        return confirm_provenance(found, journal)[0]

    def _read_instance_id(self, name: str) -> str:
        instance_id = self._sessions.read_cluster(name).instance_id
        if instance_id is None:
            raise ValueError(f"the INSTANCEID of {name} cannot be read")
        return instance_id


def _make_reading(cluster: str, seen: ClusterSnapshot, lower: Mapping[int | None, int], took_ms: int) -> SwitchCluster:
    return SwitchCluster(
        cluster=cluster,
        outcome=Outcome.OK,
        name=seen.name,
        instance_id=seen.instance_id,
        root=seen.root,
        layout=seen.layout,
        generator=None
        if seen.generator is None
        else GeneratorReading(
            hob=seen.generator.hob, cversion=seen.generator.cversion, num_children=seen.generator.num_children
        ),
        lower=tuple(LowerCounter(hob=hob, given=given) for hob, given in lower.items()),
        took_ms=took_ms,
    )


def _describe_failure(error: Exception) -> dict[str, object]:
    if isinstance(error, UnreadError | NotConnectedError):
        return {"outcome": outcome_of(error), "detail": describe_zookeeper_error(error)}
    return {"outcome": Outcome.ERROR, "detail": str(error)}


def _elapsed_ms(began: float) -> int:
    """Return the elapsed time, rounded up: a reading may count as older than it is, but never as newer."""
    return int(1000 * (time.monotonic() - began)) + 1
