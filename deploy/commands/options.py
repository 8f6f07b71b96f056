"""Command line options that several commands share, so that each has one name, one meaning and one help text."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.completion import SETTINGS_VARIABLE, complete_clusters, complete_policies

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        "-s",
        envvar=SETTINGS_VARIABLE,
        help="Settings file (YAML). Environment variables override its settings.",
    ),
]
ClusterFilter = Annotated[
    str | None, typer.Option("--cluster", "-c", help="Only this cluster, or glob.", autocompletion=complete_clusters)
]
PolicyFilter = Annotated[
    str | None, typer.Option("--policy", "-p", help="Only this policy.", autocompletion=complete_policies)
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print again after each change, until Ctrl-C.")]
Reason = Annotated[str, typer.Option(help="Why, in your own words. It is recorded with the command.")]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds to wait for the loop's answer.")]
