"""The rows of the switch's transition table as pure functions from facts to changes. Nothing is written here.

Where to look: `commands` judges those that carry a switch forward, `undo` those that lead out of it. `observations`
judges the registry and its commands, lease, brokers and inventories, `results` the results of executors, `stages` the
automatic progress. All of them check `guards`; `invariants` must hold after each transition, whatever the guards let
through.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from policies.switching.events import BrokerSeen, InventorySeen, LedgerResult, StatusResult
from policies.switching.facts import SwitchFacts
from policies.switching.fold import FoldedEvent, Impostor, RegistryChecked
from policies.switching.judge import commands, observations, results, stages, undo
from policies.switching.judge.results import Change
from policies.switching.readings import CommandName, SwitchCommand
from policies.switching.state import OrchestratorLease, PrecheckResult

_COMMANDS: Mapping[CommandName, Callable[[SwitchFacts, SwitchCommand], Iterator[Change]]] = {
    CommandName.REGISTER: observations.register,
    CommandName.UNREGISTER: observations.unregister,
    CommandName.PRECHECK: commands.precheck,
    CommandName.START: commands.start,
    CommandName.ROLLBACK: undo.rollback,
    CommandName.ABORT: undo.abort,
    CommandName.PAUSE: commands.pause,
    CommandName.RESUME: commands.resume,
    CommandName.CLEANUP: commands.cleanup,
    CommandName.END: undo.end,
    CommandName.CLOSE_CLIENT: observations.close_client,
}
_OBSERVATIONS: Mapping[type, Callable[[SwitchFacts, Any], Iterator[Change]]] = {
    OrchestratorLease: observations.judge_lease,
    RegistryChecked: observations.judge_registry,
    BrokerSeen: observations.judge_broker,
    Impostor: observations.judge_impostor,
    PrecheckResult: commands.judge_precheck,
    InventorySeen: observations.judge_inventory,
    LedgerResult: results.judge_result,
    StatusResult: stages.judge_status,
}


def judge(facts: SwitchFacts, event: FoldedEvent) -> Iterator[Change]:
    """Return the changes that follow from an event."""
    if isinstance(event, SwitchCommand):
        return _COMMANDS[event.command](facts, event)
    return _OBSERVATIONS[type(event)](facts, event)
