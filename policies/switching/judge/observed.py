"""Consequences of observations: rows 3, 5, 7 and 25, and what the registry lacks."""

from collections.abc import Iterator

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import BrokerSeen, LeaseSeen, Prechecked
from policies.switching.facts import SwitchFacts
from policies.switching.fold.clusters import Impostor
from policies.switching.fold.registry import RegistryAgain
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Advance,
    Change,
    Count,
    DecisionDraft,
    DirectBrokers,
    Reject,
    RemoveRegistry,
    Update,
    UpdateSwitch,
    WriteRegistry,
)
from policies.switching.judge.open_orders import order_again
from policies.switching.state import SwitchStage, put


def lease(facts: SwitchFacts, seen: LeaseSeen) -> Iterator[Change]:
    """Row 25: a newer orchestrator asks again for all that is open; an older one is turned away."""
    known, new = facts.state.lease, seen.lease
    if why := guards.lease_is_newer(facts, new.token):
        yield Reject(RejectCode.INVALID_TRANSITION, why, "lease")
    elif known is not None and new.token == known.token and new.valid_until_ms <= known.valid_until_ms:
        yield Count("repeated")
    else:
        yield Update({"lease": new})
        lapsed = known is None or new.token != known.token or facts.now_ms >= known.valid_until_ms
        if lapsed and facts.state.switch is not None:
            yield from order_again(facts, SwitchReason.LEASE_TAKEN)


def registry(facts: SwitchFacts, seen: RegistryAgain) -> Iterator[Change]:
    """What it lacks is written again and what it should no longer have removed: nobody answers to those orders."""
    if facts.state.contested or guards.holds_lease(facts):
        return
    if seen.resolved and facts.state.switch is not None:
        yield from order_again(facts, SwitchReason.NOT_SEEN)
    for entry in facts.state.entries:
        if entry.name not in seen.versions:
            yield WriteRegistry(entry, SwitchReason.NOT_SEEN)
    for name in facts.state.removed:
        yield RemoveRegistry(name, seen.versions[name], SwitchReason.NOT_SEEN)


def impostor(_facts: SwitchFacts, seen: Impostor) -> Iterator[Change]:
    """Another cluster answers than the one that was registered: what was read of it counts for nothing."""
    sentence = f"another cluster answers at the address of {seen.name}"
    yield Reject(RejectCode.NAME_CONFLICT, sentence, f"registry/{seen.name}")


def prechecked(facts: SwitchFacts, seen: Prechecked) -> Iterator[Change]:
    """Row 3: the report; a later one takes the place of an earlier one."""
    check, known, subject = seen.check, facts.state.check(seen.check.target), f"prechecks/{seen.check.target}"
    stage = facts.stage(check.target)
    if known is not None and check.checked_ms <= known.checked_ms:
        yield Count("repeated")
    elif stage not in (SwitchStage.REGISTERED, SwitchStage.PRECHECKED):
        yield Reject(RejectCode.INVALID_TRANSITION, f"{check.target} is {stage.value}", subject)
    else:
        yield Update({"checks": put(facts.state.checks, check, "target")})
        says = "ready" if check.ready else f"not ready: {', '.join(dict.fromkeys(check.reasons))}"
        sentence = f"{check.target} is {says} (digest {check.digest[:12]})"
        details = {"digest": check.digest, "ready": check.ready, "target": check.target}
        yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.COMMANDED, sentence, subject=subject, details=details)


def broker(facts: SwitchFacts, seen: BrokerSeen) -> Iterator[Change]:
    """Rows 5 and 7: a broker follows the directive, or cannot."""
    live = facts.state.live()
    if live is None:
        return
    if seen.epoch != live.epoch:
        yield Count("stale_acks")
    elif seen.failed:
        yield from _client_init_failed(facts, seen)
    elif not live.moved:
        yield UpdateSwitch({"moved": True})


def _client_init_failed(facts: SwitchFacts, seen: BrokerSeen) -> Iterator[Change]:
    """Row 7. That no broker said it moved does not mean that none did: what the target gave decides."""
    switch, reason = facts.switch, SwitchReason.CLIENT_INIT_FAILED
    others = "others already write there"
    nobody_moved = switch.stage is SwitchStage.TRIGGERED and not switch.moved and not facts.acked
    if nobody_moved and facts.stands_still:
        others = f"and nothing is undone by itself ({facts.stands_still})"
    elif nobody_moved:
        unread = guards.it_is_known_what_target_gave(facts)
        if unread or not (why := guards.way_back_is_beyond(facts, switch.home)):
            heard = f"; {unread}, so some may have" if unread else ""
            sentence = f"{seen.broker} cannot reach {switch.target}; no broker said that it moved, so none will{heard}"
            yield Advance(SwitchStage.REJECTED, reason, sentence, {"ended_ms": facts.now_ms})
            yield DirectBrokers(switch.home, reason)
            return
        others = f"and {switch.target} gave ids, so somebody writes there: {why}"
    if not switch.degraded:
        yield UpdateSwitch({"degraded": True})
        sentence = f"{seen.broker} cannot reach {switch.target}, {others}: a person must decide, `abort` sends all back"
        yield DecisionDraft(SwitchVerdict.DEGRADED, reason, sentence)
