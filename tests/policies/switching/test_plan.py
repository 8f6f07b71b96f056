"""The plan: idle ledgers come in the order of ids, however they came in, and a change takes apart what it touches."""

from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policies.switching.judge.holds import find_holds
from policies.switching.ledgers import LedgerKind
from policies.switching.machine import Transition
from policies.switching.plan import LedgerPlan
from policies.switching.state import REVERSIBLE, LedgerStage, LedgerTask, PlanBlock, SwitchAction, SwitchStage
from tests.policies.switching.commands import command
from tests.policies.switching.wire import WireWorld

SIZE = "policies.switching.plan.BLOCK_SIZE"

L, A = LedgerStage, SwitchAction


def task(ledger_id: int, stage: LedgerStage = L.PENDING, awaiting: SwitchAction = A.NONE) -> LedgerTask:
    return LedgerTask(ledger_id, LedgerKind.CURSOR, (f"/c{ledger_id}",), stage, awaiting)


def ids(tasks: list[LedgerTask]) -> list[int]:
    return [t.ledger_id for t in tasks]


@pytest.mark.parametrize("order", list(permutations([1, 2, 3])))
def test_the_least_ids_come_first_and_asking_takes_nothing_away(order: tuple[int, ...]) -> None:
    plan = LedgerPlan([])
    for ledger_id in order:
        plan.put(task(ledger_id))
        plan.put(task(ledger_id))
    assert ids(plan.idle(2, L.PENDING)) == ids(plan.idle(2, L.PENDING)) == [1, 2]
    assert ids(plan.idle(9, L.PENDING)) == ids(list(plan)) == [1, 2, 3]


@pytest.mark.parametrize("most", [0, -1])
def test_where_nothing_more_may_be_asked_nothing_is_idle(most: int) -> None:
    assert LedgerPlan([task(1)]).idle(most, L.PENDING) == []


def test_one_stage_comes_after_the_other() -> None:
    plan = LedgerPlan([task(1, L.BUILT), task(2, L.BUILT), task(3, L.PROMOTING)])
    assert ids(plan.idle(2, L.PROMOTING, L.BUILT)) == [3, 1]


def test_what_is_asked_dropped_or_elsewhere_is_not_idle() -> None:
    plan = LedgerPlan([task(1), task(2), task(3), task(4)])
    plan.put(task(1, awaiting=A.COPY))
    plan.put(task(2, L.BUILT))
    plan.drop(task(3).key)
    assert ids(plan.idle(9, L.PENDING)) == [4]
    plan.put(replace(task(1), tries=1))
    assert ids(plan.idle(9, L.PENDING)) == [1, 4]


def test_ledgers_are_counted_as_they_move() -> None:
    plan = LedgerPlan([task(1), task(2, awaiting=A.COPY), task(3, L.PROMOTED, A.GIVEN_UP)])
    assert (plan.count(L.PENDING), plan.count_ordered(A.COPY), plan.count_unfinished(L.PROMOTED)) == (2, 1, 0)
    plan.put(task(2, L.BUILT))
    plan.drop(task(1).key)
    assert (plan.count(L.PENDING), plan.count(L.PENDING, L.BUILT), plan.count_ordered(A.COPY)) == (0, 1, 0)
    assert plan.touched == {task(2).key}


# --- in blocks


def stored(plan: LedgerPlan) -> LedgerPlan:
    fields = plan.packed()
    blocks = msgspec.msgpack.decode(msgspec.msgpack.encode(fields["blocks"]), type=tuple[PlanBlock, ...])
    return LedgerPlan(msgspec.convert(fields["tasks"], tuple[LedgerTask, ...]), blocks)


TASKS = st.builds(
    task,
    st.integers(0, 40),
    st.sampled_from([L.PENDING, L.BUILT]),
    st.sampled_from([A.NONE, A.COPY]),
)


STEPS = st.lists(st.lists(TASKS | st.integers(0, 40), max_size=12), max_size=6)


@given(STEPS, st.integers(1, 5))
def test_a_plan_is_a_sorted_dictionary_over_any_steps(steps: list[list[LedgerTask | int]], size: int) -> None:
    expected: dict[int, LedgerTask] = {}
    found = LedgerPlan()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SIZE, size)
        for step in steps:
            for each in step:
                if isinstance(each, LedgerTask):
                    found.put(each)
                    expected[each.key] = each
                else:
                    key = task(each).key
                    assert found.get(key) == expected.get(key)
                    found.drop(key)
                    expected.pop(key, None)
            assert [found.place(key) for key in sorted(expected)] == list(range(1, len(expected) + 1))
            found = stored(found)
            assert (list(found), len(found)) == ([expected[key] for key in sorted(expected)], len(expected))
            assert found.count(L.BUILT) == sum(each.stage is L.BUILT for each in expected.values())


def test_a_change_makes_one_block_anew() -> None:
    plan = stored(LedgerPlan(task(n) for n in range(2000)))
    before = plan.packed()["blocks"]
    plan.put(task(700, L.BUILT))
    after = plan.packed()["blocks"]
    assert isinstance(before, tuple)
    assert isinstance(after, tuple)
    assert len(before) == len(after) == 8
    assert [n for n in range(8) if before[n] != after[n]] == [2]


@given(st.lists(TASKS, max_size=40), st.lists(TASKS, max_size=10), st.integers(0, 50))
def test_a_plan_in_blocks_answers_as_one_spread_out(
    tasks: list[LedgerTask], changes: list[LedgerTask], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SIZE, 3)
        packed = stored(LedgerPlan(tasks))
    plain = LedgerPlan({each.ledger_id: each for each in tasks}.values())
    for plan in (packed, plain):
        for each in changes:
            plan.put(each)
    stages = (L.BUILT, L.PENDING)
    assert packed.idle(most, *stages) == plain.idle(most, *stages) == packed.idle(most, *stages)
    assert packed.count(*stages) == plain.count(*stages) == len(plain)
    assert packed.count_ordered(A.COPY) == plain.count_ordered(A.COPY)
    assert list(packed.at(L.BUILT)) == list(plain.at(L.BUILT)) == [each for each in plain if each.stage is L.BUILT]
    assert list(packed) == list(plain)


class Unread:
    """A decoder that nobody may use."""

    def decode(self, packed: bytes) -> list[LedgerTask]:
        raise AssertionError(packed)


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize(
    "stage", [*sorted(REVERSIBLE), SwitchStage.TRIGGERED, SwitchStage.CLEANUP, SwitchStage.ROLLBACK]
)
def test_the_holds_and_their_commands_read_no_ledger_that_they_do_not_name(
    stage: SwitchStage, is_paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are found at each step, and a plan has 100,000 ledgers."""
    monkeypatch.setattr(SIZE, 1)
    world = WireWorld()
    world.to(stage)
    world.tell(*([command("pause", "p")] if is_paused else []))
    monkeypatch.setattr("policies.switching.plan._DECODER", Unread())
    assert list(find_holds(Transition(world.state, world.limits, world.now_ms).facts()))


@pytest.mark.parametrize("stage", [SwitchStage.DONE, SwitchStage.ROLLED_BACK])
def test_a_switch_goes_the_same_way_in_blocks(stage: SwitchStage, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = WireWorld()
    plain.to(stage)
    monkeypatch.setattr(SIZE, 1)
    blocks = WireWorld()
    blocks.to(stage)
    assert [said.sentence for said in blocks.said] == [said.sentence for said in plain.said]
    assert [said.task for said in blocks.said] == [said.task for said in plain.said]
