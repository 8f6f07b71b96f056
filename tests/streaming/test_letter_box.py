"""Dead letters: a few a minute of one kind, the others counted, and nothing that grows with what anybody writes."""

import json

import pytest

from streaming.host import PolicyHost
from streaming.letter_box import LETTERS_A_WINDOW, MOST_KINDS
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, log_dirs, throttle
from tests.streaming.records import changed_data
from tests.streaming.turns import Turns, counted, letters, reasons

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD)}, frozenset({CLUSTER}))


def unnamed() -> Turns:
    """The key of the records that name no cluster there is."""
    return Turns(HOST, cluster="")


def of(name: str) -> bytes:
    return changed_data(log_dirs(0, 3, GB), cluster=name)


def test_a_reading_of_a_cluster_that_nobody_named_is_a_dead_letter_and_has_no_state_of_a_policy() -> None:
    turns = unnamed()
    turn = turns.take(1, turns.record(of("paymnets"), appended=1))
    assert reasons(turn) == ["unknown-cluster"]
    assert letters(turn)[0]["detail"] == "data.cluster: 'paymnets' is not among the clusters of the settings"
    assert not turns.remembered.has_stepped
    assert len(turn.outputs) == 1


def test_a_few_a_minute_are_written_for_one_name_and_the_rest_is_counted() -> None:
    turns, written, told, forged = unnamed(), 0, [], of("forged")
    for second in range(300):
        turn = turns.take(second, *(turns.record(forged, appended=second) for _ in range(50)))
        written += len(letters(turn))
        told += counted(turn)
    last = turns.take(400)
    told += counted(last)
    assert written == 5 * LETTERS_A_WINDOW
    assert written + sum(each["count"] for each in told) == 300 * 50
    assert {(each["reason"], each["cluster"]) for each in told} == {("unknown-cluster", "forged")}
    assert len(told) == 5
    assert turns.take(500).outputs == (), "said once"


def test_the_count_comes_by_itself_when_nothing_else_does() -> None:
    turns = unnamed()
    turn = turns.take(0, *(turns.record(b"garbage", appended=0) for _ in range(LETTERS_A_WINDOW + 1)))
    assert turn.wake_ms is not None
    assert counted(turns.take(59)) == []
    assert [each["count"] for each in counted(turns.take(60))] == [1]


def test_invented_names_make_neither_state_nor_letters_grow() -> None:
    turns = unnamed()
    turn = turns.take(1, *(turns.record(of(f"forged-{n:0>200}"), appended=1) for n in range(10_000)))
    assert len(letters(turn)) <= (MOST_KINDS + 1) * LETTERS_A_WINDOW
    assert turns.kept is not None
    assert len(turns.kept) < 16_000
    told = counted(turns.take(70))
    assert len(letters(turn)) + sum(each["count"] for each in told) == 10_000
    assert [each["cluster"] for each in told if each["count"] > 1] == [None], "of many names together"


def test_bad_records_of_a_known_cluster_are_counted_beside_its_decisions() -> None:
    turns = Turns(HOST)
    bad = [turns.record(changed_data(log_dirs(0, 3, GB), broker="x"), appended=1) for _ in range(100)]
    turn = turns.take(1, *bad, turns.record(log_dirs(0, 3, GB // 2), appended=1))
    assert reasons(turn) == ["invalid"] * LETTERS_A_WINDOW
    assert [d.verdict for d in turn.decisions if d.topic == "decided.throttle"] == ["lower"]
    assert [each["count"] for each in counted(turns.take(61))] == [95]


def test_a_batch_that_is_repeated_writes_the_same_letters() -> None:
    turns = unnamed()
    turns.take(0, *(turns.record(b"garbage", appended=0) for _ in range(20)))
    kept, records = turns.kept, [turns.record(b"garbage", appended=61) for _ in range(20)]
    first = turns.take(61, *records)
    turns.kept = kept
    assert turns.take(61, *records).outputs == first.outputs
    assert counted(first)


def test_a_count_of_a_new_run_that_ends_with_the_same_record_has_another_id() -> None:
    turns = unnamed()
    records = [turns.record(b"garbage", appended=0) for _ in range(20)]
    turns.take(0, *records[:10])
    turns.take(5, *records[10:])
    (first,) = turns.take(61).outputs
    turns.kept = None  # the checkpoint is lost: everything is read again, at once
    turns.take(62, *records)
    (again,) = turns.take(123).outputs
    assert json.loads(first.value)["data"]["last"] == json.loads(again.value)["data"]["last"]
    assert json.loads(first.value)["id"] != json.loads(again.value)["id"]


@pytest.mark.parametrize("back_to", [-86_400, -10])
def test_a_clock_that_is_set_back_does_not_silence_dead_letters(back_to: float) -> None:
    turns = unnamed()
    turns.take(0, *(turns.record(b"garbage", appended=0) for _ in range(20)))
    turn = turns.take(back_to, turns.record(b"garbage", appended=back_to))
    assert reasons(turn) == ["malformed"]
    assert [each["count"] for each in counted(turn)] == [20 - LETTERS_A_WINDOW]
