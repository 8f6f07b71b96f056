"""The throttle policy's command: `headgate import-strimzi`."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.examples import show_examples
from policies.errors import UserError

app = typer.Typer()


@app.command("import-strimzi", epilog=show_examples("import-strimzi"))
def import_strimzi(file: Annotated[Path, typer.Argument(help="A broker's server.properties.")]) -> None:
    """Convert the settings of Strimzi's quotas plugin. It prints equivalent settings of Headgate."""
    from connectors.named_files import read_named_file
    from deploy.policy_commands.strimzi import import_properties

    try:
        content = read_named_file(file, "a broker's properties")
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    typer.echo(import_properties(content, str(file)).as_yaml(), nl=False)
