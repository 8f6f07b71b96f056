"""Today's query goes on from the checkpoint of real Spark and from the topics that an earlier version left.

`python -m tests.system.test_upgrade third.tar.xz` records both with the code at hand: once per version that changes
the format, never again for an old one.
"""

import io
import json
import re
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars
from policies.examples import ExampleReading
from policies.registry import POLICIES, observed_topic
from policies.wire import observation_event
from tests.system.loop import UNHURRIED, Headgate, Topic, await_ready, make_topics, produce, write_settings
from tests.system.waiting import eventually

PREFIX = "upgrade"
_RECORDS = "records.jsonl"
_CHECKPOINT = "checkpoint"
_PORT = 19_471


class Left(NamedTuple):
    """What was left behind."""

    checkpoint: Path
    records: dict[str, list[dict[str, Any]]]
    """By topic, without the prefix, in the order of offsets: `key` and `value`, null in a tombstone."""


def settings(servers: str, data_dir: Path, port: int) -> dict[str, Any]:
    """Of the query that left it, and of the one that goes on."""
    limits = {"soft": {"available_bytes_below": "5GB"}, "hard": {"available_bytes_below": "1GB"}}
    return {
        "kafka": {"bootstrap_servers": servers},
        "topics": {"prefix": PREFIX},
        "data_dir": str(data_dir),
        "http": {"port": port},
        "stream": UNHURRIED,
        "clusters": {r.reading.cluster: {} for r in examples()},
        "policies": {"throttle": limits},
    }


def examples() -> list[ExampleReading]:
    """The readings of every policy's own scenario."""
    return [reading for kind in POLICIES.values() for batch in kind.examples().batches for reading in batch]


def say_all(servers: str) -> None:
    """Append them, as of now."""
    for reading in examples():
        value = observation_event(reading.reading, id=str(uuid.uuid4()), source=reading.source, time=datetime.now(UTC))
        topic = f"{PREFIX}.{observed_topic(type(reading.reading))}"
        produce(servers, topic, (reading.reading.cluster, value))


def unpack(file: Path, folder: Path) -> Left:
    """Lay out in a folder what was packed."""
    with tarfile.open(file) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # absent, and not asked for, before 3.11.4
        packed.extractall(folder)
    for note in (folder / _CHECKPOINT).glob("state/*/_metadata/v2/[0-9]*"):  # Spark records absolute paths
        note.with_name(f".{note.name}.crc").unlink(missing_ok=True)
        note.write_text(re.sub(r"file:[^\"]*(?=/state/)", f"file:{folder / _CHECKPOINT}", note.read_text()))
    (folder / _CHECKPOINT / "kafka").unlink(missing_ok=True)  # whose offsets it counts: they lie on another one here
    records: dict[str, list[dict[str, Any]]] = {}
    for line in (folder / _RECORDS).read_text().splitlines():
        record = json.loads(line)
        records.setdefault(record.pop("topic"), []).append(record)
    return Left(folder / _CHECKPOINT, records)


def _record(file: Path) -> None:
    jars = ensure_jars("kafka", default_cache_dir())
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(Path(name) / "kafka", jars) as kafka:
        folder, servers = Path(name), kafka.bootstrap_servers
        written = write_settings(folder / "headgate.yaml", **settings(servers, folder / "data", _PORT))
        make_topics(written)
        with (
            Headgate(["decide", "-s", str(written)], folder / "decide.log") as query,
            Topic(servers, f"{PREFIX}.decided.throttle") as decided,
        ):
            await_ready(query, _PORT)
            for _ in range(3):
                say_all(servers)
                time.sleep(2)
            eventually("decisions", lambda: len(decided.entries()) > 2)
            assert query.stop() == 0, query.output()
        lines = "".join(f"{json.dumps(record)}\n" for record in _records(servers))
        with tarfile.open(file, "w:xz") as packed:
            packed.add(folder / "data" / _CHECKPOINT, _CHECKPOINT)
            entry = tarfile.TarInfo(_RECORDS)
            entry.size = len(lines.encode())
            packed.addfile(entry, io.BytesIO(lines.encode()))


def _records(servers: str) -> Iterator[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "upgrade", "enable.auto.commit": False})
    for topic in sorted(t for t in consumer.list_topics(timeout=30).topics if t.startswith(f"{PREFIX}.")):
        end, offset = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1], 0
        consumer.assign([TopicPartition(topic, 0, 0)])
        while offset < end:
            (message,) = consumer.consume(1, timeout=30)
            offset = (message.offset() or 0) + 1
            key, value = message.key(), message.value()
            yield {
                "topic": topic.removeprefix(f"{PREFIX}."),
                "key": None if key is None else key.decode(),
                "value": None if value is None else value.decode(),
            }
    consumer.close()


LEFT = sorted((Path(__file__).parents[1] / "data" / "upgrade").glob("*.tar.xz"))


@pytest.mark.parametrize("file", LEFT, ids=lambda file: file.name.partition(".")[0])
def test_a_query_goes_on_from_what_an_earlier_version_left(
    file: Path, tmp_path: Path, loop_kafka: str, free_port: int
) -> None:
    assert file.stat().st_size < 300_000
    written = write_settings(tmp_path / "headgate.yaml", **settings(loop_kafka, tmp_path / "data", free_port))
    (tmp_path / "data").mkdir()
    left = unpack(file, tmp_path / "data")
    make_topics(written)
    for topic, records in left.records.items():
        produce(loop_kafka, f"{PREFIX}.{topic}", *((r["key"], r["value"]) for r in records))
    taken = newest_commit(left.checkpoint)
    known = {subject_of(entry): entry["sequence"] for entry in map(decision, left.records["audit"])}
    known_policies = {policy for policy, *_ in known}
    assert known_policies == set(POLICIES) - {"bookie_disks"}, "no earlier version had it"

    with (
        Headgate(["decide", "-s", str(written)], tmp_path / "decide.log") as query,
        Topic(loop_kafka, f"{PREFIX}.audit") as audit,
        Topic(loop_kafka, f"{PREFIX}.dead-letters") as dead,
    ):
        before = len(audit.entries())
        await_ready(query, free_port)
        say_all(loop_kafka)
        policies = {"throttle", "isolation", "sessions", "switching"}
        eventually(
            "each policy decides", lambda: policies <= {e.data["decision"]["policy"] for e in audit.entries()[before:]}
        )
        assert query.stop() == 0, query.output()
        said = [entry.data["decision"] for entry in audit.entries()[before:]]
        assert dead.entries() == []
    assert not [each for each in said if each.get("alert") == "policy-failed"]
    assert newest_commit(left.checkpoint) > taken, "the same run goes on"
    followed = [each for each in said if subject_of(each) in known]
    assert followed
    assert all(each["sequence"] > known[subject_of(each)] for each in followed)


def decision(record: dict[str, Any]) -> dict[str, Any]:
    """Of a record of the audit."""
    return dict(json.loads(record["value"])["data"]["decision"])


def subject_of(decided: dict[str, Any]) -> tuple[str, ...]:
    """What counts its sequences."""
    return tuple(str(decided.get(name)) for name in ("policy", "cluster", "subject", "alert"))


def newest_commit(checkpoint: Path) -> int:
    """The number of the last batch that is done."""
    return max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())


if __name__ == "__main__":
    _record(Path(sys.argv[1]))
