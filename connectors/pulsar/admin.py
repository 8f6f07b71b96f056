"""Thin typed clients of Pulsar's admin REST API and of a bookie's HTTP endpoint, and the doctor's checks of our rights.

Its behaviour was recorded from a real Pulsar 4.2.4. Every method raises as `RestClient.get` does. A namespace or tenant
that was just deleted is no error; its result is None or empty.
"""

import base64
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, TypeAdapter

from connectors.collection import Probe, ProbeResult, one_line
from connectors.foreign_json import read_json
from connectors.http.rest import REST_READ_ERRORS, AdminError, Names, RestClient
from connectors.pulsar.settings import PulsarAdmin, ResponseHooks, address_problem, is_member, plain_client
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
from policies.units import UserError, counted

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


# The HTTP endpoint of a bookie (`httpServerEnabled=true`), which lists registered bookies; Pulsar's REST API does
# not.
#
# Recorded from a real bookie 4.17.3: the answers are `{"<bookie>": "<host or null>"}` and take 2 ms. A killed bookie
# disappears from them when its session expires.

_LISTED = TypeAdapter(dict[str, str | None])


class BookieHttp:
    """A bookie's HTTP endpoint; it never receives the token, which is for Pulsar.

    `settings` are those of the admin REST API; only certificates and timeout are used.
    """

    def __init__(self, url: str, settings: PulsarAdmin, transport: httpx.BaseTransport | None = None) -> None:
        self._rest = RestClient(lambda: plain_client(url, settings, transport), settings.timeout_seconds)

    def listed(self, kind: str, **params: str) -> dict[str, str | None]:
        """Return the bookies that are registered as writable (`rw`) or read-only (`ro`), sorted, with their hosts.

        Raises as `RestClient.get` does.
        """
        found = self._rest.get("/api/v1/bookie/list_bookies", _LISTED, {"type": kind, **params})
        return dict(sorted(found.items()))

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        self._rest.close()


# Checks for the doctor whether the admin REST API grants us the rights that the settings need.


def superuser_probe(system: str, admin: AdminApi, what_for: str) -> Probe:
    """Make the check whether we are a superuser: only superusers may read the groups of bookies, or `what_for`."""

    def ask() -> ProbeResult:
        try:
            groups = admin.racks()
        except REST_READ_ERRORS.expected as error:
            return failed_probe(admin.settings, error, what_for)
        return ProbeResult(Outcome.OK, f"{counted(len(groups), 'group')}; {_principal(admin.settings)} is a superuser")

    return Probe(system, f"admin REST, to {what_for}", ask)


def failed_probe(settings: PulsarAdmin, error: BaseException, what_for: str) -> ProbeResult:
    """Return the result for a failed request."""
    outcome = REST_READ_ERRORS.outcome_of(error)
    remedies = (superuser_line(settings, what_for),) if outcome is Outcome.UNAUTHORIZED else ()
    return ProbeResult(outcome, REST_READ_ERRORS.detail_of(error), remedies)


def superuser_line(settings: PulsarAdmin, what_for: str) -> str:
    """Return the setting that gives us superuser rights."""
    if not settings.sends_token:
        return f"clusters.NAME.pulsar.token_file: the brokers want a token; one of a superuser may {what_for}"
    role = _principal(settings)
    return f"broker.conf: superUserRoles=…,{role} (and restart the brokers): only superusers may {what_for}"


def _principal(settings: PulsarAdmin) -> str:
    try:
        role = role_of(settings.bearer_token())
    except UserError:
        role = None
    return role or ("the token's role" if settings.sends_token else "anybody")


def role_of(token: str | None) -> str | None:
    """Return the role (`sub`) of a JSON web token, without a check of its signature; None for other tokens."""
    parts = (token or "").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = read_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), Any)
    except ValueError:
        return None
    role = claims.get("sub") if isinstance(claims, dict) else None
    return role if isinstance(role, str) and role.isprintable() else None
