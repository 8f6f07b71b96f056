"""Dead letters: nothing of a record is lost, and the same record gives the same letter."""

import base64
import hashlib
import json
from typing import Any

import pytest

from policies.units import to_millis
from policies.wire import DEAD_LETTER_TYPE, KEPT_BYTES, LAST_MS, BadRecordError, DeadLetterReason, ObservedRecord
from streaming.dead_letters import LETTERS_A_WINDOW, MOST_KINDS, DeadLetter, dead_letter
from streaming.host import PolicyHost
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, at, log_dirs, throttle
from tests.streaming.records import changed_data
from tests.streaming.transitions import Transitions, counted, letters, reasons, verdicts

ERROR = BadRecordError(DeadLetterReason.INVALID, "data.broker: Input should be a valid integer")


def record(value: bytes | None = b"{}", *, topic: str = "headgate.observed.log-dirs", partition: int = 0,
           offset: int = 42, appended_ms: int = to_millis(at(1.5))) -> ObservedRecord:  # fmt: skip
    return ObservedRecord(topic, partition, offset, appended_ms, value)


def letter(of: ObservedRecord) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(dead_letter(of, ERROR).value)
    return read


def test_it_is_an_event_that_says_why_and_where() -> None:
    out = dead_letter(record(), ERROR)
    assert (out.topic, out.key) == ("dead-letters", "headgate.observed.log-dirs")
    event = json.loads(out.value)
    data = event.pop("data")
    assert event == {
        "specversion": "1.0", "id": event["id"], "source": "headgate/query", "type": DEAD_LETTER_TYPE,
        "subject": "headgate.observed.log-dirs", "time": "2026-11-21T08:00:01.500Z",
        "datacontenttype": "application/json",
    }  # fmt: skip
    assert data == {
        "reason": "invalid", "detail": "data.broker: Input should be a valid integer",
        "topic": "headgate.observed.log-dirs", "partition": 0, "offset": 42, "appended_at": "2026-11-21T08:00:01.500Z",
        "value_base64": "e30=", "value_bytes": 2, "value_sha256": hashlib.sha256(b"{}").hexdigest(),
    }  # fmt: skip


@pytest.mark.parametrize("value", [b"", b"\x00\xff", "ü".encode(), bytes(range(256)) * 64, None])
def test_a_small_record_is_kept_whole(value: bytes | None) -> None:
    kept = DeadLetter.model_validate(letter(record(value))["data"])
    assert base64.b64decode(kept.value_base64) == (value or b"")
    assert kept.value_bytes == len(value or b"")


def test_of_a_large_one_its_head_is_kept_and_what_tells_it_again() -> None:
    value = b" " * 20_000_000
    out = dead_letter(record(value), BadRecordError(DeadLetterReason.TOO_LARGE, "x" * 10_000_000))
    kept = DeadLetter.model_validate(json.loads(out.value)["data"])
    assert len(out.value) < 2 * KEPT_BYTES
    assert base64.b64decode(kept.value_base64) == value[:KEPT_BYTES]
    assert (kept.value_bytes, kept.value_sha256) == (len(value), hashlib.sha256(value).hexdigest())


def test_no_id_stands_for_two_letters_and_the_same_letter_has_the_same() -> None:
    places = [record(offset=43), record(partition=1), record(topic="headgate.observed.bookies")]
    said = [(DeadLetterReason.WRONG_TOPIC, ERROR.detail), (ERROR.reason, "data.broker: another fault")]
    # Another record lies there where the topic was made anew.
    letters = [dead_letter(r, ERROR) for r in (record(), *places, record(b"other"), record(appended_ms=0))]
    letters += [dead_letter(record(), BadRecordError(*error)) for error in said]
    assert len({json.loads(each.value)["id"] for each in letters}) == len(letters)
    assert dead_letter(record(), ERROR) == letters[0]


FIRST, LAST = "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"


@for_each(("appended_ms", "shown"), [(-1, FIRST), (1_763_712_000_000_000, LAST), (2**63 - 1, LAST)])
def test_a_timestamp_that_is_no_time_is_refused_and_yet_shown(appended_ms: int, shown: str) -> None:
    transitions = Transitions(HOST)
    reading = transitions.record(log_dirs(0, 3, GB), appended=0)._replace(appended_ms=appended_ms)
    (told,) = letters(transitions.take(1, reading))
    assert (told["detail"], told["appended_at"]) == (f"timestamp: {appended_ms} ms is no time", shown)


@for_each("appended_ms", [0, LAST_MS])
def test_the_first_and_the_last_time_are_times(appended_ms: int) -> None:
    transitions = Transitions(HOST)
    reading = transitions.record(log_dirs(0, 3, GB), appended=0)._replace(appended_ms=appended_ms)
    assert letters(transitions.take(1, reading)) == []


# --- Dead letters: a few a minute of one kind, the others counted, and nothing that grows with what anybody writes

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
    assert verdicts(transition) == ["lower"]
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
