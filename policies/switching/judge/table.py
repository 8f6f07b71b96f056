"""The transition table: each command with what may refuse it, and each reading with the row that judges it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from policies.switching.decisions import RejectCode
from policies.switching.facts import SwitchFacts
from policies.switching.fold import Impostor, InventorySeen, Judged, RegistryChecked
from policies.switching.judge import commands, events, stages, undo
from policies.switching.judge.guards import Asked, Refused
from policies.switching.readings import CommandName, SwitchBroker, SwitchCommand, SwitchLedger, SwitchStatus
from policies.switching.state import OrchestratorLease, PrecheckResult
from policies.switching.transition import Transition


class _Command(NamedTuple):
    ask: Callable[[SwitchFacts, SwitchCommand], Iterator[Asked]]
    """Names in order what may refuse it; a guard is asked only if all before let it pass."""
    run: Callable[[SwitchFacts, SwitchCommand, Transition], None]


_COMMANDS: Mapping[CommandName, _Command] = {
    CommandName.REGISTER: _Command(commands.ask_register, commands.register),
    CommandName.UNREGISTER: _Command(commands.ask_unregister, commands.unregister),
    CommandName.PRECHECK: _Command(commands.ask_precheck, commands.precheck),
    CommandName.START: _Command(commands.ask_start, commands.start),
    CommandName.ROLLBACK: _Command(undo.ask_rollback, undo.rollback),
    CommandName.ABORT: _Command(undo.ask_abort, undo.abort),
    CommandName.PAUSE: _Command(commands.ask_pause, commands.pause),
    CommandName.RESUME: _Command(commands.ask_resume, commands.resume),
    CommandName.CLEANUP: _Command(commands.ask_cleanup, commands.cleanup),
    CommandName.END: _Command(undo.ask_end, undo.end),
    CommandName.CLOSE_CLIENT: _Command(commands.ask_close_client, commands.close_client),
}
_READINGS: Mapping[type, Callable[[SwitchFacts, Any, Transition], None]] = {
    OrchestratorLease: events.judge_lease,
    RegistryChecked: commands.judge_registry,
    SwitchBroker: events.judge_broker,
    Impostor: commands.judge_impostor,
    PrecheckResult: commands.judge_precheck,
    InventorySeen: events.judge_inventory,
    SwitchLedger: events.judge_result,
    SwitchStatus: stages.judge_status,
}


def refuse(facts: SwitchFacts, command: SwitchCommand) -> Refused | None:
    """Return why a command is refused; None if it is accepted."""
    if command.expected_epoch not in (None, facts.state.epoch):
        sentence = f"the epoch is {facts.state.epoch}, not {command.expected_epoch} as the command expects"
        return Refused(RejectCode.INVALID_TRANSITION, sentence)
    asked = _COMMANDS[command.command].ask(facts, command)
    return next((Refused(code, str(why)) for code, why in asked if why), None)


def judge(facts: SwitchFacts, event: Judged, step: Transition) -> None:
    """Write what follows from an event: a reading, or a command that is not refused."""
    if isinstance(event, SwitchCommand):
        _COMMANDS[event.command].run(facts, event, step)
    else:
        _READINGS[type(event)](facts, event, step)
