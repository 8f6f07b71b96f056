"""The invariants after each transition: a second line of defence that uses no guard.

A breach halts the switch, raises an alert with its evidence, and suppresses every order of the offending transition.
Rules: docs/design/switching.md, Invariants.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from policies.switching.decisions import SwitchVerdict
from policies.switching.ledgers import ClusterSnapshot, has_id, remedy_beyond
from policies.switching.state import (
    IN_TARGET,
    MOVING,
    ClusterStatus,
    LedgerTask,
    Switch,
    SwitchingState,
    SwitchStage,
)
from policies.switching.transition import DecisionDraft

_IRREVERSIBLE = (SwitchVerdict.START_COPY, SwitchVerdict.DELETE_OWN_COPY, SwitchVerdict.DELETE_OLD)


class Invariant(StrEnum):
    """The invariants by their names in the specification."""

    IMPORT_DISJOINT = "INV-1"
    FUTURE_DISJOINT = "INV-2"
    ORDER_IN_TOPIC = "INV-3"
    IDENTITY = "INV-4"
    REVERSE = "INV-5"
    NO_REUSE = "INV-6"
    OWN_DELETES = "INV-7"
    ONE_ACTIVE = "ONE-ACTIVE"
    ONLY_UNDER_LEASE = "LEASE"


Breach = tuple[Invariant, str]
"""An invariant that does not hold, with the evidence."""


def breaches(
    state: SwitchingState, tasks: Iterable[LedgerTask], drafts: Iterable[DecisionDraft], now_ms: int
) -> Iterator[Breach]:
    """Return every invariant that does not hold, given the ledgers that changed, and the decisions that were made."""
    yield from _check_active(state)
    switch = state.switch
    if switch is None:
        return
    for task in tasks:
        if task.stage in IN_TARGET and not task.cleared:
            evidence = f"ledger {task.ledger_id} is {task.stage.value}, not known to be free"
            yield Invariant.IMPORT_DISJOINT, evidence
    yield from _check_ids(state, switch)
    yield from _check_identity(state, switch)
    yield from _check_orders(state, switch, drafts, now_ms)


def _check_active(state: SwitchingState) -> Iterator[Breach]:
    """Exactly one cluster is active for brokers at any time."""
    if not state.entries or state.contested:
        return
    directive = state.directive
    if directive is not None and directive.epoch > state.committed_epoch:
        if state.entry(directive.target) is None:
            yield Invariant.ONE_ACTIVE, f"brokers are directed to {directive.target}, which is not registered"
        return
    active = [e.name for e in state.entries if e.status is ClusterStatus.ACTIVE]
    if len(active) != 1:
        yield Invariant.ONE_ACTIVE, f"active: {', '.join(active) or 'none'}"


def _check_ids(state: SwitchingState, switch: Switch) -> Iterator[Breach]:
    """INV-2, INV-3 and INV-5, by the ids that clusters are known to have given. Unknown ids break nothing.

    An advance to a later ``HOB`` skips ids. A skipped id was never given, so such a remedy breaks nothing either.
    """
    source, target, home = (state.cluster(n) for n in (switch.source, switch.target, switch.home))
    if source is None or source.generator is None or target is None or target.generator is None or switch.bypassed:
        return
    next_id, given = target.generator.next_id, _find_given(state, source)
    if switch.stage in MOVING:
        taken = max(given, state.inventory.greatest_id if state.inventory else -1)
        if next_id <= taken:
            remedy = remedy_beyond(taken, switch.target)
            evidence = f"{switch.target} gives {next_id} next, {taken} is taken: {remedy}, then `resume`"
            yield Invariant.FUTURE_DISJOINT, evidence
        yield from _check_order(state, switch, source, given)
    is_sent_home = state.directive is not None and state.directive.target == switch.home
    if home is not None and switch.stage is SwitchStage.ROLLBACK and is_sent_home:
        gave = _find_given(state, target)
        back_id = home.generator.next_id if home.generator else gave + 1
        if not switch.attribution_only and back_id <= gave and gave >= switch.target_floor:
            evidence = f"{switch.home} gives {back_id} next, {switch.target} already gave {gave}"
            yield Invariant.REVERSE, f"{evidence}: {remedy_beyond(gave, switch.home)}, then `resume`"


def _check_order(state: SwitchingState, switch: Switch, source: ClusterSnapshot, given: int) -> Iterator[Breach]:
    """INV-3, against the source or another cluster that brokers may have written to: whichever gave the greatest id."""
    target, most, name = state.cluster(switch.target), given, switch.source
    for mark in state.marks.values():
        elsewhere = mark.written and mark.instance not in (source.instance_id, target.instance_id if target else None)
        if elsewhere and mark.given_to_us > most:
            most, name = mark.given_to_us, mark.name
    if switch.target_floor <= most:
        remedy = remedy_beyond(most, switch.target)
        evidence = f"{name} gave {most}, {switch.target} began at {switch.target_floor}: {remedy}, then `resume`"
        yield Invariant.ORDER_IN_TOPIC, evidence


def _find_given(state: SwitchingState, seen: ClusterSnapshot) -> int:
    """Return the greatest id that a cluster is known to have given."""
    kept = state.marks.get(seen.instance_id or "")
    return max(kept.given if kept else -1, seen.generator.given if seen.generator else -1)


def _check_identity(state: SwitchingState, switch: Switch) -> Iterator[Breach]:
    source, target = state.cluster(switch.source), state.cluster(switch.target)
    if switch.stage not in MOVING | {SwitchStage.TRIGGERED} or source is None or target is None:
        return  # after a lost checkpoint they are not read yet, and no guard lets anything pass until they are
    if source.layout is None or target.layout is None:
        yield Invariant.IDENTITY, f"{switch.source} or {switch.target} is not known"
    elif (source.instance_id, source.root) == (target.instance_id, target.root):
        evidence = f"{switch.source} and {switch.target} are both {source.instance_id}{source.root}"
        yield Invariant.IDENTITY, evidence


def _check_orders(
    state: SwitchingState, switch: Switch, drafts: Iterable[DecisionDraft], now_ms: int
) -> Iterator[Breach]:
    """INV-6 and INV-7: no id is copied that was deleted, only our copies are deleted, and both need the lease."""
    lease, target = state.lease, state.cluster(switch.target)
    is_held = lease is not None and now_ms < lease.valid_until_ms
    gone = state.deleted.get(target.instance_id or "", ()) if target else ()
    for draft in drafts:
        task, verdict = draft.task, draft.verdict
        if task is None or verdict not in _IRREVERSIBLE:
            continue
        if verdict is SwitchVerdict.START_COPY and not task.remap and has_id(gone, task.ledger_id):
            yield Invariant.NO_REUSE, f"ledger {task.ledger_id} was deleted from {switch.target}"
        if verdict is SwitchVerdict.DELETE_OLD and not task.promoted:
            yield Invariant.OWN_DELETES, f"ledger {task.ledger_id} was not promoted"
        if verdict is SwitchVerdict.DELETE_OWN_COPY and not task.copied:
            yield Invariant.OWN_DELETES, f"no copy of ledger {task.ledger_id} was ever ordered"
        if not is_held:
            yield Invariant.ONLY_UNDER_LEASE, f"{verdict.value} without the lease"
