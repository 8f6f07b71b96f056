"""The throttle policy's commands: `headgate import-strimzi`, `forget` and `adopt`."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.examples import show_examples
from deploy.commands.lazy_imports import load_asked, print_sentence
from deploy.commands.options import Reason, SettingsFile, Timeout
from policies.errors import UserError

app = typer.Typer()


@app.command("import-strimzi", epilog=show_examples("import-strimzi"))
def import_strimzi(
    file: Annotated[Path, typer.Argument(help="A broker's server.properties, or a Kafka resource.")],
) -> None:
    """Convert the settings of Strimzi's quotas plugin. It prints equivalent settings of Headgate."""
    from connectors.named_files import read_named_file
    from deploy.policy_commands.strimzi import import_properties

    try:
        content = read_named_file(file, "a broker's properties")
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    typer.echo(import_properties(content, str(file)).as_yaml(), nl=False)


@app.command("forget", epilog=show_examples("forget"))
def forget(
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster.")],
    broker: Annotated[int, typer.Option(min=0, help="The broker's node id.")],
    log_dir: Annotated[str, typer.Option(help="The log dir's path on the broker.")],
    reason: Reason = "",
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """Forget the last reading of a log dir. It is for a dir that is gone or has failed and holds producers back.

    The log dir counts again once its broker reads it. The audit has the command, and the decision that answers it.
    """
    from deploy.policy_commands.throttle_commands import forget_log_dir

    print_sentence(forget_log_dir(load_asked(settings), cluster, broker, log_dir, reason, timeout).explanation)


@app.command("adopt", epilog=show_examples("adopt"))
def adopt(
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster.")],
    reason: Reason = "",
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """Adopt another Kafka cluster behind the same address. Its state begins empty.

    Until then the alert `cluster-replaced` fires, its readings do not count, and nothing is set on it.
    """
    from deploy.policy_commands.throttle_commands import adopt_cluster

    print_sentence(adopt_cluster(load_asked(settings), cluster, reason, timeout).explanation)
