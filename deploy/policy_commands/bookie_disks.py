"""The bookie-disks policy's command: `headgate disks`."""

import logging
from typing import Annotated

import typer

from deploy.commands.lazy_imports import load_settings, set_up_logging
from deploy.commands.options import AsJson, SettingsFile

app = typer.Typer()


@app.command()
def disks(
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster.")],
    as_json: AsJson = False,
    settings: SettingsFile = None,
) -> None:
    """Show, from live data, the bookies of each group: the fullest dir, the factor, and which bookie decides."""
    from deploy.policy_commands.disks import show_disks

    set_up_logging()
    logging.getLogger().setLevel(logging.ERROR)  # the answer contains the outcome of each reading
    show_disks(load_settings(settings), cluster, as_json=as_json)
