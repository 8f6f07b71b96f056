"""The contract on the wire: what is written is read again; all else is a `BadRecordError` and never another error."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from policies.decisions import Alert, Decision
from policies.observations import Outcome, Reading
from policies.registry import decision_types, reading_types
from policies.throttle.readings import BrokerMember, KafkaCluster, LogDirs, VolumeReading
from policies.wire import (
    AUDIT_TYPE,
    MAX_RECORD_BYTES,
    BadRecordError,
    DeadLetterReason,
    Event,
    EventReader,
    audit_event,
    decision_event,
    observation_event,
)
from tests.cases import case, for_each

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
READINGS: EventReader[Reading] = EventReader(reading_types())
DECISIONS: EventReader[Decision] = EventReader(decision_types())

names = st.text(min_size=1, max_size=20)
sizes = st.integers(-1, 2**63 - 1)
brokers = st.integers(0, 2**31 - 1)
instants = st.integers(0, 4 * 10**12).map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
details = st.none() | st.text(max_size=20)

volumes = st.builds(
    VolumeReading, log_dir=names, total_bytes=sizes, usable_bytes=sizes, error=details, cordoned=st.booleans()
)
members = st.builds(BrokerMember, broker=brokers, rack=details, fenced=st.booleans())
attempts: dict[str, Any] = {"cluster": names, "outcome": st.sampled_from(Outcome), "detail": details}
readings: st.SearchStrategy[Reading] = st.one_of(
    st.builds(LogDirs, broker=brokers, volumes=st.lists(volumes, max_size=4).map(tuple), **attempts),
    st.builds(KafkaCluster, brokers=st.lists(members, max_size=4).map(tuple), **attempts),
)
GOLDEN = [
    line for file in sorted((Path(__file__).parents[1] / "data" / "replay").glob("*.decided.jsonl"))
    for line in file.read_bytes().splitlines()
]  # fmt: skip
"""Recorded decisions of each policy."""

LOG_DIRS: dict[str, Any] = {
    "cluster": "payments",
    "broker": 3,
    "outcome": "ok",
    "volumes": [{"log_dir": "/data/a", "total_bytes": 1000, "usable_bytes": 120, "error": None, "cordoned": False}],
}
EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "one",
    "source": "headgate/collector/kafka",
    "type": "headgate.log-dirs.v1",
    "subject": "payments/3",
    "time": "2026-11-21T08:00:00.000Z",
    "datacontenttype": "application/json",
    "data": LOG_DIRS,
}


def event(**changes: Any) -> bytes:
    """The event with other envelope fields; a field set to `...` is left out."""
    return json.dumps({k: v for k, v in {**EVENT, **changes}.items() if v is not ...}).encode()


def event_of(**changes: Any) -> bytes:
    """The event with other data fields."""
    return event(data={k: v for k, v in {**LOG_DIRS, **changes}.items() if v is not ...})


def event_of_volume(**changes: Any) -> bytes:
    """The event with other fields of its one volume."""
    only = {k: v for k, v in {**LOG_DIRS["volumes"][0], **changes}.items() if v is not ...}
    return event_of(volumes=[only])


def fault(record: bytes | str) -> BadRecordError:
    """What reading it as an observation raises."""
    with pytest.raises(BadRecordError) as caught:
        READINGS.read(record)
    return caught.value


def fault_if_any(record: bytes | str) -> BadRecordError | None:
    """What reading it raises, if it raises what it may."""
    try:
        READINGS.read(record)
    except BadRecordError as error:
        return error
    return None


def test_an_event_of_the_specification_is_read() -> None:
    read = READINGS.read(event())
    assert (read.id, read.subject, read.time) == ("one", "payments/3", NOW)
    volume = VolumeReading(log_dir="/data/a", total_bytes=1000, usable_bytes=120)
    assert read.data == LogDirs(cluster="payments", broker=3, outcome=Outcome.OK, volumes=(volume,))


@given(readings, names, instants)
def test_readings_round_trip(reading: Reading, id_: str, time: datetime) -> None:
    read = READINGS.read(observation_event(reading, id=id_, source="test", time=time))
    assert (read.data, type(read.data), read.id, read.time) == (reading, type(reading), id_, time)
    assert (read.type, read.subject) == (reading.event_type, reading.subject())


def test_recorded_decisions_round_trip() -> None:
    for line in GOLDEN:
        with case(line):
            read = DECISIONS.read(line)
            assert decision_event(read.data) == line
            told = read.data
            assert (read.id, read.subject, read.time) == (told.decision_id, told.subject, told.decided_at)
    assert {json.loads(line)["type"] for line in GOLDEN} >= {Alert.event_type, "headgate.placement.v1"}


@given(st.sampled_from(GOLDEN), st.dictionaries(names, st.integers() | names, max_size=3))
def test_the_audit_alone_has_the_numbers(line: bytes, numbers: dict[str, object]) -> None:
    decision = DECISIONS.read(line).data
    with_numbers = decision.model_copy(update={"numbers": numbers})
    audited = json.loads(audit_event(with_numbers))
    assert audited["type"] == AUDIT_TYPE
    assert audited["data"]["numbers"] == numbers
    assert audited["data"]["decision"] == decision.model_dump(mode="json")
    assert audited["data"]["decision_type"] == decision.event_type
    assert decision_event(with_numbers) == decision_event(decision)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(event(traceparent="00-1", dataschema=None, x={"y": [1]}), id="envelope"),
        pytest.param(event_of(controller=True), id="data"),
        pytest.param(event_of_volume(inodes=12), id="volume"),
        pytest.param(event()[:-1] + b',"x":NaN,"y":-Infinity}', id="not even a number"),
    ],
)
def test_unknown_fields_are_ignored(record: bytes) -> None:
    assert READINGS.read(record) == READINGS.read(event())


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(event(specversion=...), EVENT, id="specversion is 1.0"),
        pytest.param(event(datacontenttype=...), EVENT, id="content is JSON"),
        pytest.param(event(time=...), {**EVENT, "time": None}, id="no time"),
        pytest.param(event(subject=...), {**EVENT, "subject": None}, id="no subject"),
        pytest.param(event_of_volume(error=..., cordoned=...), EVENT, id="no error, not cordoned"),
    ],
)
def test_what_an_event_may_leave_out(record: bytes, expected: dict[str, Any]) -> None:
    assert READINGS.read(record) == READINGS.read(json.dumps(expected))


@for_each(
    ("record", "reason", "place"),
    [
        pytest.param(b"", "malformed", "record", id="empty"),
        pytest.param(b"[]", "malformed", "record", id="list"),
        pytest.param(event()[:-20], "malformed", "record", id="truncated"),
        pytest.param(event() + b"x", "malformed", "record", id="trailing garbage"),
        pytest.param(b"\xff\xfe" + event(), "malformed", "record", id="other encoding"),
        pytest.param(event().replace(b"payments", b"pay\xffments"), "malformed", "record", id="invalid UTF-8"),
        pytest.param("\ud800", "malformed", "record", id="lone surrogate"),
        pytest.param(b"[" * 100_000, "malformed", "record", id="deeply nested"),
        pytest.param(
            event()[:-1] + b',"x":' + b"[" * 9999 + b"]" * 9999 + b"}", "malformed", "record", id="nested unknown field"
        ),
        pytest.param(event_of(broker="#").replace(b'"#"', b"9" * 9999), "malformed", "record", id="endless number"),
        pytest.param(event(id=...), "malformed", "id", id="no id"),
        pytest.param(event(id=""), "malformed", "id", id="empty id"),
        pytest.param(event(specversion="0.3"), "malformed", "specversion", id="other version"),
        pytest.param(event(datacontenttype="text/plain"), "malformed", "datacontenttype", id="other content"),
        pytest.param(event(time="yesterday"), "malformed", "time", id="no instant"),
        pytest.param(event(time=1_795_248_000), "malformed", "time", id="time as number"),
        pytest.param(event(type=...), "unknown_type", "type", id="no type"),
        pytest.param(event(type=["headgate.log-dirs.v1"]), "unknown_type", "type", id="type a list"),
        pytest.param(event(type="headgate.log-dirs.v2"), "unknown_type", "type", id="newer type"),
        pytest.param(event(type="headgate.alert.v1"), "unknown_type", "type", id="decision as observation"),
        pytest.param(event(data=...), "invalid", "data", id="no data"),
        pytest.param(event(data=[LOG_DIRS]), "invalid", "data", id="data a list"),
        pytest.param(event(type="headgate.kafka-cluster.v1", data={}), "invalid", "data.cluster", id="empty data"),
        pytest.param(event_of(cluster=...), "invalid", "data.cluster", id="no cluster"),
        pytest.param(event_of(cluster=""), "invalid", "data.cluster", id="empty cluster"),
        pytest.param(event_of(broker="3"), "invalid", "data.broker", id="broker as text"),
        pytest.param(event_of(broker=-1), "invalid", "data.broker", id="negative broker"),
        pytest.param(event_of(broker=2**31), "invalid", "data.broker", id="broker beyond 32 bits"),
        pytest.param(event_of(broker=float("nan")), "invalid", "data.broker", id="NaN broker"),
        pytest.param(event_of(outcome=...), "invalid", "data.outcome", id="no outcome"),
        pytest.param(event_of(outcome="fine"), "invalid", "data.outcome", id="unknown outcome"),
        pytest.param(event_of(volumes={}), "invalid", "data.volumes", id="volumes an object"),
        pytest.param(event_of_volume(log_dir=""), "invalid", "data.volumes.0.log_dir", id="empty log dir"),
        pytest.param(event_of_volume(usable_bytes=float("nan")), "invalid", "data.volumes.0.usable_bytes", id="NaN"),
        pytest.param(event_of_volume(usable_bytes=1e400), "invalid", "data.volumes.0.usable_bytes", id="overflow"),
        pytest.param(
            event_of_volume(usable_bytes=2**63), "invalid", "data.volumes.0.usable_bytes", id="beyond 64 bits"
        ),
        pytest.param(event_of_volume(cordoned="no"), "invalid", "data.volumes.0.cordoned", id="cordoned as text"),
    ],
)
def test_what_is_wrong_with_a_record_is_said_with_its_place(record: bytes | str, reason: str, place: str) -> None:
    error = fault(record)
    assert error.reason == reason
    assert error.detail.startswith(f"{place}: ")
    assert str(error) == f"{reason}: {error.detail}"
    assert len(error.detail) < 400


def test_a_record_may_be_large_but_not_larger_than_its_limit() -> None:
    padding = MAX_RECORD_BYTES - len(event(x=""))
    assert READINGS.read(event(x="." * padding)).id == "one"
    error = fault(event(x="." * (padding + 1)))
    assert error.reason is DeadLetterReason.TOO_LARGE
    assert str(MAX_RECORD_BYTES) in error.detail


def test_several_faults_are_counted() -> None:
    assert fault(event_of(broker=-1, outcome="fine")).detail.endswith("(and 1 more)")


@pytest.mark.parametrize(
    "record", [event(type=...), event(type="headgate.kafka-cluster.v1"), event(type=5)], ids=["no", "other", "number"]
)
def test_a_reader_of_one_kind_refuses_all_others(record: bytes) -> None:
    with pytest.raises(BadRecordError, match="unknown_type: type: "):
        EventReader([LogDirs]).read(record)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (event(type="headgate.weather.v1"), "type: 'headgate.weather.v1' is none of the known ones"),
        (event(type="x" * 5000), f"type: '{'x' * 100}' is none of the known ones"),
        (event(type=...), "type: is needed"),
    ],
    ids=["unknown", "endless", "none"],
)
def test_of_an_unknown_type_that_type_is_named_and_not_all_that_there_are(record: bytes, says: str) -> None:
    assert fault(record).detail == says


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_arbitrary_json_is_a_bad_record(value: Any) -> None:
    assert fault(json.dumps(value)).reason in {DeadLetterReason.MALFORMED, DeadLetterReason.UNKNOWN_TYPE}


@given(
    st.sampled_from([("id",), ("type",), ("time",), ("data",), ("specversion",), ("subject",)])
    | st.sampled_from([("data", name) for name in LOG_DIRS])
    | st.sampled_from([("data", "volumes", 0, name) for name in LOG_DIRS["volumes"][0]]),
    json_values,
)
def test_an_event_with_any_one_value_replaced_is_read_or_a_bad_record(path: tuple[Any, ...], value: Any) -> None:
    changed = json.loads(event())
    inner = changed
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    error = fault_if_any(json.dumps(changed))
    if error is not None:
        assert error.reason == {"type": "unknown_type", "data": "invalid"}.get(path[0], "malformed")
        assert str(path[-1]) in error.detail


@given(st.data())
def test_an_event_with_any_bytes_replaced_is_read_or_a_bad_record(data: st.DataObject) -> None:
    record = bytearray(event())
    for _ in range(data.draw(st.integers(1, 3))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    error = fault_if_any(bytes(record))
    assert error is None or ": " in error.detail


@for_each("reading", reading_types())
def test_each_reading_names_its_type_once(reading: type[Reading]) -> None:
    assert [kind.event_type for kind in reading_types()].count(reading.event_type) == 1


def collections_of(kind: type[Reading]) -> list[tuple[str, str]]:
    named = ((name, str(field.annotation)) for name, field in kind.model_fields.items())
    return [(name, each) for name, text in named for each in ("tuple[", "dict[") if each in text.partition("]")[0]]


@for_each(("kind", "name", "of"), [(kind, *each) for kind in reading_types() for each in collections_of(kind)])
def test_of_a_list_or_map_that_is_wrong_throughout_the_first_mistake_is_told(
    kind: type[Reading], name: str, of: str
) -> None:
    """A record can hold two million, at a kilobyte and ten microseconds each, and be some thousand bytes compressed."""
    wrong: Any = [{"a": [0]}] * 1000 if of == "tuple[" else {f"{number}": 0 for number in range(1000)}
    event = {"specversion": "1.0", "id": "i", "source": "s", "type": kind.event_type}
    record = {**event, "data": {"cluster": "c", "outcome": "ok", name: wrong}}
    with pytest.raises(BadRecordError) as caught:
        READINGS.read(json.dumps(record))
    more = re.search(r"and (\d+) more", caught.value.detail)
    assert more is None or int(more[1]) < 20


# --- Everything that anybody may write into an observed topic has a bound, and the schema shows it.


_BOUNDS = {"string": "maxLength", "array": "maxItems"}


def unbounded(model: type[BaseModel]) -> set[str]:
    """Paths of strings, lists and maps without a bound, in a model's JSON Schema."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    return {path for name, each in {"": schema, **definitions}.items() for path in _unbounded(each, name)}


def _unbounded(schema: Any, path: str) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    is_closed = {"enum", "const", "format"} & schema.keys()
    if kind in _BOUNDS and not is_closed and _BOUNDS[kind] not in schema:
        yield path
    if kind == "object" and schema.get("additionalProperties") and "maxProperties" not in schema:
        yield path
    for name, each in schema.get("properties", {}).items():
        yield from _unbounded(each, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        yield from _unbounded(schema.get(name), f"{path}[]")
    for each in (*schema.get("anyOf", ()), *schema.get("prefixItems", ())):
        yield from _unbounded(each, path)


@for_each("reading", reading_types())
def test_every_string_list_and_map_of_a_reading_is_bounded(reading: type[Reading]) -> None:
    assert unbounded(reading) == set()


def test_so_is_what_an_event_says_of_itself() -> None:
    assert unbounded(Event[int]) == set()


def test_a_detail_is_cut_not_refused() -> None:
    """Collectors put what an error says there, which may be anything."""
    reading = next(r for r in reading_types() if r.event_type == "headgate.kafka-cluster.v1")
    assert len(reading(cluster="a", outcome="error", detail="x" * 10_000).detail or "") == 2000
