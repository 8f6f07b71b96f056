"""Checks of a ZooKeeper for the doctor: whether it answers, and whether a znode's ACL lets us write."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kazoo.security import ACL, Permissions, make_digest_acl_credential

from connectors.collection import Probe, ProbeResult
from connectors.zookeeper.session import ZOOKEEPER_READ_ERRORS, Reader, ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome

_UNKNOWABLE = ("sasl", "x509", "ip", "super")
"""Schemes by which only the server can identify us."""


def write_probes(system: str, session: ZooKeeperSession, paths: tuple[str, ...], what_for: str) -> Iterator[Probe]:
    """Yield checks whether nodes may be changed, or created if they are missing.

    `what_for` ends the sentence, such as ``quarantine must``.
    """
    for path in paths:
        yield Probe(system, f"write {path}", partial(_check_write, session, path, what_for))


def read_probe(system: str, session: ZooKeeperSession, path: str, remedy: str) -> Probe:
    """Make the check whether a node exists and may be read."""

    def ask() -> ProbeResult:
        try:
            reader = _reader(session)
            found = reader.read(reader.client.get_async, path)
        except ZOOKEEPER_READ_ERRORS.expected as error:
            return failed_probe(session.connection, error, (path,))
        if found is None:
            return ProbeResult(Outcome.ERROR, f"there is no {path}", (remedy,))
        return ProbeResult(Outcome.OK, f"{path} is read")

    return Probe(system, f"read {path}", ask)


def failed_probe(connection: ZooKeeperConnection, error: BaseException, paths: tuple[str, ...]) -> ProbeResult:
    """Return the result for a failed read."""
    outcome = ZOOKEEPER_READ_ERRORS.outcome_of(error)
    remedies = tuple(acl_line(connection, path, "r") for path in paths) if outcome is Outcome.UNAUTHORIZED else ()
    return ProbeResult(outcome, ZOOKEEPER_READ_ERRORS.detail_of(error), remedies)


def acl_line(connection: ZooKeeperConnection, path: str, permissions: str) -> str:
    """Return a line for `zkCli.sh` that shows a node's ACL, with the entry to add."""
    who = f"auth:{connection.user}:{permissions}" if connection.user else f"world:anyone:{permissions}"
    whole = f"{connection.chroot}{path}"
    if connection.user:
        return f"zkCli.sh: addauth digest {connection.user}:PASSWORD, then getAcl {whole}; add {who} to it with setAcl"
    return f"zkCli.sh: getAcl {whole}; add {who} to it with setAcl, or set zookeeper.user to one that it names"


def _check_write(session: ZooKeeperSession, path: str, what_for: str) -> ProbeResult:
    node, wanted, letters = path, Permissions.WRITE, "rw"
    try:
        reader = _reader(session)
        while (found := reader.read(reader.client.get_acls_async, node)) is None and node != "/":
            node, wanted, letters = node.rpartition("/")[0] or "/", Permissions.CREATE, "rc"
        acls: list[ACL] = list(found[0]) if found is not None else []
        allowed = _allows(acls, session.connection, wanted)
    except ZOOKEEPER_READ_ERRORS.expected as error:
        return failed_probe(session.connection, error, (path,))
    there = f"{node} may be changed" if node == path else f"{path} may be made below {node}"
    if allowed:
        return ProbeResult(Outcome.OK, there)
    if allowed is None:
        return ProbeResult(
            Outcome.OK, f"{node} grants it to others than digest users: only the server knows whether we are one"
        )
    remedy = acl_line(session.connection, node, letters)
    return ProbeResult(Outcome.UNAUTHORIZED, f"the ACL of {node} does not let us change it, as {what_for}", (remedy,))


def _allows(acls: list[ACL], connection: ZooKeeperConnection, wanted: int) -> bool | None:
    """Whether an ACL allows us an operation; None if only the server knows."""
    credential = connection.credential()
    mine: set[tuple[str, str]] = {("world", "anyone")}
    if credential is not None:
        mine.add(("digest", make_digest_acl_credential(*credential.get_secret_value().split(":", 1))))
        mine.add(
            ("digest", f"{connection.user}:x")
        )  # the server replaces the hash for clients without the ADMIN permission
    granted: list[Any] = [each for each in acls if each.perms & wanted]
    if any((each.id.scheme, each.id.id) in mine for each in granted):
        return True
    return None if any(each.id.scheme in _UNKNOWABLE for each in granted) else False


def _reader(session: ZooKeeperSession) -> Reader:
    seconds = session.connection.timeout_seconds
    return session.reader(lambda: seconds)
