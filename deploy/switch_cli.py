"""The commands `headgate switch …`: moving brokers to another BookKeeper cluster."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from deploy.logs import set_up_logging
from deploy.settings_file import load_settings

switch_app = typer.Typer(help="Move brokers to another BookKeeper cluster.", no_args_is_help=True)

_NOT_READY = 1


@switch_app.callback()
def switch() -> None:
    """Move brokers to another BookKeeper cluster."""


@switch_app.command()
def precheck(
    cluster: Annotated[str, typer.Option(help="Of the watched clusters, the one whose brokers are to switch.")],
    target: Annotated[str, typer.Option(help="Of its BookKeeper clusters, the one to switch to.")],
    settings: Annotated[
        Path | None, typer.Option("--settings", "-s", help="Settings file (YAML); the environment wins over it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say what to do about each reason.")] = False,
) -> None:
    """Say whether a switch is safe, from live data. Writes nothing. Ends with status 1 where it is not ready."""
    from deploy.switch import answer

    set_up_logging()
    logging.getLogger().setLevel(logging.ERROR)  # the report says what a reading came to
    if not answer(load_settings(settings), cluster, target, as_json=as_json, explained=explain):
        raise typer.Exit(_NOT_READY)
