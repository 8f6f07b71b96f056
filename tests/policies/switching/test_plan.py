"""The plan: idle ledgers come in the order of ids, however they came in."""

from hypothesis import given
from hypothesis import strategies as st

from policies.switching.ledgers import LedgerKind
from policies.switching.plan import LedgerPlan
from policies.switching.state import LedgerStage, LedgerTask, SwitchAction

L, A = LedgerStage, SwitchAction


def task(ledger_id: int, stage: LedgerStage = L.PENDING, awaiting: SwitchAction = A.NONE) -> LedgerTask:
    return LedgerTask(ledger_id, LedgerKind.CURSOR, (f"/c{ledger_id}",), stage, awaiting)


def test_ledgers_are_counted_as_they_move() -> None:
    plan = LedgerPlan([task(1), task(2, awaiting=A.COPY), task(3, L.PROMOTED, A.GIVEN_UP)])
    assert (plan.count(L.PENDING), plan.count_ordered(A.COPY), plan.count_unfinished(L.PROMOTED)) == (2, 1, 0)
    plan.put(task(2, L.BUILT))
    plan.drop(task(1).key)
    assert (plan.count(L.PENDING), plan.count(L.PENDING, L.BUILT), plan.count_ordered(A.COPY)) == (0, 1, 0)
    assert plan.touched == {task(2).key}


TASKS = st.builds(task, st.integers(0, 40), st.sampled_from([L.PENDING, L.BUILT]), st.sampled_from([A.NONE, A.COPY]))


@given(st.lists(st.lists(TASKS | st.integers(0, 40), max_size=12), max_size=6), st.integers(0, 50))
def test_a_plan_is_a_sorted_dictionary_over_any_steps(steps: list[list[LedgerTask | int]], most: int) -> None:
    expected: dict[int, LedgerTask] = {}
    found = LedgerPlan()
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
        in_order = [expected[key] for key in sorted(expected)]
        assert [found.place(each.key) for each in in_order] == list(range(1, len(expected) + 1))
        idle = [t for stage in (L.BUILT, L.PENDING) for t in in_order if (t.stage, t.awaiting) == (stage, A.NONE)]
        assert found.idle(most, L.BUILT, L.PENDING) == idle[:most]
        found = LedgerPlan(found)
        assert (list(found), len(found)) == (in_order, len(expected))
        assert list(found.at(L.BUILT)) == [each for each in in_order if each.stage is L.BUILT]
        assert found.count(L.BUILT) == sum(each.stage is L.BUILT for each in expected.values())
        assert found.idle(most, L.BUILT, L.PENDING) == found.idle(most, L.BUILT, L.PENDING) == idle[:most]
