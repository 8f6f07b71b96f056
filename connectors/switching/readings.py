"""The executor's readings for the policy: the registry, live brokers, BookKeeper clusters, inventories and prechecks.

Changes are published at once, everything again at intervals. The command line makes prechecks, too.
"""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import msgspec
import structlog
from msgspec import structs
from pydantic import ValidationError

from connectors.bookkeeper.cluster import FoundLedgers, confirm_provenance, now_ms
from connectors.bookkeeper.copy_journal import CopiedLedger, CopyJournal
from connectors.pulsar.referrers import Inventory, read_references
from connectors.switching.clusters import ClusterSessions, time_limit
from connectors.switching.registration import SwitchExecution
from connectors.switching.registry import Registry
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import (
    ZOOKEEPER_READ_ERRORS,
    NotConnectedError,
    UnreadError,
    ZooKeeperSession,
    describe_zookeeper_error,
)
from policies.observations import Outcome, Reading
from policies.switching.ledgers import ClusterSnapshot, Ledger, Reference, TargetPolicy, find_owner, with_ledger
from policies.switching.precheck import PrecheckSnapshot, TargetLedgers, ids_in_target, ids_to_import, precheck
from policies.switching.readings import (
    LowerCounter,
    SwitchCluster,
    SwitchInventory,
    SwitchInventoryPart,
    SwitchPrecheck,
    SwitchRegistry,
)
from policies.switching.settings import SwitchingSettings
from policies.units import UserError, millis_of

_INVENTORY_SECONDS = 600.0
_REPUBLISH_SECONDS = 15.0

Value = TypeVar("Value")

_log = structlog.get_logger(__name__)


class SwitchReadings:
    """Reads one broker cluster, and publishes the readings. Another thread may make prechecks and inventories."""

    def __init__(
        self,
        sessions: ClusterSessions,
        registry: Registry,
        settings: SwitchExecution,
        rules: SwitchingSettings,
        publish: Callable[[Reading], None],
    ) -> None:
        self._cluster = sessions.cluster
        self._sessions = sessions
        self._registry = registry
        self._inventory_valid_ms = 2 * millis_of(settings.inventory_interval)
        self._rules = rules
        self._publish = publish
        self._seen: SwitchRegistry | None = None
        """The registry as it was last read."""
        self._last: dict[str, dict[str, Any]] = {}
        self._all_published_at = float("-inf")

    def publish(self, *, unchanged_too: bool) -> None:
        """Publish registry, live brokers and BookKeeper clusters, which are read quickly.

        Args:
            unchanged_too: publish unchanged readings, too; otherwise only every 15 s.
        """
        due = unchanged_too or time.monotonic() - self._all_published_at >= _REPUBLISH_SECONDS
        if due:
            self._all_published_at = time.monotonic()
        try:
            seen = self._seen = self._registry.read(contested_too=True)
            registry = seen.model_copy(update={"progress": self._registry.read_progress()})
        except ZnodeError as error:
            registry = SwitchRegistry(cluster=self._cluster, outcome=Outcome.ERROR, detail=str(error))
        self._publish_if("registry", registry, due=due)
        if registry.outcome is not Outcome.OK:
            return  # no reading counts of which it is not known which directive it follows
        # Later readings are of this epoch or a later one, whatever the clocks show.
        epoch = {"epoch": registry.directive.epoch if registry.directive else 0}
        brokers = self._sessions.read_brokers().model_copy(update=epoch)
        self._publish_if("brokers", brokers, due=due)
        for name in self._sessions.settings.clusters:
            self._publish_if(f"cluster {name}", self._read_cluster(name).model_copy(update=epoch), due=due)

    def publish_precheck(self, source: str, target: str) -> None:
        """Run a precheck, and publish its report."""
        try:
            report, _ = check_switch(self._sessions, target, self._rules, source)
        except ZOOKEEPER_READ_ERRORS.expected as error:
            failure = ZOOKEEPER_READ_ERRORS.failure(error)
            self._publish(SwitchPrecheck(cluster=self._cluster, source=source, target=target, **failure))
        else:
            self._publish(report)

    def publish_inventory(
        self, source: str, target: str, *, moved_too: bool = False, attempt: int | None = None
    ) -> bool:
        """Publish all references, and the ledgers found in the target. Returns whether all could be read.

        It looks up the target's ledgers that references in the source name; with `moved_too`, also the ones that
        references in the target name. An inventory that is incomplete is only a manifest with the reason.
        """
        seen = self._seen
        manifest = SwitchInventory(
            cluster=self._cluster,
            outcome=Outcome.OK,
            inventory=f"{now_ms()}-{secrets.token_hex(4)}",
            target=target,
            valid_ms=self._inventory_valid_ms,
            moved_too=moved_too,
            attempt=attempt,
            epoch=None if seen is None else seen.directive.epoch if seen.directive else 0,
        )
        try:
            for reading in self._take_inventory(manifest, source):
                self._publish(reading)
        except (ZnodeError, UserError, ValueError) as error:
            failure = {"outcome": Outcome.ERROR, "detail": str(error)}
        except ZOOKEEPER_READ_ERRORS.expected as error:
            failure = ZOOKEEPER_READ_ERRORS.failure(error)
        else:
            return True
        _log.warning("the inventory cannot be read", cluster=self._cluster, detail=failure["detail"])
        self._publish(SwitchInventory.model_validate({**manifest.model_dump(), **failure}))
        return False

    def _publish_if(self, what: str, reading: Reading, *, due: bool) -> None:
        content = reading.model_dump(exclude={"took_ms"})  # the duration of the reading does not count as a change
        if due or self._last.get(what) != content:
            self._last[what] = content
            self._publish(reading)

    def _bootstrap(self) -> str:
        return (self._seen.bootstrap if self._seen else None) or self._sessions.settings.bootstrap

    def _read_cluster(self, name: str) -> SwitchCluster:
        began = time.monotonic()
        try:
            seen = self._sessions.read_cluster(name)
            lower = self._sessions.read_lower_counters(seen)
        except ZOOKEEPER_READ_ERRORS.expected as error:
            return SwitchCluster(cluster=self._cluster, name=name, **ZOOKEEPER_READ_ERRORS.failure(error))
        known: dict[str, Any] = {name: getattr(seen, name) for name in ("instance_id", "root", "layout", "generator")}
        return SwitchCluster(
            cluster=self._cluster,
            outcome=Outcome.OK,
            name=name,
            **known,
            lower=tuple(LowerCounter(hob=hob, given=given) for hob, given in lower.items()),
            took_ms=_elapsed_ms(began),
        )

    def _take_inventory(self, manifest: SwitchInventory, source: str) -> Iterator[Reading]:
        began, bootstrap, target, sessions = time.monotonic(), self._bootstrap(), manifest.target, self._sessions
        reader = sessions.brokers.reader(time_limit(_INVENTORY_SECONDS))
        reader.read(reader.client.sync_async, "/")
        found = read_references(reader, bootstrap, sessions.settings.leave_out)
        if found.problems:
            raise ValueError(f"{len(found.problems)} references cannot be read: {'; '.join(found.problems[:3])}")
        staying = found.staying(
            lambda ids: {name: sessions.find_ledgers(name, ids).ids for name in sessions.settings.clusters}
        )
        owners = {source, target} if manifest.moved_too else {source}
        wanted = {r.ledger_id for r in with_ledger(found.references) if find_owner(r, bootstrap) in owners}
        existing = self._find_existing(wanted, source, target) if target else {}
        seen = {"took_ms": _elapsed_ms(began), "staying": staying, "left_out": tuple(found.left_out)}
        yield from make_inventory(found.references, existing, manifest.model_copy(update=seen))

    def _find_existing(self, wanted: Collection[int], source: str, target: str) -> dict[int, Ledger]:
        found = self._sessions.find_ledgers(target, wanted)
        if found.problems:
            raise ValueError(f"ledgers of {target} cannot be read: {'; '.join(found.problems[:3])}")
        source_id, target_id = (self._sessions.identify(name)["instance_id"] for name in (source, target))
        journal = CopyJournal(self._sessions.brokers, source=source_id, target=target_id)
        return confirm_provenance(found, journal)[0]


def _elapsed_ms(began: float) -> int:
    """Return the elapsed time, rounded up: a reading may count as older than it is, but never as newer."""
    return int(1000 * (time.monotonic() - began)) + 1


# The records of an inventory: its parts, each well below the record size limit, and the manifest that completes it.
#
# The size of a part as JSON limits it, because topic names, subscription names and metadata can have any length.

MAX_PART_LENGTH = 1_000
"""Limit of the references and ledgers in a part."""
MAX_PART_BYTES = 256 * 1024
"""A part is full at this size. Its last member may exceed it by the size of one znode (at most 1 MiB)."""


def make_inventory(
    references: Iterable[Reference], existing: Mapping[int, Ledger], manifest: SwitchInventory
) -> Iterator[Reading]:
    """Yield the parts of an inventory, and its manifest last, with their number.

    Args:
        existing: the ledgers found in the target, by id; they follow the references.

    Raises:
        UserError: a reference or ledger does not fit a record, such as a reference to a negative id.
    """
    number = count = 0
    for part in _split_parts(chain(references, existing.values())):
        yield _make_part(manifest, number, part)
        number += 1
        count += sum(isinstance(each, Reference) for each in part)
    yield manifest.model_copy(update={"parts": number, "references": count})


def _split_parts(content: Iterable[Reference | Ledger]) -> Iterator[list[Reference | Ledger]]:
    """Yield at least one part."""
    part, size_bytes = list[Reference | Ledger](), 0
    for each in content:
        part.append(each)
        size_bytes += len(msgspec.json.encode(structs.asdict(each)))
        if size_bytes >= MAX_PART_BYTES or len(part) >= MAX_PART_LENGTH:
            yield part
            part, size_bytes = [], 0
    yield part


def _make_part(manifest: SwitchInventory, number: int, part: list[Reference | Ledger]) -> SwitchInventoryPart:
    references = tuple(each for each in part if isinstance(each, Reference))
    try:
        return SwitchInventoryPart(
            cluster=manifest.cluster,
            outcome=Outcome.OK,
            inventory=manifest.inventory,
            part=number,
            references=references,
            existing=tuple(each for each in part if isinstance(each, Ledger)),
        )
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        kind, place, *field = problem["loc"]
        what = references[int(place)].path if kind == "references" else f"{kind}.{place}"
        why = f"{'.'.join(map(str, field))}: {problem['msg']}"
        raise UserError(f"{what}: cannot be part of an inventory ({why}); mend this znode") from None


# The precheck: reads the ZooKeepers of the brokers and of both BookKeeper clusters once, and judges what it found.
#
# It writes nothing and takes no id. Values that cannot be read stay unknown in the snapshot, which is not ready then.


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
