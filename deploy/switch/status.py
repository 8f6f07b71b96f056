"""The command `headgate switch status`: prints the latest record of a switch, once or continuously."""

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.settings.application import Settings
from deploy.switch.loop_client import LoopClient
from policies.switching.decisions import SwitchRecord
from policies.switching.state import ENDED, FAILED, MOVED, REVERSIBLE, WAY, LedgerStage, SwitchStage
from policies.units import format_second, human_bytes, human_seconds

# Rate and remaining time of a switch, computed from its records alone.

_RECENT_SECONDS = 60.0
"""The time over which the rate is measured, if the records reach back so far."""

_FINISHED: Mapping[SwitchStage, frozenset[LedgerStage]] = {
    SwitchStage.BUILD: frozenset(LedgerStage) - {LedgerStage.PENDING, LedgerStage.COPYING},
    SwitchStage.PROMOTE: MOVED | FAILED,
    SwitchStage.CLEANUP: frozenset(LedgerStage) - {LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT},
    SwitchStage.ROLLBACK: frozenset({LedgerStage.REVERTED, LedgerStage.PROMOTED_VIA_ROLLOVER}) | FAILED,
}
"""The stages of ledgers that are finished, by stage of the switch."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The progress of a stage."""

    percent: float
    ledgers_per_second: float
    seconds_left: float | None
    """None: there is no progress."""
    stalled_since: datetime | None = None
    """The time of the last progress, if it is longer ago than the rate is measured."""


def compute_pace(record: SwitchRecord, history: Sequence[SwitchRecord], now: datetime) -> Pace | None:
    """Return the pace of the present stage; None for a stage without work on ledgers.

    Args:
        record: the latest record.
        history: earlier records; without a recent one of this stage, the rate counts from the stage's beginning.
    """
    finished, total = _FINISHED.get(record.verdict), sum(record.ledgers.values())
    if finished is None or not total:
        return None
    run = (record.verdict, record.attempt, record.epoch)
    same_run = (each for each in (*history, record) if (each.verdict, each.attempt, each.epoch) == run)
    points = [(each.decided_at, _count(each.ledgers, finished)) for each in same_run]
    if record.stage_since is not None:
        points.insert(0, (record.stage_since, 0))
    done = points[-1][1]
    reached = min(at for at, count in points if count == done)
    if done < total and (now - reached).total_seconds() > _RECENT_SECONDS:
        return Pace(100 * done / total, 0.0, None, reached)
    recent = (point for point in points[:-1] if (now - point[0]).total_seconds() <= _RECENT_SECONDS)
    since, before = next(recent, points[0])
    seconds = (record.decided_at - since).total_seconds()
    rate = max(0, done - before) / seconds if seconds > 0 else 0.0
    left = 0.0 if done == total else (total - done) / rate if rate > 0 else None
    return Pace(100 * done / total, rate, left)


# Formats the status of a switch: its stage, its progress, and what blocks it.

_WAY = (SwitchStage.REGISTERED, SwitchStage.PRECHECKED, *WAY)
_OTHER_ENDS: Mapping[SwitchStage, tuple[SwitchStage, ...]] = {
    SwitchStage.DONE_WITH_FAILURES: (*_WAY[:-1], SwitchStage.DONE_WITH_FAILURES),
    SwitchStage.REJECTED: (*_WAY[:3], SwitchStage.REJECTED),
    SwitchStage.ROLLBACK: (*_WAY[:4], SwitchStage.ROLLBACK, SwitchStage.ROLLED_BACK),
    SwitchStage.ABORTED: (*_WAY[:4], SwitchStage.ABORTED),
    SwitchStage.ROLLED_BACK: (*_WAY[:4], SwitchStage.ROLLBACK, SwitchStage.ROLLED_BACK),
    SwitchStage.ROLLED_BACK_WITH_FAILURES: (*_WAY[:4], SwitchStage.ROLLBACK, SwitchStage.ROLLED_BACK_WITH_FAILURES),
}
_TAKEN_BACK = frozenset({SwitchStage.ROLLBACK, SwitchStage.ROLLED_BACK, SwitchStage.ROLLED_BACK_WITH_FAILURES})
_BAD = _TAKEN_BACK | {SwitchStage.DONE_WITH_FAILURES, SwitchStage.REJECTED}
_TO_CLEAN = frozenset({LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT, LedgerStage.CLEANED})
_BUILT = MOVED | {LedgerStage.BUILT, LedgerStage.PROMOTING, LedgerStage.PROMOTE_DEFERRED}

_DONE: Mapping[SwitchStage, str] = {
    SwitchStage.BUILD: "copied",
    SwitchStage.PROMOTE: "promoted",
    SwitchStage.CLEANUP: "deleted",
    SwitchStage.ROLLBACK: "taken back",
}

_BYPASSED = ": ids may have collided; for labs only"
_BAR_WIDTH = 30
_STATUS_COLOURS = {"active": "bold green", "standby": "cyan", "deprecated": "dim"}

OVER = ENDED | {SwitchStage.DONE_WITH_FAILURES}
"""Stages at which a switch does nothing more without a command."""


def status_view(record: SwitchRecord, now: datetime, history: Sequence[SwitchRecord] = ()) -> RenderableType:
    """Format the status.

    Args:
        history: earlier records, for the rate.
    """
    return Group(
        _title(record),
        stage_line(record),
        *([Text.assemble(("PRECHECK BYPASSED", "bold red"), _BYPASSED)] if record.bypassed else []),
        *_holds(record, now),
        *_progress(record),
        *_pace(record, history, now),
        *_failed(record),
        *_windows(record, now),
        _registry(record),
        Text(f"published {human_seconds(max(0.0, (now - record.decided_at).total_seconds()))} ago", "dim"),
    )


def _title(record: SwitchRecord) -> Text:
    way = f"{record.source} → {record.target}" if record.target else "no switch began"
    attempt = f", attempt {record.attempt}" if record.attempt > 1 else ""
    epoch = f"epoch {record.epoch}, committed {record.committed_epoch}{attempt}"
    active = record.active or "an unknown cluster"
    # While a broker has not followed, or no live broker is known, only the directive is certain.
    write = "write to" if record.brokers.live and not record.brokers.awaited else "are directed to write to"
    return Text.assemble(
        (f"{record.cluster}: {way}", "bold"), (f"  {epoch}", "dim"), f"\nbrokers {write} ", (active, "bold cyan")
    )


def stage_line(record: SwitchRecord) -> Text:
    """Format all stages in order, the present one in brackets and in its colour."""
    at = present_stage(record)
    way = _OTHER_ENDS.get(at, _WAY)
    is_bad = at in _BAD or bool(record.halted or record.blocked or record.degraded or record.contested)
    text, passed = Text(), at in way
    for stage in way:
        text.append(" → " if text else "", "dim")
        if stage is at:
            text.append(f"[{stage.value}]", "bold white on red" if is_bad else "bold black on green")
            passed = False
        else:
            text.append(stage.value, "green" if passed else "dim")
    return text


def present_stage(record: SwitchRecord) -> SwitchStage:
    """Return the stage; before any switch: whether a cluster is registered, and whether one was prechecked."""
    if record.verdict is not SwitchStage.NONE:
        return record.verdict
    if not record.registry:
        return SwitchStage.NONE
    return SwitchStage.PRECHECKED if record.prechecks else SwitchStage.REGISTERED


def _holds(record: SwitchRecord, now: datetime) -> Iterator[Text]:
    """Format the holds, each with its alert, since when or from when, and the command that ends it."""
    for hold in record.holds:
        is_alert = hold.alert_from is None or hold.alert_from <= now
        since = f" (since {format_second(hold.since)})" if hold.since is not None else ""
        later = "" if is_alert or hold.alert_from is None else f" from {format_second(hold.alert_from)}"
        label = (f"{hold.alert or hold.name}{later}", "bold red" if is_alert else "bold yellow")
        yield Text.assemble(label, f": {hold.why}{since}; to end it: {hold.ends_with}")


def bars(record: SwitchRecord) -> Sequence[tuple[str, int, int]]:
    """Return (label, count, total) for each stage that counts something."""
    found: list[tuple[str, int, int]] = []
    at = present_stage(record)
    if record.target and record.brokers.live:
        found.append(("brokers acked", record.brokers.acked, record.brokers.live))
    counts, total = record.ledgers, sum(record.ledgers.values())
    if not total:
        return found
    if at in _TAKEN_BACK:
        return [*found, ("rolled back", counts.get(LedgerStage.REVERTED, 0), total)]
    found.append(("copied", _count(counts, _BUILT), total))
    if at not in (SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD):
        found.append(("promoted", _count(counts, MOVED), total))
    to_clean = _count(counts, _TO_CLEAN)
    if to_clean and at in (SwitchStage.CLEANUP, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES):
        found.append(("cleaned up", counts.get(LedgerStage.CLEANED, 0), to_clean))
    return found


def _count(counts: Mapping[LedgerStage, int], stages: frozenset[LedgerStage]) -> int:
    return sum(count for stage, count in counts.items() if stage in stages)


def _progress(record: SwitchRecord) -> Iterator[Table]:
    table = Table.grid(padding=(0, 1))
    for what, count, total in bars(record):
        bar = ProgressBar(total, count, width=_BAR_WIDTH, complete_style="cyan", finished_style="green")
        table.add_row(what, bar, f"{count} of {total}")
    if record.target and record.brokers.live is None:
        table.add_row(
            "brokers acked", Text(str(record.brokers.acked)), Text("the number of live brokers is unknown", "yellow")
        )
    if table.row_count:
        yield table


def _pace(record: SwitchRecord, history: Sequence[SwitchRecord], now: datetime) -> Iterator[Text]:
    pace = compute_pace(record, history, now)
    if pace is None:
        return
    if (since := pace.stalled_since) is not None:
        stalled = human_seconds((now - since).total_seconds())
        done = f"nothing {_DONE[record.verdict]} for {stalled} (since {format_second(since)})"
        yield Text(f"{pace.percent:.1f} %, {done}: the executor's log names what fails", "yellow")
        return
    left = f", {human_seconds(pace.seconds_left)} left" if pace.seconds_left is not None else ""
    limit = record.copy_bytes_per_second
    limited = f", at most {human_bytes(limit)} a second" if limit and record.verdict is SwitchStage.BUILD else ""
    yield Text(f"{pace.percent:.1f} %, {pace.ledgers_per_second:.1f} ledgers a second{left}{limited}")


def _failed(record: SwitchRecord) -> Iterator[Text]:
    failed = {stage: count for stage, count in record.ledgers.items() if stage in FAILED}
    if failed and record.verdict not in _TAKEN_BACK:
        what = ", ".join(f"{count} {stage.value}" for stage, count in failed.items())
        yield Text.assemble((f"stay behind in {record.source}", "bold red"), f": {what}")


def _windows(record: SwitchRecord, now: datetime) -> Iterator[Text]:
    """Format the windows of rollback and clean-up."""
    until, since = record.rollback_until, record.cleanup_from
    if until is not None and record.verdict in REVERSIBLE:
        left = human_seconds(max(0.0, (until - now).total_seconds()))
        over = Text(f"rollback: no longer possible (since {format_second(until)})", "yellow")
        yield Text(f"rollback: possible for {left} more (until {format_second(until)})") if until > now else over
    if since is not None and record.verdict is SwitchStage.HOLD:
        left = human_seconds(max(0.0, (since - now).total_seconds()))
        is_open = Text(f"clean-up: possible (since {format_second(since)})", "green")
        yield Text(f"clean-up: possible in {left} (from {format_second(since)})") if since > now else is_open


def _registry(record: SwitchRecord) -> RenderableType:
    if not record.registry:
        return Text("no BookKeeper cluster is registered: begin with `headgate switch register`", "yellow")
    table = Table("cluster", "status", "role", "last precheck")
    for name, status in record.registry.items():
        named = (("source", record.source), ("target", record.target), ("written to", record.active))
        roles = ", ".join(role for role, cluster in named if cluster == name)
        table.add_row(name, Text(status, _STATUS_COLOURS.get(status, "")), roles, record.prechecks.get(name, "")[:12])
    return table


_REFRESH_SECONDS = 1.0


def show_status(settings: Settings, cluster: str, console: Console, *, watch: bool, as_json: bool) -> None:
    """Print the state of a broker cluster's switch; with `watch`, until it is over or the user ends it.

    Raises UserError if the loop's Kafka is not known, or does not answer.
    """
    is_drawn, printed = watch and console.is_terminal and not as_json, list[SwitchRecord | None]()
    if is_drawn:  # a parent process may ignore this signal, and only the signal ends the loop
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as stack:
        loop = stack.enter_context(LoopClient(settings, cluster, _REFRESH_SECONDS, with_past=True))
        live = stack.enter_context(Live(console=console, auto_refresh=False)) if is_drawn else None
        while True:
            record = loop.record()
            if live is not None:
                live.update(_render(record, cluster, loop), refresh=True)
            elif [record] != printed:
                printed = [record]
                if as_json:
                    typer.echo(json.dumps(None if record is None else record.model_dump(mode="json")))
                else:
                    console.print(_render(record, cluster, loop), highlight=False)
            if not watch or (record is not None and record.verdict in OVER):
                return
            loop.poll(_REFRESH_SECONDS)


def _render(record: SwitchRecord | None, cluster: str, loop: LoopClient) -> RenderableType:
    if record is None:
        return f"There is no record of {cluster} yet: begin with `headgate switch register --cluster {cluster}`."
    return status_view(record, datetime.now(UTC), loop.records())
