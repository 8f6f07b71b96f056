"""The commands `headgate switch …`, which move brokers to another BookKeeper cluster."""

import logging
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deploy.console.options import AsJson, Reason, SettingsFile, Timeout, load_asked, show_examples
from policies.units import UserError

if TYPE_CHECKING:
    from deploy.switch.loop_commands import CommandRunner

switch_app = typer.Typer(name="switch", help="Move brokers to another BookKeeper cluster.", no_args_is_help=True)

_NOT_READY = 1
_LOGGED = logging.CRITICAL
"""The command's own error at the end is clearer than ZooKeeper's."""

Cluster = Annotated[str, typer.Option(help="Name of the watched cluster whose brokers switch.")]
Name = Annotated[str, typer.Option(help="Name of one of its BookKeeper clusters.")]
Target = Annotated[str, typer.Option(help="Name of the BookKeeper cluster to switch to.")]


@switch_app.callback()
def switch() -> None:
    """Move brokers to another BookKeeper cluster."""


def _build_runner(
    cluster: Cluster,
    reason: Reason = "",
    actor: Annotated[str | None, typer.Option(help="The operator; default: user@host.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Commands with the same key run once; default: a new key for each call.")
    ] = None,
    expected_epoch: Annotated[int | None, typer.Option(min=0, help="Reject the command at another epoch.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only preview the decisions.")] = False,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
    settings: SettingsFile = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> "CommandRunner":
    """Build the runner of a command. Its parameters are the options that all commands to the loop share."""
    from deploy.console.terminal import SafeConsole
    from deploy.switch.loop_commands import CommandRunner

    given = load_asked(settings, _LOGGED)
    given.watched(cluster)
    return CommandRunner(
        settings=given, cluster=cluster, console=SafeConsole(), timeout_seconds=timeout, actor=actor, reason=reason,
        key=idempotency_key, expected_epoch=expected_epoch, dry_run=dry_run, as_json=as_json, yes=yes,
    )  # fmt: skip


def _loop_command(name: str, *examples: str, asks: bool = True) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Make a command of a function that takes a runner: add the shared options, and exit with its status.

    Each of `examples` has the options of an example in its help.
    """
    lines = [f"headgate switch {name} --cluster messaging {options}".rstrip() for options in examples or ("",)]

    def register_command(command: Callable[..., int]) -> Callable[..., int]:
        own = [option for each, option in signature(command).parameters.items() if each != "runner"]

        def run(**given: Any) -> None:
            arguments = {option.name: given.pop(option.name) for option in own}
            raise typer.Exit(command(_build_runner(**given), **arguments))

        cluster, *others, yes = signature(_build_runner).parameters.values()
        shared = [cluster, *own, *others, *([yes] if asks else [])]
        options = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in shared]
        vars(run)["__signature__"] = Signature(options)  # typer reads the options from it
        run.__annotations__ = {option.name: option.annotation for option in options}
        run.__doc__ = command.__doc__
        switch_app.command(name, epilog=show_examples(*lines))(run)
        return command

    return register_command


@_loop_command("register", "--name new", asks=False)
def register(
    runner: "CommandRunner",
    name: Name,
    status: Annotated[
        Literal["active"] | None, typer.Option(help="Brokers write to it, but the registry has no active cluster.")
    ] = None,
) -> int:
    """Register a BookKeeper cluster. Its metadata at its address identify it; the first one becomes active."""
    from deploy.switch.precheck import identify_cluster

    return runner.run("register", **identify_cluster(runner.settings, runner.cluster, name), status=status)


@_loop_command("unregister", "--name old")
def unregister(runner: "CommandRunner", name: Name) -> int:
    """Remove a BookKeeper cluster from the registry."""
    question = f"Remove the BookKeeper cluster {name} from the registry?"
    return runner.confirm_and_run(question, "unregister", name=name)


@switch_app.command(epilog=show_examples("headgate switch precheck --cluster messaging --target new --explain"))
def precheck(
    cluster: Cluster,
    target: Target,
    settings: SettingsFile = None,
    as_json: AsJson = False,
    explain: Annotated[bool, typer.Option("--explain", help="Add the remedy of each finding.")] = False,
) -> None:
    """Check from live data whether a switch is safe. Writes nothing. The exit status is 1 if it is not ready."""
    from deploy.switch.precheck import run_precheck

    given = load_asked(settings, logging.ERROR)  # the report has every failed reading
    if not run_precheck(given, cluster, target, as_json=as_json, explained=explain):
        raise typer.Exit(_NOT_READY)


@switch_app.command(epilog=show_examples("headgate switch plan --cluster messaging --target new"))
def plan(
    cluster: Cluster,
    target: Target,
    settings: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Preview a switch and its duration. Writes nothing. The exit status is 1 if the target is not ready."""
    from deploy.switch.precheck import show_plan

    given = load_asked(settings, _LOGGED)
    if not show_plan(given, cluster, target, as_json=as_json):
        raise typer.Exit(_NOT_READY)


@_loop_command("start", "--target new --dry-run", "--target new")
def start(
    runner: "CommandRunner",
    target: Target,
    digest: Annotated[
        str | None,
        typer.Option(
            help="Digest of the precheck report that you approve. Without it, a report is made and you are asked."
        ),
    ] = None,
) -> int:
    """Start a switch after a precheck that found the target ready. A live switch to the target is driven on."""
    return runner.start(target, digest)


@switch_app.command(
    epilog=show_examples(
        "headgate switch status --cluster messaging --watch", "headgate switch status --cluster messaging --failed"
    )
)
def status(
    cluster: Cluster,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Print again after each change, until the switch is over.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="List the ledgers that failed, with the reasons.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; with --watch one record per line.")] = False,
    settings: SettingsFile = None,
) -> None:
    """Show the stage and the next step of a switch. It also names what the switch waits for."""
    from deploy.console.terminal import SafeConsole
    from deploy.switch.status import has_failed, show_ledgers, show_status

    given = load_asked(settings, _LOGGED)
    given.watched(cluster)
    if failed and watch:
        raise UserError("--failed: it is printed once; leave out --watch")
    if failed:
        show_ledgers(given, cluster, has_failed, "No ledger failed.", as_json=as_json)
    else:
        show_status(given, cluster, SafeConsole(), watch=watch, as_json=as_json)


@_loop_command("rollback", "--with-brokers")
def rollback(
    runner: "CommandRunner",
    with_brokers: Annotated[
        bool, typer.Option("--with-brokers", help="Move the brokers back too, not only the attribution of ledgers.")
    ] = False,
) -> int:
    """Attribute promoted ledgers to the old cluster again. Brokers go on writing to the new one."""
    brokers = "go back to the old one, too" if with_brokers else "go on writing to the new cluster"
    question = f"Take all promotions back? Brokers {brokers}."
    return runner.confirm_and_run(question, "rollback", attribution_only=not with_brokers)


@_loop_command("abort")
def abort(runner: "CommandRunner") -> int:
    """Send the brokers back, before the switch is live. After that use `rollback`, and after its window `end`."""
    return runner.confirm_and_run("Send the brokers back?", "abort")


@_loop_command("pause")
def pause(runner: "CommandRunner") -> int:
    """Give no further orders until the switch is resumed. Orders already given may still be carried out."""
    return runner.confirm_and_run("Pause the switch?", "pause")


@_loop_command("resume")
def resume(runner: "CommandRunner") -> int:
    """Continue after a pause, a halt or a foreign directive. All open orders are repeated."""
    return runner.confirm_and_run("Resume the switch?", "resume")


@_loop_command("cleanup", "", "--execute")
def cleanup(
    runner: "CommandRunner",
    execute: Annotated[bool, typer.Option("--execute", help="Delete; without it, only list.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List every ledger to delete, with its znodes.")] = False,
) -> int:
    """List the ledgers to delete from the old cluster. With --execute they are deleted."""
    if list_all and execute:
        raise UserError("--list: it only lists, and --execute deletes; give one of the two")
    if list_all:
        from deploy.switch.status import is_to_clean, show_ledgers

        otherwise = "Nothing is promoted, so there is nothing to delete."
        show_ledgers(runner.settings, runner.cluster, is_to_clean, otherwise, as_json=runner.as_json)
        return 0
    return runner.clean_up(execute=execute)


@_loop_command("end")
def end(
    runner: "CommandRunner",
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the copied ledgers from the old cluster, which cannot be undone.")
    ] = False,
) -> int:
    """End a switch in hold, or one that cannot be taken back. Copied ledgers stay in the old cluster."""
    question = "Delete the copied ledgers now? This cannot be undone." if delete else "End the switch, and keep all?"
    return runner.confirm_and_run(question, "end", delete=delete)


@_loop_command("close-client", "--name old", asks=False)
def close_client(runner: "CommandRunner", name: Name) -> int:
    """Let brokers close their client of a BookKeeper cluster. No broker may read that cluster any more."""
    return runner.run("close-client", name=name)
