"""The record of a cluster's switch, published when it differs from the one in force."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from policies.decisions import Issuer
from policies.succession import LONGEST_VALIDITY, ends_at
from policies.switching.decisions import BrokerCounts, SwitchReason, SwitchRecord, SwitchVerdict
from policies.switching.emit.decisions import numbered
from policies.switching.judge.changes import DecisionDraft
from policies.switching.otherwise import recorded_otherwise
from policies.switching.plan import stage_counts
from policies.switching.settings import SwitchLimits
from policies.switching.state import LedgerStage, Switch, SwitchingState, SwitchStage
from policies.switching.watch import awaited, deviations
from policies.units import from_millis, millis_of, to_millis

_MOVED = (
    LedgerStage.PROMOTED, LedgerStage.PROMOTED_VIA_ROLLOVER, LedgerStage.DELETE_INTENT, LedgerStage.CLEANED
)  # fmt: skip


def emit_record(
    before: SwitchingState,
    after: SwitchingState,
    drafts: Sequence[DecisionDraft],
    limits: SwitchLimits,
    issuer: Issuer,
    now: datetime,
) -> tuple[SwitchingState, tuple[SwitchRecord, ...]]:
    """The record of the state after a step, when it differs from the one last published."""
    is_due = bool(after.record) and to_millis(now) >= renewal_ms(after)
    if after == before and not is_due:
        return after, ()
    content, stage = _content(after, limits), after.switch.stage if after.switch else SwitchStage.NONE
    digest = _digest(stage, content)
    if digest == before.record and not is_due:
        return after, ()
    after = replace(numbered(after, now), record=digest, recorded_ms=to_millis(now))
    record = SwitchRecord(
        **issuer.header(issuer.cluster, after.sequence, now, about=("record",)),
        verdict=stage,
        reason=_reason(drafts),
        explanation=_sentence(issuer.cluster, after),
        valid_until=ends_at(now, LONGEST_VALIDITY),
        **content,
    )
    return after, (record.model_copy(update={"otherwise": recorded_otherwise(record)}),)


def renewal_ms(state: SwitchingState) -> int:
    """When the record is repeated: well before it runs out."""
    return state.recorded_ms + millis_of(LONGEST_VALIDITY) // 2


def _digest(stage: SwitchStage, content: Mapping[str, object]) -> str:
    """Of what the record says, as it is written: no name in this code may matter."""
    plain = msgspec.json.encode((stage, content), order="deterministic", enc_hook=lambda model: model.model_dump())
    return hashlib.sha256(plain).hexdigest()[:16]


def _reason(drafts: Sequence[DecisionDraft]) -> SwitchReason:
    """Of the last change of stage, else of what was said last."""
    advances = [d for d in drafts if d.verdict is SwitchVerdict.ADVANCE]
    return next((d.reason for d in (*drafts[-1:], *advances[-1:])[::-1]), SwitchReason.COMMANDED)


def _content(state: SwitchingState, limits: SwitchLimits) -> dict[str, object]:
    switch = state.switch
    counts = _counts(switch) if switch else Counter[LedgerStage]()
    live = switch is not None and switch.live_ms >= 0
    return {
        "active": state.active(),
        "source": switch.source if switch else None,
        "target": switch.target if switch else None,
        "epoch": state.epoch,
        "committed_epoch": state.committed_epoch,
        "attempt": switch.attempt if switch else 0,
        "ledgers": {stage: counts[stage] for stage in LedgerStage if counts[stage]},
        "brokers": BrokerCounts(
            live=len(state.members.brokers) if state.members else None,
            acked=_acked(state),
            awaited={d.broker: from_millis(d.since_ms) for d in awaited(state)},
            astray={d.broker: d.why for d in deviations(state) if d.follows},
        ),
        "degraded": bool(switch and switch.degraded),
        "blocked": switch.blocked if switch else "",
        "halted": switch.halted if switch else "",
        "paused": bool(switch and switch.paused),
        "contested": state.contested,
        "unplanned": switch.unplanned if switch else (),
        "unplanned_count": switch.unplanned_count if switch else 0,
        "rollback_until": from_millis(switch.rollback_until_ms) if switch and live else None,
        "cleanup_from": from_millis(switch.cleanup_from_ms) if switch and live else None,
        "prechecks": {c.target: c.digest for c in state.checks},
        "registry": {e.name: e.status.value for e in state.entries},
        "stage_since": _stage_since(switch),
        "copy_bytes_per_second": limits.copy_bytes_per_second,
        "bypassed": state.bypassed,
    }


def _acked(state: SwitchingState) -> int:
    """How many follow the switch's directive: of the live ones, where they are known."""
    epoch = state.switch.epoch if state.switch else state.epoch
    following = {b.name for b in state.brokers if b.acked_epoch == epoch}
    return len(following if state.members is None else following.intersection(state.members.brokers))


def _stage_since(switch: Switch | None) -> datetime | None:
    """Of a switch that is triggered: when it was started."""
    if switch is None:
        return None
    since_ms = switch.started_ms if switch.stage is SwitchStage.TRIGGERED else switch.stage_ms
    return from_millis(since_ms) if since_ms >= 0 else None


def _counts(switch: Switch) -> Counter[LedgerStage]:
    """How many ledgers stand where; of a switch that is done nothing else is known."""
    return Counter(stage_counts(switch))


def _sentence(cluster: str, state: SwitchingState) -> str:
    switch = state.switch
    if switch is None:
        return f"Brokers of {cluster} write to {state.active() or 'a cluster that is not registered'}; no switch began"
    return (
        f"The switch of {cluster} from {switch.source} to {switch.target} is at {switch.stage.value}: "
        f"{_progress(switch)}, brokers {_do(state)} {state.active()}"
    )


def _progress(switch: Switch) -> str:
    counts = _counts(switch)
    moved = sum(counts[s] for s in _MOVED)
    if switch.stage is SwitchStage.CLEANUP:
        return f"{counts[LedgerStage.CLEANED]} of {moved} moved ledgers deleted from {switch.source}"
    return f"{moved} of {counts.total()} ledgers moved"


def _do(state: SwitchingState) -> str:
    """What is known of all: while one has not followed yet, or nobody is known to live, only what they were told."""
    is_known = state.members is not None and state.members.brokers
    return "write to" if is_known and not awaited(state) else "are told to write to"
