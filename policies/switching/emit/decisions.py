"""Numbers and dates drafts, so that an executor can verify each decision before it acts."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from policies.decisions import Issuer
from policies.succession import next_sequence
from policies.switching.counterfactuals import counterfactuals
from policies.switching.decisions import ORDERS, LedgerRef, SwitchDecision, SwitchVerdict
from policies.switching.judge.changes import DecisionDraft
from policies.switching.judge.holds import Hold
from policies.switching.plan import LedgerPlan
from policies.switching.state import LedgerTask, RegistryEntry, SwitchingState, SwitchStage
from policies.units import from_millis, to_millis


def emit(
    state: SwitchingState,
    drafts: Sequence[DecisionDraft],
    plan: LedgerPlan,
    ids: Sequence[str],
    issuer: Issuer,
    now: datetime,
    hold: Hold | None,
) -> tuple[SwitchingState, tuple[SwitchDecision, ...]]:
    """Make decisions from drafts, in their order.

    Args:
        state: the state after the step.
        plan: the plan after the step.
        ids: the ids of the step's observations, as evidence.
        hold: the most urgent hold after the step.
    """
    decisions: list[SwitchDecision] = []
    for draft in drafts:
        state = number(state, now)
        evidence = tuple(ids[draft.cause : draft.cause + 1])
        decision = _decision(state, draft, plan, evidence, issuer, now)
        decisions.append(decision.model_copy(update={"otherwise": counterfactuals(decision, hold)}))
    return state, tuple(decisions)


def number(state: SwitchingState, now: datetime) -> SwitchingState:
    """Take the next sequence, which all subjects of the cluster share."""
    return replace(state, sequence=next_sequence(state.sequence, to_millis(now), is_first=state.sequence == 0))


def _decision(
    state: SwitchingState,
    draft: DecisionDraft,
    plan: LedgerPlan,
    evidence: tuple[str, ...],
    issuer: Issuer,
    now: datetime,
) -> SwitchDecision:
    subject = f"{issuer.cluster}/{draft.subject or 'switch'}"
    switch, lease = state.switch, state.lease
    return SwitchDecision(
        **issuer.header(subject, state.sequence, now),
        verdict=draft.verdict,
        reason=draft.reason,
        explanation=draft.sentence,
        evidence=evidence,
        code=draft.code,
        stage=switch.stage if switch else SwitchStage.NONE,
        epoch=state.epoch,
        lease_token=lease.token if lease else 0,
        op=draft.op,
        source=switch.source if switch else None,
        target=switch.target if switch else None,
        ledger=_refer_to_ledger(draft.task, plan) if draft.task else None,
        expects=_expect(state, draft),
        args=_flatten(draft.details),
        valid_until=from_millis(lease.valid_until_ms) if lease and draft.verdict in ORDERS else None,
    )


def _refer_to_ledger(task: LedgerTask, plan: LedgerPlan) -> LedgerRef:
    planned = plan.get(task.key) is not None
    return LedgerRef(
        ledger_id=task.ledger_id,
        target_id=task.target_id,
        kind=task.kind,
        paths=task.paths,
        stage=task.stage,
        remap=task.remap,
        place=plan.place(task.key) if planned else 1,
        of=max(1, len(plan)),
    )


def _expect(state: SwitchingState, draft: DecisionDraft) -> dict[str, str | int | None]:
    """Return the values that an executor must find before it writes."""
    switch, details = state.switch, draft.details
    if draft.verdict is SwitchVerdict.WRITE_DIRECTIVE:
        return {"epoch_below": state.epoch}
    if draft.verdict is SwitchVerdict.WRITE_STATUS:
        version = details.get("expected_version")
        return {"version": version if isinstance(version, int) else None}
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


def _flatten(details: Mapping[str, object]) -> dict[str, str | int | bool | None]:
    """Convert details for the wire; a registry entry becomes its fields."""
    plain: dict[str, str | int | bool | None] = {}
    for name, value in details.items():
        if isinstance(value, RegistryEntry):
            plain |= {"name": value.name, "uri": value.uri, "instance_id": value.instance_id, "root": value.root}
            plain |= {"status": value.status.value, "version": value.version}
        elif value is None or isinstance(value, str | int):
            plain[name] = value
    return plain
