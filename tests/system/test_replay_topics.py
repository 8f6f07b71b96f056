"""`headgate replay --from`: the observed topics of a range, read from a real broker."""

import json
import subprocess
import sys
import threading
import uuid
from datetime import UTC, datetime
from pathlib import Path

from policies.observations import Outcome
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.units import format_instant
from policies.wire import observation_event
from tests.system.loop import make_topics, produce, write_settings

ROOT = Path(__file__).parents[2]


def record(usable_bytes: int) -> tuple[str, bytes]:
    """A record that claims to be from long ago: what counts is when Kafka appended it."""
    volume = VolumeReading(log_dir="/data", total_bytes=1000, usable_bytes=usable_bytes)
    reading = LogDirs(cluster="a", outcome=Outcome.OK, broker=1, volumes=(volume,))
    return "a", observation_event(reading, id=str(uuid.uuid4()), source="test", time=datetime(2020, 1, 1, tzinfo=UTC))


def test_a_range_of_the_observed_topics_is_replayed_by_when_it_was_appended(tmp_path: Path, loop_kafka: str) -> None:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    file = write_settings(
        tmp_path / "headgate.yaml",
        kafka={"bootstrap_servers": loop_kafka},
        topics={"prefix": prefix, "partitions": 2},
        policies={"throttle": {"hard": {"available_bytes_below": 100}}},
    )
    make_topics(file)
    produce(loop_kafka, f"{prefix}.observed.log-dirs", record(50))
    threading.Event().wait(0.02)  # Kafka's timestamps are whole milliseconds
    middle = datetime.now(UTC)
    for later in (record(500), ("a", b"garbage"), record(99)):
        produce(loop_kafka, f"{prefix}.observed.log-dirs", later)

    def replay(*options: str) -> tuple[list[dict[str, object]], str]:
        command = [sys.executable, "-m", "deploy.cli", "replay", "-s", str(file), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=180)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        return [e["data"] for e in events if e["type"] == "headgate.throttle-factor.v1"], done.stderr

    everything, complaints = replay("--from", "2020-01-01T00:00:00Z")
    assert [d["reason"] for d in everything] == ["hard_limit", "min_hold", "hard_limit"]
    assert f"{prefix}.observed.log-dirs/" in complaints
    assert "malformed" in complaints
    before, _ = replay("--from", "2020-01-01T00:00:00Z", "--to", format_instant(middle))
    after, _ = replay("--from", format_instant(middle))
    assert before == everything[:1]
    assert [d["factor"] for d in after] == [1.0, 0.0]
