"""The lease and the brokers: rows 5, 7 and 25, and the repetition of open orders."""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import BrokerSeen, LeaseSeen
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Advance,
    Change,
    Count,
    DecisionDraft,
    DirectBrokers,
    OrderLedger,
    PutTask,
    Reject,
    TakeInventory,
    Update,
    UpdateSwitch,
    WriteStatus,
)
from policies.switching.state import SwitchAction, SwitchStage

_STATUSES = (SwitchAction.STATUS_OLD, SwitchAction.STATUS_NEW)
_WITHOUT_LEDGER = frozenset({SwitchAction.NONE, SwitchAction.INVENTORY, SwitchAction.GIVEN_UP, *_STATUSES})


def judge_lease(facts: SwitchFacts, seen: LeaseSeen) -> Iterator[Change]:
    """Row 25: a newer orchestrator repeats all open orders; an older one is rejected."""
    known, new = facts.state.lease, seen.lease
    if why := guards.lease_is_newer(facts, new.token):
        yield Reject(RejectCode.INVALID_TRANSITION, why, "lease")
    elif known is not None and new.token == known.token and new.valid_until_ms <= known.valid_until_ms:
        yield Count("repeated")
    else:
        yield Update({"lease": new})
        lapsed = known is None or new.token != known.token or facts.now_ms >= known.valid_until_ms
        if lapsed and facts.state.switch is not None:
            yield from repeat_orders(facts, SwitchReason.LEASE_TAKEN)


def repeat_orders(facts: SwitchFacts, reason: SwitchReason, *, redirected: bool = False) -> Iterator[Change]:
    """Repeat every order without a result, under its number.

    Args:
        facts: the facts as of now.
        reason: the reason of the repeated orders.
        redirected: a new directive was just given, which no broker follows yet.
    """
    if not redirected:
        yield DirectBrokers(reason)
    is_behind = redirected or guards.brokers_follow(facts) is not None
    for task in [t for t in facts.plan if t.awaiting not in _WITHOUT_LEDGER]:
        if task.awaiting is SwitchAction.DELETE_OLD and is_behind:
            yield PutTask(replace(task, awaiting=SwitchAction.NONE), numbered=True)  # ordered once brokers follow
        else:
            yield OrderLedger(task, reason)
    if _needs_inventory(facts):
        yield TakeInventory()
    if facts.switch.awaiting in _STATUSES:
        yield WriteStatus(None, reason)


def _needs_inventory(facts: SwitchFacts) -> bool:
    stage = facts.switch.stage
    if stage is SwitchStage.LIVE_DUAL_READ or facts.plan.count_ordered(SwitchAction.INVENTORY) > 0:
        return True
    if stage is SwitchStage.ROLLBACK:
        return facts.switch.confirm_ms >= 0 and facts.rollback_is_unconfirmed
    if stage is SwitchStage.BUILD:
        return facts.awaits_unplanned
    return stage is SwitchStage.CLEANUP and facts.inventory_is_old


def judge_broker(facts: SwitchFacts, seen: BrokerSeen) -> Iterator[Change]:
    """Rows 5 and 7: a broker follows the directive, or cannot make its client."""
    live = facts.state.live_switch()
    if live is None:
        return
    if seen.epoch != live.epoch:
        yield Count("stale_acks")
    elif seen.failed:
        yield from _judge_failed_client(facts, seen)
    elif not live.moved:
        yield UpdateSwitch({"moved": True})


def _judge_failed_client(facts: SwitchFacts, seen: BrokerSeen) -> Iterator[Change]:
    """Row 7. Without any ack a broker may still have moved unreported, so the ids that the target gave decide."""
    switch, reason = facts.switch, SwitchReason.CLIENT_INIT_FAILED
    others = "others already write there"
    nobody_moved = switch.stage is SwitchStage.TRIGGERED and not switch.moved and not facts.acked
    if nobody_moved and facts.stands_still:
        others = f"and nothing is undone by itself ({facts.stands_still})"
    elif nobody_moved:
        unread = guards.ids_of_target_are_read(facts)
        if unread or not (why := guards.way_back_is_beyond(facts, switch.home)):
            doubt = f"; {unread}, so some may have" if unread else ""
            sentence = f"{seen.broker} cannot reach {switch.target}; no broker said that it moved, so none will{doubt}"
            yield Advance(SwitchStage.REJECTED, reason, sentence, {"ended_ms": facts.now_ms})
            yield DirectBrokers(reason, switch.home)
            return
        others = f"and {switch.target} gave ids, so somebody writes there: {why}"
    if not switch.degraded:
        yield UpdateSwitch({"degraded": True})
        sentence = f"{seen.broker} cannot reach {switch.target}, {others}: a person must decide, `abort` sends all back"
        yield DecisionDraft(SwitchVerdict.DEGRADED, reason, sentence)
