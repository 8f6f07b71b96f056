"""Dispatch table: from each kind of event to the rule that judges it."""

from collections.abc import Callable, Iterator
from typing import Any

from policies.switching.decisions import RejectCode
from policies.switching.events import (
    Abort,
    BrokerSeen,
    Cleanup,
    CloseClient,
    Command,
    InventorySeen,
    LeaseSeen,
    LedgerResult,
    Pause,
    Precheck,
    Prechecked,
    Register,
    Resume,
    Rollback,
    Start,
    StatusResult,
    Unregister,
)
from policies.switching.facts import SwitchFacts
from policies.switching.fold import News
from policies.switching.fold.clusters import Impostor
from policies.switching.fold.registry import RegistryAgain
from policies.switching.judge import commands, inventory, observed, results, stages, ways_out
from policies.switching.judge.changes import Change, Reject

_ROWS: dict[type[Any], Callable[[SwitchFacts, Any], Iterator[Change]]] = {
    Register: commands.register,
    Unregister: commands.unregister,
    Precheck: commands.precheck,
    Start: commands.start,
    Rollback: ways_out.rollback,
    Abort: ways_out.abort,
    Pause: ways_out.pause,
    Resume: ways_out.resume,
    Cleanup: ways_out.cleanup,
    CloseClient: commands.close_client,
    LeaseSeen: observed.lease,
    RegistryAgain: observed.registry,
    BrokerSeen: observed.broker,
    Impostor: observed.impostor,
    Prechecked: observed.prechecked,
    InventorySeen: inventory.inventory,
    LedgerResult: results.ledger_result,
    StatusResult: stages.status_result,
}


def judge(facts: SwitchFacts, news: News) -> Iterator[Change]:
    """What follows from news."""
    return _ROWS[type(news)](facts, news)


def wrong_epoch(facts: SwitchFacts, asked: Command) -> Reject | None:
    """A command that was meant for another epoch than the present one."""
    if asked.expected_epoch in (None, facts.state.epoch):
        return None
    sentence = f"the epoch is {facts.state.epoch}, not {asked.expected_epoch} as the command expects"
    return commands.reject(asked, RejectCode.INVALID_TRANSITION, sentence)
