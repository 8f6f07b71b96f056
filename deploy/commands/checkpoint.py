"""The command `headgate checkpoint reset`: sets the query's checkpoint aside."""

from typing import Annotated

import typer

from deploy.commands.examples import show_examples
from deploy.commands.lazy_imports import load_settings, print_sentence
from deploy.commands.options import SettingsFile

checkpoint_app = typer.Typer(help="Reset the query's checkpoint.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Make the changes. Without it they are only listed.")]
_WITH_YES = "Nothing is changed now. With --yes, while no query runs:"


@checkpoint_app.command("reset", epilog=show_examples("checkpoint reset"))
def checkpoint_reset(settings: SettingsFile = None, yes: Yes = False) -> None:
    """Move the checkpoint aside, and list the consequences. The query then starts from scratch."""
    from deploy.query import checkpoint
    from deploy.query.sole_use import sole_query

    given = load_settings(settings)
    found = checkpoint.Checkpoint(given.checkpoint_dir())
    lines = checkpoint.reset_plan(found)
    for line in lines if yes else [_WITH_YES, *lines]:
        print_sentence(line)
    if yes:
        with sole_query(given):
            print_sentence(f"moved to {checkpoint.reset(found)}")
