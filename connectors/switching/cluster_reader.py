"""The executor's readings for the policy: live brokers, BookKeeper clusters, inventories and prechecks."""

import secrets
import time
from collections.abc import Collection, Iterator

from connectors.bookkeeper.copy_journal import COPIES, CopyJournalError, ZnodeCopyJournal
from connectors.bookkeeper.provenance import confirmed
from connectors.pulsar.referrers import Inventory, read_references
from connectors.pulsar.topic_readers import TopicReaders
from connectors.switching.cluster_sessions import ClusterSessions, within
from connectors.switching.inventory import inventory_readings
from connectors.switching.precheck_snapshot import take_snapshot
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of, outcome_of
from policies.errors import UserError
from policies.observations import Outcome, Reading
from policies.switching.clusters import ClusterSnapshot
from policies.switching.id_generators import IdGenerator
from policies.switching.ledgers import Ledger
from policies.switching.precheck.report import precheck, to_reading
from policies.switching.precheck.snapshot import PrecheckRules
from policies.switching.readings import GeneratorReading, SwitchBrokers, SwitchCluster, SwitchInventory, SwitchPrecheck
from policies.switching.references import Reference, find_owner, with_ledger

_READ_SECONDS = 10.0
_INVENTORY_SECONDS = 600.0

_UNREAD = (UnreadError, NotConnectedError)


class ClusterReader:
    """Reads one broker cluster. Safe to use from many threads.

    Args:
        cluster: its name.
        sessions: where everything is.
        brokers_path: where live brokers are registered.
        rules: of prechecks.
    """

    def __init__(self, cluster: str, sessions: ClusterSessions, brokers_path: str, rules: PrecheckRules) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._brokers_path = brokers_path
        self._rules = rules

    def brokers(self) -> SwitchBrokers:
        """Who is registered now."""
        try:
            reader = self._sessions.brokers.reader(within(_READ_SECONDS))
            names = reader.one(reader.client.get_children_async, self._brokers_path)
        except (*_UNREAD, UserError) as error:
            return SwitchBrokers(cluster=self._cluster, **_unread(error))
        return SwitchBrokers(cluster=self._cluster, outcome=Outcome.OK, brokers=tuple(sorted(names or ())))

    def clusters(self) -> Iterator[SwitchCluster]:
        """All BookKeeper clusters that the settings name."""
        for name in self._sessions.names:
            began = time.monotonic()
            try:
                seen = self._sessions.read_cluster(name)
            except (*_UNREAD, UserError) as error:
                yield SwitchCluster(cluster=self._cluster, name=name, **_unread(error))
            else:
                yield _cluster(self._cluster, seen, _ms_since(began))

    def precheck(self, source: str, target: str, bootstrap: str) -> SwitchPrecheck:
        """Whether brokers may move, from what is read now."""
        try:
            taken = take_snapshot(
                self._sessions.brokers,
                self._sessions.metadata_of(source),
                self._sessions.metadata_of(target),
                bootstrap,
                self._rules,
                self._sessions.leave_out,
                self._sessions.names,
            )
        except (*_UNREAD, UserError) as error:
            return SwitchPrecheck(cluster=self._cluster, source=source, target=target, **_unread(error))
        return to_reading(precheck(taken.snapshot, self._rules, time.time_ns() // 1_000_000), self._cluster)

    def inventory(self, bootstrap: str, source: str = "", target: str = "") -> Iterator[Reading]:
        """All references, and which of the source's ledgers the target has; part by part, and its manifest at last.

        One that cannot be read whole is a manifest that says why, and nothing else.
        """
        name, began = f"{time.time_ns() // 1_000_000}-{secrets.token_hex(4)}", time.monotonic()
        try:
            found = self._found()
            references, staying = found.references, found.staying(bootstrap, self._holders)
            existing = self._existing(references, bootstrap, source, target) if target else {}
            yield from inventory_readings(
                self._cluster, name, references, existing, target, _ms_since(began),
                staying=staying, left_out=found.left_out,
            )  # fmt: skip
        except (*_UNREAD, CopyJournalError, UserError, ValueError) as error:
            yield SwitchInventory(cluster=self._cluster, inventory=name, **_unread(error))

    def _found(self) -> Inventory:
        reader = self._sessions.brokers.reader(within(_INVENTORY_SECONDS))
        helpers = TopicReaders(self._sessions.brokers.connection, self._sessions.leave_out)
        found = read_references(reader, self._sessions.leave_out, helpers)
        if found.problems:
            raise ValueError(f"{len(found.problems)} references cannot be read: {'; '.join(found.problems[:3])}")
        return found

    def _holders(self, ledger_ids: Collection[int]) -> dict[str, set[int]]:
        """Which BookKeeper cluster has which of these ledgers."""
        return {name: self._sessions.find_ledgers(name, ledger_ids).ids for name in self._sessions.names}

    def _existing(self, references: list[Reference], bootstrap: str, source: str, target: str) -> dict[int, Ledger]:
        wanted = {r.ledger_id for r in with_ledger(references) if find_owner(r, bootstrap) == source}
        found = self._sessions.find_ledgers(target, wanted)
        if found.problems:
            raise ValueError(f"ledgers of {target} cannot be read: {'; '.join(found.problems[:3])}")
        ids = [self._instance(name) for name in (source, target)]
        journal = ZnodeCopyJournal(self._sessions.brokers, COPIES, source=ids[0], target=ids[1])
        return confirmed(found, journal)[0]

    def _instance(self, name: str) -> str:
        instance_id = self._sessions.read_cluster(name).instance_id
        if instance_id is None:
            raise ValueError(f"the INSTANCEID of {name} cannot be read")
        return instance_id


def _cluster(cluster: str, seen: ClusterSnapshot, took_ms: int) -> SwitchCluster:
    return SwitchCluster(
        cluster=cluster,
        outcome=Outcome.OK,
        name=seen.name,
        instance_id=seen.instance_id,
        root=seen.root,
        layout=seen.layout,
        generator=_generator(seen.generator) if seen.generator else None,
        took_ms=took_ms,
    )


def _generator(read: IdGenerator) -> GeneratorReading:
    return GeneratorReading(hob=read.hob, cversion=read.cversion, num_children=read.num_children)


def _unread(error: Exception) -> dict[str, object]:
    if isinstance(error, UnreadError | NotConnectedError):
        return {"outcome": outcome_of(error), "detail": detail_of(error)}
    return {"outcome": Outcome.ERROR, "detail": str(error)}


def _ms_since(began: float) -> int:
    """Rounded up: a reading may count as older than it is, never as newer."""
    return int(1000 * (time.monotonic() - began)) + 1
