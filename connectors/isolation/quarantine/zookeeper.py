"""Bookie groups in ZooKeeper: changed by compare-and-set on the version of the znode `/bookies`.

The registration is read after the groups, and the write requires that the groups are unchanged. So there was a moment
at which the bookie was registered and in no group, and the write changed precisely that state.
"""

import time
from datetime import datetime
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from connectors.actuation.reports import ActionError, UnknownOutcomeError
from connectors.isolation.quarantine.racks import (
    ConflictError,
    MalformedRacksError,
    Racks,
    RacksSnapshot,
    parse_racks,
)
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from connectors.zookeeper.registrations import READ_ONLY, parse_registration
from connectors.zookeeper.session import ZooKeeperSession
from policies.errors import UserError
from policies.units import from_millis

MAX_RACKS_BYTES = 1024 * 1024 - 1024
"""ZooKeeper accepts requests of just under 1 MiB; the difference is room for the request around the content."""

_NO_ANSWER = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, OperationTimeoutError, KazooTimeoutError)
_FAILURES = (KazooException, KazooTimeoutError, NotConnectedError, UnreadError, UserError, OSError)


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
        *,
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
        except _FAILURES as error:
            self.close()
            raise ActionError(detail_of(error)) from None
        try:
            racks = parse_racks(content)
        except MalformedRacksError as error:
            raise ActionError(f"the znode {self._path} is not as Pulsar writes it: {error}") from None
        return RacksSnapshot(
            groups=racks.groups,
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
        content = racks.with_member(bookie, group, rack)
        if len(content) > MAX_RACKS_BYTES:
            raise ActionError(f"{self._path} would have {len(content)} bytes, more than a znode may have")
        try:
            request = self._client(self._connection).set_async(self._path, content, version=version)
            written: ZnodeStat = request.get(timeout=self._connection.timeout_seconds)
            return from_millis(written.mtime)
        except (BadVersionError, NoNodeError):
            raise ConflictError(f"others changed {self._path} each time") from None
        except NoAuthError:
            raise ActionError(f"the ACL of {self._path} does not let us write it") from None
        except _NO_ANSWER as error:
            self.close()
            raise UnknownOutcomeError(detail_of(error)) from None
        except _FAILURES as error:
            self.close()
            raise ActionError(detail_of(error)) from None
