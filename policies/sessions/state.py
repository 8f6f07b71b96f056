"""What the policy remembers of one cluster: small, sorted structs, so that equal knowledge is equal bytes."""

from msgspec import Struct

from policies.alerts import AlertBook
from policies.sessions.decision import OwnershipReason, OwnershipVerdict, SessionEvent, SessionReason, SessionVerdict
from policies.sessions.member import Track

NEVER = -1


class Health(Struct, array_like=True, frozen=True):
    """What a member's own health endpoint said last."""

    at_ms: int
    id: str
    outcome: str
    healthy: bool | None
    listed: bool | None
    down_ms: int = NEVER
    """When it last did not say that it is healthy."""


class SessionSaid(Struct, array_like=True, frozen=True):
    """What was last decided about a member."""

    verdict: SessionVerdict
    reason: SessionReason
    said_ms: int
    fingerprint: str = ""
    lost_ms: int | None = None
    """The loss it was about."""


class Member(Struct, array_like=True, frozen=True):
    """What is known of one member."""

    member: str
    role: str = "broker"
    track: Track | None = None
    """Its session; null while none was ever read."""
    read_id: str = ""
    tried_ms: int = NEVER
    """When somebody last tried to read its session, and how that ended."""
    tried_id: str = ""
    outcome: str = ""
    health: Health | None = None
    attempts: int = 0
    """Failed attempts to reconnect since the loss, as it reported them."""
    attempted: tuple[int, str] = (NEVER, "")
    """When it reported the last of them, and in which observation."""
    fleet_wide: bool = False
    """Whether its last loss was one of the fleet."""
    recovering: bool = False
    """From its re-establishment until every bundle is settled."""
    awaited_ms: int | None = None
    """When it was done with its bundles, and its load data began to be awaited; null when it is not."""
    republished_ms: int = NEVER
    """When it last reported that it has published its load data."""
    events: tuple[SessionEvent, ...] = ()
    """What happened since the last decision about it."""
    said: SessionSaid | None = None
    seen_ms: int = NEVER
    """When anything was last heard of it."""


class Node(Struct, array_like=True, frozen=True):
    """The last good reading of a node."""

    path: str
    read_ms: int
    read_id: str
    exists: bool = True
    ephemeral: bool = True
    owner: str | None = None
    session: str | None = None
    czxid: int | None = None
    version: int | None = None
    changed_ms: int = NEVER
    """When another owner, or its absence, was first read."""
    prior: str | None = None
    """The owner before the present one."""
    unreadable_times: int = 0


class BundleSaid(Struct, array_like=True, frozen=True):
    """What was last decided about a claim."""

    verdict: OwnershipVerdict
    reason: OwnershipReason
    said_ms: int
    fingerprint: str = ""


class Claim(Struct, array_like=True, frozen=True):
    """A member owned a bundle when it lost its session, or believes otherwise that it owns it."""

    path: str
    member: str
    since_ms: int
    """When it lost its session, or said so."""
    said: BundleSaid | None = None

    @property
    def said_verdict(self) -> OwnershipVerdict | None:
        """What was last decided about it."""
        return None if self.said is None else self.said.verdict


class Source(Struct, array_like=True, frozen=True):
    """A tree, or the sessions as a whole (named ``""``): when it was last read, and how the last attempt ended."""

    name: str
    read_ms: int = NEVER
    read_id: str = ""
    tried_ms: int = NEVER
    tried_id: str = ""
    outcome: str = ""


class Spent(Struct, array_like=True, frozen=True):
    """A shutdown or restart that was decided."""

    at_ms: int
    member: str


class SessionsState(Struct, array_like=True, frozen=True):
    """Everything the policy remembers of one cluster."""

    started_ms: int
    members: tuple[Member, ...] = ()
    nodes: tuple[Node, ...] = ()
    """Of bundles and registrations."""
    claims: tuple[Claim, ...] = ()
    sources: tuple[Source, ...] = ()
    spent: tuple[Spent, ...] = ()
    alerts: AlertBook = AlertBook()
    sequence: int = 0
    """Numbers everything published but alerts; one for the cluster, so it only grows for each subject."""
