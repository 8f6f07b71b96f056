"""Runs the demo: its servers, the whole loop as `headgate run` runs it, producers, and the story."""

import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from connectors.actuation.actuator import Publish
from connectors.component import Component
from connectors.exporter.exporter import VERSION
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.quotas import FAILURES, QuotaClient
from connectors.kafka.tail import Tail
from deploy.console.terminal import Terminal, sentence_console, set_up_logging
from deploy.demo.story import (
    HARD_BYTES,
    LOAD_BYTES_PER_SECOND,
    SOFT_BYTES,
    TOTAL_BYTES,
    DemoSample,
    Phase,
    Screen,
)
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import fetch_jars
from deploy.java.jvm import find_java
from deploy.processes.running import stop_on_signals
from deploy.processes.stack import run_whole
from deploy.query.components import SparkSessions
from deploy.settings.application import Settings, default_cache_dir
from policies.bookie_disks.readings import PublishApplication
from policies.observations import ReportResult
from policies.registry import AUDIT
from policies.throttle.readings import QuotaApplication
from policies.throttle.settings import DEFAULT, Entity
from policies.units import UserError, human_bytes, human_seconds, without_settings
from policies.wire import BadRecordError, EventReader

# Producers that try to write at a fixed rate and so fill the disk.

RECORD_BYTES = 16_384

_PRODUCERS = 3
_TICK_SECONDS = 0.02


class Load:
    """Producers with `acks=all` that together want to write at a given rate, each with one request in flight.

    Records that the brokers do not accept wait in a queue of one second. While it is full, no more are produced, so no
    burst follows a release. The rate is that of all producers together.
    """

    def __init__(
        self, servers: str, topic: str, bytes_per_second: float, more: Mapping[str, Any] | None = None
    ) -> None:
        self._wanted = bytes_per_second
        self.acknowledged: Counter[int] = Counter()
        """Acknowledged records by partition."""
        self._topic = topic
        common = {
            "bootstrap.servers": servers,
            "client.id": "app",  # one for all, so that a quota applies to all of them together
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            # With more requests in flight, an idempotent producer that a broker throttles takes a whole core.
            "max.in.flight.requests.per.connection": 1,
            "log_level": 0,  # in some runs a broker is killed on purpose
        }
        self._producers = [Producer({**common, **(more or {})}) for _ in range(_PRODUCERS)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Produce no more, and discard the records that still wait."""
        self._stop.set()
        self._thread.join()
        for producer in self._producers:
            producer.flush(1)
            producer.purge()
            producer.flush(2)

    @property
    def acknowledged_bytes(self) -> int:
        """Bytes that the brokers have acknowledged."""
        return sum(self.acknowledged.values()) * RECORD_BYTES

    def _write(self) -> None:
        payload, owed, before = os.urandom(RECORD_BYTES), 0.0, time.monotonic()
        most_waiting = self._wanted / _PRODUCERS / RECORD_BYTES
        while not self._stop.wait(_TICK_SECONDS):
            now = time.monotonic()
            owed, before = min(owed + (now - before) * self._wanted, self._wanted / 5), now
            while owed >= RECORD_BYTES * _PRODUCERS:
                owed -= RECORD_BYTES * _PRODUCERS
                for producer in self._producers:
                    if len(producer) < most_waiting:
                        producer.produce(self._topic, payload, on_delivery=self._on_delivery)
            for producer in self._producers:
                producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.partition() or 0] += 1


# The demo itself.

CLUSTER = "demo"
TOPIC = "orders"

_SPACE_BYTES = 350_000_000
"""Free space that the demo needs, with a margin."""
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own block size is."""
_EVERY_CLIENT = Entity(client_id=DEFAULT)
_ANSWER_SECONDS = 30.0
_SAMPLE_SECONDS = 0.5
_RATE_SAMPLES = 4
"""Number of samples over which the produced rate is averaged."""
_PATIENCE_SECONDS = 300.0
"""Limit for the whole story, which takes a quarter of this on an idle machine of two cores."""


class DemoFailedError(Exception):
    """The story did not reach its end. The message says what happened instead, in a sentence or two."""


@dataclass(frozen=True)
class Workplace:
    """What a demo works with."""

    folder: Path
    jars_dir: Path
    jars: tuple[Path, ...]
    """The jars of the loop's Kafka."""

    def settings(self, **given: Any) -> Settings:
        """Return settings of a loop whose data are here, and which nobody else needs to find."""
        given |= {"data_dir": self.folder / "data", "jars_dir": self.jars_dir, "http": {"port": 0}}
        return Settings(**given)


def run_demo() -> int:
    """Run the demo and return the exit status.

    Raises:
        UserError: Java, jars or space are missing, or a server does not start.
        DemoFailedError: the story did not reach its end.
    """
    screen = Screen(sentence_console())
    plot = "a fill, a throttle, a stop and a recovery, on brokers of its own"
    status = run_story(screen, plot, partial(_run_story, screen=screen))
    if status == 0:
        screen.tell_next()
    return status


def run_story(terminal: Terminal, plot: str, story: Callable[[Workplace], bool]) -> int:
    """Run a story in a temporary folder and return the exit status; keep its log if it fails.

    Args:
        plot: what the story shows, for its first line.
        story: runs until it ends or a signal comes; returns whether it has ended.
    """
    find_java()
    terminal.step(f"headgate {VERSION}: {plot}")
    for number in (signal.SIGTERM, signal.SIGHUP):  # the latter if the terminal is closed
        signal.signal(number, signal.default_int_handler)
    jars_dir = Path(os.environ.get("HEADGATE_JARS_DIR") or default_cache_dir())
    with (
        tempfile.TemporaryDirectory(prefix="headgate-demo-", ignore_cleanup_errors=True) as folder,
        Path(folder, "demo.log").open("w") as log,
    ):
        set_up_logging(to=log)
        jars, _ = fetch_jars(("kafka", "spark"), jars_dir, terminal.step)
        for name in os.environ.keys() - without_settings(os.environ):
            del os.environ[name]  # variables there configure other clusters than the demo's
        try:
            is_over = story(Workplace(Path(folder), jars_dir, jars))
        except DemoFailedError as error:
            kept = Path(tempfile.gettempdir()) / "headgate-demo.log"
            shutil.copyfile(log.name, kept)
            raise DemoFailedError(f"{error} Its log: {kept}") from None
    terminal.step("stopped; only the fetched jars are left on this machine")
    return 0 if is_over else 128 + signal.SIGINT


def _run_story(place: Workplace, *, screen: Screen) -> bool:
    """Run servers and loop until the story ends or a signal comes; return whether the story has ended."""
    if shutil.disk_usage(place.folder).free < _SPACE_BYTES:
        raise UserError(
            f"{place.folder.parent} has less than {human_bytes(_SPACE_BYTES)} free, which the demo needs: "
            "set TMPDIR to another folder"
        )
    disk = place.folder / "disk"
    screen.step(
        f"a folder stands for a disk of {human_bytes(TOTAL_BYTES)}: free space is its size minus the size of its files"
    )
    with ExitStack() as stack:
        sessions = stack.enter_context(closing(SparkSessions(place.settings())))
        watched, loop = stack.enter_context(_running_brokers(place, disk))
        screen.step(f"a broker on that disk ready on {watched.bootstrap_servers}")
        screen.step(f"a broker for Headgate's own topics ready on {loop.bootstrap_servers}")
        settings, stop = _settings(place, watched, loop), stop_on_signals()
        director = Director(watched, disk, screen, stop)
        more = (Component("demo", director.run), following_reports(settings, QuotaApplication, screen.show_action))
        run_whole(settings, screen, sessions, stop, lambda _: more, partial(_counting_space, disk))
        return director.is_over


def free_bytes(disk: Path) -> int:
    """Return the free space of the folder that stands for a small disk: its size minus its files', at least 0."""
    used = 0
    for path, _, files in os.walk(disk):
        for file in files:
            with suppress(FileNotFoundError):  # deleted meanwhile
                used += (Path(path) / file).stat().st_blocks * _BLOCK_BYTES
    return max(0, TOTAL_BYTES - used)


@contextmanager
def _running_brokers(place: Workplace, disk: Path) -> Iterator[tuple[EmbeddedKafka, EmbeddedKafka]]:
    """Start the broker on the disk and the loop's own at the same time; kill them at the end: no data is kept."""
    prompt = {"log.retention.check.interval.ms": 500, "log.segment.delete.delay.ms": 100}
    on_disk, in_folder = {1: [disk]}, place.folder
    watched = EmbeddedKafka(
        in_folder / "watched", place.jars, log_dirs=on_disk, heap_mebibytes=160, server_properties=prompt
    )
    both = watched, EmbeddedKafka(in_folder / "loop", place.jars, heap_mebibytes=192)
    try:
        with ThreadPoolExecutor(len(both)) as pool:
            list(pool.map(EmbeddedKafka.start, both))
        admin = _admin(watched)  # keep a reference: without one, its pending answers are lost
        topic = NewTopic(TOPIC, 3, 1, config={"segment.bytes": str(1024 * 1024), "retention.ms": "-1"})
        admin.create_topics([topic])[TOPIC].result(timeout=_ANSWER_SECONDS)
        yield both
    finally:
        for kafka in both:
            kafka.stop(grace_seconds=0)


def _admin(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})


def _settings(place: Workplace, watched: EmbeddedKafka, loop: EmbeddedKafka) -> Settings:
    """The settings of a loop that watches the one broker and sets quotas, as a user would write them, but faster."""
    kafka = {"bootstrap_servers": watched.bootstrap_servers, "poll_interval": "500ms", "timeout": "500ms"}
    entity = {"client_id": "default", "base": LOAD_BYTES_PER_SECOND}
    limits = {"soft": {"available_bytes_below": SOFT_BYTES}, "hard": {"available_bytes_below": HARD_BYTES}}
    return place.settings(
        kafka={"bootstrap_servers": loop.bootstrap_servers},
        clusters={CLUSTER: {"kafka": kafka, "quotas": {"entities": [entity]}}},
        policies={"throttle": {**limits, "min_hold": "5s"}},
    )


def _counting_space(disk: Path, publish: Publish) -> Publish:
    """Replace in each reading the size and free space of the disk that holds the folder by those of the folder."""

    def publish_counted(topic: str, key: str, value: bytes) -> None:
        event = json.loads(value)
        for read in event["data"].get("volumes", ()):
            read |= {"total_bytes": TOTAL_BYTES, "usable_bytes": free_bytes(disk)}
        publish(topic, key, json.dumps(event).encode())

    return publish_counted


def following_reports(
    settings: Settings, kind: type[QuotaApplication | PublishApplication], tell: Callable[[str], None]
) -> Component:
    """Make the component that passes on an actuator's sentences about what it set, or failed to set."""
    reader: EventReader[QuotaApplication | PublishApplication] = EventReader([kind])

    def run(stop: Event) -> None:
        with Tail(settings.loop_kafka(), {settings.topics.topic(AUDIT): None}, "headgate-demo") as tail:
            while not stop.is_set():
                for record in tail.poll(_SAMPLE_SECONDS):
                    with suppress(BadRecordError):  # an event of another kind
                        event = reader.read(record.value or b"").data
                        if event.outcome is not ReportResult.UNCHANGED and event.explanation:
                            tell(event.explanation)

    return Component("audit follower", run)


@dataclass
class Director:
    """The demo's own component: samples everything, draws it, and frees space when the story asks for it.

    It sets `over` at the end of the story; that is set before if the demo is ended.
    """

    watched: EmbeddedKafka
    disk: Path
    screen: Screen
    over: Event
    _phase: Phase = field(default=Phase.FILL, init=False)
    _quota: int | None = field(default=None, init=False)
    _taken: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_RATE_SAMPLES + 1), init=False)

    @property
    def is_over(self) -> bool:
        """Whether the story has come to its end."""
        return self._phase is Phase.DONE

    def run(self, stop: Event) -> None:
        """Run until `stop` is set; raise DemoFailedError if the story does not reach its end."""
        if self.screen.await_ready(self.over):
            self._tell()
            self.over.set()
        stop.wait()

    def _tell(self) -> None:
        servers = self.watched.bootstrap_servers
        quotas = QuotaClient(KafkaConnection(bootstrap_servers=servers), 2.0)
        self.screen.begin(Phase.FILL)
        with closing(quotas), Load(servers, TOPIC, LOAD_BYTES_PER_SECOND) as load, self.screen.live or nullcontext():
            began = time.monotonic()
            while not (self.is_over or self.over.wait(_SAMPLE_SECONDS)):
                self._advance(self._sample(load, quotas, time.monotonic() - began))

    def _sample(self, load: Load, quotas: QuotaClient, at_seconds: float) -> DemoSample:
        with suppress(*FAILURES):  # the broker is busy; the next sample follows soon
            quotas.describe()
            self._quota = quotas.read().rates.get(_EVERY_CLIENT)
        self._taken.append((at_seconds, load.acknowledged_bytes))
        (since, before), (_, taken) = self._taken[0], self._taken[-1]
        rate = (taken - before) / (at_seconds - since) if at_seconds > since else 0.0
        return DemoSample(at_seconds, free_bytes(self.disk), self.screen.factor, self._quota, rate)

    def _advance(self, sample: DemoSample) -> None:
        self.screen.show_sample(sample)
        if not (self.watched.pids and sample.free_bytes):
            raise DemoFailedError("The disk was full before the producers were stopped, or its broker has ended.")
        if sample.at_seconds > _PATIENCE_SECONDS:
            raise DemoFailedError(
                f"After {human_seconds(sample.at_seconds)} the demo is still in its phase `{self._phase.title}`: "
                "this machine may be too busy for three Java processes."
            )
        if not self._phase.ends_with(sample):
            return
        self._phase = self._phase.next()
        self.screen.begin(self._phase)
        if self._phase is Phase.RECOVERY:  # do as an operator would: shorten the retention to a second
            entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
            admin = _admin(self.watched)
            admin.incremental_alter_configs([resource])[resource].result(timeout=_ANSWER_SECONDS)
