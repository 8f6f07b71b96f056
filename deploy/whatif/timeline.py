"""The decisions in force over time in replays, by subject, under one or two settings, and where they differ. Pure."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from policies.canary import CANARY
from policies.decisions import Alert, AlertStatus, Decision
from policies.units import human_seconds

SETTINGS, AGAINST = "settings", "against"
_INSTANT = timedelta(milliseconds=1)
"""The last decision is in force, too: this is its shown length."""


class Span(NamedTuple):
    """A decision that was in force for a while."""

    start: datetime
    end: datetime
    label: str
    """The decision in a few words: ``0.75 · soft_limit``, ``firing``."""
    sentence: str
    """The first decision's explanation."""
    level: float
    """From 0 (good) to 1: its severity, for colours."""

    @property
    def length(self) -> timedelta:
        """How long it was in force."""
        return self.end - self.start


class Lane(NamedTuple):
    """The course of one subject."""

    policy: str
    cluster: str
    about: str
    """The kind of decision and its subject."""
    courses: Mapping[str, tuple[Span, ...]]
    """The course of each side: `settings`, and `against` when two are compared."""

    @property
    def differs(self) -> timedelta:
        """The time during which the two sides differed."""
        return sum((span.length for span in self.differences()), timedelta())

    def differences(self) -> list[Span]:
        """Return the times when both sides differ, each with both labels; empty with one side."""
        if AGAINST not in self.courses:
            return []
        ours, theirs = self.courses[SETTINGS], self.courses[AGAINST]
        edges = sorted({edge for span in (*ours, *theirs) for edge in (span.start, span.end)})
        found: list[Span] = []
        for start, end in pairwise(edges):
            one, other = _span_at(ours, start), _span_at(theirs, start)
            if (one and one.label) == (other and other.label):
                continue
            label = f"{one.label if one else 'nothing'} instead of {other.label if other else 'nothing'}"
            if found and found[-1].end == start and found[-1].label == label:
                found[-1] = found[-1]._replace(end=end)
            else:
                found.append(Span(start, end, label, one.sentence if one else "", 0.0))
        return found


def lanes(sides: Mapping[str, Sequence[Decision]], end: datetime | None = None) -> list[Lane]:
    """Return the courses of all subjects, ordered by cluster, policy and subject.

    Args:
        sides: the decisions of each replay in order, by `SETTINGS` and perhaps `AGAINST`; the canary's are left out.
        end: the end of the last decision in force; None for just after the last decision of any side.
    """
    sides = {side: [d for d in decisions if d.cluster != CANARY] for side, decisions in sides.items()}
    last = max((d.decided_at for decisions in sides.values() for d in decisions), default=None)
    if last is None:
        return []
    until = max(last + _INSTANT, end or last)
    by_subject: defaultdict[tuple[str, str, str, str], dict[str, list[Decision]]] = defaultdict(dict)
    for side, decisions in sides.items():
        for decision in decisions:
            key = (decision.cluster, decision.policy, decision.event_type, decision.record_key())
            by_subject[key].setdefault(side, []).append(decision)
    return [
        Lane(policy, cluster, _describe_key(kind, key), {side: _course(found.get(side, ()), until) for side in sides})
        for (cluster, policy, kind, key), found in sorted(by_subject.items())
    ]


def _course(decisions: Iterable[Decision], until: datetime) -> tuple[Span, ...]:
    spans: list[Span] = []
    for decision in decisions:
        label = label_of(decision)
        if spans and spans[-1].label == label:
            continue
        if spans:
            spans[-1] = spans[-1]._replace(end=decision.decided_at)
        spans.append(Span(decision.decided_at, until, label, decision.explanation, _level(decision)))
    # Leave out decisions that ended in the instant in which they began, and resolved alerts.
    return tuple(span for span in spans if span.start < span.end and span.label != AlertStatus.RESOLVED.value)


def label_of(decision: Decision) -> str:
    """Describe a decision in a few words."""
    if isinstance(decision, Alert):
        return str(decision.status.value if decision.status is AlertStatus.RESOLVED else decision.severity.value)
    factor = getattr(decision, "factor", None)
    return f"{decision.verdict if factor is None else f'{factor:g}'} · {decision.reason}"


def _level(decision: Decision) -> float:
    if isinstance(decision, Alert):
        severities = list(type(decision.severity))
        return (severities.index(decision.severity) + 1) / len(severities)
    factor = getattr(decision, "factor", None)
    return 0.0 if factor is None else 1.0 - float(factor)


def _describe_key(event_type: str, key: str) -> str:
    if event_type == Alert.event_type:
        _, alert, subject = key.split("/", 2)
        return f"{alert} of {subject}"
    return f"{event_type.split('.')[1]} of {key}"


def _span_at(course: Sequence[Span], instant: datetime) -> Span | None:
    index = bisect_right(course, instant, key=attrgetter("start")) - 1
    return course[index] if index >= 0 and instant < course[index].end else None


_STYLES = ("green", "yellow", "dark_orange", "red")


def timeline_view(found: Sequence[Lane]) -> RenderableType:
    """Show the course of each subject; when two are compared, only where they differ, and for how long."""
    is_compared = any(AGAINST in lane.courses for lane in found)
    shown = [lane for lane in found if not is_compared or lane.differs]
    if not shown:
        return "Both decide the same throughout." if is_compared else "Nothing is decided."
    return Group(*(part for lane in shown for part in _lane_rows(lane, is_compared)))


def _lane_rows(lane: Lane, is_compared: bool) -> Iterator[RenderableType]:
    head = Text(f"{lane.cluster} · {lane.policy} · {lane.about}", style="bold")
    if is_compared:
        head.append(f"   differs for {human_seconds(lane.differs.total_seconds())}", style="bold yellow")
    yield head
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in ("from", "for", "what"):
        table.add_column(column, overflow="fold", no_wrap=column != "what")
    for span in lane.differences() if is_compared else lane.courses[SETTINGS]:
        what = Text(span.label)
        if not is_compared:
            what.stylize(_STYLES[min(3, round(3 * span.level))])
            what.append(f"  {span.sentence}", "dim")
        table.add_row(f"  {span.start:%Y-%m-%d %H:%M:%S} UTC", human_seconds(span.length.total_seconds()), what)
    yield table
    yield ""
