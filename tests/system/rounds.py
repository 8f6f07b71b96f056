"""A query on topics of its own that is given a reading of each cluster, round by round, and what it made of them."""

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from policies.observations import Outcome
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event
from tests.eager import EAGER, TOTAL_BYTES
from tests.system.loop import UNHURRIED, Headgate, Topic, make_topics, produce, write_settings

CLUSTERS = ("a", "b", "c", "d", "e")
DECIDED = ("verdict", "reason", "factor", "previous_factor", "raw_factor", "volumes", "brokers", "mode")
"""Of a decision, what no clock has a part in."""


class Run:
    """A query on topics of its own.

    Args:
        folder: for its data.
        servers: of the loop's Kafka.
        port: of /metrics.
        stream: its `stream` block.
    """

    def __init__(self, folder: Path, servers: str, port: int, stream: dict[str, Any]) -> None:
        self.folder, self.servers, self.port = folder, servers, port
        self.prefix = f"t{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        self.file = write_settings(
            folder / "headgate.yaml",
            kafka={"bootstrap_servers": servers},
            topics={"prefix": self.prefix, "partitions": 1},
            data_dir=str(folder / "data"),
            http={"port": port},
            policies={"throttle": EAGER},
            clusters={cluster: {} for cluster in CLUSTERS},
            # Four JVMs that start at once on a busy machine are slow, and not stalled.
            stream={**UNHURRIED, "shuffle_partitions": 2, "stall_timeout": "20m", **stream},
        )
        make_topics(self.file)

    def query(self) -> Headgate:
        return Headgate(["decide", "-s", str(self.file)], self.folder / "decide.log")

    def decided(self) -> Topic:
        return Topic(self.servers, f"{self.prefix}.decided.throttle")

    def observe(self, round_: int) -> None:
        """Publish a reading of each cluster, with other values each round."""
        records = [(name, reading(name, round_, number)) for number, name in enumerate(CLUSTERS)]
        produce(self.servers, f"{self.prefix}.observed.log-dirs", *records)


def reading(cluster: str, round_: int, number: int) -> bytes:
    usable = 100_000 * (1 + (round_ * 3 + number) % 8)
    volume = VolumeReading(log_dir="/data", total_bytes=TOTAL_BYTES, usable_bytes=usable)
    data = LogDirs(cluster=cluster, outcome=Outcome.OK, broker=1, volumes=(volume,))
    return observation_event(data, id=str(uuid.uuid4()), source="test", time=datetime.now(UTC))


def decisions(decided: Topic) -> dict[str, list[dict[str, Any]]]:
    """Decisions by cluster, each once, in order, without fields that depend on the time; their numbers have no gap."""
    by_id = {each["decision_id"]: each for each in decided.data()}
    found: dict[str, list[dict[str, Any]]] = {cluster: [] for cluster in CLUSTERS}
    numbers: dict[str, list[int]] = {cluster: [] for cluster in CLUSTERS}
    for each in sorted(by_id.values(), key=lambda each: each["sequence"]):
        found[each["cluster"]].append({name: each[name] for name in DECIDED})
        numbers[each["cluster"]].append(each["sequence"])
    assert all(given == list(range(given[0], given[0] + len(given))) for given in numbers.values() if given)
    return found


def has_decided(decided: Topic, rounds: int) -> bool:
    return all(len(each) == rounds for each in decisions(decided).values())
