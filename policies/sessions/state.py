"""The state of the sessions policy for one cluster: small, sorted structs, so equal knowledge gives equal bytes."""

from msgspec import Struct

from policies.alerts import AlertBook
from policies.sessions.decisions import (
    OwnershipReason,
    OwnershipVerdict,
    SessionEvent,
    SessionReason,
    SessionStatus,
    SessionVerdict,
)
from policies.sessions.readings import SessionState
from policies.sessions.settings import DEFAULT_TIMEOUT_MS, monitor_ms
from policies.units import InstantMs

NEVER = -1
SESSIONS = ""
"""The name of the source that stands for the sessions as a whole."""


class SessionTrack(Struct, array_like=True, frozen=True):
    """What is known of one member's session."""

    status: SessionStatus
    since_ms: InstantMs
    """When its status began."""
    read_ms: InstantMs
    """When it was last read."""
    state: SessionState
    """As last read."""
    session: str | None = None
    past: tuple[str, ...] = ()
    """Sessions it had before; what is read of them says nothing of it now."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    connected_ms: InstantMs | None = None
    """When it was last read as connected."""
    disconnected_ms: InstantMs | None = None
    """Since when it is disconnected, while its session is not lost."""
    lost_ms: InstantMs | None = None
    """When it last lost its session."""
    reestablished_ms: InstantMs | None = None
    """When it was established again after that; None until then."""
    losses: tuple[InstantMs, ...] = ()
    """When it lost its session, as far as `settle` reaches back from the last loss."""
    unsettled: bool = False
    """Whether it flaps: until its status has stayed the same for `settle`."""
    before_ms: InstantMs = NEVER
    """When it was read before `read_ms`."""

    @property
    def is_lost(self) -> bool:
        """Whether the member is without a session now."""
        return self.status is SessionStatus.SESSION_LOST

    @property
    def moves_with_time(self) -> bool:
        """Whether time alone may change it."""
        return self.disconnected_ms is not None or self.unsettled

    @property
    def lapse_ms(self) -> int | None:
        """When a disconnected session is lost without a further reading; None for others."""
        return None if self.disconnected_ms is None else self.disconnected_ms + monitor_ms(self.timeout_ms)

    def is_fresh(self, now_ms: int, validity_ms: int) -> bool:
        """Whether its last reading still counts: it is not older than its validity."""
        return now_ms - self.read_ms <= validity_ms


class Health(Struct, array_like=True, frozen=True):
    """What a member's own health endpoint said last."""

    at_ms: InstantMs
    id: str
    outcome: str
    healthy: bool | None
    listed: bool | None
    down_ms: InstantMs = NEVER
    """When it last did not say that it is healthy."""
    before_ms: InstantMs = NEVER
    """When it was read before `at_ms`."""
    answered_ms: InstantMs = NEVER
    """When it last did anything but refuse a connection: a process that does not answer in time is slow, not dead."""
    listed_ms: InstantMs = NEVER
    """When the cluster last listed it."""
    unlisted_ms: InstantMs = NEVER
    """Since when the cluster has not listed it; `NEVER` while it does, or nobody can say."""


class LastPublishedOrder(Struct, array_like=True, frozen=True):
    """What was last published about a member."""

    verdict: SessionVerdict
    reason: SessionReason
    published_ms: InstantMs
    fingerprint: str = ""
    lost_ms: InstantMs | None = None
    """The loss it was about."""
    is_shadow: bool = False
    """Whether it was published only: nobody was to carry it out."""


class Member(Struct, array_like=True, frozen=True):
    """What is known of one member.

    `fold.sessions` writes its session, `fold.health` its health, `fold.reports` what it reported itself; `facts`
    whether its loss is one of the fleet; `effects` how far its recovery is, and what was last published.
    """

    member: str
    role: str = "broker"
    track: SessionTrack | None = None
    """Its session; None while none was ever read."""
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    """When somebody last tried to read its session, and how that ended."""
    tried_id: str = ""
    outcome: str = ""
    health: Health | None = None
    attempts: int = 0
    """Failed attempts to reconnect since the loss, as it reported them."""
    attempted: tuple[InstantMs, str] = (NEVER, "")
    """When it reported the last of them, and in which observation."""
    fleet_wide: bool = False
    """Whether its last loss was one of the fleet."""
    recovering: bool = False
    """From its re-establishment until every bundle is settled."""
    awaited_ms: InstantMs | None = None
    """When it was done with its bundles, and its load data began to be awaited; None when it is not."""
    republished_ms: InstantMs = NEVER
    """When it last reported that it has published its load data."""
    events: tuple[SessionEvent, ...] = ()
    """What happened since the last decision about it."""
    last_published: LastPublishedOrder | None = None
    seen_ms: InstantMs = NEVER
    """When anything was last heard of it."""
    attempted_before_ms: InstantMs = NEVER
    """When it reported the failed attempt before the last."""

    @property
    def timeout_ms(self) -> int:
        """T of its session."""
        return DEFAULT_TIMEOUT_MS if self.track is None else self.track.timeout_ms

    @property
    def session(self) -> str | None:
        """The session it has; None when it has none, or it is not known."""
        track = self.track
        holds = track is not None and track.status in (SessionStatus.ESTABLISHED, SessionStatus.CONNECTION_LOST)
        return track.session if track is not None and holds else None


class NodeRecord(Struct, array_like=True, frozen=True):
    """The last good reading of a node."""

    path: str
    read_ms: InstantMs
    read_id: str
    exists: bool = True
    ephemeral: bool = True
    owner: str | None = None
    session: str | None = None
    czxid: int | None = None
    version: int | None = None
    changed_ms: InstantMs = NEVER
    """When another owner, or its absence, was first read."""
    prior: str | None = None
    """The owner before the present one."""
    unreadable_times: int = 0
    before_ms: InstantMs = NEVER
    """When it was read before `read_ms`."""


class LastPublishedRuling(Struct, array_like=True, frozen=True):
    """What was last published about a claim."""

    verdict: OwnershipVerdict
    reason: OwnershipReason
    published_ms: InstantMs
    fingerprint: str = ""


class Claim(Struct, array_like=True, frozen=True):
    """A member owned a bundle when it lost its session, or believes otherwise that it owns it."""

    path: str
    member: str
    since_ms: InstantMs
    """When it lost its session, or said so."""
    last_published: LastPublishedRuling | None = None

    @property
    def key(self) -> tuple[str, str]:
        """A claim is one member's to one bundle."""
        return (self.path, self.member)

    @property
    def verdict(self) -> OwnershipVerdict | None:
        """What was last published about it."""
        return None if self.last_published is None else self.last_published.verdict


class SourceRecord(Struct, array_like=True, frozen=True):
    """A tree, or the sessions as a whole (`SESSIONS`): when it was last read, and how the last attempt ended."""

    name: str
    read_ms: InstantMs = NEVER
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    tried_id: str = ""
    outcome: str = ""
    since_ms: InstantMs = NEVER
    """Since when it has been read without a gap longer than a reading counts, such as while Headgate was away."""


class SpentShutdown(Struct, array_like=True, frozen=True):
    """A shutdown or restart that was decided."""

    at_ms: InstantMs
    member: str
    back_ms: InstantMs = NEVER
    """When the member was found back, or gone from the fleet for good; until then it is down by our word."""
    is_shadow: bool = False
    """Whether it was published only."""


class SessionsState(Struct, array_like=True, frozen=True):
    """Everything the policy remembers of one cluster."""

    started_ms: InstantMs
    members: tuple[Member, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    """Of bundles and registrations."""
    claims: tuple[Claim, ...] = ()
    sources: tuple[SourceRecord, ...] = ()
    spent: tuple[SpentShutdown, ...] = ()
    alerts: AlertBook = AlertBook()
    sequence: int = 0
    """Numbers everything published but alerts; one for the cluster, so it only grows for each subject."""
