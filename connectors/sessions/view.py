"""Metrics of the sessions policy: sessions and bundles as last read, without a rule, and counts of decisions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from prometheus_client import Histogram
from pydantic import BaseModel, ConfigDict, Field

from connectors.views import MOST_SERVERS, Decided, Family, PolicyDetail, PolicyView, Sample
from policies.decisions import Decision
from policies.observations import Observation, Outcome, sort_observations
from policies.sessions.decisions import OwnershipDecision, SessionDecision, SessionEvent, SessionStatus
from policies.sessions.readings import (
    LEADER,
    NAMESPACES,
    OwnedNode,
    Ownership,
    Ownerships,
    SessionState,
    ZkSession,
    date_back,
    is_bundle,
)
from policies.sessions.settings import DEFAULT_TIMEOUT_MS, SessionsSettings, monitor_ms
from policies.units import millis_of

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
_CAUSED_BY_READING = ("connection_lost", "reconnected", "session_reestablished", "closed", "joined")
"""A reading or a timer can cause the loss of a session, and the decision does not show which, so it is not here."""


_UNOWNED_MS = 3_600_000
"""A bundle without a node counts as unowned for this long; after that as deleted."""
_LEVELS = {
    SessionState.CONNECTED: SessionStatus.ESTABLISHED,
    SessionState.DISCONNECTED: SessionStatus.CONNECTION_LOST,
    SessionState.EXPIRED: SessionStatus.SESSION_LOST,
    SessionState.CLOSED: SessionStatus.CLOSED,
}


@dataclass(slots=True)
class _LastSession:
    """The last good reading of a member's session."""

    role: str
    state: SessionState
    since_ms: int
    """The first of the readings in a row with this state."""
    read_ms: int
    lapse_ms: int
    """When the session counts as lost if it stays disconnected."""

    def status(self, now_ms: int, validity_ms: int) -> str:
        """Return the status as of now."""
        if now_ms - self.read_ms > validity_ms:
            return UNKNOWN
        has_lapsed = self.state is SessionState.DISCONNECTED and now_ms >= self.lapse_ms
        return (SessionStatus.SESSION_LOST if has_lapsed else _LEVELS[self.state]).value


@dataclass(slots=True)
class _SessionsCluster:
    """The last readings of one cluster."""

    validity_ms: int
    members: dict[str, _LastSession] = field(default_factory=dict)
    bundles: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By path: the state of the bundle's node, and the first of the readings in a row that show it."""
    is_hidden: bool = False
    """Whether ZooKeeper does not show which members own bundles."""

    def take(self, seen: Observation) -> None:
        """Take a reading; one that failed leaves the last good one."""
        at_ms = seen.at_ms
        match seen.reading:
            case ZkSession(member=str(member), state=SessionState() as state, outcome=Outcome.OK) as reading if (
                member in self.members or len(self.members) < MOST_SERVERS
            ):
                last = self.members.get(member)
                since_ms = last.since_ms if last is not None and last.state is state else at_ms
                lapse_ms = since_ms + monitor_ms(reading.timeout_ms or DEFAULT_TIMEOUT_MS)
                self.members[member] = _LastSession(reading.role, state, since_ms, at_ms, lapse_ms)
            case Ownership(outcome=Outcome.OK) as node:
                self._take_nodes((node,), at_ms)
            case Ownerships(outcome=Outcome.OK) as tree:
                self._take_nodes(tree.nodes, at_ms)
                for path in self.bundles.keys() - {node.path for node in tree.nodes}:
                    if path.startswith(f"{tree.tree.rstrip('/')}/"):
                        self._set_bundle(path, "unowned", at_ms)
            case Ownerships(outcome=Outcome.UNSUPPORTED, tree=root) if NAMESPACES.startswith(root.rstrip("/")):
                self.is_hidden = True

    def _take_nodes(self, nodes: Sequence[OwnedNode], at_ms: int) -> None:
        for node in nodes:
            if is_bundle(node.path) and node.path != LEADER:
                self.is_hidden = False
                state = "unreadable" if node.owner_member is None else "owned"
                state = "not_ephemeral" if not node.ephemeral else state
                self._set_bundle(node.path, state if node.exists else "unowned", at_ms)

    def _set_bundle(self, path: str, state: str, at_ms: int) -> None:
        before, since_ms = self.bundles.get(path, ("", at_ms))
        since_ms = since_ms if before == state else at_ms
        self.bundles[path] = state, since_ms
        if state == "unowned" and at_ms - since_ms >= _UNOWNED_MS:
            del self.bundles[path]

    def roles(self, now_ms: int) -> dict[str, dict[str, int]]:
        """Count the members by role and status."""
        counts = Counter((last.role, last.status(now_ms, self.validity_ms)) for last in self.members.values())
        statuses = [*map(str, SessionStatus), UNKNOWN]
        return {role: {each: counts[role, each] for each in statuses} for role in sorted({role for role, _ in counts})}

    def lapsing(self, now_ms: int) -> dict[str, float]:
        """Return the seconds until the session of each disconnected member counts as lost, 0 once it does."""
        found: dict[str, float] = {}
        for member, last in sorted(self.members.items()):
            match last.status(now_ms, self.validity_ms):
                case SessionStatus.CONNECTION_LOST:
                    found[member] = (last.lapse_ms - now_ms) / 1000
                case SessionStatus.SESSION_LOST:
                    found[member] = 0.0
        return found

    def bundle_counts(self) -> dict[str, int]:
        """Count the bundles by state; empty if ZooKeeper does not show which members own bundles."""
        counts = Counter(state for state, _ in self.bundles.values())
        return {} if self.is_hidden else {state: counts[state] for state in _STATES}


class SessionsView(PolicyView[_SessionsCluster]):
    """The present state of all clusters."""

    families: tuple[Family, ...] = (SESSIONS, SECONDS_TO_EXPIRY, LOSSES, DECISIONS, BUNDLES)

    def __init__(self, settings: SessionsSettings) -> None:
        super().__init__(
            max(each.validity for each in settings.everywhere()),
            lambda name: _SessionsCluster(millis_of(settings.for_cluster(name).validity)),
            _show,
        )
        self._losses: Counter[str] = Counter()
        self._decisions: Counter[tuple[str, str, str]] = Counter()
        """By cluster, verdict and reason, since this process started."""
        self._recovery = Histogram(
            "headgate_session_recovery_seconds",
            "Time from the loss of a member's session until each of its bundles is owned again or given up.",
            ("cluster",),
            buckets=_RECOVERY_BOUNDS,
            registry=None,
        )
        self.histograms = (self._recovery,)

    def _fold(self, cluster: _SessionsCluster, readings: Sequence[Observation]) -> None:
        for seen in sort_observations([date_back(each) for each in readings]):
            cluster.take(seen)
        # A member that was not read for `validity` while others were is gone.
        oldest_ms = max((m.read_ms for m in cluster.members.values()), default=0) - cluster.validity_ms
        cluster.members = {name: m for name, m in cluster.members.items() if m.read_ms >= oldest_ms}

    def decide(self, decision: Decision, before: Decision | None, *, live: bool) -> bool:  # noqa: ARG002 - events tell
        """Count a live decision."""
        name = decision.cluster
        if live and isinstance(decision, SessionDecision | OwnershipDecision):
            self._decisions[name, decision.verdict.value, decision.reason.value] += 1
        if not isinstance(decision, SessionDecision):
            return False
        if live:
            self._losses[name] += decision.events.count(SessionEvent.SESSION_LOST)
            if decision.recovery_seconds is not None:
                self._recovery.labels(name).observe(decision.recovery_seconds)
        # A decision without events only repeats the last one.
        return decision.reason in _CAUSED_BY_READING and bool(decision.events) and bool(decision.evidence)

    def forget_cluster(self, cluster: str) -> None:
        """Drop the cluster."""
        super().forget_cluster(cluster)
        self._losses.pop(cluster, None)
        self._decisions = Counter({key: count for key, count in self._decisions.items() if key[0] != cluster})
        self._recovery.remove(cluster)

    def samples(self, now_ms: int, decided: Decided) -> Iterator[Sample]:  # noqa: ARG002 - decisions are counted
        """Yield the samples of all clusters."""
        for name, cluster in sorted(self._clusters.items()):
            for role, counts in cluster.roles(now_ms).items():
                yield from (Sample(SESSIONS, (name, role, status), count) for status, count in counts.items())
            for member, seconds in cluster.lapsing(now_ms).items():
                yield Sample(SECONDS_TO_EXPIRY, (name, member), seconds)
            yield from (Sample(BUNDLES, (name, state), count) for state, count in cluster.bundle_counts().items())
        for name in sorted({*self._clusters, *self._losses}):
            yield Sample(LOSSES, (name,), self._losses[name])  # from 0 on, so that the first one is an increase
        yield from (Sample(DECISIONS, labels, count) for labels, count in sorted(self._decisions.items()))


# The sessions policy on the status page: the states of members' sessions and of bundles.

SHOWN_MEMBERS = 8


class LapsingMember(BaseModel):
    """A member without a connection."""

    model_config = ConfigDict(frozen=True)

    member: str
    seconds_to_expiry: float = Field(description="Time until its session counts as lost; 0 once it does.")


class SessionsDetail(PolicyDetail):
    """Members and bundles, as last read."""

    template: ClassVar[str] = str(Path(__file__).with_name("detail.html"))

    roles: dict[str, dict[str, int]] = Field(description="Number of members by role and session status.")
    lapsing_count: int = Field(description="Number of members that are disconnected, or whose session is lost.")
    lapsing: tuple[LapsingMember, ...] = Field(description=f"The {SHOWN_MEMBERS} with the least time left.")
    bundles: dict[str, int] = Field(description="Number of bundles by the state of their node.")


def _show(cluster: _SessionsCluster, _decisions: object, now_ms: int) -> SessionsDetail | None:
    roles = {role: _without_zeros(counts) for role, counts in cluster.roles(now_ms).items()}
    bundles = _without_zeros(cluster.bundle_counts())
    if not roles and not bundles:
        return None
    left = sorted((seconds, member) for member, seconds in cluster.lapsing(now_ms).items())
    return SessionsDetail(
        roles=roles,
        lapsing_count=len(left),
        lapsing=tuple(LapsingMember(member=m, seconds_to_expiry=s) for s, m in left[:SHOWN_MEMBERS]),
        bundles=bundles,
    )


def _without_zeros(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
