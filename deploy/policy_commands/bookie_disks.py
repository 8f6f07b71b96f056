"""The bookie-disks policy's command: `headgate disks`."""

import logging
from typing import Annotated

import typer

from deploy.commands.examples import show_examples
from deploy.commands.lazy_imports import load_asked
from deploy.commands.options import AsJson, SettingsFile

app = typer.Typer()


@app.command(epilog=show_examples("disks"))
def disks(
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster.")],
    as_json: AsJson = False,
    settings: SettingsFile = None,
) -> None:
    """Show the bookies of each placement group. It has the fullest dir and the factor of each, from live data."""
    from deploy.policy_commands.disks import show_disks

    given = load_asked(settings, logging.ERROR)  # the answer contains the outcome of each reading
    show_disks(given, cluster, as_json=as_json)
