"""Connection settings of one ZooKeeper ensemble: addresses and credentials."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from connectors.http.tls import Tls
from connectors.redaction import RedactedBlock, secret
from policies.units import PositiveDuration, parse_duration

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_SERVER = re.compile(rf"(?:\[[0-9A-Fa-f:.]+\]|{_LABEL}(?:\.{_LABEL})*\.?):(?P<port>[0-9]{{1,5}})")
_CHROOT = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\s\0]+)*")
ZnodePath = Annotated[str, Field(pattern=r"^(?:/[^/\s]+)+$")]
"""A setting with the path of a node other than the root."""


class ZooKeeperConnection(RedactedBlock):
    """The servers of an ensemble, and our credentials.

    ZooKeeper's `digest` scheme never refuses a wrong password; the nodes' ACLs merely grant nothing to it.
    """

    servers: str = Field(
        description="All servers as `host:port`, comma separated, with the chroot after the last one: "
        "`zk1:2181,zk2:2181/pulsar`."
    )
    session_timeout: PositiveDuration = Field(
        default=parse_duration("10s"),
        description="The silence after which another server is asked; servers have bounds of their own for it.",
    )
    timeout: PositiveDuration = Field(
        default=parse_duration("5s"), description="Limit of one request, connecting included."
    )
    tls: Tls | None = Field(default=None, description="Present: the connection is encrypted.")
    user: str | None = Field(default=None, min_length=1, description="The user of the `digest` scheme.")
    password: SecretStr | None = Field(default=None, min_length=1, description="The user's password.")
    password_file: Path | None = Field(
        default=None, description="The password in a file; a changed file is used at the next reading."
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield malformed servers, and settings that need another one."""
        for number, server in enumerate(self.hosts(), 1):
            match = _SERVER.fullmatch(server)
            if match is None or not 0 < int(match["port"]) < 65536:
                yield "servers", f"its entry {number} is not host:port, such as zk-1.example.org:2181"
        if "," in self.chroot:
            yield "servers", "a chroot stands once, after the last server: zk-1:2181,zk-2:2181/pulsar"
        elif not _CHROOT.fullmatch(self.chroot):
            yield "servers", "what follows the last server is no chroot, such as /pulsar"
        is_given = self.password is not None or self.password_file is not None
        if self.user is not None and not is_given:
            yield "password", "is needed with user (or password_file)"
        if self.user is None and is_given:
            yield "user", "is needed with a password"
        if ":" in (self.user or ""):
            yield "user", "must not contain a colon: ZooKeeper takes the rest for the password"

    def hosts(self) -> list[str]:
        """Return the servers as `host:port`."""
        return [server.strip() for server in self.servers.partition("/")[0].split(",")]

    @property
    def chroot(self) -> str:
        """The root of all our paths; empty if there is none."""
        _, slash, path = self.servers.strip().partition("/")
        return (slash + path).rstrip("/")

    @property
    def timeout_seconds(self) -> float:
        """Limit of one request."""
        return self.timeout.total_seconds()

    def credential(self) -> SecretStr | None:
        """Return `user:password` for the digest scheme; None without a user.

        Raises:
            UserError: the password's file cannot be read, or is empty.
        """
        if self.user is None:
            return None
        return SecretStr(f"{self.user}:{secret(self.password, self.password_file, 'password_file')}")
