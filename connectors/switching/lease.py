"""The lease for orchestrating a broker cluster's switches: one process at a time, each with a greater token.

The token and the holder's ephemeral znode are written in one transaction. So each token is given once, whatever crashes
in between, and it is the holder's as long as both znodes were last written by the same transaction.
"""

import os
import socket
from dataclasses import dataclass
from typing import Annotated

import msgspec

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.switching.json_znodes import (
    JsonZnodes,
    Node,
    RegistryConflictError,
    check,
    create,
    delete,
    put,
)
from connectors.zookeeper.session import ZooKeeperSession
from policies.units import MAX_INT64

_TRIES = 3


class _Token(msgspec.Struct, frozen=True, kw_only=True):
    token: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
    holder: str


class _Holder(msgspec.Struct, frozen=True, kw_only=True):
    holder: str


@dataclass(frozen=True, slots=True)
class HeldLease:
    """The lease as it is held."""

    token: int
    """Greater than any before."""
    holder: str


class ZooKeeperLease:
    """The lease as one process sees it. For one thread, and the only lease of its session.

    Nobody else can hold it before ZooKeeper has ended this session, at the earliest one session timeout after the last
    `renew` that gave it. Who was paused for longer learns so from the next `renew` and no sooner: what it orders until
    then is to be turned away by its token, which is smaller.

    Args:
        session: of the ZooKeeper that keeps it.
        path: its znode.
        holder: who this is, for people; default `host:pid`.
    """

    def __init__(
        self, session: ZooKeeperSession, path: str = f"{REGISTRY_ROOT}/lease", holder: str | None = None
    ) -> None:
        self._nodes = JsonZnodes(session)
        self._path = path
        self._ephemeral = f"{path}/holder"
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}"

    def renew(self) -> HeldLease | None:
        """Take the lease if it is free, and verify that it is held; to be called every few seconds.

        Returns:
            None while somebody else holds it, which may be this process in a session that has not expired yet.

        Raises:
            RegistryError: ZooKeeper cannot be asked, or a znode is damaged: whether it is held is not known.
        """
        for _ in range(_TRIES):
            token, holder = self._read()
            if holder is None:
                if (held := self._take(token)) is not None:
                    return held
            elif not self._is_ours(holder):
                return None
            elif token is not None and holder.czxid == token.mzxid:
                return HeldLease(token.value.token, token.value.holder)
            else:  # somebody wrote the token by hand: it is nobody's, so a new one is taken
                self._give_up(token, holder)
        raise RegistryConflictError(f"{self._path} is changed by others all the time")

    def release(self) -> None:
        """Give the lease up, in order that another need not wait for this session's end; harmless when not held.

        Raises:
            RegistryError: it is not known whether it was given up; it will be when the session ends.
        """
        token, holder = self._read()
        if holder is not None and self._is_ours(holder):
            self._give_up(token, holder)

    def _read(self) -> tuple[Node[_Token] | None, Node[_Holder] | None]:
        self._nodes.catch_up(self._path)
        return self._nodes.get(self._path, _Token), self._nodes.get(self._ephemeral, _Holder)

    def _is_ours(self, holder: Node[_Holder]) -> bool:
        return holder.ephemeral_owner == self._nodes.session_id()

    def _take(self, found: Node[_Token] | None) -> HeldLease | None:
        """Both znodes at once; None when the token was changed, or the other znode made, since they were read."""
        if found is None:
            self._nodes.ensure(self._path.rpartition("/")[0])
            self._nodes.commit(create(self._path, _Token(token=0, holder="")))
            return None
        taken = _Token(token=found.value.token + 1, holder=self.holder)
        mine = create(self._ephemeral, _Holder(holder=self.holder), ephemeral=True)
        if self._nodes.commit(put(self._path, taken, found.version), mine):
            return HeldLease(taken.token, self.holder)
        return None

    def _give_up(self, token: Node[_Token] | None, holder: Node[_Holder]) -> None:
        """The token's version tells this holder's znode from a later one's: all have version 0."""
        still_ours = [] if token is None else [check(self._path, token.version)]
        self._nodes.commit(*still_ours, delete(self._ephemeral, holder.version))
