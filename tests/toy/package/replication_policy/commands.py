"""The replication policy's command: `headgate replication-factor`."""

from typing import Annotated

import typer

app = typer.Typer()


@app.command("replication-factor")
def replication_factor(
    losses: Annotated[int, typer.Argument(min=0, help="Number of brokers that may be lost at the same time.")],
) -> None:
    """Print the replication factor and `min.insync.replicas` that survive the loss of some brokers without a stop."""
    typer.echo(f"replication.factor={2 * losses + 1} min.insync.replicas={losses + 1}")
