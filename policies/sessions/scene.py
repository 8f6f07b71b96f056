"""What the rules look at, and what they give."""

from dataclasses import dataclass

from policies.sessions import fleet
from policies.sessions.decision import SessionReason, SessionVerdict
from policies.sessions.fleet import Budget
from policies.sessions.knowledge import Knowledge, registration
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import Claim, Member, Node
from policies.units import human_seconds, millis_of


@dataclass(frozen=True, slots=True)
class Order:
    """What a member is to do, and the sentence that says why (it goes on after the member's name)."""

    verdict: SessionVerdict
    reason: SessionReason
    what: str
    evidence: tuple[str, ...] = ()
    left_ms: int | None = None
    recovery_ms: int | None = None


@dataclass(frozen=True)
class Scene:
    """All that the rules look at."""

    known: Knowledge
    settings: SessionsSettings
    now_ms: int
    budget: Budget
    unread: tuple[str, tuple[str, ...]] | None
    """Why ZooKeeper cannot be read, and the observations that say so."""

    def node(self, member: Member) -> Node | None:
        """A member's registration, as last read."""
        return self.known.nodes.get(registration(member.member))

    def is_fresh(self, member: Member) -> bool:
        """Whether its session's last reading counts."""
        return member.track is not None and member.track.is_fresh(self.now_ms, millis_of(self.settings.validity))

    def is_exhausted(self, member: Member) -> bool:
        """Whether a member without a session has tried to reconnect often or long enough."""
        lost_ms = (member.track.lost_ms if member.track else None) or 0
        late = self.now_ms >= lost_ms + millis_of(self.settings.reconnect_deadline)
        return late or (self.has_reported(member) and member.attempts >= self.settings.reconnect_limit)

    def has_reported(self, member: Member) -> bool:
        """Whether its last report of a failed attempt still counts."""
        return self.now_ms - member.attempted[0] <= millis_of(self.settings.validity)

    def claims(self, member: Member) -> list[Claim]:
        """What a member owned, by path."""
        return self.known.claims_of(member.member)

    def evidence(self, member: Member) -> tuple[str, ...]:
        """The readings of its session and of its registration."""
        node = self.node(member)
        fresh = node is not None and self.now_ms - node.read_ms <= millis_of(self.settings.validity)
        return ids(member.read_id, node.read_id if node is not None and fresh else "")

    def peers(self, member: Member) -> list[Member]:
        """The members of its role, itself among them."""
        return fleet.peers(self.known.members.values(), member.role, self.now_ms, self.settings)

    def spent(self) -> str:
        """How much of the budget is spent, for a sentence."""
        window = human_seconds(self.settings.shutdown_window.total_seconds())
        return f"{self.budget.count(self.now_ms)} of {self.budget.limit} shutdowns in {window} are spent"


def ids(*all_ids: str) -> tuple[str, ...]:
    """Those there are, each once."""
    return tuple(dict.fromkeys(id_ for id_ in all_ids if id_))
