"""Formats decisions, alerts and explanations as tables and sentences for a terminal of any width."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from connectors.decided import DecisionsInForce, Watched, is_stale, without_steps
from connectors.exporter.page.status import build_in_force
from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import read_history
from deploy.console.terminal import ALERT_STYLES, complete_commands
from policies.decisions import Alert, AlertStatus, Decision
from policies.effects import InForce
from policies.registry import AUDIT, alert_kind, decision_types, report_policies, topic_readers
from policies.units import ClosedEnum, human_bytes, human_seconds, show_number
from policies.wire import AUDIT_TYPE

# Why a decision was made: its audit entry, the readings it rests on, and what actuators reported.
#
# Nothing is recomputed: explanation, numbers, evidence and reports are the ones recorded at the time.

_LOOK_BACK = timedelta(days=1)
_EVIDENCE_BEFORE = timedelta(hours=1)
"""Readings are valid for minutes, so the evidence of a decision is hardly older."""
_REPORTED_WITHIN = timedelta(hours=1)
_CLOCKS_DIFFER = timedelta(minutes=1)
_MOST_COMMON_REPORTS = 5
_REPORT_FIELDS = ("outcome", "done_at", "detail", "attempt", "explanation")


@dataclass(frozen=True)
class Explanation:
    """A decision, and all that the topics still contain about it."""

    decision_type: str
    decision: dict[str, Any]
    numbers: dict[str, Any]
    observations: tuple[dict[str, Any], ...] = ()
    """The events of its evidence, as far as the topics still contain them."""
    reports: tuple[dict[str, Any], ...] = field(default=())
    """The actuators' reports on it."""
    earlier_reports: tuple[dict[str, Any], ...] = ()
    """If there are none, the last reports on an earlier decision: actuators do not carry out a decision that repeats
    the last one or changes too little."""
    in_force: InForce | None = None
    """The wanted and the set values; None for an alert, and without an actuator."""
    runbook_values: Mapping[str, str] = field(default_factory=dict)
    """Values to fill into the commands of an alert's runbook, by their names there."""

    @property
    def missing(self) -> list[str]:
        """Ids of evidence that the topics no longer contain."""
        found = {event["id"] for event in self.observations}
        return [each for each in self.decision.get("evidence", ()) if each not in found]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "type": self.decision_type,
            "decision": self.decision,
            "numbers": self.numbers,
            "observations": list(self.observations),
            "evidence_no_longer_kept": self.missing,
            "reports": list(self.reports),
            "earlier_reports": list(self.earlier_reports),
            "in_force": None if self.in_force is None else build_in_force(self.in_force).model_dump(mode="json"),
        }


Kind = tuple[str, str, str]
"""Subject, kind of decision, and name of the alert (empty for other decisions)."""


class Audit:
    """The audit of the day before an instant, which is read at once, and the observed topics.

    A day of the audit may be gigabytes, so only the entries about the subject are kept. It may be named by its end
    (`acme/orders` of `messaging/acme/orders`) if only one ends so. Raises UserError if Kafka does not answer.
    """

    def __init__(self, connection: KafkaConnection, prefix: str, subject: str, at: datetime) -> None:
        self._connection = connection
        self._prefix = prefix
        self._subject = subject
        self._at = at
        self.subjects: set[str] = set()
        """The subjects of all entries."""
        self._latest: dict[Kind, dict[str, Any]] = {}
        self._earlier: defaultdict[Kind, list[str]] = defaultdict(list)
        """The decision ids of each kind, the newest last."""
        self._reports: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        """The actuators' reports by decision id."""
        self._common: defaultdict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
        """By policy and cluster, the last report on each target of an actuator that carries out all decisions on a
        cluster together, such as the limit of brokers for all placement groups. Such a report names no decision."""
        for event in self._events((AUDIT,), at - _LOOK_BACK, at + _REPORTED_WITHIN):
            if event.get("type") == AUDIT_TYPE:
                self._take_entry(event["data"])
            else:
                self._take_report(event)

    def explain(self) -> list[Explanation]:
        """Return the decisions about the subject that were in force: the last one of each kind, and of each alert."""
        subjects = {kind[0] for kind in self._latest}
        meant = self._subject if self._subject in subjects or len(subjects) > 1 else next(iter(subjects), None)
        return [self._explain_entry(kind, entry) for kind, entry in self._latest.items() if kind[0] == meant]

    def _take_entry(self, entry: dict[str, Any]) -> None:
        decision = entry["decision"]
        if datetime.fromisoformat(decision["decided_at"]) <= self._at:
            subject = decision["subject"]
            self.subjects.add(subject)
            if f"/{subject}".endswith(f"/{self._subject}"):
                kind = (subject, entry["decision_type"], decision.get("alert", ""))
                self._latest[kind] = entry
                self._earlier[kind].append(decision["decision_id"])

    def _take_report(self, event: dict[str, Any]) -> None:
        report = event["data"]
        if "decision_id" in report:
            self._reports[str(report["decision_id"])].append(_shorten_report(event))
            return
        policy = next((name for kind, name in report_policies().items() if kind.event_type == event.get("type")), None)
        if policy is not None and datetime.fromisoformat(event["time"]) <= self._at + _CLOCKS_DIFFER:
            self._common[policy, report["cluster"]][event["subject"]] = _shorten_report(event)

    def _explain_entry(self, kind: Kind, entry: dict[str, Any]) -> Explanation:
        decision = entry["decision"]
        reported = [self._reports[each] for each in self._earlier[kind] if each in self._reports]
        of_it = tuple(self._reports.get(decision["decision_id"], ()))
        if "alert" not in decision and not of_it:
            common = self._common[decision["policy"], decision["cluster"]].values()
            of_it = tuple(sorted(common, key=itemgetter("time"))[-_MOST_COMMON_REPORTS:])
        return Explanation(
            entry["decision_type"],
            decision,
            entry.get("numbers", {}),
            tuple(self._evidence(decision, entry.get("observations", ()))),
            of_it,
            tuple(reported[-1]) if reported and not of_it else (),
        )

    def _evidence(self, decision: dict[str, Any], kept: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the evidence from the audit, and the rest from the observed topics, as far as they still contain it."""
        yield from kept
        wanted = set(decision.get("evidence", ())) - {event.get("id") for event in kept}
        decided_at = datetime.fromisoformat(decision["decided_at"])
        topics = [topic for topic, policies in topic_readers().items() if decision["policy"] in policies]
        if wanted:
            events = self._events(topics, decided_at - _EVIDENCE_BEFORE, decided_at + _CLOCKS_DIFFER)
            yield from (event for event in events if event.get("id") in wanted)

    def _events(self, topics: Sequence[str], since: datetime, to: datetime) -> Iterator[dict[str, Any]]:
        names = [f"{self._prefix}.{topic}" for topic in topics]
        for record in read_history(self._connection, names, since, to):
            try:
                event = read_json(record.value or b"", Any)
            except UnreadableJsonError:
                continue
            if isinstance(event, dict) and isinstance(event.get("data"), dict):
                yield event


def _shorten_report(event: dict[str, Any]) -> dict[str, Any]:
    said = {name: event["data"][name] for name in _REPORT_FIELDS if event["data"].get(name) is not None}
    return {"type": event.get("type"), "source": event.get("source"), "time": event.get("time"), **said}


# Shows the numbers behind a decision, and the readings that it rests on, as tables.

_MOST_ROWS = 20
_LONGEST_VALUE = 200
_WIDEST = 10_000


def number_tables(numbers: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield a table of the single values, then one for each list of objects."""
    single: dict[str, Any] = {}
    lists: dict[str, list[Mapping[str, Any]]] = {}
    for name, value in _flatten("", numbers):
        if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            lists[name] = value
        else:
            single[name] = value
    if single:
        yield _make_table(("name", "value"), [(name, _show(name, value)) for name, value in single.items()])
    for name, rows in lists.items():
        columns = list(dict.fromkeys(key for row in rows for key in row))
        cells = [tuple(_show(key, row.get(key)) for key in columns) for row in rows[:_MOST_ROWS]]
        more = f" (the first {_MOST_ROWS} of {len(rows)})" if len(rows) > _MOST_ROWS else ""
        yield f"{escape(name)}{more}"
        yield _TableOrLines(_make_table(columns, cells), [escape(summarize(row)) for row in rows[:_MOST_ROWS]])


@dataclass
class _TableOrLines:
    """A table; on a terminal that is too narrow for it, lines for each row, because broken words cannot be read."""

    table: Table
    lines: Sequence[RenderableType]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        fits = console.measure(self.table, options=options.update(width=_WIDEST)).maximum <= options.max_width
        yield from [self.table] if fits else self.lines


def summarize(data: Mapping[str, Any]) -> str:
    """Return the values of a reading in one line; a list of objects as their number, or the only one's values."""
    shown = []
    for name, value in _flatten("", data):
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
            shown.append(f"{name}: {summarize(value[0])}")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            shown.append(f"{len(value)} {name}")
        elif value not in (None, "", [], {}):
            shown.append(f"{name} {_show(name, value)}")
    return ", ".join(shown)


def _flatten(prefix: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _show(name: str, value: Any) -> str:
    """Return a value with its unit, which its name tells."""
    if value is None or value == []:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
    if "bytes_per_second" in name:
        return f"{human_bytes(value)}/s"
    if "bytes" in name:
        return human_bytes(value)
    if "seconds" in name or name.endswith("_ms"):
        return human_seconds(value / 1000 if name.endswith("_ms") else value)
    return show_number(value) if isinstance(value, float) else str(value)


def _make_table(columns: tuple[str, ...] | list[str], rows: list[tuple[str, ...]]) -> Table:
    table = _table(*columns)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


_MAY_BE_MISSING = ("what to do", "carried out")
"""Sections that are left out if they are empty: a decision has no runbook, and most alerts have no actuator."""
_FEW = 3
"""At most this many decisions of one kind are shown with their sentences; more are counted."""

_TOLD_OTHERWISE = frozenset({"type", "source", "time", "explanation"})
"""Fields of a report that are shown without their names."""


def status_view(in_force: DecisionsInForce, now: datetime) -> RenderableType:
    """Show each cluster and policy in a line, then the alerts that fire."""
    decisions = in_force.decisions()
    if not decisions and not in_force.alerts() and not in_force.in_force(now):
        return "Nothing is decided yet."
    table, unwatched = _table("cluster", "policy", "in force", "decided"), in_force.unwatched(now)
    found = {(each.cluster, each.policy): each for each in in_force.in_force(now)}
    by_policy = {about: list(each) for about, each in groupby(decisions, key=lambda d: (d.cluster, d.policy))}
    for about in sorted({*by_policy, *found}):
        rows = [(in_force_text(found[about]), "")] if about in found else []
        for number, row in enumerate([*rows, *_rows(by_policy.get(about, []), now, unwatched)]):
            table.add_row(*(("", "") if number else map(escape, about)), *row)
    return Group(table, "", alerts_view(in_force.alerts(), now))


def in_force_text(found: InForce) -> Text:
    """Return the line about the set values: yellow while paused, red while an actuator fails."""
    style = "bold red" if found.failing_since else "bold yellow" if found.pause else "bold"
    return Text(found.sentence, style)


def decisions_view(
    decisions: Sequence[Decision], now: datetime, unwatched: frozenset[Watched] = frozenset(), of: str = ""
) -> RenderableType:
    """Show each decision in force in a line; `of` is the prefix of their subjects."""
    if not decisions:
        return Text(f"No decision is in force{f' whose subject begins with {of}' if of else ''}.")
    table = _table("subject", "verdict", "reason", "decided", "explanation")
    for decision in decisions:
        stale = Text(" stale", style="bold red") if is_stale(decision, now, unwatched) else Text("")
        verdict = Text(decision.verdict, style="bold") + stale
        table.add_row(
            escape(decision.subject), verdict, decision.reason, _show_age(decision.decided_at, now),
            escape(decision.explanation),
        )  # fmt: skip
    return table


def alerts_view(alerts: Sequence[Alert], now: datetime) -> RenderableType:
    """Show each alert in a line, the most severe first."""
    if not alerts:
        return "No alert fires."
    table, lines = _table("alert", "since", "summary"), list[RenderableType]()
    for alert in alerts:
        ended = alert.status is AlertStatus.RESOLVED
        style = "green" if ended else ALERT_STYLES[alert.severity.value]
        name = Text(f"{'resolved' if ended else alert.severity.value}: {alert.alert}", style=style)
        since, summary = _show_age(alert.ended_at or alert.started_at, now), escape(alert.summary)
        table.add_row(name, since, summary)
        lines += [Text.assemble(name, f"  {since}"), Padding(summary, (0, 0, 0, 2))]
    return _TableOrLines(table, lines)


def explanation_view(explained: Explanation) -> RenderableType:
    """Show the explanation, the meaning of its words, numbers, evidence, and actuators' reports."""
    decision, found = explained.decision, explained.in_force
    wanted = found.wanted if found is not None and found.wanted else decision.get("alert", decision["verdict"])
    lines: list[RenderableType] = [
        Text(f"{decision['policy']}: {wanted} ({decision['reason']})", "bold"),
        *([] if found is None else [in_force_text(found)]),
        Text(str(decision["explanation"])),
        Text(f"decided {decision['decided_at']}, sequence {decision['sequence']}, mode {decision['mode']}, "
             f"settings {decision['settings_hash']}, id {decision['decision_id']}", "dim"),
        *(Text(f"{word}: {meaning}", "dim") for word, meaning in _meanings(explained)),
    ]  # fmt: skip
    sections: dict[str, Iterable[RenderableType]] = {
        "what to do": _runbook(explained),
        "numbers": number_tables(explained.numbers),
        "rests on": _observations(explained),
        "carried out": _reports(explained),
    }
    for title, found_there in sections.items():
        body = list(found_there) or ([] if title in _MAY_BE_MISSING else ["none recorded"])
        if body:
            lines += ["", Text(title, "dim"), *map(_indent, body)]
    return Group(*lines)


def _command(line: str) -> Text:
    """Return a command that no wrapped line keeps from being pasted."""
    return Text(complete_commands(line), no_wrap=True, overflow="ignore")


def _indent(part: RenderableType) -> RenderableType:
    # Padding would crop a command at the terminal's width.
    if isinstance(part, Text) and part.no_wrap:
        return Text("  ", no_wrap=True, overflow="ignore").append(part)
    return Padding.indent(part, 2)


def _runbook(explained: Explanation) -> Iterator[RenderableType]:
    """Yield what to do about an alert, if it fires."""
    decision = explained.decision
    kind = alert_kind(decision["policy"], decision.get("alert", ""))
    if kind is None or not kind.remedy or decision.get("status") != AlertStatus.FIRING:
        return
    yield Text(f"means: {kind.meaning}")
    yield _command(f"verify: {kind.command(decision['cluster'], decision['subject'])}")
    yield Text(f"do: {kind.remedy}")
    yield from map(_command, kind.lines(explained.runbook_values))
    yield Text(f"ends: {kind.ends}")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(escape(column.replace("_", " ")), overflow="fold")  # show paths in full
    return table


def _rows(
    decisions: Sequence[Decision], now: datetime, unwatched: frozenset[Watched]
) -> Iterator[tuple[RenderableType, str]]:
    """Yield the sentences of a kind's decisions, or the counts of their verdicts, without summarized steps."""
    for _, of_kind in groupby(without_steps(decisions), key=lambda d: d.event_type):
        found = list(of_kind)
        for shown in [[decision] for decision in found] if len(found) <= _FEW else [found]:
            newest = max(shown, key=lambda d: d.decided_at)
            counts = ", ".join(f"{n} {verdict}" for verdict, n in Counter(d.verdict for d in shown).most_common())
            text = Text(newest.explanation if len(shown) == 1 else counts)
            if stale := sum(is_stale(decision, now, unwatched) for decision in shown):
                text = Text(f"stale ({stale} of {len(shown)}): ", style="bold red") + text
            yield text, _show_age(newest.decided_at, now)


def _show_age(then: datetime, now: datetime) -> str:
    return f"{human_seconds(max(0.0, (now - then).total_seconds()))} ago"


def _meanings(explained: Explanation) -> Iterator[tuple[str, str]]:
    """Yield the meanings of verdict and reason, if the decision's model has them."""
    model = next((kind for kind in decision_types() if kind.event_type == explained.decision_type), None)
    for name in ("verdict", "reason"):
        kind: Any = model.model_fields[name].annotation if model else None
        if isinstance(kind, type) and issubclass(kind, ClosedEnum):
            word = explained.decision[name]
            yield from ((word, member.meaning) for member in kind if member.value == word)


def _observations(explained: Explanation) -> Iterator[str]:
    for event in explained.observations:
        yield f"{event.get('time')}  {escape(str(event.get('subject')))}  {escape(summarize(event['data']))}"
    if explained.missing:
        yield f"{len(explained.missing)} readings that the topics no longer contain: {', '.join(explained.missing)}"
    elif not explained.observations:
        yield "it names no readings"


def _reports(explained: Explanation) -> Iterator[str]:
    if not explained.reports and explained.earlier_reports:
        yield "this decision changed nothing that is set; the last report is on an earlier one:"
    for report in explained.reports or explained.earlier_reports:
        said = ", ".join(f"{name} {value}" for name, value in report.items() if name not in _TOLD_OTHERWISE)
        sentence = f"; {report['explanation']}" if "explanation" in report else ""
        yield f"{report['time']}  {escape(str(report['source']))}: {escape(said + sentence)}"
    if not explained.reports and not explained.earlier_reports and "alert" not in explained.decision:
        yield "no actuator has reported on it in the day before"
