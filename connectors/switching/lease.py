"""The lease for orchestrating a broker cluster's switches: one process at a time, each with a greater token.

The token and the holder's ephemeral znode are written in one transaction. So each token is used once, whatever crashes,
and it belongs to the holder as long as the same transaction was the last to write both znodes.
"""

import os
import socket
from typing import Annotated

import msgspec

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.zookeeper.json_znodes import JsonZnodes, Node, ZnodeConflictError, check, create, delete, put
from connectors.zookeeper.session import ZooKeeperSession
from policies.units import MAX_INT64

_TRIES = 3


class HeldLease(msgspec.Struct, frozen=True):
    """The lease of its holder, as its znode has it."""

    token: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
    """Greater than all earlier tokens."""
    holder: str


class ZooKeeperLease:
    """One process's view of the lease. For one thread, and the only lease of its session.

    No other process can hold it before ZooKeeper has ended this session, at the earliest one session timeout after the
    last successful `renew`. A process that was paused for longer notices only at its next `renew`. So the receivers of
    its orders must refuse a token that is smaller than a later one.

    Args:
        holder: this process's name for operators; by default `host:pid`.
    """

    def __init__(self, session: ZooKeeperSession, holder: str | None = None) -> None:
        self._nodes = JsonZnodes(session)
        self._path = f"{REGISTRY_ROOT}/lease"
        self._ephemeral = f"{self._path}/holder"
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}"

    def renew(self) -> HeldLease | None:
        """Take the lease if it is free, and verify that it is held. Call it every few seconds.

        Returns:
            None while another process holds it, or this one in an earlier session that has not expired yet.

        Raises:
            ZnodeError: ZooKeeper does not answer, or a znode is damaged: whether the lease is held is unknown.
        """
        for _ in range(_TRIES):
            token, holder = self._read()
            if holder is None:
                if (held := self._acquire(token)) is not None:
                    return held
            elif not self._is_ours(holder):
                return None
            elif token is not None and holder.czxid == token.mzxid:
                return token.value
            else:  # an operator changed the token by hand, so it belongs to no holder and a new one is taken
                self._give_up(token, holder)
        raise ZnodeConflictError(f"{self._path} is changed by others all the time")

    def release(self) -> None:
        """Give up the lease if it is held, so that another process need not wait for the end of this session.

        Raises:
            ZnodeError: the result is unknown; the end of the session gives it up.
        """
        token, holder = self._read()
        if holder is not None and self._is_ours(holder):
            self._give_up(token, holder)

    def _read(self) -> tuple[Node[HeldLease] | None, Node[bytes] | None]:
        self._nodes.catch_up(self._path)
        return self._nodes.get(self._path, HeldLease), self._nodes.read(self._ephemeral)

    def _is_ours(self, holder: Node[bytes]) -> bool:
        return holder.ephemeral_owner == self._nodes.session_id()

    def _acquire(self, found: Node[HeldLease] | None) -> HeldLease | None:
        """Write both znodes in one transaction. Returns None if one of them has changed since it was read."""
        if found is None:
            self._nodes.ensure(self._path.rpartition("/")[0])
            self._nodes.require_private(self._path.rpartition("/")[0])
            self._nodes.commit(create(self._path, HeldLease(token=0, holder="")))
            return None
        self._nodes.require_private(self._path.rpartition("/")[0])
        taken = HeldLease(token=found.value.token + 1, holder=self.holder)
        mine = create(self._ephemeral, {"holder": self.holder}, ephemeral=True)
        if self._nodes.commit(put(self._path, taken, found.version), mine):
            return taken
        return None

    def _give_up(self, token: Node[HeldLease] | None, holder: Node[bytes]) -> None:
        """Delete the holder's znode. The token's version distinguishes it from a later holder's: all have version 0."""
        still_ours = [] if token is None else [check(self._path, token.version)]
        self._nodes.commit(*still_ours, delete(self._ephemeral, holder.version))
