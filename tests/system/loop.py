"""Drives the real command in processes of its own, and reads what it writes."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from connectors.kafka.admin import create_topics
from deploy.settings.file import load_settings
from tests.system.processes import descendants
from tests.system.waiting import DEADLINE_SECONDS, eventually, watched

UNHURRIED = {"trigger_interval": "1s"}
"""For a query whose latency no test measures. In a JVM's first minutes a batch takes a seventh of a second of processor
time, so a batch for each poll would take half a core from the other workers."""
SOON = {"trigger_interval": "400ms"}
"""For a query whose decisions a test times by the second."""

_NO_TOPIC_YET = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@dataclass(frozen=True)
class Entry:
    """One record of a topic."""

    key: str
    event: dict[str, Any]
    appended_ms: int
    offset: int
    content_type: str | None = None
    """Its header of this name."""

    @property
    def data(self) -> dict[str, Any]:
        return dict(self.event["data"])


class Topic:
    """Reads one topic (of one partition) from its beginning, again and again."""

    def __init__(self, servers: str, name: str) -> None:
        settings = {"group.id": "test", "enable.auto.commit": False, "enable.partition.eof": True}
        self._consumer = Consumer({"bootstrap.servers": servers, **settings})
        self._consumer.assign([TopicPartition(name, 0, 0)])
        self._name = name
        self._next_offset = 0
        self._entries: list[Entry] = []
        self._deleted: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()

    def entries(self) -> list[Entry]:
        """All records that were stored before this call."""
        end = self._end()
        eventually(f"{self._name} is read up to {end}", lambda: self._has_read(end))
        return list(self._entries)

    def deleted(self) -> list[str]:
        """The keys of all tombstones so far."""
        self.entries()
        return list(self._deleted)

    def _has_read(self, end: int) -> bool:
        while self._next_offset < end and (message := self._consumer.poll(1.0)) is not None:
            self._take(message)
        return self._next_offset >= end

    def _end(self) -> int:
        return eventually(f"{self._name} has a leader", self._ask_end)[0]

    def _ask_end(self) -> tuple[int] | None:
        partition = TopicPartition(self._name, 0)
        try:
            return (int(self._consumer.get_watermark_offsets(partition, timeout=DEADLINE_SECONDS)[1]),)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.NOT_LEADER_FOR_PARTITION:  # of a topic that was just created
                return None
            if code not in _NO_TOPIC_YET:
                raise
            return (0,)

    def _take(self, message: Message) -> None:
        error, offset = message.error(), message.offset() or 0
        if error is not None:
            assert error.code() in (KafkaError._PARTITION_EOF, *_NO_TOPIC_YET), error
            self._next_offset = max(self._next_offset, offset)
            return
        self._next_offset = offset + 1
        key, value = message.key() or b"", message.value()
        if value is None:
            self._deleted.append(key.decode())
            return
        headers: dict[str, Any] = dict(message.headers() or ())
        content_type = headers["content-type"].decode() if "content-type" in headers else None
        self._entries.append(Entry(key.decode(), json.loads(value), message.timestamp()[1], offset, content_type))

    def data(self) -> list[dict[str, Any]]:
        return [entry.data for entry in self.entries()]


class Headgate:
    """A `headgate` command running in a process group of its own.

    Args:
        arguments: what follows `headgate`.
        log: where its output goes.
        environment: laid over the present one.
        module: of the command.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: dict[str, str] | None = None, module: str = "deploy.cli"
    ) -> None:
        self.log = log
        self.name = " ".join(arguments[:2])
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
                cwd=Path(__file__).parents[2],
            )
        watched.add(self)

    def __enter__(self) -> Self:
        return self

    def failure(self) -> str | None:
        """How the process ended by itself with an error; None while it runs, or when it was killed or stopped."""
        status = self.process.poll()
        return (
            f"headgate {self.name}: status {status}\n{self.output()[-5000:]}"
            if status is not None and status > 0
            else None
        )

    def __exit__(self, *error: object) -> None:
        watched.discard(self)
        if self.process.poll() is None:
            self.kill()

    def stop(self) -> int:
        """Send Ctrl-C; returns the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; returns the exit status."""
        watched.discard(self)
        eventually(f"headgate {self.name} has ended", lambda: self.process.poll() is not None)
        return int(self.process.returncode)

    def kill(self) -> None:
        """SIGKILL the process and every process it started, as a machine that loses power does."""
        watched.discard(self)
        for pid in (self.process.pid, *self.children()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(DEADLINE_SECONDS)

    def children(self) -> list[int]:
        return list(descendants(self.process.pid))

    def output(self) -> str:
        return self.log.read_text()


def run_command(*arguments: str) -> str:
    """Run a `headgate` command; returns its output, and fails on a status other than 0."""
    run = [sys.executable, "-m", "deploy.cli", *arguments]
    done = subprocess.run(run, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_settings(file: Path, **settings: Any) -> Path:
    """Write a settings file, as YAML."""
    file.write_text(yaml.safe_dump(settings))
    return file


def make_topics(file: Path) -> None:
    """Create the topics as `headgate topics create -s FILE` does, in this process (`test_topics` runs the command)."""
    settings = load_settings(file)
    create_topics(settings.loop_kafka(), settings.topics, timeout_seconds=DEADLINE_SECONDS)


def http_get(port: int, path: str) -> tuple[int, str] | None:
    """Status and body; None while no server listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return None


def series(page: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Labels and value of every series of a name on a page of metrics."""
    # Of a page that is asked for again and again, only the lines in question: its parser is slow.
    families = text_string_to_metric_families("\n".join(line for line in page.split("\n") if line.startswith(name)))
    return [(s.labels, s.value) for family in families for s in family.samples if s.name == name]


class LoopTopics:
    """Topics of a loop, all from their beginning, and the metrics of one of its processes.

    Args:
        servers: of the loop's own Kafka.
        prefix: of the topics.
        port: of the metrics.
        topics: their names without the prefix.
    """

    def __init__(self, servers: str, prefix: str, port: int, *topics: str) -> None:
        self._port = port
        self._topics = {name: Topic(servers, f"{prefix}.{name}") for name in topics}

    def close(self) -> None:
        for topic in self._topics.values():
            topic.__exit__()

    def entries(self, topic: str, kind: str | None = None, since: int = 0, **data: Any) -> list[Entry]:
        """Records of a topic from an offset on, of one kind of event and with these data; None accepts any value."""
        wanted = {name: value for name, value in data.items() if value is not None}
        return [
            entry
            for entry in self._topics[topic].entries()
            if entry.offset >= since
            and kind in (None, entry.event["type"].split(".")[1])
            and wanted.items() <= entry.data.items()
        ]

    def await_last(self, what: str, find: Callable[[], list[Entry]], **data: Any) -> Entry:
        """Wait until the last of some records has these data; returns the record."""

        def last() -> Entry | None:
            return next((entry for entry in find()[-1:] if data.items() <= entry.data.items()), None)

        return eventually(what, last)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one exported series; 0 if there is none."""
        return next((value for given, value in self.series(name) if given == labels), 0.0)

    def series(self, name: str) -> list[tuple[dict[str, str], float]]:
        answer = http_get(self._port, "/metrics")
        assert answer is not None, "nobody serves /metrics"
        return series(answer[1], name)


def await_ready(headgate: Headgate, port: int) -> None:
    """Wait until /-/ready returns 200; fail with the output when the process ends before."""

    def ready() -> bool:
        assert headgate.process.poll() is None, headgate.output()
        answer = http_get(port, "/-/ready")
        return answer is not None and answer[0] == 200

    eventually("/-/ready", ready)


def produce(servers: str, topic: str, *records: tuple[str, bytes], compression: str = "none") -> None:
    """Append records (key, value) in order."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "message.max.bytes": 8_000_000 if compression == "none" else 64_000_000,
            "linger.ms": 0,
            "compression.type": compression,
        }
    )
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(DEADLINE_SECONDS) == 0
