"""Replays recorded events, and compares the decisions under two settings."""

import json
import sys
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from connectors.kafka.tail import Record, read_history
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


# Shows the decisions that were in force over time in a replay, by subject, or the times at which two replays differ.
# Pure.

SETTINGS, AGAINST = "settings", "against"
_INSTANT = timedelta(milliseconds=1)
"""The last decision is in force, too: this is its shown length."""

Subject = tuple[str, str, str]
"""Cluster, policy, and the kind of decision with its subject."""


class Span(NamedTuple):
    """A decision that was in force for a while, or a difference that lasted for a while."""

    start: datetime
    end: datetime
    label: str
    """The decision in a few words: ``0.75 · soft_limit``, ``critical``; of a difference, those of both sides."""
    sentence: str
    """The first decision's explanation."""

    @property
    def length(self) -> timedelta:
        """How long it was in force."""
        return self.end - self.start


def courses(sides: Mapping[str, Sequence[Decision]], end: datetime | None = None) -> dict[Subject, list[Span]]:
    """Return the spans of each subject, in order; with two sides, those in which they differ.

    `sides` are the decisions by `SETTINGS` and perhaps `AGAINST`; the last one lasts until `end`, at least a moment.
    """
    moments = sorted(
        ((d.decided_at, _describe_subject(d), side, d) for side, decisions in sides.items() for d in decisions),
        key=itemgetter(0, 1),
    )
    until = max(moments[-1][0] + _INSTANT, end or moments[-1][0]) if moments else None
    found, now = defaultdict[Subject, list[Span]](list), defaultdict[Subject, dict[str, Decision]](dict)
    for (at, subject), decided in groupby(moments, key=itemgetter(0, 1)):
        now[subject] |= {side: decision for *_, side, decision in decided}
        spans, ours = found[subject], now[subject].get(SETTINGS)
        labels = [_label(now[subject].get(side)) for side in sides]
        label = labels[0]
        if len(labels) > 1:
            label = None if labels[0] == labels[1] else " instead of ".join(each or "nothing" for each in labels)
        if spans and spans[-1].end == until:
            if spans[-1].label == label:
                continue
            spans[-1] = spans[-1]._replace(end=at)
        if label is not None and until is not None:
            spans.append(Span(at, until, label, ours.explanation if ours else ""))
    return {subject: found[subject] for subject in sorted(found) if found[subject]}


def _describe_subject(decision: Decision) -> Subject:
    about = f"{decision.event_type.split('.')[1]} of {decision.record_key()}"
    if isinstance(decision, Alert):
        about = f"{decision.alert} of {decision.subject}"
    return decision.cluster, decision.policy, about


def _label(decision: Decision | None) -> str | None:
    """Return a decision in a few words; None if nothing is in force."""
    if decision is None or (isinstance(decision, Alert) and decision.status is AlertStatus.RESOLVED):
        return None
    if isinstance(decision, Alert):
        return str(decision.severity.value)
    factor = getattr(decision, "factor", None)
    return f"{decision.verdict if factor is None else show_number(factor)} · {decision.reason}"


def timeline_view(found: Mapping[Subject, Sequence[Span]], *, is_compared: bool) -> RenderableType:
    """Show the course of each subject; when two are compared, where they differ, and for how long."""
    if not found:
        return "Both decide the same throughout." if is_compared else "Nothing is decided."
    return Group(*(part for subject, spans in found.items() for part in _course_rows(subject, spans, is_compared)))


def _course_rows(subject: Subject, spans: Sequence[Span], is_compared: bool) -> Iterator[RenderableType]:
    head = Text(" · ".join(subject), style="bold")
    if is_compared:
        differs = sum((span.length for span in spans), timedelta())
        head.append(f"   differs for {human_seconds(differs.total_seconds())}", style="bold yellow")
    yield head
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in ("from", "for", "what"):
        table.add_column(column, overflow="fold", no_wrap=column != "what")
    for span in spans:
        what = Text(span.label)
        if not is_compared:
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
        view = timeline_view(courses(decided, until), is_compared=against is not None)
        SafeConsole(highlight=False).print(view)
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
