"""`headgate replay --batches`: a live run, killed in the middle, is replayed from its topics and from a recording."""

import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from policies.policy import BATCHES
from policies.registry import POLICIES, decided_topics, observed_topic, observed_topics
from policies.wire import KEPT_BYTES, observation_event
from tests.system.loop import Headgate, Topic, await_ready, make_topics, produce, write_settings
from tests.system.waiting import eventually

ROOT = Path(__file__).parents[2]


def observed() -> list[tuple[str, str, bytes]]:
    """Topic, cluster and record of all policies' examples, a few of them bad, in the order of their times."""
    readings = sorted(
        ((kind.name, r) for kind in POLICIES.values() for batch in kind.examples().batches for r in batch),
        key=lambda each: (each[1].time, each[0]),
    )
    good = [
        (
            observed_topic(type(r.reading)),
            r.reading.cluster,
            observation_event(r.reading, id=r.id, source="test", time=r.time),
        )
        for _, r in readings
    ]
    bad = [("observed.log-dirs", "payments", value) for value in (b"garbage", b"[" * 2_000_000, b" " * KEPT_BYTES)]
    return [*good[: len(good) // 2], *bad, *good[len(good) // 2 :]]


@pytest.mark.long  # as in `test_spark_cluster`, by the same command; and `test_faults` holds so against each kill
def test_a_live_run_that_was_killed_in_the_middle_is_replayed_byte_for_byte(
    tmp_path: Path, loop_kafka: str, free_port: int
) -> None:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    limits = {"soft": {"available_bytes_below": "5GB"}, "hard": {"available_bytes_below": "1GB"}, "heartbeat": "3s"}
    file = write_settings(
        tmp_path / "headgate.yaml",
        kafka={"bootstrap_servers": loop_kafka},
        topics={"prefix": prefix},
        data_dir=str(tmp_path / "data"),
        http={"port": free_port},
        policies={"throttle": limits},
    )
    make_topics(file)
    records, decide = observed(), ["decide", "-s", str(file)]
    half = len(records) // 2
    with (
        Topic(loop_kafka, f"{prefix}.{BATCHES}") as batches,
        Topic(loop_kafka, f"{prefix}.decided.throttle") as decided,
    ):
        with Headgate(decide, tmp_path / "decide.log") as query:
            await_ready(query, free_port)
            for topic, cluster, value in records[:half]:
                produce(loop_kafka, f"{prefix}.{topic}", (cluster, value))
            query.kill()
        with Headgate(decide, tmp_path / "decide.log") as query:
            await_ready(query, free_port)
            for topic, cluster, value in records[half:]:
                produce(loop_kafka, f"{prefix}.{topic}", (cluster, value))
            known = len(decided.data())
            eventually("heartbeats, which timers make", lambda: len(decided.data()) > known + 2)
            assert query.stop() == 0, query.output()
        taken = batches.data()
    assert len(taken) > 3
    live = read_all(loop_kafka, [f"{prefix}.{topic}" for topic in decided_topics()])
    written = {str(line["payload"]) for line in live}
    assert len(written) > 20
    replayed = replay(file, "--from", "2020-01-01T00:00:00Z")
    assert sorted(replayed) == sorted(written)
    assert len(set(replayed)) == len(replayed), "each once"
    taken_from = [f"{prefix}.{topic}" for topic in (*observed_topics(), BATCHES)]
    recording = tmp_path / "night.jsonl"
    recording.write_text("".join(f"{json.dumps(line)}\n" for line in read_all(loop_kafka, taken_from)))
    assert replay(file, str(recording)) == replayed


def replay(settings: Path, *options: str) -> list[str]:
    """What it prints."""
    command = [sys.executable, "-m", "deploy.cli", "replay", "-s", str(settings), "--batches", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=180)
    assert done.stderr == ""
    return done.stdout.splitlines()


def read_all(servers: str, topics: Sequence[str]) -> list[dict[str, object]]:
    """All records of topics of one partition, as `kcat -J` writes them."""
    lines: list[dict[str, object]] = []
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    for topic in topics:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        offset = 0
        while offset < end:
            (message,) = consumer.consume(1, timeout=30)
            offset = (message.offset() or 0) + 1
            value = message.value()
            lines.append(
                {
                    "topic": topic, "partition": 0, "offset": offset - 1, "tstype": "logappend",
                    "ts": message.timestamp()[1], "broker": 1, "key": (message.key() or b"").decode(),
                    "payload": None if value is None else value.decode(errors="replace"),
                }
            )  # fmt: skip
    consumer.close()
    return lines
