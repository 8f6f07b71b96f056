"""The record of a cluster's switch, published when it differs from the one in force, and repeated in time."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from policies.decisions import Issuer
from policies.succession import LONGEST_VALIDITY, ends_at
from policies.switching.alert_kinds import DEGRADED
from policies.switching.counterfactuals import hold_counterfactuals
from policies.switching.decisions import BrokerCounts, SwitchHold, SwitchReason, SwitchRecord, SwitchVerdict
from policies.switching.emit.decisions import number
from policies.switching.facts import SwitchFacts
from policies.switching.judge.changes import DecisionDraft
from policies.switching.judge.holds import DatedHold
from policies.switching.plan import stage_counts
from policies.switching.progress import make_progress
from policies.switching.state import MOVED, LedgerStage, Switch, SwitchingState, SwitchStage
from policies.switching.watch import awaited, deviations
from policies.units import from_millis, millis_of, to_millis


def emit_record(
    before: SwitchingState,
    after: SwitchingState,
    facts: SwitchFacts,
    holds: Sequence[DatedHold],
    drafts: Sequence[DecisionDraft],
    issuer: Issuer,
    now: datetime,
) -> tuple[SwitchingState, tuple[SwitchRecord, ...]]:
    """Return the record of the state after a step, if it differs from the last one or must be repeated.

    `facts` and `holds` are those of the end of the step: a broker may have fallen silent although no reading arrived.
    """
    is_due = bool(after.record) and to_millis(now) >= renewal_ms(after)
    if after == before and not is_due and after.directive is None:
        return after, ()
    content, stage = _content(after, facts, holds), after.switch.stage if after.switch else SwitchStage.NONE
    # The digest is of the record as it is published: renaming a class or function must not change it.
    plain = msgspec.json.encode((stage, content), order="deterministic", enc_hook=lambda model: model.model_dump())
    digest = hashlib.sha256(plain).hexdigest()[:16]
    if digest == before.record and not is_due:
        return after, ()
    after = replace(number(after, now), record=digest, recorded_ms=to_millis(now))
    record = SwitchRecord(
        **issuer.header(issuer.cluster, after.sequence, now, about=("record",)),
        verdict=stage,
        reason=_reason(drafts),
        explanation=_explain(issuer.cluster, after, facts),
        valid_until=ends_at(now, LONGEST_VALIDITY),
        otherwise=hold_counterfactuals(holds[0].hold if holds else None),
        **content,
    )
    return after, (record,)


def renewal_ms(state: SwitchingState) -> int:
    """Return when to repeat the record, well before it expires."""
    return state.recorded_ms + millis_of(LONGEST_VALIDITY) // 2


def _reason(drafts: Sequence[DecisionDraft]) -> SwitchReason:
    """Return the reason of the last change of stage, else that of the last decision."""
    advances = [d for d in drafts if d.verdict is SwitchVerdict.ADVANCE]
    return next((d.reason for d in (*drafts[-1:], *advances[-1:])[::-1]), SwitchReason.COMMANDED)


def _content(state: SwitchingState, facts: SwitchFacts, holds: Sequence[DatedHold]) -> dict[str, object]:
    switch = state.switch
    counts = Counter(stage_counts(switch)) if switch else Counter[LedgerStage]()
    live = switch is not None and switch.live_ms >= 0
    epoch = switch.epoch if switch else state.epoch
    acked = {b.name for b in state.brokers if b.acked_epoch == epoch and facts.is_recent(b.at_ms)}
    is_known = state.members is not None and not state.members.is_unread
    return {
        "active": state.active(),
        "source": switch.source if switch else None,
        "target": switch.target if switch else None,
        "epoch": state.epoch,
        "committed_epoch": state.committed_epoch,
        "attempt": switch.attempt if switch else 0,
        "ledgers": {stage: counts[stage] for stage in LedgerStage if counts[stage]},
        "brokers": BrokerCounts(
            live=len(state.members.brokers) if state.members and is_known else None,
            acked=len(acked if state.members is None else acked.intersection(state.members.brokers)),
            awaited={d.broker: from_millis(d.since_ms) for d in awaited(facts)},
            astray={d.broker: d.why for d in deviations(facts) if d.follows},
        ),
        "degraded": any(kind.alert == DEGRADED for kind, _, _ in holds),
        "blocked": switch.blocked if switch else "",
        "halted": switch.halted if switch else "",
        "paused": bool(switch and switch.paused),
        "kept": bool(switch and switch.kept),
        "recovering": bool(switch and switch.recovering_ms >= 0),
        "progress": make_progress(switch, state.commanded_ms) if switch else None,
        "contested": state.contested,
        "unplanned": switch.unplanned if switch else (),
        "unplanned_count": switch.unplanned_count if switch else 0,
        "rollback_until": from_millis(switch.rollback_until_ms) if switch and live else None,
        "cleanup_from": from_millis(switch.cleanup_from_ms) if switch and live else None,
        "prechecks": {c.target: c.digest for c in state.checks},
        "registry": {e.name: e.status.value for e in state.entries},
        "stage_since": _stage_since(switch),
        "copy_bytes_per_second": facts.limits.copy_bytes_per_second,
        "bypassed": state.bypassed,
        "holds": tuple(
            SwitchHold(
                name=kind.name,
                alert=kind.alert,
                why=hold.why,
                since=None if hold.since_ms is None else from_millis(hold.since_ms),
                alert_from=None if hold.since_ms is None else from_millis(due_ms),
                ends_with=hold.ends_with,
            )
            for kind, hold, due_ms in holds
            if not kind.is_routine or facts.now_ms >= due_ms
        ),
    }


def _stage_since(switch: Switch | None) -> datetime | None:
    """A triggered switch is at its stage since its start."""
    if switch is None:
        return None
    since_ms = switch.started_ms if switch.stage is SwitchStage.TRIGGERED else switch.stage_ms
    return from_millis(since_ms) if since_ms >= 0 else None


def _explain(cluster: str, state: SwitchingState, facts: SwitchFacts) -> str:
    switch = state.switch
    if switch is None:
        return f"Brokers of {cluster} write to {state.active() or 'a cluster that is not registered'}; no switch began"
    counts = Counter(stage_counts(switch))
    moved = sum(counts[s] for s in MOVED)
    progress = f"{moved} of {counts.total()} ledgers moved"
    if switch.stage is SwitchStage.CLEANUP:
        progress = f"{counts[LedgerStage.CLEANED]} of {moved} moved ledgers deleted from {switch.source}"
    # While a broker has not followed, or no live broker is known, only the directive is certain.
    is_known = state.members is not None and state.members.brokers
    write = "write to" if is_known and not awaited(facts) else "are told to write to"
    return (
        f"The switch of {cluster} from {switch.source} to {switch.target} is at {switch.stage.value}: "
        f"{progress}, brokers {write} {state.active()}"
    )
