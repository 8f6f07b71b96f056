"""One order at a time about each ledger, the newest last."""

from connectors.switching.order_queue import LedgerOrderQueue
from policies.observations import Outcome
from policies.switching.decisions import SwitchVerdict
from policies.switching.readings import LedgerOutcome, SwitchLedger
from tests.connectors.switching.orders import order

COPY, DELETE = SwitchVerdict.START_COPY, SwitchVerdict.DELETE_OWN_COPY


def test_orders_about_several_ledgers_begin_at_once() -> None:
    queue = LedgerOrderQueue()
    assert queue.begin(order(COPY, 1, 7))
    assert queue.begin(order(COPY, 2, 8))


def test_a_second_order_about_a_ledger_waits_for_the_first() -> None:
    queue, first, second, third = LedgerOrderQueue(), order(COPY, 1), order(DELETE, 2), order(COPY, 3)
    assert [queue.begin(each) for each in (first, second, third)] == [True, False, False]
    assert queue.finish(first) is second
    assert queue.finish(second) is third
    assert queue.finish(third) is None
    assert queue.begin(order(COPY, 4)), "nothing is under way any more"


def test_what_is_not_done_is_in_hand() -> None:
    queue, first, second = LedgerOrderQueue(), order(COPY, 1, 7), order(DELETE, 2, 7)
    queue.begin(first)
    queue.begin(order(COPY, 3, 8))
    queue.begin(second)
    assert queue.open_count == 2
    assert (queue.finish(first), queue.open_count) == (second, 2)
    assert (queue.finish(second), queue.open_count) == (None, 1)


def test_a_repeated_or_earlier_order_is_dropped_also_when_nothing_is_under_way() -> None:
    queue, second = LedgerOrderQueue(), order(DELETE, 2)
    assert queue.begin(second)
    assert not queue.begin(second)
    assert queue.finish(second) is None
    assert not queue.begin(order(COPY, 1))
    assert not queue.begin(second)


def test_the_same_order_given_anew_is_carried_out_again() -> None:
    queue, first = LedgerOrderQueue(), order(COPY, 1)
    assert queue.begin(first)
    assert queue.finish(first) is None
    assert queue.begin(order(COPY, 1, sequence=500)), "driven on, under the same number"


def failed(ledger_id: int) -> SwitchLedger:
    return SwitchLedger(cluster="c1", outcome=Outcome.OK, ledger_id=ledger_id, op=1, result=LedgerOutcome.FAILED)


def test_failures_in_a_row_are_published_later_and_later_up_to_half_a_minute() -> None:
    queue = LedgerOrderQueue()
    assert [queue.backoff_seconds(failed(7)) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert queue.backoff_seconds(failed(8)) == 1
    queue.reset_backoff(failed(7))
    assert queue.backoff_seconds(failed(7)) == 1
