"""The commands of `headgate`, each with its options; `deploy.cli` is the entry point that runs them."""

import logging
import pydoc
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deploy.commands.topics import checkpoint_app, topics_app
from deploy.console.options import (
    AsJson,
    ClusterFilter,
    PolicyFilter,
    Reason,
    SettingsFile,
    Timeout,
    Verbose,
    Watch,
    complete_clusters,
    complete_policies,
    load_asked,
    load_settings,
    print_sentence,
    read_instant,
    set_up_logging,
    show_examples,
)
from deploy.policy_commands.apps import command_apps
from policies.units import UserError

if TYPE_CHECKING:
    from deploy.settings.application import Settings

_EXIT_STATUS = (
    "Exit status: 0 done or all good; 1 something to fix, refused, or an error of Headgate; 2 a mistake in options, "
    "settings or environment; 3 the loop gave no answer in time (switch); 130 interrupted."
)


app = typer.Typer(
    name="headgate",
    help="A control loop for the storage under Kafka and Pulsar fleets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: flags without a type, and no frames in a pipe
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_STATUS,
)
app.add_typer(topics_app, name="topics")
app.add_typer(checkpoint_app, name="checkpoint")
for commands in command_apps():
    app.add_typer(commands)


_PAGES = Path(__file__).parents[1] / "published"
"""The reference pages that an installation carries."""

PausedCluster = Annotated[
    str | None,
    typer.Argument(help="Name of a watched cluster; default: all of them.", autocompletion=complete_clusters),
]


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


@app.command(epilog=show_examples("headgate up", "headgate up --data-dir ~/headgate --brokers 3"))
def up(
    settings: SettingsFile = None,
    brokers: Annotated[int | None, typer.Option(min=1, max=9, help="Number of brokers to start.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder for all data; a second `up` with the same folder resumes.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of /metrics and the status page; 0 takes a free one.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Start Kafka on this machine and run the loop on it. It watches the disks that this Kafka uses."""
    from deploy.console.terminal import show_progress
    from deploy.processes.stack import run_embedded

    set_up_logging(verbose=verbose, runs=True)
    run_embedded(lambda: _with_options(load_settings(settings), brokers, data_dir, port), show_progress())


def _with_options(settings: "Settings", brokers: int | None, data_dir: Path | None, port: int | None) -> "Settings":
    update: dict[str, object] = {}
    if brokers is not None:
        update["embedded"] = settings.embedded.model_copy(update={"brokers": brokers})
    if data_dir is not None:
        update["data_dir"] = data_dir.absolute()
    if port is not None:
        update["http"] = settings.http.model_copy(update={"port": port})
    return settings.model_copy(update=update)


@app.command(epilog=show_examples("headgate demo"))
def demo() -> None:
    """Watch a two-minute demo on brokers of its own.

    A disk fills up, and producers are slowed, stopped and released.

    A Kafka broker, producers, the whole loop and Kafka's client quotas are real. A folder stands for the small disk.

    It needs Java 17, about 2 GB of memory and, the first time, the network to fetch 55 MB of jars.

    It listens on loopback only, reads no settings, and leaves nothing behind. Ctrl-C ends it at any time.

    Without a terminal it prints plain lines. The exit status is 0 if the demo ran to its end.
    """
    from deploy.demo.run import DemoFailedError, run_demo

    try:
        raise typer.Exit(run_demo())
    except DemoFailedError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command(epilog=show_examples("headgate run -s headgate.yaml", "HEADGATE_SETTINGS=headgate.yaml headgate run"))
def run(settings: SettingsFile = None, verbose: Verbose = False) -> None:
    """Run the whole loop on your Kafka, in one process. Its parts are collectors, query, actuators and exporter."""
    set_up_logging(verbose=verbose, runs=True)
    load = partial(_load_watching, settings)
    load()  # report a mistake before Spark is even imported
    from deploy.console.terminal import show_progress
    from deploy.processes.stack import run_loop

    run_loop(load, show_progress())


def _load_with_kafka(file: Path | None) -> "Settings":
    settings = load_settings(file)
    settings.loop_kafka()
    return settings


def _load_watching(file: Path | None) -> "Settings":
    settings = _load_with_kafka(file)
    from deploy.processes.parts import require_watched

    require_watched(settings)
    return settings


def _run_part(load: Callable[[Path | None], "Settings"], file: Path | None, name: str) -> None:
    given = load(file)  # report a mistake before the clients are imported
    from deploy.processes import stack

    stack.run_renewed(partial(load, file), given, getattr(stack, name))


@app.command(epilog=show_examples("headgate collect -s headgate.yaml"))
def collect(settings: SettingsFile = None, verbose: Verbose = False) -> None:
    """Run only the collectors, which read the watched clusters."""
    set_up_logging(verbose=verbose, runs=True)
    _run_part(_load_watching, settings, "run_collectors")


@app.command(
    epilog=show_examples("headgate decide -s headgate.yaml", "headgate decide -s headgate.yaml --print-submit")
)
def decide(
    settings: SettingsFile = None,
    print_submit: Annotated[
        bool, typer.Option("--print-submit", help="Print the spark-submit command line that runs the query, and exit.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Run only the Spark query, which makes the decisions."""
    set_up_logging(verbose=verbose, runs=not print_submit)
    if print_submit:
        from deploy.query.components import submit_line

        typer.echo(submit_line(_load_with_kafka(settings), settings))
    else:
        _run_part(_load_with_kafka, settings, "run_query")


@app.command(epilog=show_examples("headgate export -s headgate.yaml"))
def export(settings: SettingsFile = None, verbose: Verbose = False) -> None:
    """Run only the exporter of metrics and the status page. It also notifies Alertmanager."""
    set_up_logging(verbose=verbose, runs=True)
    _run_part(_load_with_kafka, settings, "run_exporter")


@app.command(epilog=show_examples("headgate act -s headgate.yaml", "headgate act -s headgate.yaml --release"))
def act(
    settings: SettingsFile = None,
    release: Annotated[
        bool, typer.Option("--release", help="Put back the quotas and limits from before Headgate, and exit.")
    ] = False,
    forget: Annotated[
        str | None,
        typer.Option(
            metavar="ENTITY", help="With --release: its quota is the original. As it was printed, such as 'user=alice'."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Run only the actuators, which carry decisions out. Stopping them undoes nothing."""
    set_up_logging(verbose=verbose, runs=not release)
    if release:
        given = _load_with_kafka(settings)
        from deploy.processes import parts

        for sentence in parts.release(given, forget):
            print_sentence(sentence)
        print_sentence("An actuator that still runs would set its own again.")
    elif forget is not None:
        raise UserError("--forget needs --release")
    else:
        _run_part(_load_with_kafka, settings, "run_actuators")


@app.command(
    epilog=show_examples(
        "headgate status", "headgate status --cluster payments --watch", "headgate status --cluster 'dev-*' --json"
    )
)
def status(
    cluster: ClusterFilter = None,
    policy: PolicyFilter = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
    watch: Watch = False,
) -> None:
    """Show the wanted and the set values of each cluster. Pauses and firing alerts are shown, too."""
    from deploy.inspection.commands import Shown, show_status

    set_up_logging(answers=not watch or sys.stdout.isatty())  # a log line would break the screen
    show_status(load_asked(settings), Shown(cluster, policy, as_json, watch))


@app.command(
    epilog=show_examples("headgate decisions payments", "headgate decisions --policy isolation --cluster messaging")
)
def decisions(
    subject: Annotated[
        str,
        typer.Argument(help="A subject or a prefix of it, such as a cluster's name.", autocompletion=complete_clusters),
    ] = "",
    cluster: ClusterFilter = None,
    policy: PolicyFilter = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
    watch: Watch = False,
) -> None:
    """Show the decisions in force, each with its explanation."""
    from deploy.inspection.commands import Shown, show_decisions

    set_up_logging(answers=not watch or sys.stdout.isatty())  # a log line would break the screen
    show_decisions(load_asked(settings), subject, Shown(cluster, policy, as_json, watch))


@app.command(epilog=show_examples("headgate alerts", "headgate alerts --policy throttle --resolved"))
def alerts(
    cluster: ClusterFilter = None,
    policy: PolicyFilter = None,
    settings: SettingsFile = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Also show resolved alerts.")] = False,
    as_json: AsJson = False,
    watch: Watch = False,
) -> None:
    """Show which alerts fire, the most severe first."""
    from deploy.inspection.commands import Shown, show_alerts

    set_up_logging(answers=not watch or sys.stdout.isatty())  # a log line would break the screen
    show_alerts(load_asked(settings), Shown(cluster, policy, as_json, watch), resolved=resolved)


@app.command(
    epilog=show_examples(
        "headgate explain payments", "headgate explain payments --at 14:45", "headgate explain payments --at '10m ago'"
    )
)
def explain(
    subject: Annotated[
        str,
        typer.Argument(
            help="Subject of the decision, as `headgate decisions` prints it.", autocompletion=complete_clusters
        ),
    ],
    settings: SettingsFile = None,
    at: Annotated[
        str | None, typer.Option(help="As of this time: 14:45 (local), '10m ago', 2026-11-21T08:00:00Z; default: now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show why something was decided. The values in force come first; numbers, readings and reports follow."""
    from deploy.inspection.commands import show_explanation

    show_explanation(load_asked(settings), subject, read_instant("--at", at), as_json=as_json)


@app.command(
    epilog=show_examples(
        'headgate pause throttle payments --for 2h --reason "disks are swapped"',
        "headgate pause throttle payments --release",
    )
)
def pause(
    policy: Annotated[
        str,
        typer.Argument(help="Such as throttle or isolation; the shell completes it.", autocompletion=complete_policies),
    ],
    cluster: PausedCluster = None,
    length: Annotated[
        str, typer.Option("--for", help="Length of the pause, such as 2h; the policy then resumes by itself.")
    ] = "1h",
    reason: Reason = "",
    keep: Annotated[
        bool,
        typer.Option(
            "--keep/--release",
            help="Leave everything as it is set, or take back what Headgate has set, which asks first.",
        ),
    ] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --release: do not ask.")] = False,
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """Pause a policy: its actuators change nothing. It keeps watching, and no alert begins or ends meanwhile.

    What Headgate has set (quotas, for example) stays as it is, unless you pass --release.
    """
    from deploy.inspection.requests import PauseRequest, command_pause
    from policies.units import parse_duration

    loaded = load_asked(settings)
    try:
        wanted = parse_duration(length)
    except ValueError as error:
        raise UserError(f"--for: {error}") from None
    if not wanted:
        raise UserError("--for: must be longer than 0s; `headgate resume` ends a pause")
    for said in command_pause(loaded, PauseRequest(policy, cluster, wanted, reason, timeout, keep, yes)):
        print_sentence(said.explanation)


@app.command(epilog=show_examples("headgate resume throttle payments"))
def resume(
    policy: Annotated[str, typer.Argument(help="The policy that is paused.", autocompletion=complete_policies)],
    cluster: PausedCluster = None,
    reason: Reason = "",
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """End a pause. The policy's decisions are carried out again, and its alerts fire."""
    from deploy.inspection.requests import PauseRequest, command_pause

    for said in command_pause(load_asked(settings), PauseRequest(policy, cluster, None, reason, timeout)):
        print_sentence(said.explanation)


@app.command(epilog=show_examples("headgate check headgate.yaml", "headgate check headgate.yaml --effective"))
def check(
    file: Annotated[Path | None, typer.Argument(help="The settings file; the same as --settings.")] = None,
    settings: SettingsFile = None,
    effective: Annotated[
        bool, typer.Option("--effective", help="Print the resulting settings of each cluster; secrets are masked.")
    ] = False,
) -> None:
    """Check a settings file: every mistake with its line. Settings that are probably unintended are warnings."""
    if file is not None and settings is not None and file != settings:
        raise UserError(f"two files are named, {file} and {settings}: check one after the other")
    set_up_logging()
    from deploy.commands.check import check as check_file

    check_file(file or settings, effective=effective)


@app.command(epilog=show_examples("headgate doctor -s headgate.yaml", "headgate doctor -s headgate.yaml --part act"))
def doctor(
    settings: SettingsFile = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="Check only what this part needs: collect, collect-POLICY, decide, export or act. Repeatable; "
            "default: all parts of `run`.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every system that the settings name. Each check passes, is slow, lacks a permission, or fails.

    It changes nothing, and prints a remedy for each problem. The exit status is 1 if there is anything to fix.
    """
    from deploy.doctor import examine

    given = load_asked(settings, logging.CRITICAL)  # the results contain every problem
    if not examine(given, tuple(part or ()), as_json=as_json):
        raise typer.Exit(1)


@app.command(epilog=show_examples("headgate docs alerts"))
def docs(
    page: Annotated[
        Literal["settings", "alerts", "metrics", "events"], typer.Argument(help="Settings, alerts, metrics or events.")
    ],
) -> None:
    """Show a reference page of this version."""
    folder = _PAGES if _PAGES.exists() else Path(__file__).parents[2] / "docs" / "reference"
    pydoc.pager((folder / ("settings.yaml" if page == "settings" else f"{page}.md")).read_text(encoding="utf-8"))


@app.command(
    epilog=show_examples(
        "headgate replay -s headgate.yaml events.jsonl", "headgate replay -s headgate.yaml --from '2h ago' --timeline"
    )
)
def replay(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help="Files with recorded events, one JSON object per line, in order; - is standard input."
        ),
    ] = None,
    settings: SettingsFile = None,
    until: Annotated[str | None, typer.Option(help="After the last event, let the clock run on to this time.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="A second settings file: print where its decisions differ.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", help="Instead of files: read the loop's topics from this time on.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="With --from: read up to this time; default: now.")] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Instead of JSON, show what was in force from when to when.")
    ] = False,
) -> None:
    """Run the policies over recorded events. It prints their decisions as JSON lines."""
    from deploy.whatif import replay_to_stdout

    replay_to_stdout(
        load_settings(settings) if since is None else load_asked(settings),
        files or [],
        until=read_instant("--until", until),
        against=load_settings(against) if against is not None else None,
        since=read_instant("--from", since),
        to=read_instant("--to", to),
        timeline=timeline,
    )
