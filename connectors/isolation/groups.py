"""Bookie groups in ZooKeeper: changed by compare-and-set on the version of the znode `/bookies`.

The registration is read after the groups, and the write requires that the groups are unchanged. So there was a moment
at which the bookie was registered and in no group, and the write changed precisely that state.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from connectors.actuation.order_worker import ActionError, UnknownOutcomeError
from connectors.zookeeper.bookies import READ_ONLY, parse_registration
from connectors.zookeeper.session import ZOOKEEPER_FAILURES, ZooKeeperSession, describe_zookeeper_error
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.bookie_readings import BookieRegistration, RackInfo
from policies.units import from_millis

# The groups of a cluster's bookies: the interface to their stores, and edits of Pulsar's znode `/bookies`.
#
# The parser is strict, and an edit adds one bookie without touching anything else. Only the outline is parsed:
# groups, bookies, and the names of their fields. The values (racks, host names, fields of later versions) keep their
# exact bytes, so numbers and escapes survive that Python would round or rewrite. The order is kept; white space
# between values is not.

_Info = dict[str, msgspec.Raw]
_DECODER = msgspec.json.Decoder(dict[str, dict[str, _Info | None]])


class ConflictError(ActionError):
    """Another writer has changed the groups since they were read: read and judge them again."""


@dataclass(frozen=True, slots=True)
class RacksSnapshot:
    """The groups and one bookie's registration, as read together."""

    groups: Mapping[str, Mapping[str, object]]
    """Members by group."""
    registration: BookieRegistration | None
    """The bookie's registration, with what the store shows of it; None if it is not registered."""
    writable: frozenset[str]
    """All bookies that take new data."""
    changed_at: datetime
    """Time of the groups' last change, by ZooKeeper's clock where known."""
    write: Callable[[str, str], datetime]
    """Adds the bookie to a group with a rack if the groups are unchanged; returns the time of the effect.

    Raises ConflictError, UnknownOutcomeError or another ActionError.
    """


class RackStore(Protocol):
    """The stored groups of one cluster's bookies. Used from one thread."""

    def read_groups(self, bookie: str) -> RacksSnapshot:
        """Read the present groups, and a bookie's registration.

        Raises:
            ActionError: they cannot be read, or their content must not be written back.
        """

    def close(self) -> None:
        """Close the connection; the next `read_groups` opens a new one."""


Racks = Mapping[str, Mapping[str, _Info | None]]
"""The parsed content of the znode: the fields of each bookie, by group and bookie."""


def add_member(racks: Racks, bookie: str, group: str, rack: str) -> bytes:
    """Return the content with one more bookie; no entry is changed, moved or left out.

    Raises:
        ValueError: the bookie is in a group already, and must not be moved.
    """
    if find_group(racks, bookie) is not None:
        raise ValueError(f"{bookie} is in a group already")
    info = RackInfo(rack=rack, hostname=parse_host(bookie))
    # Pulsar leaves absent fields out, too.
    member = {bookie: info.model_dump(exclude_none=True)}
    return msgspec.json.encode({**racks, group: {**racks.get(group, {}), **member}})


def parse_racks(content: bytes) -> Racks:
    """Parse the znode's content; empty content means no groups.

    Raises:
        ValueError: it is not as Pulsar writes it: no JSON, an unknown shape, or a name twice. Writing it back could
            lose data. The message gives the place without quoting the content.
    """
    if not content.strip():
        return {}
    try:
        groups = _DECODER.decode(content)
        # Decoders keep the last of two equal names. Numbers are not parsed here: some are too long for Python.
        json.loads(content, object_pairs_hook=_refuse_repeated_names, parse_int=str, parse_float=str)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return groups


def find_group(groups: Mapping[str, Mapping[str, object]], bookie: str) -> str | None:
    """Return the (first) group of a bookie; None if it is in no group."""
    return next((group for group, members in groups.items() if bookie in members), None)


def parse_host(bookie: str) -> str | None:
    """Return the host of a bookie id `host:port`; None for a custom id."""
    host, _, port = bookie.rpartition(":")
    return host if host and port.isdecimal() else None


def _refuse_repeated_names(pairs: Sequence[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("something is named twice")


class ZooKeeperRacks:
    """The znode `/bookies` of one cluster, over sessions of its own.

    Args:
        connection: its ZooKeeper; its time limit holds for each read and each write.
        bookies_path: the znode, below the connection's chroot.
        ledgers_root: the root of BookKeeper's metadata, below the chroot of its ZooKeeper.
        ledgers: the ZooKeeper with BookKeeper's metadata, if it is another one.
    """

    def __init__(
        self,
        cluster: str,
        connection: ZooKeeperConnection,
        bookies_path: str = "/bookies",
        ledgers_root: str = "/ledgers",
        ledgers: ZooKeeperConnection | None = None,
    ) -> None:
        self._cluster = cluster
        self._connection = connection
        self._ledgers = ledgers or connection
        self._path = bookies_path
        self._available = f"{ledgers_root}/available"
        self._sessions: dict[ZooKeeperConnection, ZooKeeperSession] = {}

    def read_groups(self, bookie: str) -> RacksSnapshot:
        """Read the groups and a bookie's registration from the leader.

        Raises:
            ActionError: ZooKeeper does not answer, or the znode is absent or malformed.
        """
        try:
            (content, stat), writable, registration = self._read(bookie)
        except NoNodeError:
            remedy = "give any bookie a rack with `pulsar-admin bookies set-bookie-rack`, which makes it"
            raise ActionError(f"there is no znode {self._path}: {remedy}") from None
        except ZOOKEEPER_FAILURES as error:
            self.close()
            raise ActionError(describe_zookeeper_error(error)) from None
        try:
            racks = parse_racks(content)
        except ValueError as error:
            raise ActionError(f"the znode {self._path} is not as Pulsar writes it: {error}") from None
        return RacksSnapshot(
            groups=racks,
            # The child `readonly` is no registration: no session owns it.
            registration=parse_registration(bookie, registration)
            if registration is not None and registration.ephemeralOwner
            else None,
            writable=frozenset(writable) - {READ_ONLY},
            changed_at=from_millis(stat.mtime),
            write=partial(self._write, racks, stat.version, bookie),
        )

    def close(self) -> None:
        """End the sessions, and with them every request that is not sent yet."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close()

    def _client(self, connection: ZooKeeperConnection) -> KazooClient:
        if connection not in self._sessions:
            self._sessions[connection] = ZooKeeperSession(self._cluster, connection)
        return self._sessions[connection].client()

    def _read(self, bookie: str) -> tuple[tuple[bytes, ZnodeStat], list[str], ZnodeStat | None]:
        # All requests are sent at once: a shorter time between read and write means fewer conflicts. `sync` makes a
        # follower catch up with its leader first; requests of one session are answered in order.
        client, ledgers = self._client(self._connection), self._client(self._ledgers)
        until = time.monotonic() + self._connection.timeout_seconds

        def answer(request: Any) -> Any:
            return request.get(timeout=max(0.0, until - time.monotonic()))

        _, racks = client.sync_async(self._path), client.get_async(self._path)
        if ledgers is not client:
            answer(racks)
            ledgers.sync_async(self._available)
        children = ledgers.get_children_async(self._available)
        registration = ledgers.exists_async(f"{self._available}/{bookie}")
        found = answer(racks)
        try:
            return found, answer(children), answer(registration)
        except NoNodeError:
            return found, [], None

    def _write(self, racks: Racks, version: int, bookie: str, group: str, rack: str) -> datetime:
        content = add_member(racks, bookie, group, rack)
        try:
            request = self._client(self._connection).set_async(self._path, content, version=version)
            written: ZnodeStat = request.get(timeout=self._connection.timeout_seconds)
            return from_millis(written.mtime)
        except (BadVersionError, NoNodeError):
            raise ConflictError(f"others changed {self._path} each time") from None
        except NoAuthError:
            raise ActionError(f"the ACL of {self._path} does not let us write it") from None
        except ZOOKEEPER_FAILURES as error:  # most of them leave open whether it was written
            self.close()
            raise UnknownOutcomeError(describe_zookeeper_error(error)) from None
