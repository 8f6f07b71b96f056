"""The precheck: reads the ZooKeepers of the brokers and of both BookKeeper clusters once, and judges what it found.

It writes nothing and takes no id. Values that cannot be read stay unknown in the snapshot, which is not ready then.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from msgspec import structs

from connectors.bookkeeper.cluster import FoundLedgers, confirm_provenance, now_ms
from connectors.bookkeeper.copy_journal import CopiedLedger, CopyJournal
from connectors.pulsar.referrers import Inventory, read_references
from connectors.switching.clusters import ClusterSessions, time_limit
from connectors.switching.registry import Registry
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import (
    NotConnectedError,
    UnreadError,
    ZooKeeperSession,
    describe_zookeeper_error,
)
from policies.observations import Outcome
from policies.switching.ledgers import ClusterSnapshot, Ledger, TargetPolicy
from policies.switching.precheck import PrecheckSnapshot, TargetLedgers, ids_in_target, ids_to_import, precheck
from policies.switching.readings import SwitchPrecheck, SwitchRegistry
from policies.switching.settings import SwitchingSettings

Value = TypeVar("Value")


def check_switch(
    sessions: ClusterSessions, target: str, rules: SwitchingSettings, source: str | None = None
) -> tuple[SwitchPrecheck, PrecheckSnapshot]:
    """Read the whole input of a precheck, within the validity of a reading, and judge it.

    Args:
        target: the cluster that the brokers will write to.
        source: the cluster that they write to now. Default: the registry's active one, or else that of the settings.

    Raises:
        UserError: a file of a connection cannot be used, or a cluster, chroot or root does not exist.
    """
    reader = _SnapshotReader(sessions, rules)
    view, settings = SwitchRegistry(cluster=sessions.cluster, outcome=Outcome.OK), sessions.settings
    try:
        view = Registry(sessions.brokers, sessions.cluster).read()  # its clusters override those of the settings
    except ZnodeError as error:
        reader.problems.append(f"the registry: {error}")
    complete = not reader.problems
    seen = reader.read(source or view.committed() or settings.source, target, view.bootstrap or settings.bootstrap)
    seen = replace(
        seen,
        clusters=frozenset({*settings.clusters, *(each.name for each in view.clusters)}),
        references_complete=seen.references_complete and complete,
        problems=tuple(dict.fromkeys(reader.problems)),
    )
    seen = drop_impostors(seen, view)
    return precheck(sessions.cluster, seen, rules, now_ms()), seen


def drop_impostors(seen: PrecheckSnapshot, view: SwitchRegistry) -> PrecheckSnapshot:
    """Mark a cluster as unknown if another identity answers at its address than is registered."""
    for field in ("source", "target"):
        cluster: ClusterSnapshot = getattr(seen, field)
        entry = next((each for each in view.clusters if each.name == cluster.name), None)
        found = (cluster.instance_id, (cluster.root or "").rstrip("/"))
        if entry is not None and cluster.instance_id and found != (entry.instance_id, entry.root.rstrip("/")):
            problem = f"{cluster.name}: {found[0]}{found[1]} answers, but {entry.instance_id}{entry.root} is registered"
            unknown: dict[str, Any] = {field: structs.replace(cluster, instance_id=None, root=None)}
            seen = replace(seen, problems=(*seen.problems, problem), **unknown)
    return seen


class _SnapshotReader:
    """Reads the parts one after the other, and collects the problems."""

    def __init__(self, sessions: ClusterSessions, rules: SwitchingSettings) -> None:
        self._sessions = sessions
        self._rules = rules
        self.problems: list[str] = []

    def read(self, source: str, target: str, bootstrap: str) -> PrecheckSnapshot:
        brokers, leave_out = self._sessions.brokers, self._sessions.settings.leave_out
        references_ms, limit = now_ms(), time_limit(self._rules.precheck_validity.total_seconds())
        inventory = self._try_read(brokers, lambda: read_references(brokers.reader(limit), bootstrap, leave_out))
        known = inventory or Inventory()
        self.problems += known.problems

        def find_holders(ledger_ids: Collection[int]) -> dict[str, Collection[int]]:
            """Return which cluster has which ledgers. A cluster that cannot be read counts as having all."""
            found = {name: self._find_ledgers(name, ledger_ids) for name in (source, target)}
            return {name: ledger_ids if ledgers is None else ledgers.ids for name, ledgers in found.items()}

        seen = PrecheckSnapshot(
            source=self._read_cluster(source),
            target=self._read_cluster(target),
            references=tuple(known.references),
            references_complete=inventory is not None and not inventory.problems,
            references_ms=references_ms,
            bootstrap=bootstrap,
            existing=None,
            staying=known.staying(find_holders),
            left_out=tuple(known.left_out),
        )
        wanted = ids_to_import(seen, self._rules)
        found = self._find_existing(target, wanted | ids_in_target(seen))
        if found is None:
            return seen
        existing, ledgers = found
        facts = self._find_ledgers(source, wanted & existing.ids)
        seen = replace(seen, existing=existing, source_facts=facts.facts if facts is not None else {})
        return self._add_journal(seen, existing, ledgers, wanted - existing.ids)

    def _add_journal(
        self, seen: PrecheckSnapshot, existing: TargetLedgers, found: FoundLedgers, missing: Iterable[int]
    ) -> PrecheckSnapshot:
        """Add which found ledgers are Headgate's own copies, and which missing ones the target once had.

        The policy may have lost its checkpoint, so only the journal shows either.
        """
        source, target = seen.source.instance_id, seen.target.instance_id
        if source is None or target is None:
            return seen
        journal = CopyJournal(self._sessions.brokers, source=source, target=target)
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

    def _read_cluster(self, name: str) -> ClusterSnapshot:
        unread = ClusterSnapshot(name=name, instance_id=None, root=None, layout=None, generator=None, read_ms=now_ms())
        return self._try_read(self._sessions.session(name), lambda: self._sessions.read_cluster(name)) or unread

    def _find_existing(self, target: str, wanted: frozenset[int]) -> tuple[TargetLedgers, FoundLedgers] | None:
        """Find the target's ledgers. If they are listed, only the wanted ones are read."""
        read_ms, listed = now_ms(), None
        if self._rules.target_policy is TargetPolicy.DEDICATED:
            listed = self._try_read(self._sessions.session(target), lambda: self._sessions.list_ledgers(target))
            if listed is None:
                return None
        found = self._find_ledgers(target, wanted & listed.ids if listed else wanted)
        if found is None:
            return None
        existing = TargetLedgers(
            ids=found.ids | (listed.ids if listed else frozenset()),
            read_ms=read_ms,
            listed=listed is not None,
            looked_up=wanted,
            facts=found.facts,
            misplaced=listed.misplaced if listed else (),
        )
        return existing, found

    def _find_ledgers(self, name: str, ledger_ids: Collection[int]) -> FoundLedgers | None:
        found = self._try_read(self._sessions.session(name), lambda: self._sessions.find_ledgers(name, ledger_ids))
        self.problems += found.problems if found is not None else ()
        return found

    def _try_read(self, session: ZooKeeperSession, read: Callable[[], Value]) -> Value | None:
        """Return the result; None after a failure, which is added to the problems."""
        try:
            return read()
        except (UnreadError, NotConnectedError) as error:
            self.problems.append(f"{session.name}: {describe_zookeeper_error(error)}")
            return None


def _add_digest(ledger: Ledger, proved: CopiedLedger | None, created_ms: int | None = None) -> Ledger:
    """Add the digest by which the journal proved a copy, to a ledger that is still the one that was compared."""
    if proved is None or created_ms not in (None, proved.created_ms):
        return ledger
    is_same = (ledger.length_bytes, ledger.last_entry_id) == (proved.length_bytes, proved.last_entry_id)
    return structs.replace(ledger, entries_digest=proved.entries_digest) if is_same else ledger
