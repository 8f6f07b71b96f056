"""Reads the bookie affinity of namespaces through Pulsar's admin REST API."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from connectors.http.client import MAX_CONNECTIONS
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.outcomes import READ_ERRORS, AdminError
from connectors.zookeeper.affinity import AffinityDocument, broker_isolations, namespace_affinity, split_groups
from policies.bookie_readings import BookieAffinity, BrokerGroups, BrokerIsolation, NamespaceAffinity
from policies.observations import Outcome

Asked = TypeVar("Asked")
Told = TypeVar("Told")


def read_broker_groups(admin: AdminApi) -> BrokerGroups | None:
    """Return the groups for namespaces without affinity, by one broker; None if they cannot be read."""
    try:
        return parse_broker_groups(admin.runtime_configuration())
    except READ_ERRORS.expected:
        return None


def parse_broker_groups(configuration: Mapping[str, str | None]) -> BrokerGroups:
    """Return the groups for namespaces without affinity, by a broker's settings."""
    names = ("bookkeeperClientIsolationGroups", "bookkeeperClientSecondaryIsolationGroups")
    primary, secondary = (split_groups(configuration.get(name)) for name in names)
    return BrokerGroups(primary=primary, secondary=secondary)


class AffinityReader:
    """Reads all namespaces once: two requests for a namespace with affinity, one for a namespace without.

    `left_seconds` returns the remaining time; 0 ends the reading.
    """

    def __init__(self, admin: AdminApi, limit_seconds: float, left_seconds: Callable[[], float]) -> None:
        self._admin = admin
        self._limit_seconds = limit_seconds
        self._left_seconds = left_seconds

    def read(self, cluster: str) -> BookieAffinity:
        """Read all namespaces; those without affinity are omitted, unless brokers have groups for them.

        Raises:
            AdminError: the time is over, or a request failed; then no namespace can be reported.
        """
        with ThreadPoolExecutor(MAX_CONNECTIONS, thread_name_prefix=f"affinity {cluster}") as threads:
            try:
                by_tenant = self._run_all(threads, self._admin.namespaces, self._admin.tenants())
                names = [name for names in by_tenant for name in names]
                groups = read_broker_groups(self._admin)
                affinities = self._run_all(threads, partial(self._namespace, is_listed=bool(groups)), names)
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)  # running requests end by their timeouts
                raise
        found = {name: affinity for name, affinity in zip(names, affinities, strict=True) if affinity is not None}
        return BookieAffinity(
            cluster=cluster,
            outcome=Outcome.OK,
            namespaces=dict(sorted(found.items())),
            broker_groups=groups,
            broker_policies=self._read_broker_policies(),
        )

    def _read_broker_policies(self) -> tuple[BrokerIsolation, ...] | None:
        """Return None if they cannot be read, for example without superuser rights; the affinity needs them not."""
        if self._left_seconds() <= 0:
            return None
        try:
            policies = self._admin.isolation_policies()
        except READ_ERRORS.expected:
            return None
        return tuple(each for name, documents in policies.items() for each in broker_isolations(name, documents))

    def _run_all(self, threads: ThreadPoolExecutor, ask: Callable[[Asked], Told], about: Iterable[Asked]) -> list[Told]:
        def in_time(one: Asked) -> Told:
            if self._left_seconds() <= 0:
                message = f"not all namespaces answered within the affinity_interval, {self._limit_seconds:g} s"
                raise AdminError(Outcome.TIMEOUT, message)
            return ask(one)

        return [future.result() for future in [threads.submit(in_time, one) for one in about]]

    def _namespace(self, name: str, *, is_listed: bool) -> NamespaceAffinity | None:
        affinity = self._admin.affinity(name) or (AffinityDocument() if is_listed else None)
        if affinity is None:
            return None
        return namespace_affinity(affinity, self._admin.persistence(name))
