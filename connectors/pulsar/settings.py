"""Connection settings of a Pulsar cluster's admin REST API: addresses and credentials."""

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated

import httpx
from pydantic import AfterValidator, BaseModel, Field, SecretStr

from connectors.http.client import BearerAuth, bounded_client, url_problems
from connectors.http.tls import Tls, ssl_context_for
from connectors.redaction import RedactedBlock, secret
from policies.units import PositiveDuration, UserError, parse_duration

_MEMBER_URL = re.compile(r"https?://(?:\{member\}|\{host\}:[0-9]{1,5})")
_MEMBER = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):(?P<port>[0-9]{1,5})")
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")
_TOKEN = re.compile(r"[\x21-\x7e]+")  # an HTTP library refuses any other text, and quotes it

ResponseHooks = Sequence[Callable[[httpx.Response], None]]


def _checked_member_url(url: str) -> str:
    if not _MEMBER_URL.fullmatch(url):
        raise ValueError("is neither http(s)://{member} nor http(s)://{host}:port, such as https://{host}:8443")
    return url


MemberUrl = Annotated[str, AfterValidator(_checked_member_url)]
"""An address for all brokers: `{member}` stands for a broker's registered `host:port`, `{host}` for its host."""


def is_member(name: str) -> bool:
    """Whether a name is `host:port` and nothing more, so that it may be part of an address."""
    match = _MEMBER.fullmatch(name)
    return match is not None and 0 < int(match["port"]) < 65536


def address_problem(member: str, admin_url: str) -> str | None:
    """Return why a broker is not asked at the address under which it registers itself; None if it may be.

    An address that means this machine, whichever it is, leads to whatever listens here, which would get the token and
    answer in the broker's place. A loopback address is the broker's own if `admin_url` is one, too: then the whole
    cluster is on this machine.
    """
    ip = _find_ip(member)
    if ip is None or not (ip.is_unspecified or ip.is_loopback or ip.is_link_local):
        return None
    own = _find_ip(f"{httpx.URL(admin_url).host}:0")
    if ip.is_loopback and own is not None and (own.is_loopback or own.is_unspecified):
        return None
    kind = "an unspecified" if ip.is_unspecified else "a loopback" if ip.is_loopback else "a link-local"
    return f"{member} is {kind} address, at which each machine finds itself: set the broker's advertisedAddress"


def _find_ip(member: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a member's host is; None for a name. Resolvers take numbers such as `127.1`, too."""
    host = member.rpartition(":")[0].strip("[]").rstrip(".").lower()
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return ip_address("127.0.0.1")
    try:
        ip = ip_address(host if ":" in host else socket.inet_aton(host))
    except (ValueError, OSError):
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def plain_http_problem(field: str, block: BaseModel, url: str, admin: "PulsarAdmin | None") -> Iterator[str]:
    """Yield a problem if a token would be sent in plain text to a default address; a default is no consent."""
    is_default = field.rpartition(".")[2] not in block.model_fields_set
    if admin is not None and admin.sends_token and is_default and not admin.is_plain and url.startswith("http:"):
        yield (
            f"{field}: would send the token over plain http, where pulsar.admin_url is https: set "
            "https://{host}:8443, with the brokers' own port, or http://{member} to allow it"
        )


class PulsarAdmin(RedactedBlock):
    """The address of a cluster's admin REST API, and our credentials."""

    admin_url: str = Field(
        description="`http://…` or `https://…` of a broker, of a proxy, or a name of several of them, such as "
        "`https://pulsar.example.org:8443`; without `/admin/v2`."
    )
    tls: Tls | None = Field(
        default=None,
        description="For `https` only: trusted authorities, and our certificate. Default: the system's authorities.",
    )
    token: SecretStr | None = Field(default=None, min_length=1, description="Sent as `Authorization: Bearer …`.")
    token_file: Path | None = Field(default=None, description="The token in a file; a changed file is used at once.")
    timeout: PositiveDuration = Field(
        default=parse_duration("5s"),
        description="Limit of one request in all: connecting, the whole answer, and retries.",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a malformed address or token, and settings that contradict each other."""
        yield from url_problems("admin_url", self.admin_url)
        if self.tls is not None and self.is_plain:
            yield "tls", "has no meaning with an http:// address: leave it out, or use https://"
        if self.token is not None and not _TOKEN.fullmatch(self.token.get_secret_value()):
            yield "token", "is not one word of printable ASCII characters"

    @property
    def sends_token(self) -> bool:
        """Whether requests carry a token."""
        return self.token is not None or self.token_file is not None

    @property
    def is_plain(self) -> bool:
        """Whether its own address is not encrypted."""
        return not self.admin_url.lower().startswith("https:")

    @property
    def timeout_seconds(self) -> float:
        """Limit of one request in all."""
        return self.timeout.total_seconds()

    def bearer_token(self) -> str | None:
        """Return the present token in plain text; None without a token.

        Raises UserError if its file cannot be read, or holds no token.
        """
        token = secret(self.token, self.token_file, "token_file")
        if token is not None and not _TOKEN.fullmatch(token):
            raise UserError(f"token_file: {self.token_file} holds more than one word of printable ASCII characters.")
        return token

    def http_client(self, transport: httpx.BaseTransport | None = None, hooks: ResponseHooks = ()) -> httpx.Client:
        """Make a client of this address that sends the token.

        It follows no redirect, so that no other server gets the token, and uses no proxy of the environment.

        Raises UserError if a certificate's file cannot be used.
        """
        client = plain_client(self.admin_url, self, transport)
        client.auth = BearerAuth(self.bearer_token)
        client.event_hooks["response"].extend(hooks)
        return client


def plain_client(url: str, settings: PulsarAdmin, transport: httpx.BaseTransport | None = None) -> httpx.Client:
    """Make a client of an address of the cluster, with its certificates and without its token."""
    return bounded_client(
        ssl_context_for(url, settings.tls), settings.timeout_seconds, base_url=url, transport=transport
    )


def url_of_member(url: MemberUrl, member: str) -> str:
    """Return the address of one broker."""
    return url.replace("{member}", member).replace("{host}", member.rpartition(":")[0])
