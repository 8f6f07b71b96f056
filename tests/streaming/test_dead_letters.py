"""Dead letters: nothing of a record is lost, and the same record gives the same letter."""

import base64
import hashlib
import json
from typing import Any

import pytest

from policies.units import to_millis
from policies.wire import DEAD_LETTER_TYPE, KEPT_BYTES, BadRecordError, DeadLetterReason, ObservedRecord
from streaming.dead_letters import DeadLetter, dead_letter
from tests.policies.scenario import at

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
        "specversion": "1.0",
        "id": event["id"],
        "source": "headgate/query",
        "type": DEAD_LETTER_TYPE,
        "subject": "headgate.observed.log-dirs",
        "time": "2026-11-21T08:00:01.500Z",
        "datacontenttype": "application/json",
    }
    assert data == {
        "reason": "invalid",
        "detail": "data.broker: Input should be a valid integer",
        "topic": "headgate.observed.log-dirs",
        "partition": 0,
        "offset": 42,
        "appended_at": "2026-11-21T08:00:01.500Z",
        "value_base64": "e30=",
        "value_bytes": 2,
        "value_sha256": hashlib.sha256(b"{}").hexdigest(),
    }


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
    said = [
        BadRecordError(DeadLetterReason.WRONG_TOPIC, ERROR.detail),
        BadRecordError(ERROR.reason, "data.broker: another fault"),
    ]
    # Another record lies there where the topic was made anew.
    letters = [dead_letter(r, ERROR) for r in (record(), *places, record(b"other"), record(appended_ms=0))]
    letters += [dead_letter(record(), error) for error in said]
    assert len({json.loads(each.value)["id"] for each in letters}) == len(letters)
    assert dead_letter(record(), ERROR) == letters[0]


@pytest.mark.parametrize(
    ("appended_ms", "shown"),
    [
        (-1, "1970-01-01T00:00:00.000Z"),
        (1_763_712_000_000_000, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
    ],
    ids=["none", "microseconds", "largest"],
)
def test_a_timestamp_that_is_no_time_is_refused_and_yet_shown(appended_ms: int, shown: str) -> None:
    of = record(appended_ms=appended_ms)
    with pytest.raises(BadRecordError, match=f"timestamp: {appended_ms} ms is no time"):
        of.appended_at()
    assert letter(of)["data"]["appended_at"] == shown


def test_any_real_time_is_taken() -> None:
    assert record().appended_at() == at(1.5)
    assert letter(record(appended_ms=0))["data"]["appended_at"] == "1970-01-01T00:00:00.000Z"
