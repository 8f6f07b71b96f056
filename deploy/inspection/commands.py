"""The commands `headgate status`, `decisions`, `alerts` and `explain`, as text or JSON."""

import fnmatch
import json
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from connectors.decided import DecisionsInForce
from connectors.exporter.page.status import build_in_force
from connectors.kafka.admin import reach
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Tail, read_past
from deploy.console.terminal import SafeConsole
from deploy.inspection.views import Audit, Explanation, alerts_view, decisions_view, explanation_view, status_view
from deploy.settings.application import Settings
from deploy.settings.schema import suggest
from policies.decisions import Decision
from policies.registry import POLICIES, REPORTS, decided_topics
from policies.units import UserError, format_instant

# The decisions in force, from the decided topics.

_CLIENT_ID = "headgate-inspection"
_POLL_SECONDS = 0.2
_FRAME_SECONDS = 1.0
"""Ages grow, and Kafka may be lost, without any record."""


class InForceReader(AbstractContextManager["InForceReader"]):
    """Reads the decided topics of a loop; use it as a context manager."""

    def __init__(self, connection: KafkaConnection, prefix: str, in_force: DecisionsInForce | None = None) -> None:
        self._connection = connection
        self._tail = Tail(
            connection, dict.fromkeys(f"{prefix}.{topic}" for topic in (*decided_topics(), REPORTS)), _CLIENT_ID
        )
        self._in_force = in_force or DecisionsInForce()

    def __exit__(self, *_: object) -> None:
        self._tail.close()

    def now(self) -> DecisionsInForce:
        """Return the decisions in force now, after all present records have been read, or raise UserError."""
        reach(self._connection)
        self._in_force.fold_records(read_past(self._tail))
        return self._in_force

    def poll(self) -> DecisionsInForce:
        """Return the decisions in force after the next records, or after a moment without any."""
        self._in_force.fold_records(self._tail.poll(_POLL_SECONDS))
        return self._in_force

    @property
    def problem(self) -> str | None:
        """Return why records cannot be read at present; None if they can."""
        return self._tail.problem

    def changes(self, at_least_every_seconds: float = math.inf) -> Iterator[DecisionsInForce]:
        """Yield the decisions in force now, and again after each change, or after this time without one."""
        yield self.now()
        yielded_at = time.monotonic()
        while True:
            records = self._tail.poll(_POLL_SECONDS)
            changes = self._in_force.fold_records(records)
            is_due = time.monotonic() >= yielded_at + at_least_every_seconds
            if changes or is_due or any(record.topic.endswith(f".{REPORTS}") for record in records):
                yield self._in_force
                yielded_at = time.monotonic()


View = Callable[[DecisionsInForce, datetime], RenderableType]
_AHEAD = timedelta(minutes=1)
"""How far another machine's clock may be ahead of this one's."""
AsJson = Callable[[DecisionsInForce], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Shown:
    """The options of the commands that list decisions."""

    cluster: str | None = None
    """A name or glob; None: all clusters."""
    policy: str | None = None
    """None: all policies."""
    as_json: bool = False
    watch: bool = False

    def require_known(self, settings: Settings) -> None:
        """Raise UserError if the policy does not exist, or no cluster of the settings matches."""
        if self.policy is not None and self.policy not in POLICIES:
            raise UserError(f"--policy: '{self.policy}' is no policy{suggest(self.policy, list(POLICIES))}")
        names = list(settings.clusters)
        if self.cluster is not None and names and not fnmatch.filter(names, self.cluster):
            raise UserError(f"--cluster: the settings name no cluster '{self.cluster}'{suggest(self.cluster, names)}")

    def knows(self, cluster: str) -> bool:
        """Return whether a cluster is wanted."""
        return self.cluster is None or fnmatch.fnmatchcase(cluster, self.cluster)


def show_status(settings: Settings, shown: Shown) -> None:
    """Print the decisions in force in each cluster, and the alerts that fire.

    Raises UserError if the settings do not name the loop's Kafka, or it does not answer.
    """
    _show(settings, shown, status_view, _status_json)


def _status_json(in_force: DecisionsInForce) -> list[dict[str, Any]]:
    """Return decisions and alerts. Each decision has the wanted and the set values of its policy and cluster."""
    documents = {
        (each.policy, each.cluster): build_in_force(each).model_dump(mode="json")
        for each in in_force.in_force(datetime.now(UTC))
    }
    decisions = [*in_force.decisions(), *in_force.alerts()]
    decided = {(each.policy, each.cluster) for each in decisions}
    bare = [
        {"policy": p, "cluster": c, "in_force": found} for (p, c), found in documents.items() if (p, c) not in decided
    ]
    found = (
        {**each.model_dump(mode="json"), "in_force": documents.get((each.policy, each.cluster))} for each in decisions
    )
    return [*found, *bare]


def _plain_json(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    return [each.model_dump(mode="json") for each in decisions]


def show_decisions(settings: Settings, subject: str, shown: Shown) -> None:
    """Print the decisions in force whose subject begins with `subject`; raises as `show_status` does."""

    def wanted(now: DecisionsInForce) -> list[Decision]:
        return [decision for decision in now.decisions() if decision.subject.startswith(subject)]

    _show(
        settings,
        shown,
        lambda now, at: decisions_view(wanted(now), at, now.unwatched(at), of=subject),
        lambda now: _plain_json(wanted(now)),
    )


def show_alerts(settings: Settings, shown: Shown, *, resolved: bool) -> None:
    """Print the alerts that fire, and with `resolved` those that have ended; raises as `show_status` does."""
    _show(
        settings,
        shown,
        lambda now, at: alerts_view(now.alerts(resolved=resolved), at),
        lambda now: _plain_json(now.alerts(resolved=resolved)),
    )


def show_explanation(settings: Settings, subject: str, at: datetime | None, *, as_json: bool) -> None:
    """Print the reasons for the decisions about a subject that were in force at an instant.

    Raises UserError if nothing was decided about it in the day before; the message names a similar subject.
    """
    now = datetime.now(UTC)
    if at is not None and at > now + _AHEAD:
        raise UserError(f"--at: {format_instant(at)} is in the future (it is {format_instant(now)})")
    audit = Audit(settings.loop_kafka(), settings.topics.prefix, subject, at or now)
    found = audit.explain()
    if not found:
        before = f" {format_instant(at)}" if at is not None else ""
        like = suggest(subject, sorted(audit.subjects))
        raise UserError(f"nothing was decided about {subject} in the day before{before}{like}")
    console = SafeConsole(highlight=False)
    if at is None:
        found = _add_in_force(found, settings, now)
    for explained in found:
        if as_json:
            typer.echo(json.dumps(explained.as_json(), ensure_ascii=False))
        else:
            console.print(explanation_view(explained), "", crop=False)


def _add_in_force(found: list[Explanation], settings: Settings, now: datetime) -> list[Explanation]:
    """Add the present wanted and set values to each decision, and to an alert the values of its runbook."""
    known = DecisionsInForce(needs=settings.actuator_needs())
    with InForceReader(settings.loop_kafka(), settings.topics.prefix, known) as reader:
        decided = reader.now()
    in_force = {(each.policy, each.cluster): each for each in decided.in_force(now)}
    return [
        replace(each, runbook_values=_runbook_values(each.decision, settings, decided.decisions()))
        if "alert" in each.decision
        else replace(each, in_force=in_force.get((each.decision["policy"], each.decision["cluster"])))
        for each in found
    ]


def _runbook_values(alert: dict[str, Any], settings: Settings, decisions: Iterable[Decision]) -> dict[str, str]:
    """Return the alert's labels, the address of its Kafka, and the values of its policy's decisions on the cluster."""
    cluster = settings.clusters.get(alert["cluster"])
    servers = {} if cluster is None or cluster.kafka is None else {"servers": ",".join(cluster.kafka.servers())}
    about = {name: alert[name] for name in ("policy", "cluster", "subject")}
    values = {**about, **alert["labels"], **servers}
    for decision in decisions:
        if (decision.policy, decision.cluster) == (alert["policy"], alert["cluster"]):
            values = {**decision.runbook_values(), **values}
    return values


def _show(settings: Settings, shown: Shown, view: View, decisions: AsJson) -> None:
    shown.require_known(settings)
    console, as_json = SafeConsole(highlight=False), shown.as_json
    in_force = DecisionsInForce(shown.knows, policy=shown.policy, needs=settings.actuator_needs())
    with InForceReader(settings.loop_kafka(), settings.topics.prefix, in_force) as reader:
        if not shown.watch:
            _print(reader.now(), view, decisions, console, as_json=as_json)
        elif as_json or not console.is_terminal:
            for now in reader.changes():
                _print(now, view, decisions, console, as_json=as_json)
        else:
            # a parent process may ignore SIGINT, and nothing else ends this command
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with Live(console=console, auto_refresh=False) as live:
                for frame in frames(reader, view):
                    live.update(frame, refresh=True)


def _print(now: DecisionsInForce, view: View, decisions: AsJson, console: Console, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(decisions(now), ensure_ascii=False))
    else:
        console.print(view(now, datetime.now(UTC)))


def frames(reader: InForceReader, view: View) -> Iterator[RenderableType]:
    """Yield each picture of `--watch`: it names a problem itself, because a line of the log would be drawn over."""
    for now in reader.changes(_FRAME_SECONDS):
        shown = view(now, datetime.now(UTC))
        problem = reader.problem
        yield shown if problem is None else Group(shown, Text(f"Not up to date: {problem}", "bold red"))
