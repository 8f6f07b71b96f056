"""Folds commands of people; commands with the same idempotency key are the same command."""

from collections.abc import Callable

from msgspec.structs import replace

from policies.switching.events import (
    Abort,
    Cleanup,
    CloseClient,
    Command,
    Event,
    Pause,
    Precheck,
    Register,
    Resume,
    Rollback,
    Start,
    Unregister,
)
from policies.switching.readings import CommandName, SwitchCommand
from policies.switching.state import SwitchingState

REMEMBERED_COMMANDS = 1000


def command_of(given: SwitchCommand) -> Event:
    """Names that a command lacks are empty, and so found nowhere."""
    args, name, target = given.args, given.args.name or "", given.args.target or ""
    dry_run = given.command is CommandName.CLEANUP if given.dry_run is None else given.dry_run
    key, epoch = given.idempotency_key, given.expected_epoch
    match given.command:
        case CommandName.REGISTER:
            identity = (args.instance_id, args.root) if name and args.uri else (None, None)
            return Register(
                key=key, dry_run=dry_run, expected_epoch=epoch, name=name, uri=args.uri or "",
                instance_id=identity[0], root=identity[1], status=args.status,
            )  # fmt: skip
        case CommandName.UNREGISTER:
            return Unregister(key=key, dry_run=dry_run, expected_epoch=epoch, name=name)
        case CommandName.PRECHECK:
            return Precheck(key=key, dry_run=dry_run, expected_epoch=epoch, target=target)
        case CommandName.START:
            return Start(key=key, dry_run=dry_run, expected_epoch=epoch, target=target, digest=given.precheck_digest)
        case CommandName.ROLLBACK:
            return Rollback(key=key, dry_run=dry_run, expected_epoch=epoch, attribution_only=args.attribution_only)
        case CommandName.CLOSE_CLIENT:
            return CloseClient(key=key, dry_run=dry_run, expected_epoch=epoch, name=name)
        case _:
            return _OF_THE_SWITCH[given.command](key=key, dry_run=dry_run, expected_epoch=epoch)


_OF_THE_SWITCH: dict[CommandName, Callable[..., Event]] = {
    CommandName.ABORT: Abort,
    CommandName.PAUSE: Pause,
    CommandName.RESUME: Resume,
    CommandName.CLEANUP: Cleanup,
}
"""Commands that are about nothing but the switch."""


def remember(state: SwitchingState, command: Command) -> SwitchingState:
    """The state with one more command that was heard."""
    return replace(state, commands=(*state.commands, command.key)[-REMEMBERED_COMMANDS:])
