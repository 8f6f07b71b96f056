"""The commands `headgate switch …`: moving brokers to another BookKeeper cluster."""

import logging
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deploy.commands.lazy_imports import load_settings, set_up_logging
from deploy.commands.options import AsJson, Reason, SettingsFile, Timeout
from policies.errors import UserError

if TYPE_CHECKING:
    from deploy.settings.application import Settings
    from deploy.switch.command_runner import CommandRunner

switch_app = typer.Typer(help="Move brokers to another BookKeeper cluster.", no_args_is_help=True)

_NOT_READY = 1

StatusName = Literal["active", "standby", "deprecated"]
"""The values of the switching policy's `ClusterStatus`, repeated here so that `--help` need not import the policy."""

Cluster = Annotated[str, typer.Option(help="Name of the watched cluster whose brokers switch.")]
Name = Annotated[str, typer.Option(help="Name of one of its BookKeeper clusters.")]
Target = Annotated[str, typer.Option(help="Name of the BookKeeper cluster to switch to.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@switch_app.callback()
def switch() -> None:
    """Move brokers to another BookKeeper cluster."""


def _runner(
    cluster: Cluster,
    reason: Reason = "",
    actor: Annotated[str | None, typer.Option(help="Who gives the command; default: user@host.")] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="Commands with the same key are carried out once; default: a new key for each call."),
    ] = None,
    expected_epoch: Annotated[
        int | None, typer.Option(min=0, help="Refuse the command if the switch is at another epoch.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be decided.")] = False,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
    settings: SettingsFile = None,
) -> "CommandRunner":
    """Build the runner of a command that is sent to the loop; its parameters are the options such commands share."""
    from deploy.commands.console import SafeConsole
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
    """Make a command from a function of a runner: add the shared options, and exit with the status it returns."""
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
        typer.Option(
            help="Status to give the cluster. `active` completes a switch whose final status could not be written."
        ),
    ] = None,
) -> int:
    """Register a BookKeeper cluster, identified by what is read at its address. The first one becomes active."""
    from deploy.switch.registration import registration
    from policies.switching.readings import CommandName
    from policies.switching.state import ClusterStatus

    about = registration(runner.settings, runner.options.cluster, name)
    return runner.run(CommandName.REGISTER, **about, status=ClusterStatus(status) if status else None)


@switch_app.command()
@_sends_command
def unregister(runner: "CommandRunner", name: Name, yes: Yes = False) -> int:
    """Remove a BookKeeper cluster that is no longer needed from the registry."""
    from policies.switching.readings import CommandName

    question = f"Forget the BookKeeper cluster {name}?"
    return runner.with_consent(given=yes).run_if_agreed(question, CommandName.UNREGISTER, name=name)


@switch_app.command()
def precheck(
    cluster: Cluster,
    target: Target,
    settings: SettingsFile = None,
    as_json: AsJson = False,
    explain: Annotated[bool, typer.Option("--explain", help="Add what to do about each reason.")] = False,
) -> None:
    """Check from live data whether a switch is safe. Writes nothing. The exit status is 1 if it is not ready."""
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
        float | None, typer.Option(min=0.1, help="Ledgers moved per second; default: a rate measured in a benchmark.")
    ] = None,
    bytes_per_second: Annotated[
        float | None, typer.Option(min=1, help="Bytes copied per second; default: a rate measured in a benchmark.")
    ] = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what a switch would do and how long it would take. Writes nothing. The exit status is 1 if not ready."""
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
        str | None,
        typer.Option(help="Digest of the precheck report you approve. Without it a report is made and you are asked."),
    ] = None,
    yes: Yes = False,
) -> int:
    """Start a switch after a precheck that says ready. With the target of a running switch, continue that one."""
    return runner.with_consent(given=yes).start(target, digest)


@switch_app.command()
def status(
    cluster: Cluster,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Print again after each change, until it is over.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="List the ledgers that failed, with the reasons.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; with --watch one record per line.")] = False,
    settings: SettingsFile = None,
) -> None:
    """Show where a switch stands, what it does next, and what it waits for."""
    from deploy.commands.console import SafeConsole
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
        bool, typer.Option("--with-brokers", help="Move the brokers back too, not only the attribution of ledgers.")
    ] = False,
    yes: Yes = False,
) -> int:
    """Attribute promoted ledgers to the old cluster again. Brokers go on writing to the new one."""
    from policies.switching.readings import CommandName

    brokers = "go back to the old one, too" if with_brokers else "go on writing to the new cluster"
    asking = runner.with_consent(given=yes)
    question = f"Take all promotions back? Brokers {brokers}."
    return asking.run_if_agreed(question, CommandName.ROLLBACK, attribution_only=not with_brokers)


@switch_app.command()
@_sends_command
def abort(runner: "CommandRunner", yes: Yes = False) -> int:
    """End the switch: undo the brokers' move if it is not live yet, else the promotions; stop a clean-up."""
    from policies.switching.readings import CommandName

    return runner.with_consent(given=yes).run_if_agreed("End the switch like this?", CommandName.ABORT)


@switch_app.command()
@_sends_command
def pause(runner: "CommandRunner", yes: Yes = False) -> int:
    """Give no further orders until the switch is resumed. Orders already given may still be carried out."""
    from policies.switching.readings import CommandName

    return runner.with_consent(given=yes).run_if_agreed("Pause the switch?", CommandName.PAUSE)


@switch_app.command()
@_sends_command
def resume(runner: "CommandRunner", yes: Yes = False) -> int:
    """Continue after a pause, a halt or a foreign directive. All open orders are given again."""
    from policies.switching.readings import CommandName

    return runner.with_consent(given=yes).run_if_agreed("Let the switch go on?", CommandName.RESUME)


@switch_app.command()
@_sends_command
def cleanup(
    runner: "CommandRunner",
    execute: Annotated[bool, typer.Option("--execute", help="Delete; without it, only list.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List every ledger to delete, with its znodes.")] = False,
    yes: Yes = False,
) -> int:
    """List what would be deleted from the old cluster; with --execute delete it."""
    if list_all and execute:
        raise UserError("--list: only shows, and --execute deletes: give one of the two")
    if list_all:
        return runner.list_ledgers_to_clean()
    return runner.with_consent(given=yes).clean_up(execute=execute)


@switch_app.command("close-client")
@_sends_command
def close_client(runner: "CommandRunner", name: Name) -> int:
    """Let brokers close their BookKeeper client of a cluster from which nothing is read any more."""
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
    as_json: AsJson = False,
) -> None:
    """Publish all ledger references and the target's ledgers, for `collisions` to join.

    The exit status is 1 if not everything could be read.
    """
    from deploy.switch.inventory_command import publish_inventory

    if not publish_inventory(_load(settings), cluster, target, as_json=as_json):
        raise typer.Exit(_NOT_READY)


@switch_app.command()
def collisions(
    cluster: Cluster,
    inventory: Annotated[str | None, typer.Option(help="Id of the inventory; default: the newest.")] = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Find ledger id collisions: join a published inventory with the target's ledgers in Spark.

    The exit status is 1 if there is a collision.
    """
    from deploy.switch.collisions_command import show_collisions

    if not show_collisions(_load(settings), cluster, inventory, as_json=as_json):
        raise typer.Exit(_NOT_READY)
