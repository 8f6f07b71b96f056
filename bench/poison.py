"""How long a valid reading waits for its decision behind other records of its topic: a real query on a real broker.

It measures without other records, behind 100,000 records of garbage, behind readings of another cluster's 60 brokers
with the maximum of log dirs each, and behind one reading with as many log dirs as these together. Times are Kafka's own
(append to append); the query is warm.

    python -m bench.poison
"""

import argparse
import json
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

from bench.turns import Figures, run
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars, spark_group
from policies.observations import Outcome
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event
from tests.eager import EAGER, TOTAL_BYTES
from tests.system.loop import Headgate, Topic, await_ready, produce, write_settings
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

PREFIX = "headgate"
OBSERVED, DECIDED = f"{PREFIX}.observed.log-dirs", f"{PREFIX}.decided.throttle"
GARBAGE = 100_000
MOST_LOG_DIRS, BROKERS, FAR_TOO_MANY = 1000, 60, 60_000
_WARM_UP = 4


def main() -> None:
    """Measure and print."""
    run(__doc__ or "", measure, argparse.ArgumentParser(prog="python -m bench.poison"))


def measure(_: argparse.Namespace) -> Figures:
    """Return the seconds by the records before the reading."""
    brokers = [("a", _reading("a", 7, MOST_LOG_DIRS, broker)) for broker in range(BROKERS)]
    before = {
        "nothing": [],
        f"{GARBAGE:,} records of garbage": [("a", b"garbage")] * GARBAGE,
        f"readings of {BROKERS} brokers with {MOST_LOG_DIRS:,} log dirs": brokers,
        f"a reading of {FAR_TOO_MANY:,} log dirs": [("a", _reading("a", 7, FAR_TOO_MANY))],
    }
    with _loop() as servers, Topic(servers, DECIDED) as decided:
        for level in range(1, 1 + _WARM_UP):
            _waited(servers, decided, level, [])
        return {
            f"behind {what}, s": _waited(servers, decided, _WARM_UP + number, records)
            for number, (what, records) in enumerate(before.items(), 1)
        }


def _waited(servers: str, decided: Topic, level: int, before: list[tuple[str, bytes]]) -> float:
    """Return the time from the append of a valid reading of `b` to that of its decision."""
    produce(servers, OBSERVED, *before, compression="gzip")
    appended: list[int] = []
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    said = _reading("b", level * 90_000)
    producer.produce(OBSERVED, key="b", value=said, on_delivery=lambda _, m: appended.append(m.timestamp()[1]))
    producer.flush()
    factor = (level * 90_000 - 1) / 999_998
    found = eventually(
        "its decision",
        lambda: next((e for e in decided.entries() if e.key == "b" and abs(e.data["factor"] - factor) < 1e-5), None),
    )
    return (found.appended_ms - appended[0]) / 1000


def _reading(cluster: str, usable_bytes: int, log_dirs: int = 1, broker: int = 1) -> bytes:
    """Format it as JSON, because this reading is larger than Headgate's own."""
    volume = VolumeReading(log_dir="/data/0", total_bytes=TOTAL_BYTES, usable_bytes=usable_bytes)
    reading = LogDirs(cluster=cluster, outcome=Outcome.OK, broker=broker, volumes=(volume,))
    event = json.loads(observation_event(reading, id=str(uuid.uuid4()), source="bench", time=datetime.now(UTC)))
    (one,) = event["data"]["volumes"]
    event["data"]["volumes"] = [{**one, "log_dir": f"/data/{number}"} for number in range(log_dirs)]
    return json.dumps(event).encode()


@contextmanager
def _loop() -> Iterator[str]:
    """Start a warm query; yield the servers of its Kafka."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        folder, port = Path(name), free_port()
        ensure_jars(spark_group(), default_cache_dir())
        with EmbeddedKafka(folder / "kafka", ensure_jars("kafka", default_cache_dir())) as kafka:
            file = write_settings(
                folder / "headgate.yaml",
                kafka={"bootstrap_servers": kafka.bootstrap_servers},
                topics={"prefix": PREFIX},
                data_dir=str(folder / "data"),
                http={"port": port},
                clusters={"a": {}, "b": {}},
                policies={"throttle": EAGER},
            )
            with Headgate(["topics", "create", "-s", str(file)], folder / "topics.log") as create:
                assert create.wait() == 0, create.output()
            with Headgate(["decide", "-s", str(file)], folder / "decide.log") as query:
                await_ready(query, port)
                yield kafka.bootstrap_servers


if __name__ == "__main__":
    main()
