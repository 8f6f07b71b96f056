"""Answers `headgate switch status`: the record of a switch as the loop last said it, once or again and again."""

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime

import typer
from rich.console import Console
from rich.live import Live

from deploy.settings import Settings
from deploy.switch.commands import Conversation
from deploy.switch.status import OVER, status_view
from policies.switching.decisions import SwitchRecord

_REFRESH_SECONDS = 1.0


def show_status(settings: Settings, cluster: str, console: Console, *, watch: bool, as_json: bool) -> None:
    """Print where the switch of a broker cluster stands; with `watch`, until it is over or the user ends it.

    Raises:
        UserError: the loop's Kafka is not known, or does not answer.
    """
    with Conversation(settings, cluster, _REFRESH_SECONDS, recall=True) as talk:
        if not watch:
            _print(talk.record(), cluster, console, as_json=as_json)
        elif as_json or not console.is_terminal:
            for record in _changes(talk):
                _print(record, cluster, console, as_json=as_json)
        else:
            _live(talk, cluster, console)


def _print(record: SwitchRecord | None, cluster: str, console: Console, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(None if record is None else record.model_dump(mode="json")))
    elif record is None:
        console.print(_unknown(cluster), highlight=False)
    else:
        console.print(status_view(record, datetime.now(UTC)), highlight=False)


def _unknown(cluster: str) -> str:
    return f"Nothing is known of {cluster} yet: begin with `headgate switch register --cluster {cluster}`."


def _changes(talk: Conversation) -> Iterator[SwitchRecord | None]:
    """What is known at first, then each new record, until the switch is over."""
    last = talk.record()
    yield last
    while not _is_over(last):
        talk.listen(_REFRESH_SECONDS)
        now = talk.record()
        if now is not None and now != last:
            last = now
            yield last


def _live(talk: Conversation, cluster: str, console: Console) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have it ignored, and nothing else ends this
    record = talk.record()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_unknown(cluster) if record is None else status_view(record, datetime.now(UTC)), refresh=True)
            if _is_over(record):
                return
            talk.listen(_REFRESH_SECONDS)
            record = talk.record()


def _is_over(record: SwitchRecord | None) -> bool:
    return record is not None and record.verdict in OVER
