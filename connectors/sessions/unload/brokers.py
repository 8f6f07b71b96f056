"""The admin REST API of one cluster's brokers: which bundles they serve, and requests to unload one.

Each broker is asked at its own address, and no redirect is followed: an unload that a broker would forward to the
bundle's owner must not be done. A real Pulsar 4.2.4 behaves like this:

- `ownedNamespaces` returns a broker's own view, not ZooKeeper's, and does not need ZooKeeper.
- `unload` at a broker that does not serve the bundle answers 307 to the owner, or 204 if there is none.
- `unload` reads ZooKeeper before anything is closed. A broker that receives the request late has noticed the new owner
  by then and released the bundle, so it answers 307 (two of two, with answers 1 and 2.5 s late each way).
- `unload` at a broker that has lost its session hangs, and leaves the bundle unusable there (`is_active: false`) for
  good. Without the request, the broker releases the bundle within a second of its next session.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from connectors.actuation.reports import ActionError, UnknownOutcomeError
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.connection import MemberUrl, PulsarAdmin, address_problem, is_member, url_of_member
from connectors.pulsar.outcomes import AdminError, detail_of, request_line, was_not_done
from connectors.pulsar.rest import Names, RestClient
from policies.errors import UserError
from policies.units import Duration, PositiveDuration, parse_duration

CONCURRENCY = 16
"""Number of brokers asked in parallel."""

_FAILURES = (AdminError, httpx.RequestError, UserError)
_PERSISTENT = "persistent://"


class UnloadSettings(BaseModel):
    """Settings of the unload actuator. If the block is present, decisions about bundles are carried out."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    per_broker_interval: PositiveDuration = Field(
        default=parse_duration("10s"),
        description="At most one bundle of a broker is unloaded or looked up in this interval; the others wait.",
    )
    grace: Duration = Field(
        default=parse_duration("5s"),
        description="Time after a decision in which the broker may act on its own, before the actuator does.",
    )
    member_url: MemberUrl = Field(
        default="http://{member}",
        description="A broker's own address; `{member}` is `host:port` as it registers itself, `{host}` the host.",
    )


class RedirectedError(ActionError):
    """The broker does not serve the bundle and redirects to another one. Nothing was done."""


class _Owned(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    is_active: bool


_OWNED = TypeAdapter(dict[str, _Owned])
_NAMES: TypeAdapter[tuple[str, ...]] = TypeAdapter(Names)


@dataclass(frozen=True, slots=True)
class Survey:
    """The brokers' answers to the question which bundles they serve."""

    listed: frozenset[str]
    """The registered brokers."""
    owned: Mapping[str, Mapping[str, bool]]
    """The bundles of each broker, and whether it serves them; false while it is unloading one."""
    unanswered: Mapping[str, str]
    """The reason for each broker without a usable answer."""


class Brokers:
    """The brokers of one cluster. Used from one thread.

    Args:
        admin: reaches any broker, and has the credentials; shared with others, so not closed here.
    """

    def __init__(
        self, cluster: str, admin: AdminApi, settings: UnloadSettings, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._settings = settings
        self._transport = transport
        self._any = _make_client(admin.settings, transport)
        self._members: dict[str, RestClient] = {}

    def survey(self, members: Iterable[str]) -> Survey:
        """Ask all registered brokers which bundles they serve.

        Brokers in `members`, which decisions name, are not asked unless they are registered. Otherwise a forged
        decision could have our token sent anywhere; and a broker without a session would only hang.

        Raises:
            ActionError: the registered brokers cannot be read.
        """
        try:
            listed = frozenset(self._admin.brokers(self._cluster))
        except _FAILURES as error:
            raise ActionError(detail_of(error)) from None
        problems = {member: self._find_problem(member) for member in listed}
        asked = sorted(member for member, problem in problems.items() if problem is None)
        self._keep_clients(asked)
        owned: dict[str, Mapping[str, bool]] = {}
        unanswered = {member: f"{member} is not registered, so it is not asked" for member in set(members) - listed}
        unanswered |= {member: problem for member, problem in problems.items() if problem is not None}
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="who serves") as workers:
            answers = [(member, workers.submit(self._read_owned, member)) for member in asked]
        for member, answer in answers:
            try:
                owned[member] = answer.result()
            except ActionError as error:
                unanswered[member] = str(error)
        return Survey(listed, owned, unanswered)

    def _find_problem(self, member: str) -> str | None:
        if not is_member(member):
            return "a broker is registered as what is no host:port"
        return address_problem(member, self._admin.settings.admin_url)

    def unload(self, member: str, bundle: str) -> None:
        """Make one broker close a bundle's topics and give up the bundle; no other broker is affected.

        Raises:
            RedirectedError: the broker does not serve the bundle.
            UnknownOutcomeError: no clear answer.
            ActionError: the broker refused.
        """
        try:
            self._members[member].send("PUT", f"/admin/v2/namespaces/{quote(bundle)}/unload")
        except _FAILURES as error:
            raise _convert_error(error) from None

    def find_topic(self, bundle: str) -> str | None:
        """Return any topic of a bundle, as `tenant/namespace/topic`; None if it has none.

        Raises:
            ActionError: the topics cannot be read.
        """
        namespace, _, bounds = bundle.rpartition("/")
        try:
            path = f"/admin/v2/persistent/{quote(namespace)}"
            names = self._any.get(path, _NAMES, params={"bundle": bounds})
        except _FAILURES as error:
            if isinstance(error, AdminError) and error.missing:  # the namespace is gone
                return None
            raise ActionError(detail_of(error)) from None
        return min((name.removeprefix(_PERSISTENT) for name in names), default=None)

    def look_up(self, topic: str) -> None:
        """Look a topic up as a client does: if its bundle has no owner, the brokers choose one.

        Raises:
            UnknownOutcomeError: no clear answer.
            ActionError: the broker refused.
        """
        try:
            self._admin.lookup(topic)
        except _FAILURES as error:
            raise _convert_error(error) from None

    def close(self) -> None:
        """Close the connections that were opened here; the next survey opens new ones."""
        self._any.close()
        self._keep_clients(())

    def _read_owned(self, member: str) -> dict[str, bool]:
        path = f"/admin/v2/brokers/{quote(self._cluster, safe='')}/{quote(member, safe=':')}/ownedNamespaces"
        try:
            owned = self._members[member].get(path, _OWNED)
        except RedirectedError:
            raise ActionError(
                f"another broker than {member} answers at {url_of_member(self._settings.member_url, member)}"
            ) from None
        except _FAILURES as error:
            raise ActionError(f"broker {member}: {detail_of(error)}") from None
        return {bundle: status.is_active for bundle, status in owned.items()}

    def _keep_clients(self, members: Iterable[str]) -> None:
        kept = set(members)
        for member in [member for member in self._members if member not in kept]:
            self._members.pop(member).close()
        for member in kept - set(self._members):
            where = {"admin_url": url_of_member(self._settings.member_url, member)}
            self._members[member] = _make_client(
                self._admin.settings.model_copy(update=where), self._transport, direct=True
            )


def _convert_error(error: Exception) -> ActionError:
    return (ActionError if was_not_done(error) else UnknownOutcomeError)(detail_of(error))


def _make_client(settings: PulsarAdmin, transport: httpx.BaseTransport | None, *, direct: bool = False) -> RestClient:
    def build() -> httpx.Client:
        client = settings.http_client(transport)
        if direct:
            client.event_hooks = {"response": [_refuse_redirect]}
        return client

    return RestClient(build, settings.fingerprint, settings.timeout_seconds)


def _refuse_redirect(response: httpx.Response) -> None:
    if response.has_redirect_location:
        raise RedirectedError(f"{request_line(response.request)}: it does not serve the bundle, and names another")
