"""The lease and the brokers: rows 5, 7 and 25, and the repetition of open orders."""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import BrokerSeen
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import (
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
from policies.switching.state import OrchestratorLease, SwitchAction, SwitchStage

_STATUSES = (SwitchAction.STATUS_OLD, SwitchAction.STATUS_NEW)
_WITHOUT_LEDGER = frozenset(
    {SwitchAction.NONE, SwitchAction.INVENTORY, SwitchAction.GIVEN_UP, SwitchAction.SETTLED, *_STATUSES}
)


def judge_lease(facts: SwitchFacts, new: OrchestratorLease) -> Iterator[Change]:
    """Row 25: a newer orchestrator repeats all open orders; an older one is rejected."""
    known = facts.state.lease
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
    # An inventory under the directive before does not count any more.
    is_void = redirected and facts.switch.stage is SwitchStage.CLEANUP
    if is_void or facts.needs_inventory or facts.plan.count_ordered(SwitchAction.INVENTORY):
        yield TakeInventory()
    if facts.switch.awaiting in _STATUSES:
        yield WriteStatus(None, reason)
    if facts.switch.advanced:
        yield UpdateSwitch({"advanced": ""})  # ordered again if it is still needed


def open_new_clients(facts: SwitchFacts, reason: SwitchReason) -> Iterator[Change]:
    """Direct brokers again to the cluster that was advanced, so that they open new clients; repeat all open orders.

    Before a switch is live, INV-3 counts from the ids that new clients get.
    """
    switch, generator = facts.switch, facts.generator(facts.switch.target)
    if switch.stage is SwitchStage.TRIGGERED and generator is not None:
        yield UpdateSwitch({"target_floor": max(switch.target_floor, generator.next_id)})
    yield DirectBrokers(reason, facts.state.active())
    yield from repeat_orders(facts, reason, redirected=True)


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
    """Row 7. Brokers go back only once it is known that they get greater ids there; that is judged at each step."""
    switch, reason, target = facts.switch, SwitchReason.CLIENT_INIT_FAILED, facts.state.active()
    why = "others already write there" if facts.acked else "brokers are directed there"
    if switch.stage is SwitchStage.TRIGGERED and not switch.moved and not facts.acked:
        if switch.returning:
            return
        if not facts.stands_still:
            yield UpdateSwitch({"returning": f"{seen.broker} cannot reach {switch.target}"})
            return
        why = f"nothing is undone by itself ({facts.stands_still})"
    if not switch.degraded:
        yield UpdateSwitch({"degraded": True})
        sentence = f"{seen.broker} cannot reach {target}, and {why}: an operator must decide"
        yield DecisionDraft(SwitchVerdict.DEGRADED, reason, sentence)
