"""The metrics of the sessions policy: how each member's session stands, and who owns the bundles.

What is remembered of a session or a node is the policy's own code, fed with the same readings; what was decided, and
what happened before it, is counted from the decisions alone, so that metrics never tell another story than they do.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from connectors.prometheus.families import Family, Histogram, Sample
from connectors.prometheus.policy_view import by_cluster
from policies.decisions import Decision
from policies.observations import Observation
from policies.sessions import member as machine
from policies.sessions.decision import OwnershipDecision, SessionDecision, SessionEvent, SessionReason, Status
from policies.sessions.knowledge import Knowledge
from policies.sessions.member import Patience, Track
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import Member, Node, SessionsState
from policies.units import millis_of

UNKNOWN = "unknown"
"""The status of a session that was not read for longer than `validity`."""

SESSIONS = Family(
    "headgate_sessions",
    "Members by role and by how their ZooKeeper session stands (established, connection_lost, session_lost, closed); "
    "unknown when it was not read for longer than validity.",
    ("cluster", "role", "status"),
)
SECONDS_TO_EXPIRY = Family(
    "headgate_session_seconds_to_expiry",
    "How long until a disconnected member's session counts as lost, 0 once it does; absent for the others.",
    ("cluster", "member"),
)
LOSSES = Family(
    "headgate_session_losses_total", "How many sessions were lost, by what was decided on it.", ("cluster",)
)
DECISIONS = Family(
    "headgate_session_decisions_total",
    "Decisions about members and about their bundles; one that is renewed because it lapsed counts again.",
    ("cluster", "verdict", "reason"),
)
BUNDLES = Family(
    "headgate_bundles",
    "Bundles by the last reading of their node: owned, unowned (it had an owner within the last hour), not_ephemeral, "
    "unreadable.",
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
"""A session is lost by a reading or by a timer, and the decision does not say by which."""


@dataclass(slots=True)
class _Cluster:
    """What is known of one cluster."""

    knowledge: Knowledge
    validity_ms: int
    now_ms: int = 0

    def observe(self, readings: Sequence[Observation]) -> None:
        """Fold readings in as one step of the policy does."""
        # As of the readings, not of now: history is forgotten as it was then.
        self.now_ms = max(self.now_ms, *(reading.at_ms for reading in readings))
        self.knowledge.observe(readings, self.now_ms)
        # When a claim is over only the rules know, which are not asked here.
        self.knowledge.claims.clear()
        self.knowledge.tidy(self.now_ms, self.validity_ms)


@dataclass(slots=True)
class _Counts:
    """What was decided for one cluster while this process listened."""

    losses: int = 0
    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)


class SessionsView:
    """The present picture of all clusters.

    Args:
        settings: the policy's block.
    """

    families: tuple[Family, ...] = (SESSIONS, SECONDS_TO_EXPIRY, LOSSES, DECISIONS, BUNDLES)

    def __init__(self, settings: SessionsSettings) -> None:
        self._settings = settings
        self._clusters: dict[str, _Cluster] = {}
        self._counts: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._recovery = Histogram(
            "headgate_session_recovery_seconds",
            "From the loss of a member's session until each of its bundles was its own again or given up.",
            ("cluster",),
            _RECOVERY_BOUNDS,
        )
        self.histograms: tuple[Histogram, ...] = (self._recovery,)

    @property
    def history(self) -> timedelta:
        """As far back as a reading counts anywhere."""
        return max(settings.validity for settings in self._settings.everywhere())

    def observe(self, observations: Sequence[Observation]) -> None:
        """Fold readings in, by cluster."""
        for name, readings in by_cluster(observations):
            self._cluster(name).observe(readings)

    def decide(self, decision: Decision, *, live: bool) -> bool:
        """Count what is decided from now on."""
        counts = self._counts[decision.cluster]
        if live and isinstance(decision, SessionDecision | OwnershipDecision):
            counts.decisions[decision.verdict.value, decision.reason.value] += 1
        if not isinstance(decision, SessionDecision):
            return False
        if live:
            counts.losses += decision.events.count(SessionEvent.SESSION_LOST)
            if decision.recovery_seconds is not None:
                self._recovery.add((decision.cluster,), decision.recovery_seconds)
        # Without events it is said again because it lapsed.
        return decision.reason in _CAUSED_BY_READING and bool(decision.events) and bool(decision.evidence)

    def forget(self, key: str) -> None:
        """A deleted decision takes nothing with it: the picture is that of the readings."""

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Every series of every cluster at this moment."""
        for name, cluster in sorted(self._clusters.items()):
            yield from _of_members(name, cluster, now_ms)
            yield from _of_nodes(name, list(cluster.knowledge.nodes.bundles()))
        for name in sorted({*self._clusters, *self._counts}):
            counts = self._counts.get(name, _Counts())
            yield Sample(LOSSES, (name,), counts.losses)  # from 0 on, so that the first one is an increase
            for (verdict, reason), count in sorted(counts.decisions.items()):
                yield Sample(DECISIONS, (name, verdict, reason), count)

    def _cluster(self, name: str) -> _Cluster:
        if name not in self._clusters:
            settings = self._settings.for_cluster(name)
            patience = Patience(millis_of(settings.settle), millis_of(settings.validity))
            self._clusters[name] = _Cluster(Knowledge(SessionsState(0), patience), patience.validity_ms)
        return self._clusters[name]


def _of_members(name: str, cluster: _Cluster, now_ms: int) -> Iterator[Sample]:
    now_ms = max(now_ms, cluster.now_ms)
    tracks = [(m, _as_of(m.track, now_ms, cluster)) for m in cluster.knowledge.members.values() if m.track is not None]
    counts = Counter((m.role, UNKNOWN if track is None else track.status.value) for m, track in tracks)
    for role in sorted({member.role for member, _ in tracks}):
        for status in (*Status, UNKNOWN):
            yield Sample(SESSIONS, (name, role, str(status)), counts[role, str(status)])
    for member, track in sorted(tracks, key=_name):
        if track is not None and track.status is Status.SESSION_LOST:
            yield Sample(SECONDS_TO_EXPIRY, (name, member.member), 0.0)
        elif track is not None and track.lapse_ms is not None:
            yield Sample(SECONDS_TO_EXPIRY, (name, member.member), (track.lapse_ms - now_ms) / 1000)


def _as_of(track: Track, now_ms: int, cluster: _Cluster) -> Track | None:
    """A session at a moment: what time alone has made of it; null when its last reading no longer counts."""
    if not track.is_fresh(now_ms, cluster.validity_ms):
        return None
    return machine.pass_time(track, now_ms, cluster.knowledge.patience)[0]


def _name(known: tuple[Member, Track | None]) -> str:
    return known[0].member


def _of_nodes(cluster: str, nodes: Sequence[Node]) -> Iterator[Sample]:
    counts = Counter(map(_state_of, nodes))
    for state in _STATES:
        yield Sample(BUNDLES, (cluster, state), counts[state])


def _state_of(node: Node) -> str:
    if not node.exists:
        return "unowned"
    if not node.ephemeral:
        return "not_ephemeral"
    return "unreadable" if node.owner is None else "owned"
