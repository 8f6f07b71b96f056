"""What must hold after each transition, whatever the guards let through: a second line of defence that uses no guard.

A breach halts the switch, raises an alert with its evidence, and suppresses every order of the offending transition.
Rules: docs/design/switching.md, Invariants.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from policies.switching.decisions import SwitchVerdict
from policies.switching.id_generators import remedy_beyond
from policies.switching.judge.changes import DecisionDraft
from policies.switching.ledgers import CopyIntent
from policies.switching.precheck.snapshot import ClusterSnapshot
from policies.switching.state import ClusterStatus, LedgerStage, LedgerTask, Switch, SwitchingState, SwitchStage

_MOVING = frozenset(
    {SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.HOLD, SwitchStage.CLEANUP}
)
_IN_TARGET = frozenset({LedgerStage.COPYING, LedgerStage.BUILT, LedgerStage.PROMOTING, LedgerStage.PROMOTED})


class Invariant(StrEnum):
    """By the names they have in the specification."""

    IMPORT_DISJOINT = "INV-1"
    FUTURE_DISJOINT = "INV-2"
    ORDER_IN_TOPIC = "INV-3"
    IDENTITY = "INV-4"
    REVERSE = "INV-5"
    NO_REUSE = "INV-6"
    OWN_DELETES = "INV-7"
    ONE_ACTIVE = "ONE-ACTIVE"
    ONLY_UNDER_LEASE = "LEASE"


@dataclass(frozen=True, slots=True)
class Breach:
    """An invariant that does not hold, and what shows it."""

    invariant: Invariant
    evidence: str

    def __str__(self) -> str:
        """As it is written into the switch and its alarm."""
        return f"{self.invariant.value}: {self.evidence}"


@dataclass(frozen=True, slots=True)
class TransitionResult:
    """A state after a transition, with what the transition touched and said."""

    state: SwitchingState
    tasks: Sequence[LedgerTask]
    """Those that changed; of the others everything was checked when they did."""
    said: Sequence[DecisionDraft]
    intents: Callable[[LedgerTask], CopyIntent | None]
    """The journalled intent to create a ledger's copy in the switch's target."""
    now_ms: int


def breaches(after: TransitionResult) -> Iterator[Breach]:
    """Everything that does not hold."""
    yield from _one_active(after.state)
    switch = after.state.switch
    if switch is None:
        return
    yield from _import_disjoint(after)
    yield from _clusters(after.state, switch)
    yield from _identity(after.state, switch)
    yield from _no_reuse(after, switch)
    yield from _own_deletes(after)
    yield from _lease(after)


def _import_disjoint(after: TransitionResult) -> Iterator[Breach]:
    for task in after.tasks:
        if task.stage in _IN_TARGET and not task.cleared:
            yield Breach(
                Invariant.IMPORT_DISJOINT, f"ledger {task.ledger_id} is {task.stage.value}, not known to be free"
            )


def _clusters(state: SwitchingState, switch: Switch) -> Iterator[Breach]:
    """INV-2, INV-3 and INV-5, from what clusters are known to have given to data; what is unknown breaks nothing.

    An advance to a later ``HOB`` skips ids, and what is skipped was never given: it is a remedy, and breaks nothing.
    """
    source, target, home = (state.cluster(n) for n in (switch.source, switch.target, switch.home))
    if source is None or source.generator is None or target is None or target.generator is None or switch.bypassed:
        return
    ahead, behind = target.generator.next_id, _given(state, source)
    if switch.stage in _MOVING:
        taken = max(behind, state.inventory.greatest_id if state.inventory else -1)
        if ahead <= taken:
            remedy = remedy_beyond(taken, switch.target)
            evidence = f"{switch.target} gives {ahead} next, {taken} is taken: {remedy}, then `resume`"
            yield Breach(Invariant.FUTURE_DISJOINT, evidence)
        yield from _order_in_topic(state, switch, source, behind)
    if home is not None and switch.stage is SwitchStage.ROLLBACK and _directed_to(state, switch.home):
        yield from _reverse(switch, home, _given(state, target))


def _reverse(switch: Switch, home: ClusterSnapshot, given: int) -> Iterator[Breach]:
    next_id = home.generator.next_id if home.generator else given + 1
    if not switch.attribution_only and next_id <= given and given >= switch.target_floor:
        evidence = f"{switch.home} gives {next_id} next, {switch.target} already gave {given}"
        yield Breach(Invariant.REVERSE, f"{evidence}: {remedy_beyond(given, switch.home)}, then `resume`")


def _order_in_topic(state: SwitchingState, switch: Switch, source: ClusterSnapshot, behind: int) -> Iterator[Breach]:
    """By the source, or by another cluster that brokers may have written to: whichever gave most."""
    target, most, name = state.cluster(switch.target), behind, switch.source
    for mark in state.marks:
        elsewhere = mark.written and mark.instance not in (source.instance_id, target.instance_id if target else None)
        if elsewhere and mark.given_to_us > most:
            most, name = mark.given_to_us, mark.name
    if switch.target_floor <= most:
        remedy = remedy_beyond(most, switch.target)
        evidence = f"{name} gave {most}, {switch.target} began at {switch.target_floor}: {remedy}, then `resume`"
        yield Breach(Invariant.ORDER_IN_TOPIC, evidence)


def _given(state: SwitchingState, seen: ClusterSnapshot) -> int:
    """The greatest id that a cluster is known to have given."""
    kept = max((m.given for m in state.marks if m.instance == seen.instance_id), default=-1)
    return max(kept, seen.generator.given if seen.generator else -1)


def _directed_to(state: SwitchingState, name: str) -> bool:
    return state.directive is not None and state.directive.target == name


def _identity(state: SwitchingState, switch: Switch) -> Iterator[Breach]:
    source, target = state.cluster(switch.source), state.cluster(switch.target)
    if switch.stage not in _MOVING | {SwitchStage.TRIGGERED}:
        return
    if source is None or target is None or source.layout is None or target.layout is None:
        yield Breach(Invariant.IDENTITY, f"{switch.source} or {switch.target} is not known")
    elif (source.instance_id, source.root) == (target.instance_id, target.root):
        yield Breach(
            Invariant.IDENTITY, f"{switch.source} and {switch.target} are both {source.instance_id}{source.root}"
        )


def _no_reuse(after: TransitionResult, switch: Switch) -> Iterator[Breach]:
    target = after.state.cluster(switch.target)
    gone = next((d.ids for d in after.state.deleted if target and d.instance == target.instance_id), ())
    for said in after.said if gone else ():
        task = said.task
        if said.verdict is SwitchVerdict.START_COPY and task and not task.remap and _is_among(gone, task.ledger_id):
            yield Breach(Invariant.NO_REUSE, f"ledger {task.ledger_id} was deleted from {switch.target}")


def _is_among(ids: Sequence[int], ledger_id: int) -> bool:
    """Whether sorted ids hold one."""
    return ledger_id in ids[(at := bisect_left(ids, ledger_id)) : at + 1]


def _own_deletes(after: TransitionResult) -> Iterator[Breach]:
    for said in after.said:
        task = said.task
        if task is None:
            continue
        if said.verdict is SwitchVerdict.DELETE_OLD and task.promoted_op <= task.reverted_op:
            yield Breach(Invariant.OWN_DELETES, f"ledger {task.ledger_id} was not promoted")
        if said.verdict is SwitchVerdict.DELETE_OWN_COPY and after.intents(task) is None:
            yield Breach(Invariant.OWN_DELETES, f"the copy of ledger {task.ledger_id} is not in the journal")


def _lease(after: TransitionResult) -> Iterator[Breach]:
    lease = after.state.lease
    held = lease is not None and after.now_ms < lease.valid_until_ms
    for said in () if held else after.said:
        if said.verdict in (SwitchVerdict.DELETE_OLD, SwitchVerdict.DELETE_OWN_COPY, SwitchVerdict.START_COPY):
            yield Breach(Invariant.ONLY_UNDER_LEASE, f"{said.verdict.value} without the lease")


def _one_active(state: SwitchingState) -> Iterator[Breach]:
    """Exactly one cluster is active for brokers at any time."""
    if not state.entries or state.contested:
        return
    directive = state.directive
    if directive is not None and directive.epoch > state.committed_epoch:
        if state.entry(directive.target) is None:
            yield Breach(Invariant.ONE_ACTIVE, f"brokers are directed to {directive.target}, which is not registered")
        return
    active = [e.name for e in state.entries if e.status is ClusterStatus.ACTIVE]
    if len(active) != 1:
        yield Breach(Invariant.ONE_ACTIVE, f"active: {', '.join(active) or 'none'}")
