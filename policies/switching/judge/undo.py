"""How an operator leaves a switch: `abort` before it is live, `rollback` in its window, `end`. Rows 18, 27 and 31.

In every stage at least one command is accepted, and a refusal names it (`holds.explain_refusal`).
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.guards import Asked
from policies.switching.readings import SwitchCommand
from policies.switching.state import (
    REVERSIBLE,
    UNDELETED,
    UNDONE,
    UNREVERTED,
    LedgerStage,
    LedgerTask,
    SwitchAction,
    SwitchStage,
)
from policies.switching.transition import Transition
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


def ask_rollback(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Asked]:
    """Require a live switch in its window, or an undone one whose ledgers or brokers have not all come back."""
    switch, away = facts.state.switch, facts.state.active() != facts.state.committed()
    is_none = switch is None or (switch.stage is SwitchStage.REJECTED and not away)
    yield _INVALID, is_none and "there is no switch to roll back"
    yield RejectCode.CONTESTED, guards.refuse_contested(facts)
    switch = facts.switch
    # An operator may have given up the ledgers that stayed behind, after the registry had the target as active.
    was_done = switch.stage is SwitchStage.ABORTED and facts.state.committed() == switch.target
    is_known = facts.state.entry(switch.source) is not None
    way = f"`start --target {switch.source}`" if is_known else f"`register` {switch.source} again, and a switch"
    is_done = switch.stage is SwitchStage.DONE or was_done
    yield _INVALID, is_done and f"the switch is done: {way} leads back"
    yield _INVALID, _NOT_TAKEN_BACK.get(switch.stage)
    with_brokers = not command.args.attribution_only
    if switch.stage in UNDONE or switch.stage is SwitchStage.REJECTED:
        home = facts.state.committed()
        if with_brokers and away and home is not None:
            yield RejectCode.COLLISION, _refuse_return(facts, home)
        elif not _find_retried(facts):
            back = f"; with brokers, it brings them back to {home}" if home is not None and away else ""
            yield _INVALID, f"the switch to {switch.target} is {switch.stage.value} already{back}"
        return
    yield RejectCode.WINDOW_EXPIRED, guards.refuse_closed_window(facts)
    yield RejectCode.CLEANUP_STARTED, switch.stage is SwitchStage.CLEANUP and "the clean-up has begun"
    yield RejectCode.CLEANUP_STARTED, guards.refuse_begun_deletion(facts)
    yield RejectCode.COLLISION, with_brokers and _refuse_return(facts, switch.home)


def _refuse_return(facts: SwitchFacts, home: str) -> guards.Refusal:
    why = guards.refuse_return(facts, home)
    return f"brokers cannot go back: {why}" if why else None


def _find_retried(facts: SwitchFacts) -> list[LedgerTask]:
    return [t for t in facts.plan.at(*UNREVERTED) if not guards.refuse_missing_source(facts, t)]


def rollback(facts: SwitchFacts, command: SwitchCommand, step: Transition) -> None:
    """Row 18: take promotions back and, if asked, send the brokers back."""
    switch, with_brokers = facts.switch, not command.args.attribution_only
    if switch.stage not in UNDONE and switch.stage is not SwitchStage.REJECTED:
        sentence = f"the switch to {switch.target} is rolled back"
        _roll_back(facts, sentence, _COMMANDED, step, attribution_only=not with_brokers)
        return
    home, left = facts.state.committed(), _find_retried(facts)
    if with_brokers and home is not None and facts.state.active() != home:
        step.advance(
            SwitchStage.ROLLBACK, _COMMANDED, f"brokers return to {home}",
            attribution_only=False, brokers_from=home, confirm_ms=-1, paused=False,
        )  # fmt: skip
    else:
        sentence = f"{counted_with(len(left), 'ledger', 'is', 'are')} tried again"
        step.advance(SwitchStage.ROLLBACK, _COMMANDED, sentence, confirm_ms=-1, paused=False)
    _reset_tasks(left, step)


def _roll_back(
    facts: SwitchFacts, sentence: str, reason: SwitchReason, step: Transition, *, attribution_only: bool
) -> None:
    """Begin a rollback: revert every promotion, and direct the brokers home unless `attribution_only`."""
    step.advance(
        SwitchStage.ROLLBACK, reason, sentence,
        halted="", paused=False, blocked="", confirm_ms=-1, attribution_only=attribution_only,
    )  # fmt: skip
    for task in list(facts.plan.at(*_NOT_PROMOTED)):
        # It was never promoted, so there is nothing to revert. A result that is still under way is late.
        step.put(replace(task, stage=LedgerStage.REVERTED, awaiting=SwitchAction.NONE, tries=0), numbered=True)
    _reset_tasks(facts.plan.at(*UNREVERTED), step)


def _reset_tasks(tasks: Iterable[LedgerTask], step: Transition) -> None:
    """Give ledgers a new number and all their tries, so that a revert can be ordered."""
    for task in list(tasks):
        step.put(replace(task, awaiting=SwitchAction.NONE, tries=0), numbered=True)


# --- abort (row 27)


def ask_abort(facts: SwitchFacts, _command: SwitchCommand) -> Iterator[Asked]:
    """Before a switch is live; brokers must be able to go back once ids are read."""
    live = facts.state.live_switch()
    yield _INVALID, live is None and "no switch is under way"
    yield RejectCode.CONTESTED, guards.refuse_contested(facts)
    live = facts.switch
    late = f"the switch to {live.target} is at {live.stage.value}: it can be aborted only before it is live"
    yield _INVALID, live.stage is not SwitchStage.TRIGGERED and late
    if live.home != live.target and not guards.refuse_unread_ids(facts, live.home):
        why = guards.refuse_return(facts, live.home)
        yield RejectCode.COLLISION, why and f"brokers cannot go back to {live.home} yet: {why}"


def abort(facts: SwitchFacts, _command: SwitchCommand, step: Transition) -> None:
    """Row 27: before a switch is live only brokers are taken back, once the ids that the target gave are known."""
    live = facts.switch
    if live.home == live.target:
        sentence = f"the switch to {live.target} is taken back; brokers wrote there before, and go on"
        _roll_back(facts, sentence, _ABORTED, step, attribution_only=True)
        return
    wait = guards.refuse_unread_ids(facts, live.home) or guards.refuse_lower_ids_at_home(facts, live.home)
    then = f"; they are sent back as soon as this is mended: {wait}" if wait else ""
    sentence = f"the switch to {live.target} is taken back, and brokers return to {live.home}{then}"
    _roll_back(facts, sentence, _ABORTED, step, attribution_only=False)


# --- end (row 31)


def ask_end(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Asked]:
    """A switch that cannot be taken back any more, and in hold at any hour."""
    live, delete = facts.state.live_switch(), command.args.delete
    yield _INVALID, live is None and "no switch is under way"
    yield RejectCode.CONTESTED, guards.refuse_contested(facts)
    live = facts.switch
    at = f"the switch is at {live.stage.value}"
    is_held = live.stage is SwitchStage.HOLD
    yield _INVALID, delete and not is_held and f"{at}: only in hold may it delete ledgers"
    is_final = guards.refuse_closed_window(facts) or guards.refuse_begun_deletion(facts)
    is_open = live.stage in REVERSIBLE and not is_held and not is_final
    yield _INVALID, is_open and f"the switch to {live.target} is at {live.stage.value}, and can be taken back"
    yield _INVALID, live.stage is SwitchStage.TRIGGERED and f"the switch to {live.target} is not live"
    is_unwritten = live.stage is SwitchStage.DONE_WITH_FAILURES and live.status_failed
    yield _INVALID, is_unwritten and "the registry is not written yet"
    if delete:
        yield _INVALID, guards.refuse_unknown_plan(facts)
        why = guards.refuse_straying_brokers(facts)
        yield RejectCode.BROKERS_BEHIND, why and f"{why}; without `--delete`, `end` keeps all ledgers"


def end(facts: SwitchFacts, command: SwitchCommand, step: Transition) -> None:
    """Row 31: end the switch, as its stage allows."""
    live, source = facts.switch, facts.switch.source
    if live.stage is SwitchStage.CLEANUP:
        _end_cleanup(facts, step)
    elif live.stage is SwitchStage.DONE_WITH_FAILURES:
        stay = counted_with(facts.left_behind, "ledger", "stays", "stay")
        _end(f"the switch to {live.target} is over; {stay} in {source}", step)
    elif live.stage is SwitchStage.ROLLBACK:
        # Name the references that were not taken back, and the brokers that did not go back.
        paths = [t.paths[0] for t in facts.plan.at(*UNREVERTED)]
        still = f"{name_some(paths)} not taken back" if paths else ""
        astray = None if live.attribution_only else guards.refuse_brokers_away(facts)
        left = "; ".join(filter(None, (still, astray))) or "nothing is left"
        _end(f"the rollback is ended where it stands: {left}", step)
    else:
        _end_live(facts, command, step)


def _end_cleanup(facts: SwitchFacts, step: Transition) -> None:
    """Deletions that an executor has begun come to their end; all other ledgers stay. A second `end` waits for none."""
    live = facts.switch
    stay = counted_with(facts.plan.count(*UNDELETED), "ledger", "stays", "stay") + f" in {live.source}"
    if live.kept:
        _end(f"the switch to {live.target} ends without a last inventory; {stay}, also in the registry", step)
        return
    step.update_switch(halted="", paused=False, kept=True, blocked="")
    step.publish(SwitchVerdict.ADVANCE, _ABORTED, f"nothing more is deleted: {stay}")
    for task in facts.plan.at(*UNDELETED):
        if task.awaiting is SwitchAction.NONE:
            step.put(replace(task, awaiting=SwitchAction.GIVEN_UP, reason=_ABORTED.value))


def _end_live(facts: SwitchFacts, command: SwitchCommand, step: Transition) -> None:
    """The copied ledgers stay in the source, or are deleted. Ledgers that have not moved stay behind."""
    live, delete = facts.switch, command.args.delete
    ids = [str(t.ledger_id) for t in facts.plan.at(*UNDELETED)]
    window = f"; the way back until {format_instant(from_millis(live.rollback_until_ms))} is given up"
    given_up = window if guards.refuse_closed_window(facts) is None else ""
    are, named = counted_with(len(ids), "ledger", "is", "are"), name_some(ids) or "none"
    if guards.refuse_unknown_plan(facts):
        are, named = "all copied ledgers are", "an inventory lists them"
    done, risk = ("to be deleted from", ", which cannot be undone") if delete else ("kept in", "")
    sentence = f"{live.stage.value} ends: {are} {done} {live.source}{risk}: {named}{given_up}"
    step.advance(
        SwitchStage.CLEANUP, _COMMANDED, sentence,
        cleanup_ms=facts.now_ms, halted="", paused=False, kept=not delete,
    )  # fmt: skip
    for task in list(facts.plan.at(*_UNFINISHED)):
        left = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=_ABORTED.value)
        step.put(left, numbered=True)  # a result that is still under way is late
    step.take_inventory()


def _end(sentence: str, step: Transition) -> None:
    step.advance(
        SwitchStage.ABORTED, _ABORTED, sentence,
        ended_ms=step.now_ms, halted="", paused=False, blocked="", awaiting=SwitchAction.NONE,
    )  # fmt: skip
