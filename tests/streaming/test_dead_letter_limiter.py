"""Dead letters: a few a minute of one kind, the others counted, and nothing that grows with what anybody writes."""

import json

import pytest

from streaming.dead_letters import LETTERS_A_WINDOW, MOST_KINDS
from streaming.host import PolicyHost
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, log_dirs, throttle
from tests.streaming.records import changed_data
from tests.streaming.transitions import Transitions, counted, letters, reasons

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD)}, frozenset({CLUSTER}))


def unnamed() -> Transitions:
    """The key of the records that name no cluster there is."""
    return Transitions(HOST, cluster="")


def of(name: str) -> bytes:
    return changed_data(log_dirs(0, 3, GB), cluster=name)


def test_a_reading_of_a_cluster_that_nobody_named_is_a_dead_letter_and_has_no_state_of_a_policy() -> None:
    transitions = unnamed()
    transition = transitions.take(1, transitions.record(of("paymnets"), appended=1))
    assert reasons(transition) == ["unknown-cluster"]
    assert letters(transition)[0]["detail"] == "data.cluster: 'paymnets' is not among the clusters of the settings"
    assert not transitions.key_state.has_stepped
    assert len(transition.outputs) == 1


def test_a_few_a_minute_are_written_for_one_name_and_the_rest_is_counted() -> None:
    transitions, written, told, forged = unnamed(), 0, [], of("forged")
    for second in range(300):
        transition = transitions.take(second, *(transitions.record(forged, appended=second) for _ in range(10)))
        written += len(letters(transition))
        told += counted(transition)
    last = transitions.take(400)
    told += counted(last)
    assert written == 5 * LETTERS_A_WINDOW
    assert written + sum(each["count"] for each in told) == 300 * 10
    assert {(each["reason"], each["cluster"]) for each in told} == {("unknown-cluster", "forged")}
    assert len(told) == 5
    assert transitions.take(500).outputs == (), "said once"


def test_the_count_comes_by_itself_when_nothing_else_does() -> None:
    transitions = unnamed()
    transition = transitions.take(0, *(transitions.record(b"garbage", appended=0) for _ in range(LETTERS_A_WINDOW + 1)))
    assert transition.wake_ms is not None
    assert counted(transitions.take(59)) == []
    assert [each["count"] for each in counted(transitions.take(60))] == [1]


def test_invented_names_make_neither_state_nor_letters_grow() -> None:
    transitions = unnamed()
    transition = transitions.take(1, *(transitions.record(of(f"forged-{n:0>200}"), appended=1) for n in range(2000)))
    assert len(letters(transition)) <= (MOST_KINDS + 1) * LETTERS_A_WINDOW
    assert transitions.kept is not None
    assert len(transitions.kept) < 16_000
    told = counted(transitions.take(70))
    assert len(letters(transition)) + sum(each["count"] for each in told) == 2000
    assert [each["cluster"] for each in told if each["count"] > 1] == [None], "of many names together"


def test_bad_records_of_a_known_cluster_are_counted_beside_its_decisions() -> None:
    transitions = Transitions(HOST)
    bad = [transitions.record(changed_data(log_dirs(0, 3, GB), broker="x"), appended=1) for _ in range(100)]
    transition = transitions.take(1, *bad, transitions.record(log_dirs(0, 3, GB // 2), appended=1))
    assert reasons(transition) == ["invalid"] * LETTERS_A_WINDOW
    assert [d.verdict for d in transition.decisions if d.topic == "decided.throttle"] == ["lower"]
    assert [each["count"] for each in counted(transitions.take(61))] == [95]


def test_a_batch_that_is_repeated_writes_the_same_letters() -> None:
    transitions = unnamed()
    transitions.take(0, *(transitions.record(b"garbage", appended=0) for _ in range(20)))
    kept, records = transitions.kept, [transitions.record(b"garbage", appended=61) for _ in range(20)]
    first = transitions.take(61, *records)
    transitions.kept = kept
    assert transitions.take(61, *records).outputs == first.outputs
    assert counted(first)


def test_a_count_of_a_new_run_that_ends_with_the_same_record_has_another_id() -> None:
    transitions = unnamed()
    records = [transitions.record(b"garbage", appended=0) for _ in range(20)]
    transitions.take(0, *records[:10])
    transitions.take(5, *records[10:])
    (first,) = transitions.take(61).outputs
    transitions.kept = None  # the checkpoint is lost: everything is read again, at once
    transitions.take(62, *records)
    (again,) = transitions.take(123).outputs
    assert json.loads(first.value)["data"]["last"] == json.loads(again.value)["data"]["last"]
    assert json.loads(first.value)["id"] != json.loads(again.value)["id"]


@pytest.mark.parametrize("back_to", [-86_400, -10])
def test_a_clock_that_is_set_back_does_not_silence_dead_letters(back_to: float) -> None:
    transitions = unnamed()
    transitions.take(0, *(transitions.record(b"garbage", appended=0) for _ in range(20)))
    transition = transitions.take(back_to, transitions.record(b"garbage", appended=back_to))
    assert reasons(transition) == ["malformed"]
    assert [each["count"] for each in counted(transition)] == [20 - LETTERS_A_WINDOW]
