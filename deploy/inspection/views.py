"""Formats decisions, alerts and explanations as tables and sentences for a terminal of any width."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from connectors.decided import DecisionsInForce, Watched, is_stale, without_steps
from deploy.commands.remedies import complete_commands
from deploy.commands.terminal import ALERT_STYLES
from deploy.inspection.explanation import Explanation
from deploy.inspection.numbers import number_tables, summarize
from policies.closed_enum import ClosedEnum
from policies.decisions import Alert, AlertStatus, Decision
from policies.effects import InForce
from policies.registry import alert_kind, decision_types
from policies.units import human_seconds

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
    for cluster, policy in sorted({*by_policy, *found}):
        name, kind = escape(cluster), policy
        if (set_there := found.get((cluster, policy))) is not None:
            table.add_row(name, kind, in_force_text(set_there), "")
            name = kind = ""
        for row in _rows(by_policy.get((cluster, policy), []), now, unwatched):
            table.add_row(name, kind, *row)
            name = kind = ""
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
    table = _table("alert", "since", "summary")
    for alert in alerts:
        ended = alert.status is AlertStatus.RESOLVED
        style = "green" if ended else ALERT_STYLES[alert.severity.value]
        name = Text(f"{'resolved' if ended else alert.severity.value}: {alert.alert}", style=style)
        table.add_row(name, _show_age(alert.ended_at or alert.started_at, now), escape(alert.summary))
    return table


def explanation_view(explained: Explanation) -> RenderableType:
    """Show the explanation, the meaning of its words, numbers, counterfactuals, evidence, and actuators' reports."""
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
    otherwise = (Text.assemble((str(o["verdict"]), "bold"), f" once {o['when']}") for o in explained.otherwise)
    sections: dict[str, Iterable[RenderableType]] = {
        "what to do": _runbook(decision),
        "numbers": number_tables(explained.numbers),
        "otherwise": otherwise,
        "rests on": _observations(explained),
        "carried out": _reports(explained),
    }
    for title, found_there in sections.items():
        body = list(found_there) or ([] if title in _MAY_BE_MISSING else ["none recorded"])
        if body:
            lines += ["", Text(title, "dim"), Padding.indent(Group(*body), 2)]
    return Group(*lines)


def _runbook(decision: dict[str, Any]) -> Iterator[RenderableType]:
    """Yield what to do about an alert, if it fires."""
    kind = alert_kind(decision["policy"], decision.get("alert", ""))
    if kind is None or not kind.remedy or decision.get("status") != AlertStatus.FIRING:
        return
    command = complete_commands(kind.command(decision["cluster"], decision["subject"]))
    yield from (Text(f"means: {kind.meaning}"), Text(f"verify: {command}"))
    yield from (Text(f"do: {kind.remedy}"), Text(f"ends: {kind.ends}"))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")  # show paths in full
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
            stale = sum(is_stale(decision, now, unwatched) for decision in shown)
            if stale:
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
