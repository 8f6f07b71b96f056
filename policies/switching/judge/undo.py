"""How an operator leaves a switch: `abort` before it is live, `rollback` in its window, `end`. Rows 18, 27 and 31.

In every stage at least one command is accepted, and a refusal names it (`holds.explain_refusal`).
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.results import (
    Advance,
    Change,
    DecisionDraft,
    PutTask,
    TakeInventory,
    UpdateSwitch,
    reject,
)
from policies.switching.readings import SwitchCommand
from policies.switching.state import (
    REVERSIBLE,
    UNDELETED,
    UNDONE,
    UNREVERTED,
    LedgerStage,
    LedgerTask,
    Switch,
    SwitchAction,
    SwitchStage,
)
from policies.units import counted_with, format_instant, from_millis, name_some

_NOT_PROMOTED = frozenset({LedgerStage.PENDING, LedgerStage.COPYING, LedgerStage.BUILT})
_UNFINISHED = _NOT_PROMOTED | {LedgerStage.PROMOTING}
_COMMANDED, _ABORTED = SwitchReason.COMMANDED, SwitchReason.ABORTED
_INVALID = RejectCode.INVALID_TRANSITION
_NOT_TAKEN_BACK = {
    SwitchStage.TRIGGERED: "the switch is not live: nothing is attributed yet",
    SwitchStage.ROLLBACK: "it is being rolled back",
    SwitchStage.DONE_WITH_FAILURES: "the switch is done_with_failures: once it is over, another one leads back",
}


# --- rollback (row 18)


def rollback(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 18: take promotions back and, if asked, send the brokers back."""
    switch, away = facts.state.switch, facts.state.active() != facts.state.committed()
    if switch is None or (switch.stage is SwitchStage.REJECTED and not away):
        yield reject(command, _INVALID, "there is no switch to roll back")
    elif why := guards.refuse_contested(facts):
        yield reject(command, RejectCode.CONTESTED, why)
    elif switch.stage is SwitchStage.DONE or _was_done(facts, switch):
        is_known = facts.state.entry(switch.source) is not None
        way = f"`start --target {switch.source}`" if is_known else f"`register` {switch.source} again, and a switch"
        yield reject(command, _INVALID, f"the switch is done: {way} leads back")
    elif switch.stage in UNDONE or switch.stage is SwitchStage.REJECTED:
        yield from _complete_rollback(facts, switch, command)
    elif switch.stage in _NOT_TAKEN_BACK:
        yield reject(command, _INVALID, _NOT_TAKEN_BACK[switch.stage])
    else:
        yield from _roll_back_live(facts, switch, command)


def _was_done(facts: SwitchFacts, switch: Switch) -> bool:
    """Whether an operator gave up the ledgers that stayed behind, after the registry had the target as active."""
    return switch.stage is SwitchStage.ABORTED and facts.state.committed() == switch.target


def _roll_back_live(facts: SwitchFacts, live: Switch, command: SwitchCommand) -> Iterator[Change]:
    """Take back the promotions of a live switch, while the rollback window is open."""
    attribution_only = command.args.attribution_only
    if why := guards.refuse_closed_window(facts):
        yield reject(command, RejectCode.WINDOW_EXPIRED, why)
    elif live.stage is SwitchStage.CLEANUP:
        yield reject(command, RejectCode.CLEANUP_STARTED, "the clean-up has begun")
    elif why := guards.refuse_begun_deletion(facts):
        yield reject(command, RejectCode.CLEANUP_STARTED, why)
    elif not attribution_only and (why := guards.refuse_return(facts, live.home)):
        yield reject(command, RejectCode.COLLISION, f"brokers cannot go back: {why}")
    else:
        sentence = f"the switch to {live.target} is rolled back"
        yield from _roll_back(facts, sentence, _COMMANDED, attribution_only=attribution_only)


def _roll_back(facts: SwitchFacts, sentence: str, reason: SwitchReason, *, attribution_only: bool) -> Iterator[Change]:
    """Begin a rollback: revert every promotion, and direct the brokers home unless `attribution_only`."""
    fields: dict[str, object] = {"halted": "", "paused": False, "blocked": "", "confirm_ms": -1}
    fields["attribution_only"] = attribution_only
    yield Advance(SwitchStage.ROLLBACK, reason, sentence, fields)
    for task in facts.plan.at(*_NOT_PROMOTED):
        # It was never promoted, so there is nothing to revert. A result that is still under way is late.
        reverted = replace(task, stage=LedgerStage.REVERTED, awaiting=SwitchAction.NONE, tries=0)
        yield PutTask(reverted, numbered=True)
    yield from _reset_tasks(facts.plan.at(*UNREVERTED))


def _reset_tasks(tasks: Iterable[LedgerTask]) -> Iterator[Change]:
    """Give ledgers a new number and all their tries, so that a revert can be ordered."""
    for task in list(tasks):
        yield PutTask(replace(task, awaiting=SwitchAction.NONE, tries=0), numbered=True)


def _complete_rollback(facts: SwitchFacts, switch: Switch, command: SwitchCommand) -> Iterator[Change]:
    """After a rollback: direct home the brokers that stayed, or retry the promotions that were not taken back."""
    home = facts.state.committed()
    left = [t for t in facts.plan.at(*UNREVERTED) if not guards.refuse_missing_source(facts, t)]
    away = home is not None and facts.state.active() != home
    if not command.args.attribution_only and away and home is not None:
        if why := guards.refuse_return(facts, home):
            yield reject(command, RejectCode.COLLISION, f"brokers cannot go back: {why}")
            return
        fields = {"attribution_only": False, "brokers_from": home, "confirm_ms": -1, "paused": False}
        yield Advance(SwitchStage.ROLLBACK, _COMMANDED, f"brokers return to {home}", fields)
        yield from _reset_tasks(left)
    elif left:
        sentence = f"{counted_with(len(left), 'ledger', 'is', 'are')} tried again"
        yield Advance(SwitchStage.ROLLBACK, _COMMANDED, sentence, {"confirm_ms": -1, "paused": False})
        yield from _reset_tasks(left)
    else:
        back = f"; with brokers, it brings them back to {home}" if away else ""
        yield reject(command, _INVALID, f"the switch to {switch.target} is {switch.stage.value} already{back}")


# --- abort (row 27)


def abort(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 27: before a switch is live only brokers are taken back, once the ids that the target gave are known."""
    live = facts.state.live_switch()
    if live is None:
        yield reject(command, _INVALID, "no switch is under way")
    elif why := guards.refuse_contested(facts):
        yield reject(command, RejectCode.CONTESTED, why)
    elif live.stage is not SwitchStage.TRIGGERED:
        sentence = f"the switch to {live.target} is at {live.stage.value}: it can be aborted only before it is live"
        yield reject(command, _INVALID, sentence)
    elif live.home == live.target:
        sentence = f"the switch to {live.target} is taken back; brokers wrote there before, and go on"
        yield from _roll_back(facts, sentence, _ABORTED, attribution_only=True)
    elif not (unread := guards.refuse_unread_ids(facts, live.home)) and (why := guards.refuse_return(facts, live.home)):
        yield reject(command, RejectCode.COLLISION, f"brokers cannot go back to {live.home} yet: {why}")
    else:
        wait = unread or guards.refuse_lower_ids_at_home(facts, live.home)
        then = f"; they are sent back as soon as this is mended: {wait}" if wait else ""
        sentence = f"the switch to {live.target} is taken back, and brokers return to {live.home}{then}"
        yield from _roll_back(facts, sentence, _ABORTED, attribution_only=False)


# --- end (row 31)


def end(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 31: end a switch that cannot be taken back any more, and in hold at any hour."""
    live = facts.state.live_switch()
    if live is None:
        yield reject(command, _INVALID, "no switch is under way")
    elif why := guards.refuse_contested(facts):
        yield reject(command, RejectCode.CONTESTED, why)
    elif command.args.delete and live.stage is not SwitchStage.HOLD:
        yield reject(command, _INVALID, f"the switch is at {live.stage.value}: only in hold may it delete ledgers")
    elif live.stage in REVERSIBLE - {SwitchStage.HOLD} and not guards.is_final(facts):
        yield reject(command, _INVALID, f"the switch to {live.target} is at {live.stage.value}, and can be taken back")
    else:
        yield from _ENDS[live.stage](facts, live, command)


def _refuse_end(_facts: SwitchFacts, live: Switch, command: SwitchCommand) -> Iterator[Change]:
    yield reject(command, _INVALID, f"the switch to {live.target} is not live")


def _end_rollback(facts: SwitchFacts, _live: Switch, _command: SwitchCommand) -> Iterator[Change]:
    yield UpdateSwitch({"ended_ms": facts.now_ms})  # accepted, before the whole plan is read
    yield _end(facts, f"the rollback is ended where it stands: {_name_leftovers(facts) or 'nothing is left'}")


def _end_cleanup(facts: SwitchFacts, live: Switch, _command: SwitchCommand) -> Iterator[Change]:
    """Deletions that an executor has begun come to their end; all other ledgers stay. A second `end` waits for none."""
    stay = counted_with(facts.plan.count(*UNDELETED), "ledger", "stays", "stay") + f" in {live.source}"
    if live.kept:
        yield _end(facts, f"the switch to {live.target} ends without a last inventory; {stay}, also in the registry")
        return
    yield UpdateSwitch({"halted": "", "paused": False, "kept": True, "blocked": ""})
    yield DecisionDraft(SwitchVerdict.ADVANCE, _ABORTED, f"nothing more is deleted: {stay}")
    for task in facts.plan.at(*UNDELETED):
        if task.awaiting is SwitchAction.NONE:
            yield PutTask(replace(task, awaiting=SwitchAction.GIVEN_UP, reason=_ABORTED.value))


def _end_done(facts: SwitchFacts, live: Switch, command: SwitchCommand) -> Iterator[Change]:
    if live.status_failed:
        yield reject(command, _INVALID, "the registry is not written yet")
        return
    stay = counted_with(facts.left_behind, "ledger", "stays", "stay")
    yield _end(facts, f"the switch to {live.target} is over; {stay} in {live.source}")


def _end_live(facts: SwitchFacts, live: Switch, command: SwitchCommand) -> Iterator[Change]:
    """The copied ledgers stay in the source, or are deleted. What has not moved stays behind."""
    delete = command.args.delete
    if delete and (why := guards.refuse_unknown_plan(facts)):
        yield reject(command, _INVALID, why)
        return
    if delete and (why := guards.refuse_straying_brokers(facts)):
        yield reject(command, RejectCode.BROKERS_BEHIND, f"{why}; without `--delete`, `end` keeps all ledgers")
        return
    # Accepted, before the whole plan is read.
    yield UpdateSwitch({"cleanup_ms": facts.now_ms, "halted": "", "paused": False, "kept": not delete})
    ids = [str(t.ledger_id) for t in facts.plan.at(*UNDELETED)]
    window = f"; the way back until {format_instant(from_millis(live.rollback_until_ms))} is given up"
    given_up = window if guards.refuse_closed_window(facts) is None else ""
    are, named = counted_with(len(ids), "ledger", "is", "are"), name_some(ids) or "none"
    if guards.refuse_unknown_plan(facts):
        are, named = "all copied ledgers are", "an inventory lists them"
    done, risk = ("to be deleted from", ", which cannot be undone") if delete else ("kept in", "")
    sentence = f"{live.stage.value} ends: {are} {done} {live.source}{risk}: {named}{given_up}"
    yield Advance(SwitchStage.CLEANUP, _COMMANDED, sentence)
    for task in facts.plan.at(*_UNFINISHED):
        left = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=_ABORTED.value)
        yield PutTask(left, numbered=True)  # a result that is still under way is late
    yield TakeInventory()


def _end(facts: SwitchFacts, sentence: str) -> Advance:
    fields = {"ended_ms": facts.now_ms, "halted": "", "paused": False, "blocked": "", "awaiting": SwitchAction.NONE}
    return Advance(SwitchStage.ABORTED, _ABORTED, sentence, fields)


def _name_leftovers(facts: SwitchFacts) -> str:
    """Name the references that a rollback did not take back, and the brokers that did not go back."""
    paths = [t.paths[0] for t in facts.plan.at(*UNREVERTED)]
    still = f"{name_some(paths)} not taken back" if paths else ""
    astray = "" if facts.switch.attribution_only else guards.refuse_brokers_away(facts) or ""
    return "; ".join(filter(None, (still, astray)))


_ENDS: dict[SwitchStage, Callable[[SwitchFacts, Switch, SwitchCommand], Iterator[Change]]] = {
    SwitchStage.TRIGGERED: _refuse_end,
    **dict.fromkeys(REVERSIBLE, _end_live),
    SwitchStage.CLEANUP: _end_cleanup,
    SwitchStage.ROLLBACK: _end_rollback,
    SwitchStage.DONE_WITH_FAILURES: _end_done,
}
