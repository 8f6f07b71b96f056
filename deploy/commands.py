"""What the `headgate` command can do; `deploy.cli` runs it."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deploy.lazily import load_settings, print_sentence, set_up_logging
from deploy.switch.cli import switch_app
from policies.errors import UserError

if TYPE_CHECKING:
    from deploy.settings import Settings

RuleSetName = Literal["legacy", "current", "strict"]
"""Those of the isolation policy, which is not loaded for their names."""

app = typer.Typer(
    name="headgate",
    help="A control loop for the storage under Kafka and Pulsar fleets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
topics_app = typer.Typer(help="The loop's own topics.", no_args_is_help=True)
app.add_typer(topics_app, name="topics")
checkpoint_app = typer.Typer(help="The query's checkpoint, when it is damaged.", no_args_is_help=True)
app.add_typer(checkpoint_app, name="checkpoint")
app.add_typer(switch_app, name="switch")


SettingsFile = Annotated[
    Path | None, typer.Option("--settings", "-s", help="Settings file (YAML); the environment wins over it.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more of what Headgate does.")]


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headgate {version('headgate')}")
        raise typer.Exit


@app.callback()
def headgate(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A control loop for the storage under Kafka and Pulsar fleets."""


@app.command()
def up(
    settings: SettingsFile = None,
    brokers: Annotated[int | None, typer.Option(min=1, max=9, help="How many brokers to start.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where everything is kept; a second `up` resumes.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of /metrics.")] = None,
    verbose: Verbose = False,
) -> None:
    """Start a Kafka on this machine and the whole loop on it, watching the disks it lies on."""
    from deploy.stack import run_embedded
    from deploy.terminal import Terminal

    set_up_logging(verbose=verbose)
    run_embedded(lambda: _with_options(load_settings(settings), brokers, data_dir, port), Terminal())


def _with_options(settings: "Settings", brokers: int | None, data_dir: Path | None, port: int | None) -> "Settings":
    update: dict[str, object] = {}
    if brokers is not None:
        update["embedded"] = settings.embedded.model_copy(update={"brokers": brokers})
    if data_dir is not None:
        update["data_dir"] = data_dir.absolute()
    if port is not None:
        update["http"] = settings.http.model_copy(update={"port": port})
    return settings.model_copy(update=update)


@app.command()
def demo(
    picture: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write what there was to see to this file, as an SVG.")
    ] = None,
) -> None:
    """Show it: in two minutes a disk fills up, producers are slowed, stopped and let go, on brokers of its own.

    Everything is real: a Kafka broker on a small disk, producers, the whole loop, and Kafka's client quotas.

    It needs Java 17, about 2 GB of memory and, once, the network for 55 MB of jars.

    It listens on loopback alone, reads no settings, and leaves nothing behind; Ctrl-C ends it at any time.

    Without a terminal it prints plain lines. Status: 0 when the story came to its end, else another.
    """
    from deploy.demo.volume import enter_private_mounts

    mounts = enter_private_mounts()  # before what is loaded below starts threads
    from deploy.demo.part import DemoFailedError
    from deploy.demo.run import run_demo

    try:
        raise typer.Exit(run_demo(mounts=mounts, picture=picture))
    except DemoFailedError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command()
def run(settings: SettingsFile = None, verbose: Verbose = False) -> None:
    """Run the whole loop on your Kafka: collectors, query and exporter in one process."""
    set_up_logging(verbose=verbose)
    _load_with_kafka(settings)  # a mistake is told at once: before Spark is started, or so much as loaded
    from deploy.stack import run_loop
    from deploy.terminal import Terminal

    run_loop(lambda: _load_with_kafka(settings), Terminal())


def _load_with_kafka(file: Path | None) -> "Settings":
    settings = load_settings(file)
    settings.loop_kafka()
    return settings


@app.command()
def collect(settings: SettingsFile = None, verbose: Verbose = False) -> None:
    """Run the collectors alone."""
    set_up_logging(verbose=verbose)
    given = _load_with_kafka(settings)
    from deploy import parts

    parts.run_collectors(given)


@app.command()
def decide(
    settings: SettingsFile = None,
    print_submit: Annotated[
        bool, typer.Option("--print-submit", help="Print the line by which spark-submit runs it, and end.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Run the query alone."""
    set_up_logging(verbose=verbose)
    given = _load_with_kafka(settings)
    if print_submit:
        from deploy.submitting import submit_line

        typer.echo(submit_line(given, settings))
        return
    from deploy import parts

    parts.run_query(given)


@app.command()
def export(settings: SettingsFile = None, verbose: Verbose = False) -> None:
    """Run the exporter alone."""
    set_up_logging(verbose=verbose)
    given = _load_with_kafka(settings)
    from deploy import parts

    parts.run_exporter(given)


@app.command()
def act(
    settings: SettingsFile = None,
    release: Annotated[
        bool, typer.Option("--release", help="Put back the quotas that were there before Headgate, and end.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Carry decisions out: run the actuators alone. What they did stays as it is when they stop."""
    set_up_logging(verbose=verbose)
    given = _load_with_kafka(settings)
    from deploy import parts

    if release:
        parts.release(given)
        print_sentence("Quotas are as they were before Headgate. An actuator that still runs would set its own again.")
    else:
        parts.run_actuators(given)


@app.command()
def placement(
    cluster: Annotated[str, typer.Option(help="Of the watched clusters, the one to look at.")],
    namespace: Annotated[str | None, typer.Option(help="tenant/namespace; by default all, the worst first.")] = None,
    ensemble: Annotated[int | None, typer.Option(min=1, help="Ensemble size, in place of the namespace's own.")] = None,
    rules: Annotated[RuleSetName | None, typer.Option(help="Rule set, in place of the one in the settings.")] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(help="A change to think of: add=BOOKIE, add=BOOKIE@GROUP, remove=BOOKIE or remove-group=GROUP."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")] = False,
    settings: SettingsFile = None,
) -> None:
    """Show which bookies a namespace may place its data on now, from live data: who is in, who is out, and why."""
    from deploy.placement import PlacementQuery, show_placement
    from policies.isolation.rules import RuleSet
    from policies.isolation.what_if import parse_change

    set_up_logging()
    logging.getLogger().setLevel(logging.ERROR)  # the answer says what a reading came to
    changes = tuple(parse_change(text) for text in what_if or ())
    query = PlacementQuery(cluster, namespace, ensemble, RuleSet(rules) if rules else None, changes)
    show_placement(load_settings(settings), query, as_json=as_json)


Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print again at each change, until Ctrl-C.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]


@app.command()
def status(settings: SettingsFile = None, as_json: AsJson = False, watch: Watch = False) -> None:
    """Show what is in force in each cluster, and which alerts fire."""
    from deploy.inspection.commands import show_status

    set_up_logging(answers=not watch)
    show_status(load_settings(settings), as_json=as_json, watch=watch)


@app.command()
def decisions(
    subject: Annotated[str, typer.Argument(help="A subject, or how it begins: a cluster's name.")] = "",
    settings: SettingsFile = None,
    as_json: AsJson = False,
    watch: Watch = False,
) -> None:
    """Show the decisions in force, each with its sentence."""
    from deploy.inspection.commands import show_decisions

    set_up_logging(answers=not watch)
    show_decisions(load_settings(settings), subject, as_json=as_json, watch=watch)


@app.command()
def alerts(
    settings: SettingsFile = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Also those that have ended.")] = False,
    as_json: AsJson = False,
    watch: Watch = False,
) -> None:
    """Show which alerts fire, the gravest first."""
    from deploy.inspection.commands import show_alerts

    set_up_logging(answers=not watch)
    show_alerts(load_settings(settings), resolved=resolved, as_json=as_json, watch=watch)


@app.command()
def explain(
    subject: Annotated[str, typer.Argument(help="What was decided about, as `headgate decisions` names it.")],
    settings: SettingsFile = None,
    at: Annotated[str | None, typer.Option(help="As of this time; by default now.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show why something was decided: its sentence, numbers, the readings it rests on, and who carried it out."""
    from deploy.inspection.commands import show_explanation

    set_up_logging(answers=True)
    show_explanation(load_settings(settings), subject, _instant("--at", at), as_json=as_json)


@app.command()
def promise(
    rules: Annotated[str, typer.Argument(help="strict, current or legacy; `settings` for what the settings promise.")],
    cluster: Annotated[str, typer.Option(help="Of the watched clusters, the one the namespace is in.")],
    namespace: Annotated[str, typer.Option(help="tenant/namespace.")],
    reason: Annotated[str, typer.Option(help="Why, in your words. It is kept with the command.")] = "",
    timeout: Annotated[float, typer.Option(min=1, help="How many seconds an answer is awaited.")] = 60.0,
    settings: SettingsFile = None,
) -> None:
    """Promise a namespace by which rules its data is isolated; the running loop holds its placements against it."""
    from deploy.promise import PromiseRequest, give_promise
    from policies.isolation.rules import RuleSet

    known = {rule.value: rule for rule in RuleSet}
    if rules not in (*known, "settings"):
        raise UserError(f"'{rules}' is no promise: write one of {', '.join(known)}, settings")
    set_up_logging(answers=True)
    request = PromiseRequest(cluster, namespace, known.get(rules), reason, timeout)
    placement = give_promise(load_settings(settings), request)
    print_sentence(f"promised: {placement.promise.value}. {placement.explanation}")


Timeout = Annotated[float, typer.Option(min=1, help="How many seconds an answer is awaited.")]


@app.command()
def pause(
    policy: Annotated[str, typer.Argument(help="throttle, isolation, sessions, or one of an installed package.")],
    cluster: Annotated[str | None, typer.Argument(help="Of the watched clusters; without one: each.")] = None,
    length: Annotated[str, typer.Option("--for", help="How long, such as 2h; then it goes on by itself.")] = "1h",
    reason: Annotated[str, typer.Option(help="Why, in your words. It is kept with the command.")] = "",
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """Have a policy only watch: nothing it decides is carried out, and its alerts wait."""
    from policies.units import parse_duration

    try:
        wanted = parse_duration(length)
    except ValueError as error:
        raise UserError(f"--for: {error}") from None
    if not wanted:
        raise UserError("--for: must be longer than 0s; `headgate resume` ends a pause")
    _command_pause(settings, policy, cluster, wanted, reason, timeout)


@app.command()
def resume(
    policy: Annotated[str, typer.Argument(help="The policy that is paused.")],
    cluster: Annotated[str | None, typer.Argument(help="Of the watched clusters; without one: each.")] = None,
    reason: Annotated[str, typer.Option(help="Why, in your words. It is kept with the command.")] = "",
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """End a pause: what is the case then is said and carried out."""
    _command_pause(settings, policy, cluster, None, reason, timeout)


def _command_pause(
    file: Path | None, policy: str, cluster: str | None, length: "timedelta | None", reason: str, timeout: float
) -> None:
    set_up_logging(answers=True)
    from deploy.pausing import PauseRequest, command_pause

    for said in command_pause(load_settings(file), PauseRequest(policy, cluster, length, reason, timeout)):
        print_sentence(said.explanation)


@app.command()
def check(
    file: Annotated[Path | None, typer.Argument(help="The settings file; or name it with --settings.")] = None,
    settings: SettingsFile = None,
    effective: Annotated[
        bool, typer.Option("--effective", help="Print the settings in force for each cluster; secrets stay hidden.")
    ] = False,
) -> None:
    """Say whether settings are good: every mistake with its place, and what is allowed but hardly meant."""
    if file is not None and settings is not None and file != settings:
        raise UserError(f"two files are named, {file} and {settings}: check one after the other")
    set_up_logging()
    from deploy.checking.command import check as check_file

    check_file(file or settings, effective=effective)


@app.command()
def doctor(
    settings: SettingsFile = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="As which part: collect-POLICY, decide, export, act. By default all that `run` is."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Connect to everything the settings name: what works, what is slow, what is not allowed. Changes nothing."""
    from deploy.doctor.command import examine

    set_up_logging(answers=True)
    logging.getLogger().setLevel(logging.CRITICAL)  # the answers say what there is to say
    if not examine(load_settings(settings), tuple(part or ()), as_json=as_json):
        raise typer.Exit(1)


@app.command("import-strimzi")
def import_strimzi(file: Annotated[Path, typer.Argument(help="A broker's server.properties.")]) -> None:
    """Print settings that do what a broker's Strimzi quotas plugin does."""
    from deploy.strimzi import import_properties, properties_text

    try:
        text = properties_text(file.read_bytes())
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    typer.echo(import_properties(text, str(file)).as_yaml(), nl=False)


Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this it is only said.")]


@checkpoint_app.command("repair")
def checkpoint_repair(settings: SettingsFile = None, yes: Yes = False) -> None:
    """Mend what can be mended without a decision changing; says what it does, and where it cannot."""
    from deploy import checkpoint
    from deploy.sole_use import sole_query

    given = load_settings(settings)
    found = checkpoint.Checkpoint(given.checkpoint_dir())
    lines = checkpoint.repair_plan(found)
    for line in lines or [f"{found.folder}: nothing is damaged"]:
        print_sentence(line)
    if lines and yes:
        with sole_query(given):
            checkpoint.repair(found)
        print_sentence("repaired")
    elif lines:
        print_sentence("Nothing was changed: do it with --yes, while no query runs.")


@checkpoint_app.command("reset")
def checkpoint_reset(settings: SettingsFile = None, yes: Yes = False) -> None:
    """Set the checkpoint aside, so that the query begins anew; says what that costs."""
    from deploy import checkpoint
    from deploy.sole_use import sole_query

    given = load_settings(settings)
    found = checkpoint.Checkpoint(given.checkpoint_dir())
    for line in checkpoint.reset_plan(found):
        print_sentence(line)
    if yes:
        with sole_query(given):
            print_sentence(f"moved to {checkpoint.reset(found)}")
    else:
        print_sentence("Nothing was changed: do it with --yes, while no query runs.")


@topics_app.command("create")
def topics_create(settings: SettingsFile = None) -> None:
    """Create the topics that are missing; existing ones are never changed."""
    from connectors.kafka.topic_admin import create_topics

    given = load_settings(settings)
    report = create_topics(given.loop_kafka(), given.topics)
    for topic in report.created:
        typer.echo(f"created {topic}")
    _print_differences(report.existing, report.differences)


@topics_app.command("check")
def topics_check(settings: SettingsFile = None) -> None:
    """Compare the topics with what the loop needs; ends with status 1 where they differ."""
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
    part: Annotated[str, typer.Argument(help="collect-POLICY, decide, export, canary, act or command.")],
    principal: Annotated[str, typer.Option(help="As Kafka names it, such as User:headgate-collect-throttle.")],
    settings: SettingsFile = None,
) -> None:
    """Print what `kafka-acls.sh` is to be given so that a principal may do what a part does, and no more."""
    from connectors.kafka.rights import acl_commands

    for line in acl_commands(part, principal, load_settings(settings).topics.prefix):
        typer.echo(f"kafka-acls.sh --bootstrap-server … {line}")


def _print_differences(existing: Sequence[str], differences: Sequence[object]) -> None:
    typer.echo(f"{len(existing)} topics exist, {len(differences)} differences")
    if differences:
        from rich.table import Table

        from deploy.console import SafeConsole

        table = Table("topic", "key", "expected", "found", "remedy")
        for d in differences:
            table.add_row(*(str(getattr(d, name)) for name in ("topic", "key", "expected", "found", "remedy")))
        SafeConsole().print(table)


@app.command()
def replay(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Recorded events, one JSON object a line, in order; - is standard input."),
    ] = None,
    settings: SettingsFile = None,
    until: Annotated[str | None, typer.Option(help="Let the clock run on to this time.")] = None,
    against: Annotated[Path | None, typer.Option(help="Other settings: print where the decisions differ.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", help="Without files: read the topics from this time on.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="With --from: up to this time; by default now.")] = None,
    in_batches: Annotated[
        bool, typer.Option("--batches", help="As live: in the query's own batches, at their times, to the byte.")
    ] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="For people: what is in force from when, for how long; no JSON.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw that in this file, one page of HTML that needs nothing else.")
    ] = None,
) -> None:
    """Step the policies through recorded events and print what they decide, as JSON lines."""
    from deploy.replaying import ReplayRequest, Shown, replay_to_stdout

    request = ReplayRequest(
        load_settings(settings),
        files or [],
        until=_instant("--until", until),
        against=load_settings(against) if against is not None else None,
        since=_instant("--from", since),
        to=_instant("--to", to),
        in_batches=in_batches,
    )
    replay_to_stdout(request, Shown(timeline, picture))


def _instant(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"{option}: '{text}' is not a time such as 2026-11-21T08:00:00Z") from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
