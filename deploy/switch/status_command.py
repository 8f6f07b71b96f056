"""The command `headgate switch status`: prints the latest record of a switch, once or continuously."""

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime

import typer
from rich.console import Console, RenderableType
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
        if watch and console.is_terminal and not as_json:
            _watch(loop, cluster, console)
            return
        for record in _changes(loop) if watch else (loop.record(),):
            if as_json:
                typer.echo(json.dumps(None if record is None else record.model_dump(mode="json")))
            else:
                console.print(_render(record, cluster, loop), highlight=False)


def _render(record: SwitchRecord | None, cluster: str, loop: LoopClient) -> RenderableType:
    if record is None:
        return f"There is no record of {cluster} yet: begin with `headgate switch register --cluster {cluster}`."
    return status_view(record, datetime.now(UTC), loop.records())


def _changes(loop: LoopClient) -> Iterator[SwitchRecord | None]:
    """Return the present record, then each new one, until the switch is over."""
    last = loop.record()
    yield last
    while last is None or last.verdict not in OVER:
        loop.poll(_REFRESH_SECONDS)
        now = loop.record()
        if now is not None and now != last:
            last = now
            yield last


def _watch(loop: LoopClient, cluster: str, console: Console) -> None:
    # A parent process may ignore this signal, and only the signal ends the loop.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            record = loop.record()
            live.update(_render(record, cluster, loop), refresh=True)
            if record is not None and record.verdict in OVER:
                return
            loop.poll(_REFRESH_SECONDS)
