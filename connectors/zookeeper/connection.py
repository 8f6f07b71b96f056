"""Connection settings of one ZooKeeper ensemble: addresses and credentials."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from connectors.http.tls import Tls
from connectors.redaction import RedactedBlock, secret, unreadable_files
from policies.units import PositiveDuration, parse_duration

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_SERVER = re.compile(rf"(?:\[[0-9A-Fa-f:.]+\]|{_LABEL}(?:\.{_LABEL})*\.?):(?P<port>[0-9]{{1,5}})")
_CHROOT = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\s\0]+)*")


ZnodePath = Annotated[str, Field(pattern=r"^(?:/[^/\s]+)+$")]
"""The path of a node other than the root, as a setting has it."""


class ZooKeeperConnection(RedactedBlock):
    """Where an ensemble is, and who we are to it.

    Who reads with ZooKeeper's `digest` scheme is only as good as the nodes' ACLs: a wrong password is never refused, it
    merely opens nothing.
    """

    servers: str = Field(
        description="`host:port`, comma separated: all servers, and after the last one the chroot if there is one: "
        "`zk1:2181,zk2:2181/pulsar`."
    )
    session_timeout: PositiveDuration = Field(
        default=parse_duration("10s"),
        description="How long a server may be silent until another one is asked; servers have bounds of their own.",
    )
    timeout: PositiveDuration = Field(
        default=parse_duration("5s"), description="How long one request may take, connecting included."
    )
    tls: Tls | None = Field(default=None, description="Present: the connection is encrypted.")
    user: str | None = Field(default=None, min_length=1, description="Of the `digest` scheme.")
    password: SecretStr | None = Field(default=None, min_length=1, description="Of the user.")
    password_file: Path | None = Field(
        default=None, description="The password in a file; a changed one is used at the next reading."
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Servers that are none, and halves of what belongs together."""
        for number, server in enumerate(self.hosts(), 1):
            match = _SERVER.fullmatch(server)
            if match is None or not 0 < int(match["port"]) < 65536:
                yield "servers", f"its entry {number} is not host:port, such as zk-1.example.org:2181"
        if not _CHROOT.fullmatch(self.chroot):
            yield "servers", "what follows the last server is no chroot, such as /pulsar"
        yield from unreadable_files({"password_file": self.password_file})
        yield from self._problems_of_the_user()

    def _problems_of_the_user(self) -> Iterator[tuple[str, str]]:
        given = (self.password is not None, self.password_file is not None)
        if all(given):
            yield "password", "give either password or password_file, not both"
        if self.user is not None and not any(given):
            yield "password", "is needed with user (or password_file)"
        if self.user is None and any(given):
            yield "user", "is needed with a password"
        if ":" in (self.user or ""):
            yield "user", "must not contain a colon: ZooKeeper takes what follows for the password"

    def hosts(self) -> list[str]:
        """The servers one by one, as `host:port`."""
        return [server.strip() for server in self.servers.partition("/")[0].split(",")]

    @property
    def chroot(self) -> str:
        """The path below which everything lies; empty when there is none."""
        _, slash, path = self.servers.strip().partition("/")
        return (slash + path).rstrip("/")

    @property
    def timeout_seconds(self) -> float:
        """How long one request may take."""
        return self.timeout.total_seconds()

    @property
    def session_timeout_seconds(self) -> float:
        """How long a server may be silent."""
        return self.session_timeout.total_seconds()

    def credential(self) -> SecretStr | None:
        """`user:password` of the digest scheme; None without a user.

        Raises:
            UserError: the password's file cannot be read, or is empty.
        """
        if self.user is None:
            return None
        return SecretStr(f"{self.user}:{secret(self.password, self.password_file, 'password_file')}")
