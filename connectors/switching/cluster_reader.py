"""The executor's readings for the policy: live brokers, BookKeeper clusters, inventories and prechecks."""

import secrets
import time
from collections.abc import Collection, Iterator, Mapping

from connectors.bookkeeper.copy_journal import COPIES, CopyJournal
from connectors.bookkeeper.provenance import confirm_provenance
from connectors.pulsar.referrers import Inventory, read_references
from connectors.pulsar.topic_readers import TopicReaders
from connectors.switching.cluster_sessions import ClusterSessions, time_limit
from connectors.switching.inventory import make_inventory
from connectors.switching.precheck_snapshot import take_snapshot
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of, outcome_of
from policies.errors import UserError
from policies.observations import Outcome, Reading
from policies.switching.clusters import ClusterSnapshot
from policies.switching.ledgers import Ledger
from policies.switching.precheck.report import precheck, to_reading
from policies.switching.precheck.snapshot import PrecheckRules
from policies.switching.readings import (
    GeneratorReading,
    LowerCounter,
    SwitchBrokers,
    SwitchCluster,
    SwitchInventory,
    SwitchPrecheck,
)
from policies.switching.references import find_owner, with_ledger

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
        topic_readers = TopicReaders(self._sessions.brokers.connection, self._sessions.leave_out)
        found = read_references(reader, self._sessions.leave_out, topic_readers.read)
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
        return {"outcome": outcome_of(error), "detail": detail_of(error)}
    return {"outcome": Outcome.ERROR, "detail": str(error)}


def _elapsed_ms(began: float) -> int:
    """Return the elapsed time, rounded up: a reading may count as older than it is, but never as newer."""
    return int(1000 * (time.monotonic() - began)) + 1
