"""From the command to the first decision: the second `headgate up` in a folder, with everything fetched and formatted.

python bench/start.py
python bench/start.py --against HEAD~20
"""

import argparse
import tempfile
import time
from pathlib import Path

from bench.turns import Figures, run
from connectors.kafka.topics import TopicSettings
from tests.system.loop import Headgate, Topic, await_ready, write_settings
from tests.system.waiting import eventually

PORT, KAFKA_PORT = 19_464, 19_465
TOPIC = TopicSettings().topic("decided.throttle")


def measure(_: argparse.Namespace) -> Figures:
    """Measure until the first decision, which is an overdue heartbeat of the first micro-batch."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        folder = Path(name)
        settings = write_settings(
            folder / "headgate.yaml",
            embedded={"ports": [KAFKA_PORT]},
            data_dir=str(folder / "data"),
            http={"port": PORT},
            policies={"throttle": {"heartbeat": "1s"}},
        )
        _start(folder, settings)  # fetches the jars and formats Kafka's storage
        return _start(folder, settings)


def _start(folder: Path, settings: Path) -> Figures:
    began_ms = _now_ms()
    with Headgate(["up", "-s", str(settings)], folder / "up.log") as headgate:
        await_ready(headgate, PORT)
        ready_ms = _now_ms()
        with Topic(f"127.0.0.1:{KAFKA_PORT}", TOPIC) as decided:
            first_ms = eventually(
                "a decision", lambda: next((e.appended_ms for e in decided.entries() if e.appended_ms > began_ms), None)
            )
        headgate.stop()
    return {"to the first decision, s": (first_ms - began_ms) / 1000, "to ready, s": (ready_ms - began_ms) / 1000}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    run(measure)
