"""The command `headgate switch status`: prints the latest record of a switch, once or continuously."""

import json
import signal
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import typer
from rich.console import Console
from rich.live import Live

from deploy.settings.application import Settings
from deploy.switch.loop_client import LoopClient
from deploy.switch.status_view import OVER, status_view
from policies.switching.decisions import SwitchRecord

_REFRESH_SECONDS = 1.0


def show_status(settings: Settings, cluster: str, console: Console, *, watch: bool, as_json: bool) -> None:
    """Print the state of a broker cluster's switch; with `watch`, until it is over or the user ends it.

    Raises:
        UserError: the loop's Kafka is not known, or does not answer.
    """
    with LoopClient(settings, cluster, _REFRESH_SECONDS, with_past=True) as loop:
        if not watch:
            _print(loop.record(), cluster, console, loop.records(), as_json=as_json)
        elif as_json or not console.is_terminal:
            for record in _changes(loop):
                _print(record, cluster, console, loop.records(), as_json=as_json)
        else:
            _watch(loop, cluster, console)


def _print(
    record: SwitchRecord | None, cluster: str, console: Console, history: Sequence[SwitchRecord], *, as_json: bool
) -> None:
    if as_json:
        typer.echo(json.dumps(None if record is None else record.model_dump(mode="json")))
    elif record is None:
        console.print(_describe_missing(cluster), highlight=False)
    else:
        console.print(status_view(record, datetime.now(UTC), history), highlight=False)


def _describe_missing(cluster: str) -> str:
    return f"There is no record of {cluster} yet: begin with `headgate switch register --cluster {cluster}`."


def _changes(loop: LoopClient) -> Iterator[SwitchRecord | None]:
    """Return the present record, then each new one, until the switch is over."""
    last = loop.record()
    yield last
    while not _is_over(last):
        loop.poll(_REFRESH_SECONDS)
        now = loop.record()
        if now is not None and now != last:
            last = now
            yield last


def _watch(loop: LoopClient, cluster: str, console: Console) -> None:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a parent process may ignore it, and only this signal ends the loop
    record = loop.record()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            view = (
                status_view(record, datetime.now(UTC), loop.records())
                if record is not None
                else _describe_missing(cluster)
            )
            live.update(view, refresh=True)
            if _is_over(record):
                return
            loop.poll(_REFRESH_SECONDS)
            record = loop.record()


def _is_over(record: SwitchRecord | None) -> bool:
    return record is not None and record.verdict in OVER
