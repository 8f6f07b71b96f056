"""Metrics of the sessions policy: the state of each member's session, and of the bundles.

The state of sessions and znodes comes from the policy's own fold of the same readings. Decisions and their events are
counted from the decisions alone, so that metrics never disagree with them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import Histogram
from pydantic import BaseModel, ConfigDict, Field

from connectors.views import DetailKind, Family, FoldingView, PolicyDetail, PolicySnapshot, Sample
from policies.decisions import Decision
from policies.observations import Observation
from policies.sessions import session_machine
from policies.sessions.decisions import OwnershipDecision, SessionDecision, SessionEvent, SessionReason, SessionStatus
from policies.sessions.emit import find_forgotten, is_long_absent
from policies.sessions.fleet import is_ownership_hidden
from policies.sessions.fold import Claims, ClusterState, OwnershipNodes
from policies.sessions.readings import NAMESPACES
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import SESSIONS as SESSIONS_SOURCE
from policies.sessions.state import NodeRecord, SessionsState, SessionTrack, SourceRecord

UNKNOWN = "unknown"
"""The status of a session whose last reading is older than `validity`."""

SESSIONS = Family(
    "headgate_sessions",
    "Members by role and status of their ZooKeeper session (established, connection_lost, session_lost, closed); "
    "unknown if the last reading is older than validity.",
    ("cluster", "role", "status"),
)
SECONDS_TO_EXPIRY = Family(
    "headgate_session_seconds_to_expiry",
    "Time until a disconnected member's session counts as lost, 0 once it does; absent for other members.",
    ("cluster", "member"),
)
LOSSES = Family("headgate_session_losses_total", "Lost sessions, by the decisions about them.", ("cluster",))
DECISIONS = Family(
    "headgate_session_decisions_total",
    "Decisions about members and their bundles; one that is repeated before it expires counts again.",
    ("cluster", "verdict", "reason"),
)
BUNDLES = Family(
    "headgate_bundles",
    "Bundles by the last reading of their node: owned, unowned (with an owner within the last hour), not_ephemeral, "
    "unreadable. Absent if it is not known which members own bundles, as with some load managers.",
    ("cluster", "state"),
)

_RECOVERY_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_STATES = ("owned", "unowned", "not_ephemeral", "unreadable")
_CAUSED_BY_READING = frozenset(
    {
        SessionReason.CONNECTION_LOST,
        SessionReason.RECONNECTED,
        SessionReason.SESSION_REESTABLISHED,
        SessionReason.CLOSED,
        SessionReason.JOINED,
    }
)
"""A reading or a timer can cause the loss of a session, and the decision does not show which, so it is not here."""


@dataclass(slots=True)
class _SessionsCluster:
    """The state of one cluster."""

    cluster: ClusterState
    now_ms: int = 0

    @property
    def validity_ms(self) -> int:
        """The validity of a reading."""
        return self.cluster.timeouts.validity_ms

    def observe(self, readings: Sequence[Observation]) -> None:
        """Fold readings as a step of the policy does, and drop the members and nodes that the policy drops."""
        # At the time of the readings, so that old readings expire as they did live.
        self.now_ms = max(self.now_ms, *(reading.at_ms for reading in readings))
        cluster = self.cluster
        cluster.fold(readings, self.now_ms)
        # Only the policy's rules end a claim, and they are not applied here.
        cluster.claims = Claims()
        sessions = cluster.sources.get(SESSIONS_SOURCE, SourceRecord(SESSIONS_SOURCE))
        # The policy keeps members that were shut down for longer; that is not known here.
        forgotten = find_forgotten(cluster.members.values(), sessions, self.validity_ms)
        cluster.members = {name: member for name, member in cluster.members.items() if name not in forgotten}
        nodes = (n for n in cluster.nodes.by_path.values() if not is_long_absent(n))
        cluster.nodes = OwnershipNodes(nodes, cluster.timeouts)

    def forget(self, subject: str) -> None:
        """Drop a member, by its name, or the node of a bundle, by its member and range."""
        self.cluster.members.pop(subject, None)
        self.cluster.nodes.by_path.pop(f"{NAMESPACES}/{subject.partition('/')[2]}", None)


@dataclass(slots=True)
class _Counts:
    """Counts of one cluster's decisions since this process started."""

    losses: int = 0
    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)


class SessionsView(FoldingView[_SessionsCluster]):
    """The present state of all clusters."""

    families: tuple[Family, ...] = (SESSIONS, SECONDS_TO_EXPIRY, LOSSES, DECISIONS, BUNDLES)

    def __init__(self, settings: SessionsSettings) -> None:
        super().__init__(
            max(each.validity for each in settings.everywhere()),
            lambda name: _SessionsCluster(ClusterState(SessionsState(0), settings.for_cluster(name))),
        )
        self._counts: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._recovery = Histogram(
            "headgate_session_recovery_seconds",
            "Time from the loss of a member's session until each of its bundles is owned again or given up.",
            ("cluster",),
            buckets=_RECOVERY_BOUNDS,
            registry=None,
        )
        self.histograms = (self._recovery,)

    def _fold(self, cluster: _SessionsCluster, readings: Sequence[Observation]) -> None:
        cluster.observe(readings)

    def decide(self, decision: Decision, *, live: bool) -> bool:
        """Count a live decision."""
        counts = self._counts[decision.cluster]
        if live and isinstance(decision, SessionDecision | OwnershipDecision):
            counts.decisions[decision.verdict.value, decision.reason.value] += 1
        if not isinstance(decision, SessionDecision):
            return False
        if live:
            counts.losses += decision.events.count(SessionEvent.SESSION_LOST)
            if decision.recovery_seconds is not None:
                self._recovery.labels(decision.cluster).observe(decision.recovery_seconds)
        # A decision without events only repeats the last one.
        return decision.reason in _CAUSED_BY_READING and bool(decision.events) and bool(decision.evidence)

    def forget(self, key: str) -> None:
        """Drop the member or bundle of a deleted decision; later readings show it again."""
        for name, picture in self._clusters.items():
            if key.startswith(f"{name}/"):
                picture.forget(key.removeprefix(f"{name}/"))

    def forget_cluster(self, cluster: str) -> None:
        """Drop the cluster."""
        super().forget_cluster(cluster)
        self._counts.pop(cluster, None)
        self._recovery.remove(cluster)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield the samples of all clusters."""
        for name, picture in sorted(self._clusters.items()):
            yield from _member_samples(name, picture, now_ms)
            if not is_ownership_hidden(picture.cluster.sources.values()):
                counts = Counter(map(_classify, picture.cluster.nodes.bundles()))
                yield from (Sample(BUNDLES, (name, state), counts[state]) for state in _STATES)
        for name in sorted({*self._clusters, *self._counts}):
            decided = self._counts.get(name, _Counts())
            yield Sample(LOSSES, (name,), decided.losses)  # from 0 on, so that the first one is an increase
            for (verdict, reason), count in sorted(decided.decisions.items()):
                yield Sample(DECISIONS, (name, verdict, reason), count)


def _member_samples(name: str, picture: _SessionsCluster, now_ms: int) -> Iterator[Sample]:
    now_ms = max(now_ms, picture.now_ms)
    members = picture.cluster.members.values()
    tracks = [(m, _pass_time(m.track, now_ms, picture)) for m in members if m.track is not None]
    counts = Counter((m.role, UNKNOWN if track is None else track.status.value) for m, track in tracks)
    for role in sorted({member.role for member, _ in tracks}):
        for status in (*SessionStatus, UNKNOWN):
            yield Sample(SESSIONS, (name, role, str(status)), counts[role, str(status)])
    for member, track in sorted(tracks, key=lambda known: known[0].member):
        if track is not None and track.status is SessionStatus.SESSION_LOST:
            yield Sample(SECONDS_TO_EXPIRY, (name, member.member), 0.0)
        elif track is not None and track.lapse_ms is not None:
            yield Sample(SECONDS_TO_EXPIRY, (name, member.member), (track.lapse_ms - now_ms) / 1000)


def _pass_time(track: SessionTrack, now_ms: int, picture: _SessionsCluster) -> SessionTrack | None:
    """Return the session after the passing of time; None if its last reading is stale."""
    if not track.is_fresh(now_ms, picture.validity_ms):
        return None
    return session_machine.pass_time(track, now_ms, picture.cluster.timeouts)[0]


def _classify(node: NodeRecord) -> str:
    if not node.exists:
        return "unowned"
    if not node.ephemeral:
        return "not_ephemeral"
    return "unreadable" if node.owner is None else "owned"


# The sessions policy on the status page: the states of members' sessions and of bundles.

SHOWN_MEMBERS = 8


class LapsingMember(BaseModel):
    """A member without a connection."""

    model_config = ConfigDict(frozen=True)

    member: str
    seconds_to_expiry: float = Field(description="Time until its session counts as lost; 0 once it does.")


class SessionsDetail(PolicyDetail):
    """Members and bundles, as last read."""

    roles: dict[str, dict[str, int]] = Field(description="Number of members by role and session status.")
    lapsing_count: int = Field(description="Number of members that are disconnected, or whose session is lost.")
    lapsing: tuple[LapsingMember, ...] = Field(description=f"The {SHOWN_MEMBERS} with the least time left.")
    bundles: dict[str, int] = Field(description="Number of bundles by the state of their node.")


def _build_detail(snapshot: PolicySnapshot) -> SessionsDetail | None:
    roles: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (role, status), count in snapshot.values(SESSIONS).items():
        if count:
            roles[role][status] = round(count)
    bundles = {state: round(count) for (state,), count in snapshot.values(BUNDLES).items() if count}
    if not roles and not bundles:
        return None
    left = sorted((seconds, member) for (member,), seconds in snapshot.values(SECONDS_TO_EXPIRY).items())
    return SessionsDetail(
        roles=dict(roles),
        lapsing_count=len(left),
        lapsing=tuple(LapsingMember(member=m, seconds_to_expiry=max(0.0, s)) for s, m in left[:SHOWN_MEMBERS]),
        bundles=bundles,
    )


DETAIL = DetailKind(SessionsDetail, _build_detail, Path(__file__).with_name("detail.html"))
