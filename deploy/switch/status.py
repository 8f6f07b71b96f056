"""Prints the latest record of a switch, once or continuously (`headgate switch status`), or single ledgers of it."""

import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import NamedTuple

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from connectors.decided import DecisionsInForce
from deploy.console.terminal import indent_body, sentence_console
from deploy.inspection.commands import InForceReader
from deploy.settings.application import Settings
from deploy.switch.loop_commands import LoopClient
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchReason, SwitchRecord
from policies.switching.state import (
    ENDED,
    FAILED,
    IN_TARGET,
    MOVED,
    REVERSIBLE,
    UNDELETED,
    UNREVERTED,
    WAY,
    LedgerStage,
    SwitchStage,
)
from policies.units import counted, format_second, human_bytes, human_seconds

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


class _Work(NamedTuple):
    """What a stage of a switch does with ledgers: the stages of those that are done, and of those that are to come."""

    word: str
    done: frozenset[LedgerStage]
    ahead: frozenset[LedgerStage]


_BUILT = MOVED | {LedgerStage.BUILT, LedgerStage.PROMOTING, LedgerStage.PROMOTE_DEFERRED}
_WORK: Mapping[SwitchStage, _Work] = {
    SwitchStage.BUILD: _Work("copied", _BUILT, frozenset({LedgerStage.PENDING, LedgerStage.COPYING})),
    SwitchStage.PROMOTE: _Work("promoted", MOVED, IN_TARGET - MOVED | {LedgerStage.PENDING}),
    SwitchStage.CLEANUP: _Work("cleaned up", frozenset({LedgerStage.CLEANED}), UNDELETED),
    SwitchStage.ROLLBACK: _Work("rolled back", frozenset({LedgerStage.REVERTED}), UNREVERTED),
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
        *filter(None, [describe_pace(record, history, now)]),
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
    """Return (label, count, total) for each stage so far that counts something; what stays behind is in no total."""
    found: list[tuple[str, int, int]] = []
    if record.target and record.brokers.live:
        found.append(("brokers acked", record.brokers.acked, record.brokers.live))
    at = present_stage(record)
    way = _OTHER_ENDS.get(at, _WAY)
    for stage in way[: way.index(at) + 1] if at in way else ():
        done, total = _measure(stage, record.ledgers)
        if total:
            found.append((_WORK[stage].word, done, total))
    return found


def _measure(stage: SwitchStage, counts: Mapping[LedgerStage, int]) -> tuple[int, int]:
    """Return how many ledgers a stage has finished, and of how many; (0, 0) for a stage without work on ledgers."""
    if (work := _WORK.get(stage)) is None:
        return 0, 0
    done, ahead = (sum(counts.get(each, 0) for each in stages) for stages in (work.done, work.ahead))
    return done, done + ahead


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


_RECENT_SECONDS = 60.0
"""The time over which the rate is measured, if the records reach back so far."""


def describe_pace(record: SwitchRecord, history: Sequence[SwitchRecord], now: datetime) -> Text | None:
    """Format the rate and the remaining time of the present stage; None for a stage without work on ledgers.

    Args:
        record: the latest record.
        history: earlier records; without a recent one of this stage, the rate counts from the stage's beginning.
    """
    done, total = _measure(record.verdict, record.ledgers)
    if not total:
        return None
    run = (record.verdict, record.attempt, record.epoch)
    same_run = (each for each in (*history, record) if (each.verdict, each.attempt, each.epoch) == run)
    points = [(each.decided_at, _measure(each.verdict, each.ledgers)[0]) for each in same_run]
    if record.stage_since is not None:
        points.insert(0, (record.stage_since, 0))
    reached = min(at for at, count in points if count == done)
    stalled_seconds = (now - reached).total_seconds()
    if done < total and stalled_seconds > _RECENT_SECONDS:
        stalled = f"{human_seconds(stalled_seconds)} (since {format_second(reached)})"
        nothing = f"nothing {_WORK[record.verdict].word} for {stalled}"
        return Text(f"{nothing}: the executor's log names what fails", "yellow")
    recent = (point for point in points[:-1] if (now - point[0]).total_seconds() <= _RECENT_SECONDS)
    since, before = next(recent, points[0])
    seconds = (record.decided_at - since).total_seconds()
    rate = max(0, done - before) / seconds if seconds > 0 else 0.0
    left = f", {human_seconds((total - done) / rate)} left" if rate > 0 else ""
    limit = record.copy_bytes_per_second
    limited = f", at most {human_bytes(limit)} a second" if limit and record.verdict is SwitchStage.BUILD else ""
    return Text(f"{rate:.1f} ledgers a second{left}{limited}")


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


# Lists single ledgers of a switch: those that failed, and those that a clean-up would delete.
#
# The decided topic has the latest decision about each ledger.

_LEFT = frozenset({SwitchReason.RETRIES_EXHAUSTED, SwitchReason.NOT_READY, SwitchReason.WIDE_CHANGE})


def has_failed(decision: SwitchDecision) -> bool:
    """Whether the latest decision about a ledger leaves it behind, or gives up its order."""
    if decision.ledger is None or decision.verdict in ORDERS:
        return False
    return decision.ledger.stage in FAILED or decision.reason in _LEFT


def is_to_clean(decision: SwitchDecision) -> bool:
    """Whether a ledger is attributed to the target, and still exists in the source."""
    return decision.ledger is not None and decision.ledger.stage in (LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT)


def select_ledgers(decisions: Iterable[SwitchDecision], record: SwitchRecord | None) -> list[SwitchDecision]:
    """Return the decisions about ledgers of the present switch, by id. The topic may have those of earlier switches."""
    way = (record.source, record.target) if record is not None else None
    found = ((d.ledger.ledger_id, d) for d in decisions if d.ledger and way in (None, (d.source, d.target)))
    return [decision for _, decision in sorted(found, key=lambda pair: (pair[0], pair[1].subject))]


def show_ledgers(
    settings: Settings, cluster: str, wanted: Callable[[SwitchDecision], bool], otherwise: str, *, as_json: bool
) -> None:
    """Print all selected ledgers of a broker cluster's present switch.

    Raises UserError if the loop's Kafka is not known, or does not answer.
    """
    in_force = DecisionsInForce(lambda name: name == cluster, policy="switching")
    with InForceReader(settings.loop_kafka(), settings.topics.prefix, in_force) as reader:
        decisions = list(reader.now().decisions())
    record = next((each for each in decisions if isinstance(each, SwitchRecord)), None)
    found = select_ledgers((each for each in decisions if isinstance(each, SwitchDecision) and wanted(each)), record)
    if as_json:
        for decision in found:
            typer.echo(json.dumps(plain_ledger(decision)))
        return
    console = sentence_console()
    for line in ledger_lines(found, otherwise, console):
        console.print(line, soft_wrap=isinstance(line, Text))  # a path with a line break cannot be copied


def ledger_lines(decisions: list[SwitchDecision], otherwise: str, console: Console) -> Iterator[RenderableType]:
    """Format each ledger with what happened to it and its znodes, and their number; `otherwise` if there is none."""
    for each in decisions:
        plain = plain_ledger(each)
        yield Text.assemble((f"{plain['ledger']}", "bold"), f" {plain['kind']}: {plain['stage']}, {plain['reason']}")
        yield indent_body(console, Text("    "), Text(f"{plain['detail']}"))
        for path in each.ledger.paths if each.ledger else ():
            yield Text(f"    {path}")
    yield Text(counted(len(decisions), "ledger") if decisions else otherwise)


def plain_ledger(decision: SwitchDecision) -> dict[str, object]:
    """Return a ledger and its latest decision, for a program."""
    ledger = decision.ledger
    assert ledger is not None  # noqa: S101 - only decisions about ledgers come here
    return {
        "ledger": ledger.ledger_id,
        "target_id": ledger.target_id,
        "kind": ledger.kind.value,
        "stage": ledger.stage.value,
        "reason": decision.reason.value,
        "detail": decision.explanation,
        "paths": list(ledger.paths),
    }
