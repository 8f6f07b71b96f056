"""How a person undoes, stops or continues a switch: rollback, abort, pause, resume, clean-up.

In every state at least one of them is accepted, and a refusal names it. Rows 18, 20 and 27 to 29 of the table.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import Abort, Cleanup, Command, Pause, Resume, Rollback
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Advance,
    Change,
    DecisionDraft,
    DirectBrokers,
    PutTask,
    TakeInventory,
    Update,
    UpdateSwitch,
)
from policies.switching.judge.commands import lifted, reject
from policies.switching.judge.open_orders import order_again
from policies.switching.state import DELETING, ENDED, LedgerStage, LedgerTask, Switch, SwitchAction, SwitchStage
from policies.units import counted_with

_LIVE = frozenset({SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.HOLD})
_TAKEN_BACK = frozenset({SwitchStage.ROLLED_BACK, SwitchStage.ABORTED})
_IS_DONE = frozenset({SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES})
_NOT_PROMOTED = frozenset({LedgerStage.PENDING, LedgerStage.COPYING, LedgerStage.BUILT})
_TO_REVERT = frozenset({LedgerStage.PROMOTING, LedgerStage.PROMOTED})
_COMMANDED, _ABORTED = SwitchReason.COMMANDED, SwitchReason.ABORTED
_INVALID = RejectCode.INVALID_TRANSITION


# --- back (row 18)


def rollback(facts: SwitchFacts, asked: Rollback) -> Iterator[Change]:
    """Row 18."""
    switch, away = facts.state.switch, facts.state.active() != facts.state.committed()
    if switch is None or (switch.stage is SwitchStage.REJECTED and not away):
        return iter((reject(asked, _INVALID, "there is no switch to roll back"),))
    if why := guards.nothing_contests(facts):
        return iter((reject(asked, RejectCode.CONTESTED, why),))
    if switch.stage in _TAKEN_BACK or switch.stage is SwitchStage.REJECTED:
        return _go_home(facts, switch, asked)
    if switch.stage in _IS_DONE:
        first = "" if switch.stage is SwitchStage.DONE else "`abort` lets go of what stays behind, then "
        sentence = (
            f"the switch is {switch.stage.value}: {first}`start` with {switch.source} as its target switches back"
        )
        return iter((reject(asked, _INVALID, sentence),))
    if switch.stage is SwitchStage.ROLLBACK:
        return iter((reject(asked, _INVALID, "it is being rolled back; `abort` ends that where it stands"),))
    if switch.stage is SwitchStage.TRIGGERED:
        if asked.attribution_only:
            sentence = "nothing is attributed yet, and brokers are between two clusters: `abort` sends them back"
            return iter((reject(asked, _INVALID, sentence),))
        return _send_back(facts, switch, asked)
    return _take_back(facts, switch, asked, attribution_only=asked.attribution_only)


def _take_back(facts: SwitchFacts, live: Switch, asked: Command, *, attribution_only: bool) -> Iterator[Change]:
    """Once it is live: what was promoted, while the window is open."""
    if why := guards.before_rollback_end(facts):
        yield reject(asked, RejectCode.WINDOW_EXPIRED, f"{why}; {_way_on(facts, live)}")
    elif live.stage is SwitchStage.CLEANUP:
        yield reject(asked, RejectCode.CLEANUP_STARTED, "the clean-up has begun; `abort` stops it")
    elif why := guards.no_delete_intent(facts):
        yield reject(asked, RejectCode.CLEANUP_STARTED, why)
    elif not attribution_only and (why := guards.way_back_is_beyond(facts, live.home)):
        yield reject(asked, RejectCode.COLLISION, f"brokers cannot go back: {why}")
    else:
        sentence = f"the switch to {live.target} is rolled back"
        yield from roll_back(facts, sentence, _COMMANDED, attribution_only=attribution_only)


def _way_on(facts: SwitchFacts, live: Switch) -> str:
    """What ends a switch that can no longer be taken back."""
    if live.stage is SwitchStage.CLEANUP:
        return "`abort` stops the clean-up"
    if live.stage is SwitchStage.HOLD:
        return "`cleanup` ends the switch"
    goes_on = "`resume` lets it go on" if facts.stands_still else "it goes on"
    return f"{goes_on} to hold, and `cleanup` ends it there"


def roll_back(facts: SwitchFacts, sentence: str, reason: SwitchReason, *, attribution_only: bool) -> Iterator[Change]:
    """Every promotion is taken back, whoever asks for it; and with brokers they are sent home."""
    live = facts.switch
    fields = {"halted": "", "paused": False, "blocked": "", "attribution_only": attribution_only, "confirm_ms": -1}
    if reason is SwitchReason.AUTOMATIC:
        fields["automatic"] = sentence
    yield Advance(SwitchStage.ROLLBACK, reason, sentence, fields)
    for task in [t for t in facts.plan if t.stage in _NOT_PROMOTED]:
        # Never promoted, so nothing is to be taken back; a result that is still under way is late.
        reverted = replace(task, stage=LedgerStage.REVERTED, awaiting=SwitchAction.NONE, tries=0)
        yield PutTask(reverted, numbered=True)
    for task in [t for t in facts.plan if t.stage in _TO_REVERT]:
        yield PutTask(replace(task, awaiting=SwitchAction.NONE, tries=0), numbered=True)
    unread = live.stage is SwitchStage.TRIGGERED and guards.it_is_known_what_target_gave(facts)
    if not attribution_only and not unread:
        yield DirectBrokers(live.home, reason)


def _send_back(facts: SwitchFacts, live: Switch, asked: Command) -> Iterator[Change]:
    """Before it is live there is nothing but brokers to take back; as soon as it is known what the target gave them."""
    if live.home == live.target:
        sentence = f"the switch to {live.target} is taken back; brokers wrote there before, and go on"
        yield from roll_back(facts, sentence, _ABORTED, attribution_only=True)
        return
    unread = guards.it_is_known_what_target_gave(facts)
    if not unread and (why := guards.way_back_is_beyond(facts, live.home)):
        yield reject(asked, RejectCode.COLLISION, f"brokers cannot go back to {live.home} yet: {why}")
        return
    then = f"; brokers are sent back once it is: {unread}" if unread else ""
    sentence = f"the switch to {live.target} is taken back, and brokers return to {live.home}{then}"
    yield from roll_back(facts, sentence, _ABORTED, attribution_only=False)


def _go_home(facts: SwitchFacts, switch: Switch, asked: Rollback) -> Iterator[Change]:
    """After a rollback: brokers that stayed where they were come back, or what was not taken back is tried again."""
    home, left = facts.state.committed(), [t for t in facts.plan if t.stage in _TO_REVERT]
    away = home is not None and facts.state.active() != home
    if not asked.attribution_only and away and home is not None:
        if why := guards.ids_only_grow(facts, home):
            yield reject(asked, RejectCode.COLLISION, f"brokers cannot go back: {why}")
        else:
            fields = {"attribution_only": False, "brokers_from": home, "confirm_ms": -1, "paused": False}
            sentence = f"brokers return to {home}"
            yield Advance(SwitchStage.ROLLBACK, _COMMANDED, sentence, fields)
            for task in left:
                yield PutTask(replace(task, awaiting=SwitchAction.NONE, tries=0), numbered=True)
            yield DirectBrokers(home, _COMMANDED)
    elif left:
        yield Advance(
            SwitchStage.ROLLBACK,
            _COMMANDED,
            f"{counted_with(len(left), 'ledger', 'is', 'are')} tried again",
            {"confirm_ms": -1},
        )
        for task in left:
            yield PutTask(replace(task, awaiting=SwitchAction.NONE, tries=0), numbered=True)
    else:
        back = f"; with brokers, it brings them back to {home}" if away else ""
        yield reject(asked, _INVALID, f"the switch to {switch.target} is {switch.stage.value} already{back}")


# --- abort (row 27)


def abort(facts: SwitchFacts, asked: Abort) -> Iterator[Change]:
    """Row 27: end it, and take back what can be."""
    live = facts.state.live()
    if live is None:
        yield reject(asked, _INVALID, "no switch is under way")
    elif why := guards.nothing_contests(facts):
        yield reject(asked, RejectCode.CONTESTED, why)
    elif live.stage is SwitchStage.TRIGGERED:
        yield from _send_back(facts, live, asked)
    elif live.stage in _LIVE:
        yield from _take_back(facts, live, asked, attribution_only=True)
    elif live.stage is SwitchStage.CLEANUP:
        yield from _stop_cleaning_up(facts)
    elif live.stage is SwitchStage.ROLLBACK:
        sentence = f"the rollback is ended where it stands: {_left(facts) or 'nothing is left'}"
        yield Advance(SwitchStage.ABORTED, _ABORTED, sentence, _over(facts))
    elif live.status_failed:
        yield reject(asked, _INVALID, f"the registry is not written yet: `start` with {live.target} tries it again")
    else:
        stay = counted_with(facts.left_behind, "ledger", "stays", "stay")
        sentence = f"the switch to {live.target} is over; {stay} in {live.source}"
        yield Advance(SwitchStage.ABORTED, _ABORTED, sentence, _over(facts))


def _over(facts: SwitchFacts) -> dict[str, object]:
    return {"ended_ms": facts.now_ms, "halted": "", "paused": False, "blocked": "", "awaiting": SwitchAction.NONE}


def _left(facts: SwitchFacts) -> str:
    """By name, what a rollback did not take back."""
    paths = [t.paths[0] for t in facts.plan if t.stage in _TO_REVERT]
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    still = f"{', '.join(paths[:10])}{more} not taken back" if paths else ""
    astray = "" if facts.switch.attribution_only else guards.brokers_follow(facts) or ""
    return "; ".join(filter(None, (still, astray)))


def _stop_cleaning_up(facts: SwitchFacts) -> Iterator[Change]:
    """What is being deleted ends; the rest stays where it is."""
    kept = [t for t in facts.plan if t.awaiting is SwitchAction.NONE and _is_to_be_deleted(t)]
    sentence = f"nothing more is deleted: {counted_with(len(kept), 'ledger', 'stays', 'stay')} in {facts.switch.source}"
    yield UpdateSwitch({"halted": "", "paused": False})
    yield DecisionDraft(SwitchVerdict.ADVANCE, _ABORTED, sentence)
    for task in kept:
        yield PutTask(replace(task, awaiting=SwitchAction.GIVEN_UP, reason=_ABORTED.value))


def _is_to_be_deleted(task: LedgerTask) -> bool:
    return task.stage in DELETING - {LedgerStage.CLEANED} or task.stage is LedgerStage.PROMOTED


# --- pause and resume (rows 28 and 29)


def pause(facts: SwitchFacts, asked: Pause) -> Iterator[Change]:
    """Row 28: nothing is ordered any more. What brokers and executors were told before, they may still do."""
    switch = facts.state.switch
    if switch is None or switch.stage in (ENDED - {SwitchStage.ROLLED_BACK}) | {SwitchStage.DONE_WITH_FAILURES}:
        yield reject(asked, _INVALID, "no switch is under way")
    elif switch.paused:
        yield reject(asked, _INVALID, "it is paused already; `resume` lets it go on")
    else:
        yield UpdateSwitch({"paused": True})
        sentence = f"the switch to {switch.target} is paused at {switch.stage.value}; `resume` lets it go on"
        yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.PAUSED, sentence)


def resume(facts: SwitchFacts, asked: Resume) -> Iterator[Change]:
    """Row 29: what holds the switch is lifted; somebody else's directive is followed by ours."""
    switch, theirs = facts.state.switch, facts.state.contested_by
    if theirs is not None:
        yield from _direct_after(facts, asked, max(theirs.epoch, facts.state.epoch))
    elif why := guards.nothing_contests(facts):
        yield reject(asked, RejectCode.CONTESTED, why)
    elif switch is None or not (switch.halted or switch.paused):
        at = f": it is at {switch.stage.value}" if switch else ""
        yield reject(asked, _INVALID, f"nothing is held{at}")
    else:
        yield UpdateSwitch(lifted(facts))
        sentence = f"the switch to {switch.target} goes on at {switch.stage.value}"
        yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.RESUMED, sentence)
        yield from order_again(facts, SwitchReason.RESUMED)


def _direct_after(facts: SwitchFacts, asked: Resume, epoch: int) -> Iterator[Change]:
    """The next epoch is beyond theirs; brokers that followed theirs come back only to greater ids."""
    ours = facts.state.active()
    if ours is None:
        yield reject(asked, RejectCode.NOT_FOUND, "no cluster is active")
    elif why := guards.ids_only_grow(facts, ours):
        yield reject(asked, RejectCode.COLLISION, f"brokers cannot be sent to {ours} again: {why}")
    else:
        yield Update({"epoch": epoch, "contested": "", "contested_by": None})
        if facts.state.switch is not None:
            yield UpdateSwitch(lifted(facts))
        sentence = f"brokers are directed to {ours} again, by an epoch after {epoch}"
        yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.RESUMED, sentence)
        yield DirectBrokers(ours, SwitchReason.RESUMED)
        if facts.state.live() is not None:
            yield from order_again(facts, SwitchReason.RESUMED, redirected=True)


# --- clean-up (row 20)


def _nothing_to_clean_up(live: Switch | None) -> str:
    if live is None:
        return "there is no switch in hold to clean up"
    if live.stage is SwitchStage.CLEANUP:
        return "the clean-up is under way already; `status` shows how far it is"
    if live.stage is SwitchStage.DONE_WITH_FAILURES:
        return f"the clean-up is over; `start` with {live.target} as its target tries again what stayed behind"
    return f"the switch to {live.target} is at {live.stage.value}: only one in hold is cleaned up"


def cleanup(facts: SwitchFacts, asked: Cleanup) -> Iterator[Change]:
    """Row 20. What is deleted is decided ledger by ledger, on an inventory taken from now on."""
    live = facts.state.live()
    if live is None or live.stage is not SwitchStage.HOLD:
        yield reject(asked, _INVALID, _nothing_to_clean_up(live))
    elif why := guards.window_elapsed(facts):
        yield reject(asked, RejectCode.WINDOW_NOT_ELAPSED, why)
    elif why := facts.stands_still:
        code = RejectCode.CONTESTED if facts.state.contested else _INVALID
        yield reject(asked, code, f"{why}; `resume` it first")
    elif why := guards.brokers_follow(facts):
        yield reject(asked, RejectCode.BROKERS_BEHIND, why)
    else:
        ids = [t.ledger_id for t in facts.plan if t.stage is LedgerStage.PROMOTED]
        named = ", ".join(map(str, ids[:10])) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
        are = counted_with(len(ids), "ledger", "is", "are")
        sentence = f"{are} to be deleted from {live.source}: {named or 'none'}"
        yield Advance(SwitchStage.CLEANUP, _COMMANDED, sentence, {"cleanup_ms": facts.now_ms})
        yield TakeInventory()
