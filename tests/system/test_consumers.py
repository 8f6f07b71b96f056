"""The consumers that docs/consumers.md shows, run as they stand: each prints what Headgate decided."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from connectors.kafka.admin import create_topics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics
from connectors.kafka.topics import TopicSettings
from deploy.java.jvm import find_java
from policies.wire import decision_event
from streaming.host import PolicyHost
from streaming.replay import Recorded, Replay
from tests.deploy.whatif.test_replaying import COURSE
from tests.docs.blocks import Block, blocks
from tests.policies.scenario import HARD, throttle
from tests.streaming.records import event
from tests.system.waiting import DEADLINE_SECONDS, eventually

DECIDED = [
    decision
    for decision in Replay(PolicyHost({"throttle": throttle(HARD)})).run(Recorded("", event(o)) for o in COURSE)
    if decision.topic == "decided.throttle"
]


def shown(language: str) -> Block:
    (found,) = (block for block in blocks() if block.page == "docs/consumers.md" and block.language == language)
    return found


@pytest.fixture(scope="module")
def topic(loop_kafka: str) -> str:
    """With what was decided, and a tombstone among it."""
    connection, settings = (
        KafkaConnection(bootstrap_servers=loop_kafka),
        TopicSettings(prefix=f"t{uuid.uuid4().hex[:8]}"),
    )
    create_topics(connection, settings)
    name = settings.topic("decided.throttle")
    with Publisher(connection, PublisherMetrics(CollectorRegistry())) as publisher:
        publisher.publish(name, "orders", None)
        for decision in DECIDED:
            publisher.publish(name, decision.record_key(), decision_event(decision))
        assert publisher.flush(DEADLINE_SECONDS) == 0
    return name


@contextmanager
def running(command: list[str], log: Path) -> Iterator[Path]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield log
        finally:
            process.kill()


def assert_prints_all(log: Path) -> None:
    expected = [f"headgate.throttle-factor.v1 | {d.subject} | {d.verdict} | {d.explanation}" for d in DECIDED]
    eventually("all decisions", lambda: len(_lines(log)) >= len(expected) or None)
    assert _lines(log) == expected


def _lines(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if " | " in line]


def test_the_python_consumer_prints_what_was_decided(loop_kafka: str, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "consumer.py"
    file.write_text(shown("python").text)
    with running([sys.executable, str(file), loop_kafka, topic], tmp_path / "log") as log:
        assert_prints_all(log)


def test_the_java_consumer_prints_what_was_decided(
    loop_kafka: str, topic: str, kafka_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    file = tmp_path / "Decisions.java"
    file.write_text(shown("java").text)
    classpath = ":".join(str(jar) for jar in kafka_jars if not jar.name.startswith("log4j-slf4j"))
    with running([str(find_java()), "-cp", classpath, str(file), loop_kafka, topic], tmp_path / "log") as log:
        assert_prints_all(log)
