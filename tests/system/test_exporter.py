"""The exporter with a real broker and a real Prometheus."""

import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from connectors.exporter.exporter import Exporter
from connectors.http.server import MetricsServer
from connectors.kafka import tail
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from deploy.embedded.kafka import LOOPBACK, EmbeddedKafka
from policies.bookie_disks.readings import BookieDir, BookieDisks
from policies.observations import Observation, Outcome
from policies.registry import DEAD_LETTERS, POLICIES, decided_topics, observed_topic, observed_topics
from policies.throttle import ThrottleSettings
from policies.units import from_millis
from policies.wire import observation_event
from streaming.host import PolicyHost
from streaming.transition import reading_reader
from tests.connectors.exporter import loop as virtual
from tests.connectors.exporter.loop import LIMITS, Loop, log_dirs, members
from tests.golden import read_reference
from tests.system.brokers import kill_broker
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tests.system.zookeeper import free_port
from tools.dashboards import ROWS, Panel
from tools.generate import GRAFANA, ROOT
from tools.reference.pages import other_parts

Samples = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def kafka(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), kafka_jars, heap_mebibytes=128) as kafka:
        yield kafka


class Topics:
    """The loop's topics under a prefix of their own, and writing to them."""

    def __init__(self, kafka: EmbeddedKafka, prefix: str) -> None:
        self.prefix = prefix
        self.connection = KafkaConnection(bootstrap_servers=kafka.bootstrap_servers)
        self._client: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
        self.admin = AdminClient(self._client)
        self._producer = Producer(self._client)

    def name(self, topic: str) -> str:
        return f"{self.prefix}.{topic}"

    def create(self, *topics: str, stamps: str = "LogAppendTime") -> None:
        names = topics or (*observed_topics(), *decided_topics(), DEAD_LETTERS)
        new = [
            NewTopic(
                self.name(topic),
                1,
                1,
                config={
                    "message.timestamp.type": stamps,
                    "cleanup.policy": "compact" if topic.startswith("decided") else "delete",
                },
            )
            for topic in names
        ]
        for future in self.admin.create_topics(new).values():
            future.result(timeout=DEADLINE_SECONDS)

    def delete(self, topic: str) -> None:
        (future,) = self.admin.delete_topics([self.name(topic)]).values()
        future.result(timeout=DEADLINE_SECONDS)
        eventually(f"{topic} is gone", lambda: self.name(topic) not in self.admin.list_topics().topics)

    def write(self, *records: Record, partition: int = 0, timestamp_ms: int = 0) -> None:
        # Anew for another partition: a producer that has written to a topic learns late that it has more.
        producer = Producer(self._client) if partition else self._producer
        for record in records:
            topic = self.name(record.topic.removeprefix(f"{virtual.PREFIX}."))
            producer.produce(topic, record.value, record.key, partition=partition, timestamp=timestamp_ms)
        assert producer.flush(DEADLINE_SECONDS) == 0

    def play(self, loop: Loop, *readings: Any, after: float = 0.0) -> None:
        """Step the policy and write what it read and said; the reading a moment before the decision."""
        before = len(loop.records)
        loop.step(*readings, after=after)
        self.write(*loop.records[before:])


@pytest.fixture
def topics(kafka: EmbeddedKafka, request: pytest.FixtureRequest) -> Topics:
    return Topics(kafka, request.node.name.replace("_", "-")[:100])


def loop_from_now(**settings: Any) -> Loop:
    loop = Loop(**settings)
    loop.now = datetime.now(UTC).replace(microsecond=0)
    return loop


class Running:
    """An exporter with its server, as `headgate export` runs them."""

    def __init__(self, topics: Topics, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.exporter = Exporter(
            topics.connection,
            topics.prefix,
            {"throttle": ThrottleSettings.model_validate(LIMITS)},
            self.registry,
            settings_hash="cafe",
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.exporter.run, args=(self._stop,))
        self.server = MetricsServer(
            self.registry, host=LOOPBACK, port=0, healthy={}, ready={"exporter": self.exporter.caught_up}
        )

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)
        self.server.close()
        assert not self._thread.is_alive()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.server.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def is_ready(self) -> bool:
        return self.get("/-/ready") == (200, "ok\n")

    def samples(self, name: str) -> Samples:
        """Label values, in the order of the labels' names, to value."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
            if sample.name == name
        }

    def shows(self, name: str, expected: Samples) -> bool:
        return eventually(f"{name} is {expected}", lambda: self.samples(name) == expected)


# --- With Prometheus


class Prometheus:
    """A real one that scrapes one exporter every second."""

    def __init__(self, folder: Path, target_port: int, rules: Path | None = None) -> None:
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [] if rules is None else [str(rules)],
            "scrape_configs": [
                {"job_name": "headgate", "static_configs": [{"targets": [f"{LOOPBACK}:{target_port}"]}]}
            ],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        self.port = free_port()
        self._log = (folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self.port}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> "Prometheus":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_SECONDS)
        self._log.close()

    def ask(self, api: str, **parameters: str) -> Any:
        address = f"http://{LOOPBACK}:{self.port}/api/v1/{api}?{urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return json.load(answer)["data"]
        except (urllib.error.URLError, ConnectionError):
            return {}

    def query(self, promql: str) -> list[tuple[Mapping[str, str], float]]:
        result = self.ask("query", query=promql).get("result", [])
        return [(row["metric"], float(row["value"][1])) for row in result]


class TouchingRegistry(CollectorRegistry):
    """Shows one series of each metric that is registered, as a process that has done something does."""

    def register(self, collector: Any) -> None:
        super().register(collector)
        labels = getattr(collector, "_labelnames", ())
        if labels and isinstance(collector, MetricWrapperBase):
            collector.labels(*("payments" if label == "cluster" else "ok" for label in labels))


def play_examples(topics: Topics) -> None:
    """What each policy's reference course reads and decides, as if it were now."""
    for kind in POLICIES.values():
        course, kept = read_reference(kind.name), None
        host = PolicyHost({kind.name: kind.settings.model_validate(course.settings)})
        later = datetime.now(UTC).replace(microsecond=0) - from_millis(course.batches[-1].at_ms)
        for batch in course.batches:
            seen = []
            for topic, at_ms, record in batch.records:
                read, at = reading_reader().read(record), from_millis(at_ms) + later
                seen.append(Observation(read.id, at, read.data))
                event = observation_event(read.data, id=read.id, source=read.source, time=at)
                topics.write(Record(topic, course.cluster.encode(), event, 0))
            stepped = host.step(kind.name, course.cluster, kept, seen, max(o.at for o in seen))
            kept = stepped.key_state
            topics.write(*(Record(t, k.encode(), v, 0) for t, k, v in stepped.outputs if t.startswith("decided.")))


def fill_disks(topics: Topics) -> None:
    """Fill a broker's and a bookie's disk, long enough for their trends to be believed."""
    loop = loop_from_now()
    for free in range(900, 250, -50):
        before = len(loop.records)
        loop.step(members(1), log_dirs(free), after=0.3)
        topics.write(*loop.records[before:], bookie_disks(free, loop.now))
        time.sleep(0.3)  # a trend is of the times at which Kafka took the readings


def bookie_disks(usable_bytes: int, at: datetime) -> Record:
    dirs = (BookieDir(dir="/ledgers", total_bytes=1000, usable_bytes=usable_bytes),)
    reading = BookieDisks(cluster="payments", outcome=Outcome.OK, bookie="bk-1:3181", read_only=False, dirs=dirs)
    event = observation_event(reading, id=f"bookie@{at}", source="test", time=at)
    return Record(observed_topic(BookieDisks), reading.cluster.encode(), event, 0)


def have_filled(running: Running, topics: Topics) -> bool:
    """Whether both disks have a trend; else fill them, again where a busy machine let readings come too unevenly."""
    names = ("headgate_volume_seconds_to_full", "headgate_bookie_dir_seconds_to_full")
    if all(running.samples(name) for name in names):
        return True
    fill_disks(topics)
    return False


def asked(panel: Panel) -> str:
    """A panel's query as Grafana sends it."""
    query: str = panel["targets"][0]["expr"]
    return query.replace("$cluster", ".*").replace("$__rate_interval", "30s")


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus on this machine")
def test_every_panel_and_every_recording_rule_finds_data_in_a_real_prometheus(topics: Topics, tmp_path: Path) -> None:
    topics.create()
    registry, rules = TouchingRegistry(), (ROOT / GRAFANA).parent / "prometheus" / "headgate.rules.yaml"
    for register in other_parts().values():
        register(registry)
    with Running(topics, registry) as running, Prometheus(tmp_path, running.server.port, rules) as prometheus:
        eventually("the exporter is ready", running.is_ready)
        play_examples(topics)
        eventually("the disks' trends are believed", partial(have_filled, running, topics))
        recorded = [
            rule["name"] for g in prometheus_rules(prometheus) for rule in g["rules"] if rule["type"] == "recording"
        ]
        assert len(recorded) == 3
        panels = {f"{board}: {p['title']}": asked(p) for (board, _), row in ROWS.items() for p in row}
        queries = panels | {rule: rule for rule in recorded}

        def without_data() -> list[str]:
            # What has found some is not asked again: on a busy machine readings are old before the rules have theirs.
            for what in [what for what, query in queries.items() if prometheus.query(query)]:
                del queries[what]
            return list(queries)

        try:
            eventually("all find data", lambda: not without_data())
        except AssertionError:
            raise AssertionError(without_data()) from None
        assert [g for g in prometheus_rules(prometheus) for r in g["rules"] if r["health"] == "err"] == []


def prometheus_rules(prometheus: Prometheus) -> list[dict[str, Any]]:
    return list(eventually("its rules are loaded", lambda: prometheus.ask("rules").get("groups")))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
def test_promtool_finds_no_fault(topics: Topics) -> None:
    topics.create()
    loop = loop_from_now(min_hold="0s")
    topics.play(loop, members(1), log_dirs(900))
    with Running(topics) as running:
        eventually("the exporter is ready", running.is_ready)
        for free in (890, 880, 300):
            topics.play(loop, log_dirs(free), after=1)
        topics.write(Record(virtual.DECIDED, b"x", b"?", 0))
        assert running.shows("headgate_throttle_factor", {("payments",): 0.5})
        stages = ("appended_to_decided", "decided_to_published", "observed_to_appended")
        counts: Samples = {("throttle", stage): 1 for stage in stages}
        assert running.shows("headgate_decision_latency_seconds_count", counts)
        assert running.shows("headgate_exporter_bad_records_total", {("malformed", topics.name("decided.throttle")): 1})
        _, exposition = running.get("/metrics")
    check = subprocess.run(["promtool", "check", "metrics"], input=exposition, capture_output=True, text=True)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")
    for name in ("volume_usable_bytes", "decision_latency_seconds", "alerts", "dead_letters_total"):
        assert f"\n# HELP headgate_{name} " in exposition


# --- Filling itself


@pytest.mark.parametrize(
    ("survey_seconds", "has_led_before"),
    [(0.1, False), (60.0, False), (0.1, True), (3.0, True)],
    ids=["noticed", "unnoticed", "noticed, of a higher epoch", "unnoticed, of a higher epoch"],
)
def test_a_topic_that_is_deleted_and_made_again_is_followed(
    kafka: EmbeddedKafka, survey_seconds: float, monkeypatch: pytest.MonkeyPatch, *, has_led_before: bool
) -> None:
    """Also where the leader of the new one has a lower epoch than a client knows of, which believes no broker then."""
    topics = Topics(kafka, f"again-{survey_seconds}-{has_led_before}")
    monkeypatch.setattr(tail, "_REFRESH_SECONDS", survey_seconds)
    monkeypatch.setattr(tail, "_STUCK_SECONDS", 3.0)
    topics.create()
    if has_led_before:
        with killed(kafka):
            pass
    loop = loop_from_now()
    for free in (600, 700, 800):
        topics.play(loop, log_dirs(free), after=1)
    with Running(topics) as running:
        assert running.shows("headgate_volume_usable_bytes", {("1", "payments", "/a"): 800})
        topics.delete("observed.log-dirs")
        topics.create("observed.log-dirs")

        def reads_again() -> bool:
            # Readings are levels and come again and again.
            topics.play(loop, log_dirs(900), after=1)
            return running.samples("headgate_volume_usable_bytes") == {("1", "payments", "/a"): 900}

        eventually("it reads again", reads_again)
        assert running.is_ready()


# --- Going on


@contextmanager
def killed(kafka: EmbeddedKafka) -> Iterator[None]:
    kill_broker(kafka, 1)
    try:
        yield
    finally:
        kafka.start_broker(1)


def test_a_broker_that_dies_and_comes_back_is_told_and_survived(
    kafka: EmbeddedKafka, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_REFRESH_SECONDS", 0.5)
    topics.create()
    loop = loop_from_now(min_hold="0s")
    topics.play(loop, log_dirs(300))
    with Running(topics) as running:
        assert running.shows("headgate_throttle_factor", {("payments",): 0.5})
        with killed(kafka):
            with Running(topics) as late:
                problem = f"exporter: Kafka at {kafka.bootstrap_servers} does not answer as it should: "
                eventually("the late one says so", lambda: late.get("/-/ready")[1].startswith(problem))
                assert late.get("/-/ready")[0] == 503
                assert late.samples("headgate_throttle_factor") == {}
            assert running.is_ready()
            assert running.samples("headgate_throttle_factor") == {("payments",): 0.5}
        topics.play(loop, log_dirs(50), after=1)
        assert running.shows("headgate_throttle_factor", {("payments",): 0.0})
        eventually("the exporter is ready", running.is_ready)
