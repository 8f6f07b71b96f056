"""The switching policy of one broker cluster: a state machine that takes one reading after the other.

Rules: docs/design/switching.md.
"""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from policies.alerts import Condition, Sender
from policies.book import Step
from policies.decisions import LONGEST_VALIDITY, Issuer, ends_at, next_sequence
from policies.observations import Observation, Outcome, sort_observations
from policies.switching import NAME
from policies.switching.alert_kinds import ALERTS, DEGRADED
from policies.switching.decisions import (
    ORDERS,
    BrokerCounts,
    LedgerRef,
    SwitchDecision,
    SwitchHold,
    SwitchReason,
    SwitchRecord,
    SwitchVerdict,
)
from policies.switching.facts import SwitchFacts, awaited, deviations, find_due_ms
from policies.switching.fold import Judged, fold
from policies.switching.judge.invariants import breaches
from policies.switching.judge.stages import advance
from policies.switching.judge.table import Hold, explain_refusal, find_holds, judge, refuse
from policies.switching.readings import SwitchCommand, SwitchRegistry
from policies.switching.settings import SwitchingSettings
from policies.switching.state import MOVED, LedgerStage, SwitchingState, SwitchStage, make_progress, stage_counts
from policies.switching.transition import DecisionDraft, Transition
from policies.units import format_second, from_millis, millis_of, to_millis

_SEVERITIES = {alert.name: alert.severities[0] for alert in ALERTS}


class SwitchingPolicy:
    """Decides about the switch of one broker cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: SwitchingSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._issuer = Sender.build(NAME, cluster, settings).issuer

    def step(
        self, state: SwitchingState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[SwitchingState]:
        """Take the observations, let time pass, and return the decisions and alert conditions that follow."""
        before, now_ms, limits = state or SwitchingState(), to_millis(now), self._settings
        seen, transition = sort_observations(tuple(observations)), Transition(before, limits, now_ms)
        drafts = reconcile(transition, (*seen, None))
        after, issuer = transition.packed(), self._issuer
        facts = transition.facts()
        holds = find_holds(facts)
        after, decisions = emit(facts, drafts, tuple(each.id for each in seen), issuer, now)
        after, record = emit_record(before, after, facts, holds, drafts, issuer, now)
        return Step(
            after,
            conditions=_conditions(self._cluster, facts, holds),
            due_ms=_due_ms(after, facts, holds),
            decisions=(*decisions, *record),
        )


def reconcile(transition: Transition, observations: Iterable[Observation | None]) -> tuple[DecisionDraft, ...]:
    """Take observations one after the other, and return the decisions in their order. None: only time passed."""
    drafts: list[DecisionDraft] = []
    for index, seen in enumerate(observations):
        if seen is None:
            _judge(transition, None)
        else:
            _process(transition, seen)
        drafts += (dataclasses.replace(draft, cause=index) for draft in transition.drafts)
        transition.drafts = []
    return tuple(drafts)


def _process(transition: Transition, seen: Observation) -> None:
    reading, before = seen.reading, transition.state
    # After a lost checkpoint the oldest readings of the registry come first: one that is too old is not taken up.
    is_first = isinstance(reading, SwitchRegistry) and before.registry_ms < 0 and reading.outcome is Outcome.OK
    is_outdated = is_first and not transition.facts().is_recent(seen.at_ms)
    state, judged = (before, None) if is_outdated else fold(before, seen)
    transition.adopt(state)
    if isinstance(judged, SwitchCommand) and judged.is_dry_run:
        _preview(transition, judged)
    else:
        _judge(transition, judged)


def _judge(transition: Transition, event: Judged | None) -> None:
    """Write what follows from the event, then the automatic progress until none is left. A command may be refused."""
    facts = transition.facts()
    if isinstance(event, SwitchCommand):
        if (refused := refuse(facts, event, transition)) is not None:
            transition.reject(refused.code, explain_refusal(facts, refused), f"commands/{event.idempotency_key}")
    elif event is not None:
        judge(facts, event, transition)
    written = -1
    while written != transition.writes:
        written = transition.writes
        advance(transition.facts(), transition)
    _check(transition)


def _check(transition: Transition) -> None:
    """A breach of an invariant drops the orders of the transition, halts the switch and is an alert.

    A directive that only renews the one in force stays: it moves no broker, and keeps the ids of topics in order.
    """
    facts, plan = transition.facts(), transition.plan
    touched = [t for i in sorted(plan.touched) if (t := plan.get(i)) is not None]
    plan.touched = set()
    found = list(breaches(facts.state, touched, transition.drafts, facts.now_ms))
    if not found:
        return
    kept = {SwitchVerdict.WRITE_DIRECTIVE} if facts.state.renewed else set[SwitchVerdict]()
    transition.drafts = [d for d in transition.drafts if d.verdict not in ORDERS - kept]
    evidence, switch = "; ".join(f"{invariant.value}: {why}" for invariant, why in found[:3]), facts.state.switch
    if switch is None or not switch.halted:
        transition.publish(SwitchVerdict.HALT, SwitchReason.INVARIANT, f"nothing more is ordered: {evidence}")
    if switch is not None:
        transition.update_switch(halted=evidence)


def _preview(transition: Transition, command: SwitchCommand) -> None:
    """Run a command on the same state with the same code, and keep nothing but the sentences."""
    trial = Transition(transition.packed(), transition.limits, transition.now_ms)
    _judge(trial, command)
    rejected = next((d for d in trial.drafts if d.verdict is SwitchVerdict.REJECT), None)
    reason, code = (SwitchReason.REJECTED, rejected.code) if rejected else (SwitchReason.COMMANDED, None)
    sentences = [d.sentence for d in trial.drafts]
    more = f"; and {len(sentences) - 10} more" if len(sentences) > 10 else ""
    sentence = f"would: {'; '.join(sentences[:10]) or 'change nothing'}{more}"
    if rejected is not None:
        sentence = f"would be rejected: {rejected.sentence}"
    subject = f"commands/{command.idempotency_key}"
    transition.publish(SwitchVerdict.PREVIEW, reason, sentence, subject=subject, code=code)


def _conditions(cluster: str, facts: SwitchFacts, holds: Sequence[Hold]) -> Iterator[Condition]:
    """Return an alert for each hold that has lasted beyond its bound; of several with one alert the most urgent one."""
    raised: set[tuple[str, str]] = set()
    for hold in holds:
        kind, alert, subject = hold.kind, hold.kind.alert, f"{cluster}/{hold.subject}"
        if facts.now_ms < hold.due_ms or (alert, subject) in raised:
            continue
        raised.add((alert, subject))
        labels, switch = {"cluster": cluster, **hold.labels}, facts.state.switch
        about = f"{cluster}: "
        if switch is not None and kind.is_about_switch:
            labels |= {"source": switch.source, "target": switch.target, "stage": switch.stage.value}
            about = f"the switch of {cluster} from {switch.source} to {switch.target} "
        since = f", since {format_second(from_millis(hold.since_ms))}" if hold.since_ms is not None else ""
        summary = f"{about}{hold.why}{since}; to end it: {hold.ends_with}"
        yield Condition(alert, subject, _SEVERITIES[alert], hold.name, summary, labels)


def _due_ms(state: SwitchingState, facts: SwitchFacts, holds: Sequence[Hold]) -> Iterator[int]:
    """Return the instants at which something may change without an observation."""
    yield from find_due_ms(facts)
    yield from (hold.due_ms for hold in holds)
    if state.record:
        yield renewal_ms(state)
    if state.switch is not None:
        yield from (state.switch.rollback_until_ms, state.switch.cleanup_from_ms)
        if state.lease is not None:
            yield state.lease.valid_until_ms


def emit(
    facts: SwitchFacts, drafts: Sequence[DecisionDraft], ids: Sequence[str], issuer: Issuer, now: datetime
) -> tuple[SwitchingState, tuple[SwitchDecision, ...]]:
    """Make decisions from drafts, in their order. `facts` are those of the end of the step, `ids` the evidence."""
    state, decisions = facts.state, list[SwitchDecision]()
    switch, lease = state.switch, state.lease
    for draft in drafts:
        state = _number(state, now)
        decision = SwitchDecision(
            **issuer.header(f"{issuer.cluster}/{draft.subject or 'switch'}", state.sequence, now),
            verdict=draft.verdict, reason=draft.reason, explanation=draft.sentence, code=draft.code, op=draft.op,
            evidence=tuple(ids[draft.cause : draft.cause + 1]), epoch=state.epoch, args=draft.details,
            stage=switch.stage if switch else SwitchStage.NONE, lease_token=lease.token if lease else 0,
            source=switch.source if switch else None, target=switch.target if switch else None,
            ledger=_refer_to_ledger(facts, draft), expects=_expect(state, draft),
            valid_until=from_millis(lease.valid_until_ms) if lease and draft.verdict in ORDERS else None,
        )  # fmt: skip
        decisions.append(decision)
    return state, tuple(decisions)


def _number(state: SwitchingState, now: datetime) -> SwitchingState:
    """Take the next sequence, which all subjects of the cluster share."""
    return replace(state, sequence=next_sequence(state.sequence, to_millis(now), is_first=state.sequence == 0))


def _refer_to_ledger(facts: SwitchFacts, draft: DecisionDraft) -> LedgerRef | None:
    if (task := draft.task) is None:
        return None
    shown = {name: getattr(task, name) for name in ("ledger_id", "target_id", "kind", "paths", "stage", "remap")}
    place = facts.plan.place(task.key) if facts.plan.get(task.key) is not None else 1
    return LedgerRef(**shown, place=place, of=max(1, len(facts.plan)))


def _expect(state: SwitchingState, draft: DecisionDraft) -> dict[str, str | int | None]:
    """Return the values that an executor must find before it writes."""
    switch = state.switch
    if draft.verdict is SwitchVerdict.WRITE_DIRECTIVE:
        return {"epoch_below": state.epoch}
    if draft.verdict is SwitchVerdict.WRITE_STATUS:
        return {"version": draft.details["expected_version"]}
    if draft.task is None or switch is None:
        return {}
    task, is_revert = draft.task, draft.verdict is SwitchVerdict.REVERT
    attribution = switch.target if is_revert else switch.source
    id_in_target = task.ledger_id if task.target_id is None else task.target_id
    # A revert may find a reference that was never promoted. Without an attribute it is the bootstrap cluster's.
    owners = (switch.source, switch.target) if is_revert else (attribution,)
    legacy = "or_none" if state.bootstrap in owners else "only"
    expects: dict[SwitchVerdict, dict[str, str | int | None]] = {
        SwitchVerdict.START_COPY: {"target_ledger": "absent"},
        SwitchVerdict.DELETE_OWN_COPY: {"journalled": task.ledger_id, "referenced_in": None},
        SwitchVerdict.PROMOTE: {"attribution": attribution, "legacy": legacy, "ledger_id": task.ledger_id},
        SwitchVerdict.REQUEST_ROLLOVER: {"attribution": attribution, "legacy": legacy, "ledger_id": task.ledger_id},
        SwitchVerdict.REVERT: {"attribution": attribution, "legacy": legacy, "ledger_id": id_in_target},
        SwitchVerdict.DELETE_OLD: {"attribution": switch.target, "legacy": "only", "ledger_id": id_in_target},
    }
    return expects.get(draft.verdict, {})


def emit_record(
    before: SwitchingState,
    after: SwitchingState,
    facts: SwitchFacts,
    holds: Sequence[Hold],
    drafts: Sequence[DecisionDraft],
    issuer: Issuer,
    now: datetime,
) -> tuple[SwitchingState, tuple[SwitchRecord, ...]]:
    """Return the record of the state after a step, if it differs from the last one or must be repeated in time.

    `facts` and `holds` are those of the end of the step: a broker may have fallen silent although no reading arrived.
    """
    is_due = bool(after.record) and to_millis(now) >= renewal_ms(after)
    if after == before and not is_due and after.directive is None:
        return after, ()
    content, stage = _content(facts, holds), after.switch.stage if after.switch else SwitchStage.NONE
    # The digest is of the record as it is published: renaming a class or function must not change it.
    plain = msgspec.json.encode((stage, content), order="deterministic", enc_hook=lambda model: model.model_dump())
    digest = hashlib.sha256(plain).hexdigest()[:16]
    if digest == before.record and not is_due:
        return after, ()
    after = replace(_number(after, now), record=digest, recorded_ms=to_millis(now))
    # The reason is that of the last change of stage, else that of the last decision.
    advances = [d for d in drafts if d.verdict is SwitchVerdict.ADVANCE]
    record = SwitchRecord(
        **issuer.header(issuer.cluster, after.sequence, now, about=("record",)),
        verdict=stage,
        reason=next((d.reason for d in (*advances[-1:], *drafts[-1:])), SwitchReason.COMMANDED),
        explanation=_explain(issuer.cluster, facts),
        valid_until=ends_at(now, LONGEST_VALIDITY),
        **content,
    )
    return after, (record,)


def renewal_ms(state: SwitchingState) -> int:
    """Return when to repeat the record, well before it expires."""
    return state.recorded_ms + millis_of(LONGEST_VALIDITY) // 2


_OF_A_SWITCH: Mapping[str, object] = {
    "source": None, "target": None, "attempt": 0, "blocked": "", "halted": "", "paused": False, "kept": False,
    "unplanned": (), "unplanned_count": 0,
}  # fmt: skip
"""The fields that the record takes over from the switch, and what they are without one."""


def _content(facts: SwitchFacts, holds: Sequence[Hold]) -> dict[str, object]:
    state, switch = facts.state, facts.state.switch
    counts = Counter(stage_counts(switch)) if switch else Counter[LedgerStage]()
    epoch = switch.epoch if switch else state.epoch
    acked = {b.name for b in state.brokers if b.acked_epoch == epoch and facts.is_recent(b.at_ms)}
    is_known, since_ms = state.members is not None and not state.members.is_unread, -1
    if switch is not None:  # a triggered switch is at its stage since its start
        since_ms = switch.started_ms if switch.stage is SwitchStage.TRIGGERED else switch.stage_ms
    return {
        **{name: getattr(switch, name, default) for name, default in _OF_A_SWITCH.items()},
        "active": state.active(),
        "epoch": state.epoch,
        "committed_epoch": state.committed_epoch,
        "ledgers": {stage: counts[stage] for stage in LedgerStage if counts[stage]},
        "brokers": BrokerCounts(
            live=len(state.members.brokers) if state.members and is_known else None,
            acked=len(acked if state.members is None else acked.intersection(state.members.brokers)),
            awaited={d.broker: from_millis(d.since_ms) for d in awaited(facts)},
            astray={d.broker: d.why for d in deviations(facts) if d.follows},
        ),
        "degraded": any(hold.kind.alert == DEGRADED for hold in holds),
        "recovering": bool(switch and switch.recovering_ms >= 0),
        "progress": make_progress(switch, state.commanded_ms) if switch else None,
        "contested": state.contested,
        "rollback_until": from_millis(switch.rollback_until_ms) if switch and switch.live_ms >= 0 else None,
        "cleanup_from": from_millis(switch.cleanup_from_ms) if switch and switch.live_ms >= 0 else None,
        "prechecks": {c.target: c.digest for c in state.checks},
        "registry": {e.name: e.status.value for e in state.entries},
        "stage_since": from_millis(since_ms) if since_ms >= 0 else None,
        "copy_bytes_per_second": facts.limits.copy_bytes_per_second,
        "bypassed": state.bypassed,
        "holds": tuple(
            SwitchHold(
                name=hold.name,
                alert=hold.kind.alert,
                why=hold.why,
                since=None if hold.since_ms is None else from_millis(hold.since_ms),
                alert_from=None if hold.since_ms is None else from_millis(hold.due_ms),
                ends_with=hold.ends_with,
            )
            for hold in holds
            if not hold.kind.is_routine or facts.now_ms >= hold.due_ms
        ),
    }


def _explain(cluster: str, facts: SwitchFacts) -> str:
    state, switch = facts.state, facts.state.switch
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
