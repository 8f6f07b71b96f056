"""The commands `headgate topics …`: the loop's own Kafka topics and the ACLs for them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from deploy.commands.lazy_imports import load_settings
from deploy.commands.options import SettingsFile

topics_app = typer.Typer(help="Create and check the loop's own Kafka topics.", no_args_is_help=True)


@topics_app.command("create")
def topics_create(settings: SettingsFile = None) -> None:
    """Create the topics that are missing. Existing topics are never changed."""
    from connectors.kafka.topic_admin import create_topics

    given = load_settings(settings)
    report = create_topics(given.loop_kafka(), given.topics)
    for topic in report.created:
        typer.echo(f"created {topic}")
    _print_differences(report.existing, report.differences)


@topics_app.command("check")
def topics_check(settings: SettingsFile = None) -> None:
    """Compare the topics with what the loop needs. The exit status is 1 if they differ."""
    from connectors.kafka.topic_admin import check_topics

    given = load_settings(settings)
    report = check_topics(given.loop_kafka(), given.topics)
    for topic in report.missing:
        typer.echo(f"missing {topic}: create it with `headgate topics create`")
    _print_differences(report.existing, report.differences)
    if not report.as_planned:
        raise typer.Exit(1)


@topics_app.command("acls")
def topics_acls(
    part: Annotated[
        str, typer.Argument(help="Part of the loop: collect-POLICY, decide, export, canary, act or command.")
    ],
    principal: Annotated[str, typer.Option(help="Kafka principal, such as User:headgate-collect-throttle.")],
    settings: SettingsFile = None,
) -> None:
    """Print the `kafka-acls.sh` commands that give a principal exactly the rights that a part needs."""
    from connectors.kafka.rights import acl_commands

    for line in acl_commands(part, principal, load_settings(settings).topics.prefix):
        typer.echo(f"kafka-acls.sh --bootstrap-server … {line}")


def _print_differences(existing: Sequence[str], differences: Sequence[object]) -> None:
    typer.echo(f"{len(existing)} topics exist, {len(differences)} differences")
    if differences:
        from rich.table import Table

        from deploy.commands.console import SafeConsole

        table = Table("topic", "key", "expected", "found", "remedy")
        for d in differences:
            table.add_row(*(str(getattr(d, name)) for name in ("topic", "key", "expected", "found", "remedy")))
        SafeConsole().print(table)
