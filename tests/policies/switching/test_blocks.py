"""Values in blocks are the values of a plain dictionary, and a change takes apart what it touches."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.switching.blocks import BlockMap, PackedBlock, count_tags
from policies.switching.plan import LedgerPlan
from policies.switching.references import LedgerKind
from policies.switching.state import LedgerStage, LedgerTask, PlanBlock, SwitchAction, SwitchStage
from tests.policies.switching.wire import WireWorld

SIZE = "policies.switching.blocks.BLOCK_SIZE"


class Item(msgspec.Struct, frozen=True, array_like=True):
    key: int
    tag: str


Blocks = BlockMap[int, Item, str]


def blocks_of(loose: tuple[Item, ...] = (), blocks: tuple[PackedBlock[int, str], ...] = ()) -> Blocks:
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(blocks), type=tuple[PackedBlock[int, str], ...])
    return BlockMap(Item, lambda item: item.key, lambda item: item.tag, loose, stored)


ITEMS = st.builds(Item, st.integers(0, 30), st.sampled_from("ab"))
STEPS = st.lists(st.lists(ITEMS | st.integers(0, 30), max_size=12), max_size=6)


@given(STEPS, st.integers(1, 5))
def test_blocks_are_a_sorted_dictionary_over_any_steps(steps: list[list[Item | int]], size: int) -> None:
    expected: dict[int, Item] = {}
    found = blocks_of()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SIZE, size)
        for step in steps:
            for each in step:
                if isinstance(each, Item):
                    assert found.put(each) == expected.get(each.key)
                    expected[each.key] = each
                else:
                    assert found.get(each) == expected.get(each)
                    assert found.drop(each) == expected.pop(each, None)
            ranks = [found.rank(key) for key in sorted(expected)]
            assert ranks == list(range(len(found))) == list(range(len(expected)))
            loose, blocks = found.packed()
            counts = Counter(count_tags(blocks)) + Counter(item.tag for item in loose)
            assert counts == Counter(item.tag for item in expected.values())
            found = blocks_of(loose, blocks)
            assert list(found) == [expected[key] for key in sorted(expected)]


def test_a_change_makes_one_block_anew() -> None:
    found = blocks_of(tuple(Item(n, "a") for n in range(2000)))
    _, before = found.packed()
    again = blocks_of((), before)
    again.put(Item(700, "b"))
    _, after = again.packed()
    assert len(before) == len(after) == 8
    assert [n for n in range(8) if before[n] != after[n]] == [2]


def task(ledger_id: int, stage: LedgerStage, awaiting: SwitchAction) -> LedgerTask:
    return LedgerTask(ledger_id, LedgerKind.CURSOR, (f"/c{ledger_id}",), stage, awaiting)


TASKS = st.builds(
    task,
    st.integers(0, 40),
    st.sampled_from([LedgerStage.PENDING, LedgerStage.BUILT]),
    st.sampled_from([SwitchAction.NONE, SwitchAction.COPY]),
)


@given(st.lists(TASKS, max_size=40), st.lists(TASKS, max_size=10), st.integers(0, 50))
def test_a_plan_in_blocks_answers_as_one_spread_out(
    tasks: list[LedgerTask], changes: list[LedgerTask], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SIZE, 3)
        fields = LedgerPlan(tasks).packed()
        blocks = msgspec.convert(fields["blocks"], tuple[PlanBlock, ...])
        packed = LedgerPlan(msgspec.convert(fields["tasks"], tuple[LedgerTask, ...]), blocks)
    plain = LedgerPlan({each.ledger_id: each for each in tasks}.values())
    for plan in (packed, plain):
        for each in changes:
            plan.put(each)
    stages = (LedgerStage.BUILT, LedgerStage.PENDING)
    assert packed.idle(most, *stages) == plain.idle(most, *stages) == packed.idle(most, *stages)
    assert packed.count(*stages) == plain.count(*stages) == len(plain)
    assert packed.count_ordered(SwitchAction.COPY) == plain.count_ordered(SwitchAction.COPY)
    assert list(packed) == list(plain)


@pytest.mark.parametrize("stage", [SwitchStage.DONE, SwitchStage.ROLLED_BACK])
def test_a_switch_goes_the_same_way_in_blocks(stage: SwitchStage, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = WireWorld()
    plain.to(stage)
    monkeypatch.setattr(SIZE, 1)
    blocks = WireWorld()
    blocks.to(stage)
    assert [said.sentence for said in blocks.said] == [said.sentence for said in plain.said]
    assert [said.task for said in blocks.said] == [said.task for said in plain.said]
