"""The commands `headgate topics …`: the loop's own Kafka topics and the ACLs for them."""

from typing import TYPE_CHECKING, Annotated

import typer

from deploy.console.options import SettingsFile, load_asked, load_settings, print_sentence, show_examples
from policies.units import counted

if TYPE_CHECKING:
    from connectors.kafka.admin import TopicReport
    from connectors.kafka.connection import KafkaConnection


topics_app = typer.Typer(help="Create and check the loop's own Kafka topics.", no_args_is_help=True)


@topics_app.command("create", epilog=show_examples("headgate topics create -s headgate.yaml"))
def topics_create(settings: SettingsFile = None) -> None:
    """Create the topics that are missing. Existing topics are never changed."""
    from connectors.kafka.admin import create_topics, find_single_copies

    given = load_asked(settings)
    report = create_topics(given.loop_kafka(), given.topics)
    for topic in report.created:
        typer.echo(f"created {topic}")
    _print_report(report, given.loop_kafka())
    if single := find_single_copies(given.loop_kafka(), given.topics):
        typer.echo(
            f"warning: {counted(len(single), 'topic')} of one replica, such as {single[0]}, on a Kafka of 3 brokers "
            "or more: the loop stops with one of them. Set topics.replication_factor to 3 before the topics exist, or "
            "reassign them with kafka-reassign-partitions.sh",
            err=True,
        )


@topics_app.command("check", epilog=show_examples("headgate topics check -s headgate.yaml"))
def topics_check(settings: SettingsFile = None) -> None:
    """Compare the topics with what the loop needs. The exit status is 1 if they differ."""
    from connectors.kafka.admin import check_topics

    given = load_asked(settings)
    report = check_topics(given.loop_kafka(), given.topics)
    for topic in report.missing:
        typer.echo(f"missing {topic}")
    if report.missing:
        from deploy.console.terminal import complete_commands

        typer.echo(f"create what is missing:\n{complete_commands('headgate topics create')}")
    _print_report(report, given.loop_kafka())
    if not report.as_planned:
        raise typer.Exit(1)


@topics_app.command("acls", epilog=show_examples("headgate topics acls decide --principal User:headgate-decide"))
def topics_acls(
    part: Annotated[
        str, typer.Argument(help="Part of the loop: collect, collect-POLICY, decide, export, act, command or topics.")
    ],
    principal: Annotated[str, typer.Option(help="Kafka principal, such as User:headgate-collect-throttle.")],
    settings: SettingsFile = None,
) -> None:
    """Print the rights that a part needs, as commands. They are calls of `kafka-acls.sh` for one principal."""
    from connectors.kafka.topics import acl_commands

    for line in acl_commands(part, principal, load_settings(settings).topics.prefix):
        typer.echo(f"kafka-acls.sh --bootstrap-server … {line}")


def _print_report(report: "TopicReport", connection: "KafkaConnection") -> None:
    in_place = len(report.existing) + len(report.created)
    differences = counted(len(report.differences), "difference") if report.differences else "none differs"
    typer.echo(f"{counted(in_place, 'topic')} in place, {differences}")
    for each in report.differences:
        typer.echo(f"{each.topic}: {each.key} is {each.found}, expected {each.expected}")
    servers = f"kafka-configs.sh --bootstrap-server {','.join(connection.servers())} "
    for remedy in dict.fromkeys(each.remedy for each in report.differences):
        typer.echo(remedy.replace("kafka-configs.sh ", servers))


# The command `headgate checkpoint reset`: sets the query's checkpoint aside.

checkpoint_app = typer.Typer(help="Reset the query's checkpoint.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Make the changes. Without it they are only listed.")]
_WITH_YES = "Nothing is changed now. With --yes, while no query runs:"


@checkpoint_app.command(
    "reset",
    epilog=show_examples(
        "headgate checkpoint reset -s headgate.yaml", "headgate checkpoint reset -s headgate.yaml --yes"
    ),
)
def checkpoint_reset(settings: SettingsFile = None, yes: Yes = False) -> None:
    """Move the checkpoint aside, and list the consequences. The query then starts from scratch."""
    from deploy.query.checkpoint import reset, reset_plan, sole_query

    given = load_settings(settings)
    folder = given.checkpoint_dir()
    lines = reset_plan(folder)
    for line in lines if yes else [_WITH_YES, *lines]:
        print_sentence(line)
    if yes:
        with sole_query(given):
            print_sentence(f"moved to {reset(folder)}")
