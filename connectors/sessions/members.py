"""Maps sessions to members: a registration znode names the member, and its ephemeral owner is the session."""

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.sessions.session_states import EnsembleSnapshot, SessionStates
from connectors.zookeeper.server_status import SessionTable, session_name
from policies.sessions.readings import MAX_NAME, SessionState


@dataclass(frozen=True, slots=True)
class RegistrationTree:
    """The tree of znodes in which members of one role register."""

    path: str
    """The path with the chroot."""
    role: str


@dataclass(frozen=True, slots=True)
class MemberSession:
    """A member's session in one snapshot."""

    member: str
    role: str
    session: str
    state: SessionState
    timeout_ms: int | None


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
        trees: the trees of registrations. If a name occurs in several trees, the first tree counts.
    """

    def __init__(self, trees: Sequence[RegistrationTree], forget_after_seconds: float) -> None:
        self._trees = {tree.path: (number, tree.role) for number, tree in enumerate(trees)}
        self._forget_after_seconds = forget_after_seconds
        self._states = SessionStates()
        self._members: dict[str, _Member] = {}

    def is_registration(self, path: str) -> bool:
        """Whether an ephemeral node is a member's registration, by its path with the chroot."""
        return path.rpartition("/")[0] in self._trees and len(path) <= MAX_NAME

    def recall(self, last: MemberSession) -> None:
        """Add a member from before this start."""
        if last.member not in self._members:
            session = int(last.session, 16)
            self._members[last.member] = _Member(last.role, session)
            self._states.recall(session, last.state, last.timeout_ms)

    def update(self, snapshot: EnsembleSnapshot) -> tuple[MemberSession, ...]:
        """Process a snapshot, and return the sessions of all members."""
        self._states.update(snapshot)
        self._members.update(self._find_registrations(snapshot.table))
        self._forget(snapshot)
        self._states.keep_ended({member.session for member in self._members.values()})
        return tuple(
            MemberSession(
                name,
                member.role,
                session_name(member.session),
                self._states.state(member.session),
                self._states.timeout_ms(member.session),
            )
            for name, member in self._members.items()
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
