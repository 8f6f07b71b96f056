"""A thin typed client of Pulsar's admin REST API.

Its behaviour was recorded from a real Pulsar 4.2.4. Every method raises as `RestClient.get` does. A namespace or tenant
that was just deleted is no error; its result is None or empty.
"""

from functools import partial
from typing import Annotated, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, TypeAdapter

from connectors.collection import one_line
from connectors.http.rest import AdminError, Names, RestClient
from connectors.pulsar.settings import PulsarAdmin, ResponseHooks, address_problem, is_member
from connectors.zookeeper.bookies import (
    ISOLATION,
    AffinityDocument,
    IsolationPolicyDocuments,
    PersistenceDocument,
    RackGroups,
    none_as_empty,
)
from policies.bookie_readings import RackInfo
from policies.observations import Outcome

CONCURRENCY = 16
"""Number of brokers asked in parallel."""

Parsed = TypeVar("Parsed")


class _AdminDocument(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Bookie(_AdminDocument):
    id: str = Field(alias="bookieId", min_length=1)


class _Bookies(_AdminDocument):
    bookies: Annotated[tuple[_Bookie, ...], FailFast()]


class _Owned(_AdminDocument):
    is_active: bool


_BROKERS = "/admin/v2/brokers"
_NAMES: TypeAdapter[tuple[str, ...]] = TypeAdapter(Names)
_KNOWN = TypeAdapter(_Bookies)
_GROUPS: TypeAdapter[dict[str, dict[str, RackInfo]]] = TypeAdapter(
    Annotated[RackGroups, BeforeValidator(none_as_empty)]
)
_AFFINITY: TypeAdapter[AffinityDocument | None] = TypeAdapter(AffinityDocument | None)
_PERSISTENCE: TypeAdapter[PersistenceDocument | None] = TypeAdapter(PersistenceDocument | None)
_ANYTHING: TypeAdapter[object] = TypeAdapter(object)
_CONFIGURATION: TypeAdapter[dict[str, str | None]] = TypeAdapter(dict[str, str | None])
_OWNED = TypeAdapter(dict[str, _Owned])


class AdminApi:
    """The admin REST API of one cluster, for any number of threads.

    Args:
        hooks: called with each answer; they may raise.
    """

    def __init__(
        self, settings: PulsarAdmin, transport: httpx.BaseTransport | None = None, hooks: ResponseHooks = ()
    ) -> None:
        self.settings = settings
        build = partial(settings.http_client, transport, hooks)
        self._rest = RestClient(build, settings.timeout_seconds, self._is_listed)

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        self._rest.close()

    def known_bookies(self) -> tuple[str, ...]:
        """Return all bookies that ever joined, sorted; dead and read-only ones are not marked as such."""
        return tuple(sorted(bookie.id for bookie in self._rest.get("/admin/v2/bookies/all", _KNOWN).bookies))

    def racks(self) -> dict[str, dict[str, RackInfo]]:
        """Return the members by group; empty if the znode `/bookies` is missing, too."""
        return self._rest.get("/admin/v2/bookies/racks-info", _GROUPS)

    def set_rack(self, bookie: str, group: str, rack: str, hostname: str | None = None) -> None:
        """Move a bookie into a group. Neither the bookie nor the znode `/bookies` need exist.

        The write is unconditional: it overwrites an assignment that someone else has just made.
        """
        body = {"rack": rack} | ({} if hostname is None else {"hostname": hostname})
        self._rest.send("POST", join_path("/admin/v2/bookies/racks-info", bookie), params={"group": group}, json=body)

    def tenants(self) -> tuple[str, ...]:
        """Return all tenants."""
        return self._rest.get("/admin/v2/tenants", _NAMES)

    def namespaces(self, tenant: str) -> tuple[str, ...]:
        """Return a tenant's namespaces, as `tenant/namespace`."""
        return self._unless_missing(join_path("/admin/v2/namespaces", tenant), _NAMES, ())

    def affinity(self, namespace: str) -> AffinityDocument | None:
        """Return the groups that a namespace may use; None without affinity."""
        path = join_path("/admin/v2/namespaces", *namespace.split("/"), "persistence", "bookieAffinity")
        affinity = self._unless_missing(path, _AFFINITY, None)
        return affinity if affinity and (affinity.primary or affinity.secondary) else None

    def persistence(self, namespace: str) -> PersistenceDocument | None:
        """Return the ensemble and quorums of a namespace; None if the brokers' default applies."""
        path = join_path("/admin/v2/namespaces", *namespace.split("/"), "persistence")
        return self._unless_missing(path, _PERSISTENCE, None)

    def isolation_policies(self) -> dict[str, IsolationPolicyDocuments]:
        """Return the namespace isolation policies by name, by Pulsar cluster."""
        clusters = self._rest.get("/admin/v2/clusters", _NAMES)
        paths = {name: join_path("/admin/v2/clusters", name, "namespaceIsolationPolicies") for name in sorted(clusters)}
        return {name: self._unless_missing(path, ISOLATION, {}) for name, path in paths.items()}

    def brokers(self, cluster: str) -> tuple[str, ...]:
        """Return the ids (`host:port`) of the registered brokers; the name of `cluster` does not matter."""
        return self._rest.get(join_path(_BROKERS, cluster), _NAMES)

    def runtime_configuration(self) -> dict[str, str | None]:
        """Return the settings in force of the broker that answers, by their names in `broker.conf`; for superusers."""
        return self._rest.get(f"{_BROKERS}/configuration/runtime", _CONFIGURATION)

    def version(self) -> str:
        """Return the version of the broker that answers, such as `4.2.4`."""
        return one_line(self._rest.send("GET", f"{_BROKERS}/version").text.strip().strip('"'))

    def owned_bundles(self, cluster: str, broker: str) -> dict[str, bool]:
        """Return a broker's bundles, by its own answer; the value is false while it is unloading the bundle."""
        owned = self._rest.get(join_path(_BROKERS, cluster, broker, "ownedNamespaces"), _OWNED)
        return {bundle: status.is_active for bundle, status in owned.items()}

    def topics(self, namespace: str, bundle: str) -> tuple[str, ...]:
        """Return the topics of a bundle (`0x00000000_0xffffffff`), as `persistent://tenant/namespace/topic`."""
        path = join_path("/admin/v2/persistent", *namespace.split("/"))
        return self._unless_missing(f"{path}?bundle={quote(bundle)}", _NAMES, ())

    def check_health(self) -> None:
        """Have the answering broker write and read a message; raises if it cannot."""
        self._rest.send("GET", "/admin/v2/brokers/health")

    def unload(self, namespace: str, bundle: str) -> None:
        """Have the owner of a bundle (`0x00000000_0xffffffff`) unload it; harmless if the bundle has no owner."""
        path = join_path("/admin/v2/namespaces", *namespace.split("/"), bundle, "unload")
        self._rest.send("PUT", path)

    def lookup(self, topic: str) -> None:
        """Look `tenant/namespace/topic` up, as a client does: a broker takes its bundle if it has no owner."""
        self._rest.get(join_path("/lookup/v2/topic/persistent", *topic.split("/", 2)), _ANYTHING)

    def _is_listed(self, url: httpx.URL) -> bool:
        """Whether a redirect leads to a registered broker; the request for that list must not be redirected."""
        if url.path.startswith(_BROKERS):
            return False
        listed = [member for member in self.brokers("local") if is_member(member) and _host(member) == url.host]
        return any(address_problem(member, self.settings.admin_url) is None for member in listed)

    def _unless_missing(self, path: str, shape: TypeAdapter[Parsed], otherwise: Parsed) -> Parsed:
        try:
            return self._rest.get(path, shape)
        except AdminError as error:
            if error.missing:
                return otherwise
            raise


def _host(member: str) -> str:
    return member.rpartition(":")[0].strip("[]").lower()


def join_path(root: str, *names: str) -> str:
    """Return a path of the API with the names of objects; raises AdminError for a name that no request can have."""
    for name in names:
        if name in ("", ".", ".."):  # URLs are normalised, so quoting does not help
            raise AdminError(Outcome.ERROR, f"{root}: no request can name '{name}'")
    return "/".join((root, *(quote(name, safe=":") for name in names)))
