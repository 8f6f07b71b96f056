"""Replays recorded events, and compares the decisions under two settings."""

import json
import sys
from bisect import bisect_right
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from connectors.kafka.history import read_history
from connectors.kafka.tail import Record
from deploy.console.terminal import SafeConsole
from deploy.settings.application import Settings
from policies.decisions import Alert, AlertStatus, Decision
from policies.registry import observed_topics
from policies.units import UserError, counted, from_millis, human_seconds, show_number, to_millis
from policies.wire import decision_event
from streaming.replay import Recorded, Replay, differences

# Reads recorded events for replay: from files (events, or the output of `kcat -J`) or from the observed topics.


def read_events_of_files(files: Sequence[Path], prefix: str) -> Iterator[Recorded]:
    """Yield the events of files; events in Kafka records have their topic and append time."""
    observed = {f"{prefix}.{topic}" for topic in observed_topics()}
    for file in files:
        try:  # - is standard input
            with nullcontext(sys.stdin.buffer) if file == Path("-") else file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    text = (line.removeprefix(BOM_UTF8) if number == 1 else line).strip()
                    place, record = f"{file}:{number}", _parse_record(text)
                    if text and record is None:
                        yield Recorded(place, text)
                    elif record is not None and record.topic in observed:
                        yield _make_recorded(place, record, prefix)
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror})") from None


def read_events_of_topics(settings: Settings, since: datetime, to: datetime) -> Iterator[Recorded]:
    """Yield the events of the observed topics in a time range; raises as `read_history` does."""
    topics = [settings.topics.topic(name) for name in observed_topics()]
    for record in read_history(settings.loop_kafka(), topics, since, to):
        yield _make_recorded(record.position(), record, settings.topics.prefix)


def _make_recorded(place: str, record: Record, prefix: str) -> Recorded:
    topic = record.topic.removeprefix(f"{prefix}.")
    return Recorded(place, record.value or b"", from_millis(record.appended_ms), topic)


def _parse_record(line: bytes) -> Record | None:
    """Return the record in a line of `kcat -J`; None if the line is only an event."""
    if b'"payload"' not in line:
        return None
    try:
        said = json.loads(line)
        appended_ms = to_millis(from_millis(int(said["ts"])))  # fails for an instant outside the years 1 to 9999
        payload = None if said["payload"] is None else str(said["payload"]).encode()
        return Record(str(said["topic"]), None, payload, appended_ms, int(said["partition"]), int(said["offset"]))
    except (ValueError, OverflowError, KeyError, TypeError, RecursionError):
        return None


# The decisions in force over time in replays, by subject, under one or two settings, and where they differ. Pure.

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

    `sides` are the decisions by `SETTINGS` and perhaps `AGAINST`; the last one lasts until `end`, at least a moment.
    """
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
        factor = getattr(decision, "factor", None)
        if isinstance(decision, Alert):
            is_over = decision.status is AlertStatus.RESOLVED
            label = str(decision.status.value if is_over else decision.severity.value)
        else:
            label = f"{decision.verdict if factor is None else show_number(factor)} · {decision.reason}"
        if spans and spans[-1].label == label:
            continue
        if spans:
            spans[-1] = spans[-1]._replace(end=decision.decided_at)
        spans.append(Span(decision.decided_at, until, label, decision.explanation, _level(decision)))
    # Leave out decisions that ended in the instant in which they began, and resolved alerts.
    return tuple(span for span in spans if span.start < span.end and span.label != AlertStatus.RESOLVED.value)


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


# The command `headgate replay`: reads recorded events and prints decisions, as JSON lines or as a timeline.


def replay_to_stdout(
    settings: Settings,
    files: Sequence[Path],
    *,
    until: datetime | None,
    against: Settings | None,
    since: datetime | None,
    to: datetime | None,
    timeline: bool,
) -> None:
    """Replay files, or the observed topics, and print decisions or differences as JSON lines, or as a table for people.

    Args:
        until: after the last event, the clock runs on to this time.
        against: other settings, whose decisions are compared.
        since: without files, the beginning of the range in the topics.
        to: the end of that range; None for now.

    Raises UserError if there is nothing to replay, it cannot be read, or no event in it is valid.
    """
    if bool(files) == (since is not None):
        raise UserError("give either files with recorded events, or --from to read the observed topics")
    if to is not None and since is None:
        raise UserError("--to: works only with --from; with files, use --until")
    if since is not None and to is not None and to <= since:
        raise UserError("--to: must lie after --from")
    sides = {SETTINGS: settings} | ({} if against is None else {AGAINST: against})
    replays = {side: Replay(each.policy_host()) for side, each in sides.items()}
    records = (
        read_events_of_files(files, settings.topics.prefix)
        if since is None
        else read_events_of_topics(settings, since, to or datetime.now(UTC))
    )
    if against is None and not timeline:
        decisions = replays[SETTINGS].run(records, until)
        _print_lines(decision_event(decision).decode() for decision in decisions)
        _print_rejected(replays.values())
        return
    events = list(records)
    decided = {side: list(replay.run(events, until)) for side, replay in replays.items()}
    _print_rejected(replays.values())
    if timeline:
        SafeConsole(highlight=False).print(timeline_view(lanes(decided, until)))
    else:
        _print_lines(map(json.dumps, differences(decided[SETTINGS], decided[AGAINST])))


def _print_rejected(replays: Collection[Replay]) -> None:
    """Print the events that a side rejects (not all settings name the same clusters); raise UserError if all were."""
    rejected = {f"{place}: {error}": None for replay in replays for place, error in replay.rejected}
    if rejected and not any(replay.taken for replay in replays):
        raise UserError(f"no event is valid, of {counted(len(rejected), 'event')}; the first: {next(iter(rejected))}")
    for line in rejected or ([] if any(replay.taken for replay in replays) else ["there is no event to replay"]):
        print(line, file=sys.stderr)  # noqa: T201


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
