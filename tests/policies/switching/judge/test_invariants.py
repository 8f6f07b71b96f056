"""Each invariant is seen when it is broken, whoever broke it; and then nothing is ordered."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from policies.switching.decisions import ORDERS, SwitchReason, SwitchVerdict
from policies.switching.judge.invariants import Invariant, breaches
from policies.switching.ledgers import IdGenerator, IdMark
from policies.switching.state import (
    ClusterStatus,
    Directive,
    LedgerStage,
    LedgerTask,
    OrchestratorLease,
    SwitchingState,
    SwitchStage,
    put,
)
from policies.switching.transition import DecisionDraft
from tests.cases import for_each
from tests.policies.switching.events import command
from tests.policies.switching.world import World

S = SwitchStage


class After(NamedTuple):
    state: SwitchingState
    tasks: Sequence[LedgerTask]
    drafts: Sequence[DecisionDraft]
    now_ms: int


def after(stage: SwitchStage, *said: DecisionDraft, **switch: Any) -> After:
    world = World().to(stage)
    state = replace(world.state, switch=replace(world.switch, **switch))
    return After(state, world.switch.tasks, said, world.now_ms)


def seen(found: After) -> set[Invariant]:
    return {invariant for invariant, _ in breaches(*found)}


def with_state(found: After, **changes: Any) -> After:
    return found._replace(state=replace(found.state, **changes))


def with_cluster(found: After, name: str, **changes: Any) -> After:
    known = found.state.cluster(name)
    assert known is not None
    return with_state(found, clusters=put(found.state.clusters, replace(known, **changes)))


def order(found: After, verdict: SwitchVerdict) -> After:
    said = DecisionDraft(verdict, SwitchReason.COMMANDED, "do it", task=found.tasks[0])
    return found._replace(drafts=(said,))


def unclear(found: After, stage: LedgerStage) -> After:
    tasks = [replace(u, cleared=False, stage=stage) for u in found.tasks]
    return found._replace(tasks=tasks)


HOLD, BUILD, ROLLBACK = after(S.HOLD), after(S.BUILD), after(S.ROLLBACK, attribution_only=False)
WENT_BACK = with_state(ROLLBACK, directive=Directive(2, "old"))
AHEAD, BEHIND = IdGenerator(3, 2, 0), IdGenerator(None, 2, 0)
TWO_ACTIVE = tuple(replace(e, status=ClusterStatus.ACTIVE) for e in HOLD.state.entries)
UNCOPIED = BUILD._replace(tasks=[replace(u, copied=False) for u in BUILD.tasks])
DELETED, OVER = {"id-of-new": (BUILD.tasks[0].ledger_id,)}, OrchestratorLease(1, "x", HOLD.now_ms)
THIRD = IdMark("id-of-third", "third", 2**33, 2**34, written=True)
UNPROMOTED = HOLD._replace(tasks=[replace(u, promoted=False) for u in HOLD.tasks])

BROKEN = {
    "INV-1, copying": (unclear(BUILD, LedgerStage.COPYING), Invariant.IMPORT_DISJOINT),
    "INV-1, promoted": (unclear(HOLD, LedgerStage.PROMOTED), Invariant.IMPORT_DISJOINT),
    "INV-2, the source gave more": (with_cluster(HOLD, "old", generator=AHEAD), Invariant.FUTURE_DISJOINT),
    "INV-2, the target gives less": (with_cluster(HOLD, "new", generator=BEHIND), Invariant.FUTURE_DISJOINT),
    "INV-3": (after(S.HOLD, target_floor=4), Invariant.ORDER_IN_TOPIC),
    "INV-4, one cluster": (with_cluster(HOLD, "new", instance_id="id-of-old"), Invariant.IDENTITY),
    "INV-4, unknown layout": (with_cluster(HOLD, "new", layout=None), Invariant.IDENTITY),
    "INV-3, a third cluster gave more": (with_state(HOLD, marks={"id-of-third": THIRD}), Invariant.ORDER_IN_TOPIC),
    "INV-5": (with_cluster(WENT_BACK, "new", generator=IdGenerator(1, 2, 0)), Invariant.REVERSE),
    "INV-6": (order(with_state(BUILD, deleted=DELETED), SwitchVerdict.START_COPY), Invariant.NO_REUSE),
    "INV-7, our copy": (order(UNCOPIED, SwitchVerdict.DELETE_OWN_COPY), Invariant.OWN_DELETES),
    "INV-7, the source's": (order(UNPROMOTED, SwitchVerdict.DELETE_OLD), Invariant.OWN_DELETES),
    "one active": (with_state(HOLD, entries=TWO_ACTIVE, committed_epoch=HOLD.state.epoch), Invariant.ONE_ACTIVE),
    "directed nowhere": (with_state(HOLD, entries=HOLD.state.entries[1:]), Invariant.ONE_ACTIVE),
    "the lease": (order(with_state(HOLD, lease=OVER), SwitchVerdict.DELETE_OLD), Invariant.ONLY_UNDER_LEASE),
}


@for_each(("broken", "invariant"), BROKEN.values(), ids=BROKEN)
def test_a_breach_is_seen(broken: After, invariant: Invariant) -> None:
    assert invariant in seen(broken)


@for_each("stage", [s for s in SwitchStage if s not in (S.NONE, S.REGISTERED, S.PRECHECKED)])
def test_nothing_is_seen_where_all_is_well(stage: SwitchStage) -> None:
    assert seen(after(stage)) == set()


def test_every_invariant_has_its_breach() -> None:
    assert {invariant for _, invariant in BROKEN.values()} == set(Invariant)


def test_a_breach_stops_the_irreversible_and_alarms_once() -> None:
    world = World().to(S.CLEANUP)
    world.clusters["old"].hob, world.clusters["old"].created = 3, 1
    [halt] = world.later().tell(world.cluster_event("old"))
    assert (halt.verdict, halt.reason) == (SwitchVerdict.HALT, SwitchReason.INVARIANT)
    assert "INV-2: new gives 4294967296 next, 12884901888 is taken" in halt.sentence
    said = world.later().tell(world.inventory_event(), world.members_event())
    assert said == []
    said = world.tell(world.start_event())
    assert not [s for s in said if s.verdict in ORDERS], "driving it on does not help while it is broken"
    assert world.switch.halted


def test_a_command_that_meets_a_breach_orders_nothing() -> None:
    world = World().to(S.HOLD)
    world.clusters["old"].hob, world.clusters["old"].created = 3, 1
    world.later(15 * 86_400_000).tell(world.cluster_event("old"))
    said = world.tell(command("cleanup", world.key()))
    assert not [s for s in said if s.verdict in ORDERS]
    assert not [o for o in world.orders if o.verdict is SwitchVerdict.DELETE_OLD]


@pytest.mark.parametrize("name", ["old", "new"])
def test_an_unknown_generator_breaks_nothing_and_starts_nothing(name: str) -> None:
    assert seen(with_cluster(HOLD, name, generator=None)) == set()
    world = World().to(S.TRIGGERED)
    world.tell(world.members_event(), *(world.follow(b) for b in world.brokers))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters if n != name))
    world.tell(replace(world.cluster_event(name), generator=None))
    assert world.is_at(S.TRIGGERED)
