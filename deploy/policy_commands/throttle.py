"""The throttle policy's command: `headgate import-strimzi`."""

from pathlib import Path
from typing import Annotated

import typer

from policies.errors import UserError

app = typer.Typer()


@app.command("import-strimzi")
def import_strimzi(file: Annotated[Path, typer.Argument(help="A broker's server.properties.")]) -> None:
    """Convert a broker's configuration of the Strimzi quotas plugin to Headgate settings, and print them."""
    from deploy.policy_commands.strimzi import import_properties

    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    typer.echo(import_properties(content, str(file)).as_yaml(), nl=False)
