"""The response models of the API under `/api/v1`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny

from connectors.views import MAX_RECENT_DECISIONS, PolicyDetail
from policies.decisions import Mode, Severity
from policies.units import ClosedEnum, Instant

SHOWN_ALERTS = 200
"""Limit of the alerts on the page and in the API."""


class Document(BaseModel):
    """A part of a response."""

    model_config = ConfigDict(frozen=True)


class Concern(ClosedEnum):
    """How urgently an operator should look at a cluster: its alerts, stale decisions and failing actuators count."""

    CRITICAL = "critical", "A critical alert fires: look now."
    STALE = "stale", "A decision has expired without a successor: the loop is dead or far behind."
    WARNING = "warning", "A warning fires, or an actuator fails: look within the day."
    INFO = "info", "An alert of severity info fires."
    CALM = "calm", "No alert fires, no actuator fails, and all decisions are current."


class DecisionLine(Document):
    """A decision or an alert in one line."""

    decision_id: str
    policy: str
    cluster: str
    subject: str = Field(description="The decision's subject.")
    verdict: str
    reason: str
    sentence: str = Field(description="The explanation, with the deciding numbers.")
    decided_at: Instant
    mode: Mode
    stale: bool = Field(description="Whether its successor is overdue.")
    alert: str | None = Field(description="The alert's name; null for a decision.")
    severity: Severity | None = Field(description="The alert's severity; null for a decision.")


class AlertLine(Document):
    """A firing alert."""

    alert: str
    severity: Severity
    policy: str
    cluster: str
    subject: str
    reason: str
    summary: str
    started_at: Instant
    stale: bool = Field(description="Whether its repetition is overdue: it may have ended.")
    inhibited_by: str | None = Field(
        description="The alert that explains it, as in the inhibition rules for Alertmanager; null: none does."
    )


class EffectLine(Document):
    """What an actuator has set for one target, or cannot set."""

    target: str = Field(description="A quota's entity, a bookie, a bundle; empty: the whole cluster.")
    by: str = Field(description="The actuator.")
    value: str | None = Field(description="The value that is set, in words; null: no report says so.")
    number: float | None = Field(description="The same as a number: bytes a second and broker for quotas.")
    held: bool = Field(description="Whether Headgate has set the value. It has not, once it put the original back.")
    since: Instant | None = Field(description="When it was set.")
    confirmed_brokers: int | None = Field(description="Number of brokers that showed it; null: not checked one by one.")
    broker_count: int | None
    wanted: str | None = Field(description="The value that fails or is refused; null: nothing else is wanted.")
    failing_since: Instant | None = Field(description="Since when it cannot be set; null: it can.")
    refused_since: Instant | None = Field(description="Since when the actuator refuses to set it; null: it does not.")
    detail: str | None = Field(description="Why it fails or is refused.")


class PauseLine(Document):
    """A pause that is in force."""

    until: Instant
    by: str | None = Field(description="The person.")
    reason: str | None
    keeps: bool = Field(description="Whether actuators leave what they have set; otherwise they take it back.")


class InForceLine(Document):
    """The wanted and the set values, as in `headgate status`."""

    wanted: str | None = Field(description="The wanted values by the decisions in force; null: there are none.")
    effects: tuple[EffectLine, ...] = Field(description="At most 50.")
    paused: PauseLine | None = Field(description="Null: the policy acts.")
    sentence: str


class PolicyStatus(Document):
    """One policy's state in a cluster. All policies share these fields; `detail` is the policy's own."""

    policy: str
    stale: bool = Field(description="Whether the successor of any of its decisions is overdue.")
    decision_count: int = Field(description="Number of its decisions in force for the cluster.")
    verdicts: dict[str, int] = Field(description="The decisions in force by verdict.")
    latest: DecisionLine | None = Field(
        description="The newest decision in force. A step counts only if there is nothing else. Null: no decision."
    )
    numbers: dict[str, float] = Field(description="The numeric fields of the newest decision, by name.")
    in_force: InForceLine | None = Field(description="Null if no actuator has a part in it.")
    detail: SerializeAsAny[PolicyDetail] | None = Field(description="Its own section; null if it has none, or no data.")


class ClusterStatus(Document):
    """A cluster with its policies."""

    cluster: str
    concern: Concern
    alert_count: int = Field(description="Number of firing alerts about the cluster.")
    policies: tuple[PolicyStatus, ...] = Field(description="The policies with data about the cluster.")


class ClustersDocument(Document):
    """All clusters."""

    clusters: tuple[ClusterStatus, ...] = Field(description="By name.")


class LoopStatus(Document):
    """The state of the loop with its clusters."""

    version: str
    settings_hash: str
    complete: bool = Field(description="False while the history is being read; then no clusters are shown.")
    problem: str | None = Field(description="Why it is not complete, or why no new records can be read.")
    silence: str | None = Field(description="Why the loop does not decide; null if it decides.")
    cluster_counts: dict[Concern, int] = Field(description="Number of clusters by concern.")
    alert_count: int = Field(description="Number of firing alerts.")
    clusters: tuple[ClusterStatus, ...] = Field(description="By name.")


class AlertsDocument(Document):
    """The firing alerts, by severity and then the newest first."""

    alert_count: int
    alerts: tuple[AlertLine, ...] = Field(description=f"At most {SHOWN_ALERTS}.")


class DecisionsDocument(Document):
    """The last decisions and alerts that changed anything, the newest first. Mere repetitions are left out."""

    decisions: tuple[DecisionLine, ...] = Field(description=f"At most {MAX_RECENT_DECISIONS}.")


class HistoryDocument(Document):
    """Numbers of the last hour, or since the start of this process."""

    interval_seconds: float = Field(description="Time between two points.")
    ends_at: Instant | None = Field(description="Time of the last point; null before the first.")
    clusters: dict[str, dict[str, tuple[float | None, ...]]] = Field(
        description="The series by cluster and name, oldest first; null: unknown. All end at `ends_at`."
    )


# The charts of the last hour: keeps a few numbers in bounded memory, and draws them as the points of SVG lines.

INTERVAL_SECONDS = 15.0
POINTS = 240
"""An hour."""
MOST_SERIES = 6
"""Limit for one cluster; a policy has one or two."""
MOST_CLUSTERS = 1000

WIDTH, HEIGHT = 240.0, 40.0
_INSET = 2.0
"""Distance from the edge, so that a line there is drawn with its full width."""
_UNKNOWN = math.nan


class History:
    """The last hour's numbers, by cluster and series."""

    def __init__(self) -> None:
        self._rings: dict[str, dict[str, list[float]]] = {}
        self._length = 0
        self._ends_at: datetime | None = None

    def add(self, at: datetime, charted: Mapping[str, Mapping[str, float]]) -> None:
        """Add one point to every series. A series without a value is unknown now, and is dropped after an hour."""
        self._ends_at, self._length = at, min(self._length + 1, POINTS)
        for cluster, values in charted.items():
            if cluster in self._rings or len(self._rings) < MOST_CLUSTERS:
                rings = self._rings.setdefault(cluster, {})
                for name in values:
                    if name in rings or len(rings) < MOST_SERIES:
                        rings.setdefault(name, [_UNKNOWN] * (self._length - 1))
        for cluster, rings in list(self._rings.items()):
            for name, ring in list(rings.items()):
                ring.append(charted.get(cluster, {}).get(name, _UNKNOWN))
                del ring[:-POINTS]
                if all(map(math.isnan, ring)):
                    del rings[name]
            if not rings:
                del self._rings[cluster]

    def series(self, cluster: str) -> dict[str, tuple[float | None, ...]]:
        """Return the series of one cluster, oldest first."""
        rings = self._rings.get(cluster, {})
        return {name: tuple(None if math.isnan(v) else v for v in ring) for name, ring in rings.items()}

    def document(self) -> HistoryDocument:
        """Return all series."""
        clusters = {cluster: self.series(cluster) for cluster in self._rings}
        return HistoryDocument(interval_seconds=INTERVAL_SECONDS, ends_at=self._ends_at, clusters=clusters)


class Chart(NamedTuple):
    """A chart's shapes, and the numbers that describe it to a reader without sight."""

    name: str
    lines: tuple[str, ...]
    """`points` of polylines: one for each stretch of known values."""
    areas: tuple[str, ...]
    """The areas below them, as `points` of polygons."""
    least: float
    most: float
    now: float | None


def draw_chart(name: str, values: Sequence[float | None], *, top: float | None = None) -> Chart | None:
    """Draw a series, with its newest value at the right edge; None if no value is known.

    Args:
        values: at most `POINTS`, oldest first; None: unknown.
        top: the value at the upper edge; by default the greatest value, at least 1. The lower edge is 0.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    highest = top if top is not None else max(1.0, *known)
    step, first = WIDTH / (POINTS - 1), POINTS - len(values)

    def place(number: int, value: float) -> _Point:
        share = min(1.0, max(0.0, value / highest)) if highest else 0.0
        return _Point((first + number) * step, _INSET + (HEIGHT - 2 * _INSET) * (1 - share))

    points = [None if value is None else place(number, value) for number, value in enumerate(values)]
    stretches = list(_split_stretches(points))
    ground = [(_Point(s[-1].x, HEIGHT), _Point(s[0].x, HEIGHT)) for s in stretches]
    return Chart(
        name=name,
        lines=tuple(map(_format_points, stretches)),
        areas=tuple(_format_points((*s, *below)) for s, below in zip(stretches, ground, strict=True)),
        least=min(known),
        most=max(known),
        now=values[-1],
    )


class _Point(NamedTuple):
    x: float
    y: float


def _split_stretches(points: Sequence[_Point | None]) -> Iterator[list[_Point]]:
    """Yield runs of known points; a single point becomes a short line."""
    stretch: list[_Point] = []
    for point in (*points, None):
        if point is not None:
            stretch.append(point)
        elif stretch:
            yield stretch if len(stretch) > 1 else [stretch[0]._replace(x=stretch[0].x - 1.0), *stretch]
            stretch = []


def _format_points(points: Sequence[_Point]) -> str:
    return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in points)
