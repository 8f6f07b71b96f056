"""The commands `headgate switch …`: moving brokers to another BookKeeper cluster."""

import logging
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deploy.lazily import load_settings, set_up_logging
from policies.errors import UserError

if TYPE_CHECKING:
    from deploy.settings import Settings
    from deploy.switch.command_runner import CommandRunner

switch_app = typer.Typer(help="Move brokers to another BookKeeper cluster.", no_args_is_help=True)

_NOT_READY = 1

StatusName = Literal["active", "standby", "deprecated"]
"""Those a registered cluster may have; the policy is not loaded for their names."""

Cluster = Annotated[str, typer.Option(help="Of the watched clusters, the one whose brokers are to switch.")]
Name = Annotated[str, typer.Option(help="Of its BookKeeper clusters, the one that is meant.")]
Target = Annotated[str, typer.Option(help="Of its BookKeeper clusters, the one to switch to.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
SettingsFile = Annotated[
    Path | None, typer.Option("--settings", "-s", help="Settings file (YAML); the environment wins over it.")
]


@switch_app.callback()
def switch() -> None:
    """Move brokers to another BookKeeper cluster."""


def _runner(
    cluster: Cluster,
    reason: Annotated[str, typer.Option(help="Why, in your words. It is kept with the command.")] = "",
    actor: Annotated[str | None, typer.Option(help="Who asks; by default user@host.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key is the same command, done once; by default a fresh one.")
    ] = None,
    expected_epoch: Annotated[int | None, typer.Option(min=0, help="Refuse at any other epoch.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be decided.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="How many seconds an answer is awaited.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    settings: SettingsFile = None,
) -> "CommandRunner":
    """What all commands that are sent to the loop have in common."""
    from deploy.console import SafeConsole
    from deploy.switch.command_runner import CommandConsole, CommandRunner
    from deploy.switch.loop_client import CommandOptions
    from deploy.switch.precheck_command import watched_cluster

    given = _load(settings)
    watched_cluster(given, cluster)
    options = CommandOptions(
        cluster=cluster,
        actor=actor,
        reason=reason,
        key=idempotency_key,
        expected_epoch=expected_epoch,
        dry_run=dry_run,
    )
    return CommandRunner(given, options, CommandConsole(SafeConsole(), as_json), timeout)


def _sends_command(command: Callable[..., int]) -> Callable[..., None]:
    """Give a command the options that all of these have, and in their place a runner; it ends with a status."""
    common, own = signature(_runner), signature(command)
    own_options = [option for name, option in own.parameters.items() if name != "runner"]

    def run(**given: Any) -> None:
        arguments = {option.name: given.pop(option.name) for option in own_options}
        raise typer.Exit(command(_runner(**given), **arguments))

    cluster, *others = common.parameters.values()
    options = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in (cluster, *own_options, *others)]
    vars(run)["__signature__"] = Signature(options)  # where typer looks for the options
    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


@switch_app.command()
@_sends_command
def register(
    runner: "CommandRunner",
    name: Name,
    status: Annotated[
        StatusName | None,
        typer.Option(help="What it is to be. `active` settles a switch whose status could not be written."),
    ] = None,
) -> int:
    """Make a BookKeeper cluster known, by what is read at its address; the first one is the one that is active."""
    from deploy.switch.registration import registration
    from policies.switching.readings import CommandName
    from policies.switching.state import ClusterStatus

    about = registration(runner.settings, runner.options.cluster, name)
    return runner.run(CommandName.REGISTER, **about, status=ClusterStatus(status) if status else None)


@switch_app.command()
@_sends_command
def unregister(runner: "CommandRunner", name: Name, yes: Yes = False) -> int:
    """Forget a BookKeeper cluster that nothing needs any more."""
    from policies.switching.readings import CommandName

    question = f"Forget the BookKeeper cluster {name}?"
    return runner.with_consent(given=yes).run_if_agreed(question, CommandName.UNREGISTER, name=name)


@switch_app.command()
def precheck(
    cluster: Cluster,
    target: Target,
    settings: SettingsFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say what to do about each reason.")] = False,
) -> None:
    """Say whether a switch is safe, from live data. Writes nothing. Ends with status 1 where it is not ready."""
    from deploy.switch.precheck_command import run_precheck

    set_up_logging()
    logging.getLogger().setLevel(logging.ERROR)  # the report says what a reading came to
    if not run_precheck(load_settings(settings), cluster, target, as_json=as_json, explained=explain):
        raise typer.Exit(_NOT_READY)


@switch_app.command()
def plan(
    cluster: Cluster,
    target: Target,
    ledgers_per_second: Annotated[
        float | None, typer.Option(min=0.1, help="How fast ledgers are moved; by default as measured once.")
    ] = None,
    bytes_per_second: Annotated[
        float | None, typer.Option(min=1, help="How fast entries are copied; by default as measured once.")
    ] = None,
    settings: SettingsFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a switch would do, and how long that takes. Writes nothing. Ends with status 1 where it is not ready."""
    from deploy.switch.plan_command import BYTES_PER_SECOND, LEDGERS_PER_SECOND, Rates, show_plan

    given = _load(settings)
    told = ledgers_per_second is not None or bytes_per_second is not None
    rates = Rates(
        ledgers_per_second or LEDGERS_PER_SECOND,
        bytes_per_second or BYTES_PER_SECOND,
        "as given" if told else "measured on two busy cores",
    )
    if not show_plan(given, cluster, target, rates, as_json=as_json):
        raise typer.Exit(_NOT_READY)


@switch_app.command()
@_sends_command
def start(
    runner: "CommandRunner",
    target: Target,
    digest: Annotated[
        str | None, typer.Option(help="Of the report you have read; without it one is made, shown, and you are asked.")
    ] = None,
    yes: Yes = False,
) -> int:
    """Start a switch, on a precheck that says ready; the same target again drives its switch on."""
    return runner.with_consent(given=yes).start(target, digest)


@switch_app.command()
def status(
    cluster: Cluster,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until it is over, or Ctrl-C.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="The ledgers that failed, each with its reason.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record; with --watch each, one a line.")] = False,
    settings: SettingsFile = None,
) -> None:
    """Show where a switch stands, what it does next, and what it waits for."""
    from deploy.console import SafeConsole
    from deploy.switch.precheck_command import watched_cluster
    from deploy.switch.status_command import show_status

    given = _load(settings)
    watched_cluster(given, cluster)
    if failed and watch:
        raise UserError("--failed: is shown once: leave out --watch")
    if failed:
        from deploy.switch.ledger_views import show_failed

        show_failed(given, cluster, SafeConsole(), as_json=as_json)
        return
    show_status(given, cluster, SafeConsole(), watch=watch, as_json=as_json)


@switch_app.command()
@_sends_command
def rollback(
    runner: "CommandRunner",
    with_brokers: Annotated[
        bool, typer.Option("--with-brokers", help="Send the brokers back too, not only what was attributed.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Attribute what was promoted to the old cluster again; brokers go on writing to the new one."""
    from policies.switching.readings import CommandName

    brokers = "go back to the old one, too" if with_brokers else "go on writing to the new cluster"
    asking = runner.with_consent(given=yes)
    question = f"Take all promotions back? Brokers {brokers}."
    return asking.run_if_agreed(question, CommandName.ROLLBACK, attribution_only=not with_brokers)


@switch_app.command()
@_sends_command
def abort(runner: "CommandRunner", yes: Yes = False) -> int:
    """End the switch and take back what can be: brokers before it is live, promotions after; a clean-up stops."""
    from policies.switching.readings import CommandName

    return runner.with_consent(given=yes).run_if_agreed("End the switch like this?", CommandName.ABORT)


@switch_app.command()
@_sends_command
def pause(runner: "CommandRunner", yes: Yes = False) -> int:
    """Order nothing more until it is resumed; what is ordered already may still be carried out."""
    from policies.switching.readings import CommandName

    return runner.with_consent(given=yes).run_if_agreed("Pause the switch?", CommandName.PAUSE)


@switch_app.command()
@_sends_command
def resume(runner: "CommandRunner", yes: Yes = False) -> int:
    """Go on after a pause, a halt, or somebody else's directive; all that is open is ordered again."""
    from policies.switching.readings import CommandName

    return runner.with_consent(given=yes).run_if_agreed("Let the switch go on?", CommandName.RESUME)


@switch_app.command()
@_sends_command
def cleanup(
    runner: "CommandRunner",
    execute: Annotated[bool, typer.Option("--execute", help="Really delete; without it, only list.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Every ledger to delete, with its znodes.")] = False,
    yes: Yes = False,
) -> int:
    """List what would be deleted from the old cluster; with --execute, delete it."""
    if list_all and execute:
        raise UserError("--list: only shows, and --execute deletes: give one of the two")
    if list_all:
        return runner.list_ledgers_to_clean()
    return runner.with_consent(given=yes).clean_up(execute=execute)


@switch_app.command("close-client")
@_sends_command
def close_client(runner: "CommandRunner", name: Name) -> int:
    """Let brokers close their client of a cluster that nobody reads from any more."""
    from policies.switching.readings import CommandName

    return runner.run(CommandName.CLOSE_CLIENT, name=name)


def _load(settings: Path | None) -> "Settings":
    set_up_logging(answers=True)
    logging.getLogger().setLevel(logging.CRITICAL)  # of ZooKeeper, too, the one error at the end says better
    return load_settings(settings)


@switch_app.command()
def inventory(
    cluster: Cluster,
    target: Target,
    settings: SettingsFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Publish all references, and what the target has, for `collisions`. Ends with status 1 where not all is read."""
    from deploy.switch.inventory_command import publish_inventory

    if not publish_inventory(_load(settings), cluster, target, as_json=as_json):
        raise typer.Exit(_NOT_READY)


@switch_app.command()
def collisions(
    cluster: Cluster,
    inventory: Annotated[str | None, typer.Option(help="Which inventory; by default the newest.")] = None,
    settings: SettingsFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Join a published inventory with the target's ledgers in Spark. Ends with status 1 where any is in the way."""
    from deploy.switch.collisions_command import show_collisions

    if not show_collisions(_load(settings), cluster, inventory, as_json=as_json):
        raise typer.Exit(_NOT_READY)
