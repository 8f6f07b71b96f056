"""Maps sessions to members: a registration znode names the member, and its ephemeral owner is the session."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from connectors.sessions.session_states import EnsembleSnapshot, SessionStates
from connectors.zookeeper.server_status import SessionTable, session_name
from policies.sessions.readings import MAX_NAME, MAX_TIMEOUT_MS, ZkSession

_SESSION = re.compile(r"0x[0-9a-f]{1,16}")


@dataclass(slots=True)
class _Member:
    role: str
    session: int
    ended_at: float | None = None


class MemberTracker:
    """The members of a cluster and their sessions, from one snapshot to the next.

    A member whose znode is gone keeps its last session while that lives, and for `forget_after_seconds` after its end,
    unless the member registers again.

    Args:
        trees: the role of each tree of registrations, by its path with the chroot. If a name occurs in several trees,
            the first tree counts.
    """

    def __init__(self, cluster: str, trees: Mapping[str, str], forget_after_seconds: float) -> None:
        self._cluster = cluster
        self._trees = {path: (number, role) for number, (path, role) in enumerate(trees.items())}
        self._forget_after_seconds = forget_after_seconds
        self._states = SessionStates()
        self._members: dict[str, _Member] = {}

    def is_registration(self, path: str) -> bool:
        """Whether an ephemeral node is a member's registration, by its path with the chroot."""
        return path.rpartition("/")[0] in self._trees and len(path) <= MAX_NAME

    def recall(self, last: ZkSession) -> None:
        """Add a member from before this start, unless its reading is not that of a member's session."""
        is_known = last.member in self._members or last.cluster != self._cluster
        if not is_known and last.member and last.state and _SESSION.fullmatch(last.session or ""):
            session = int(last.session or "", 16)
            self._members[last.member] = _Member(last.role, session)
            self._states.recall(session, last.state, last.timeout_ms)

    def update(self, snapshot: EnsembleSnapshot) -> tuple[ZkSession, ...]:
        """Process a snapshot, and return the readings of all members' sessions."""
        self._states.update(snapshot)
        self._members.update(self._find_registrations(snapshot.table))
        self._forget(snapshot)
        self._states.keep_ended({member.session for member in self._members.values()})
        return tuple(self._make_reading(name, member) for name, member in self._members.items())

    def _make_reading(self, name: str, member: _Member) -> ZkSession:
        timeout_ms = self._states.timeout_ms(member.session)
        return ZkSession(
            cluster=self._cluster,
            member=name,
            role=member.role,
            session=session_name(member.session),
            state=self._states.state(member.session),
            timeout_ms=None if timeout_ms is None else min(timeout_ms, MAX_TIMEOUT_MS),
        )

    def _find_registrations(self, table: SessionTable) -> dict[str, _Member]:
        found: dict[str, tuple[int, _Member]] = {}
        for session, paths in table.ephemerals.items():
            for path in filter(self.is_registration, paths):
                tree, _, name = path.rpartition("/")
                rank, role = self._trees[tree]
                if name not in found or rank < found[name][0]:
                    found[name] = rank, _Member(role, session)
        return {name: member for name, (_, member) in found.items()}

    def _forget(self, snapshot: EnsembleSnapshot) -> None:
        for name, member in list(self._members.items()):
            if member.session in snapshot.table.expiries_ms:
                member.ended_at = None
            elif member.ended_at is None:
                member.ended_at = snapshot.began_at
            elif snapshot.began_at - member.ended_at > self._forget_after_seconds:
                del self._members[name]
