"""The query in a process of its own: killed at any moment, fed with garbage, robbed of its JVM."""

import base64
import json
import os
import shutil
import signal
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from policies.decisions import deterministic_id
from policies.observations import Outcome
from policies.policy import TickReason
from policies.registry import POLICIES, observed_topics
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.wire import KEPT_BYTES, MAX_RECORD_BYTES, observation_event
from tests.eager import EAGER, TOTAL_BYTES
from tests.system.brokers import alter_topic
from tests.system.loop import (
    SOON,
    Headgate,
    Topic,
    await_ready,
    http_get,
    make_topics,
    produce,
    series,
    write_settings,
)
from tests.system.processes import command_line, freeze, is_running
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port


@pytest.fixture
def settings(loop_kafka: str, tmp_path: Path, free_port: int) -> dict[str, Any]:
    """Settings of a query on topics of its own."""
    return {
        "kafka": {"bootstrap_servers": loop_kafka},
        "topics": {"prefix": f"t{uuid.uuid4().hex[:8]}"},
        "data_dir": str(tmp_path / "data"),
        "http": {"port": free_port},
        "policies": {"throttle": EAGER},
    }


def create_topics(settings: dict[str, Any], folder: Path) -> None:
    """Write the settings file and create the topics."""
    file = write_settings(folder / "headgate.yaml", **settings)
    make_topics(file)


def query_in(folder: Path) -> Headgate:
    """Run the query; to be used in a with statement."""
    return Headgate(["decide", "-s", str(folder / "headgate.yaml")], folder / "decide.log")


def reading(cluster: str, usable_bytes: int) -> bytes:
    """A record that says so much is free, of 1 MB."""
    volume = VolumeReading(log_dir="/data", total_bytes=TOTAL_BYTES, usable_bytes=usable_bytes)
    data = LogDirs(cluster=cluster, outcome=Outcome.OK, broker=1, volumes=(volume,))
    return observation_event(data, id=str(uuid.uuid4()), source="test", time=datetime.now(UTC))


@dataclass
class SharedQuery:
    """A query that tests here have in turn, each with a cluster of its own: what they do to it, it survives."""

    folder: Path
    settings: dict[str, Any]
    headgate: Headgate

    @property
    def servers(self) -> str:
        return str(self.settings["kafka"]["bootstrap_servers"])

    @property
    def prefix(self) -> str:
        return str(self.settings["topics"]["prefix"])

    def decided(self) -> Topic:
        return Topic(self.servers, f"{self.prefix}.decided.throttle")

    def observe(self, cluster: str, usable_bytes: int) -> None:
        produce(self.servers, f"{self.prefix}.observed.log-dirs", (cluster, reading(cluster, usable_bytes)))

    def await_ready(self) -> None:
        await_ready(self.headgate, self.settings["http"]["port"])

    def get(self, path: str) -> tuple[int, str] | None:
        return http_get(self.settings["http"]["port"], path)

    def metric(self, name: str) -> float:
        answer = self.get("/metrics")
        assert answer is not None
        ((_, value),) = series(answer[1], name)
        return value

    def kill(self) -> None:
        """And start it again."""
        self.headgate.kill()
        self.headgate = query_in(self.folder)


FED, SILENT, ROBBED = "fed", "silent", "robbed"


HEARTBEAT_SECONDS = 15
"""Of the silent cluster."""


@pytest.fixture(scope="module")
def shared(loop_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedQuery]:
    folder = tmp_path_factory.mktemp("recovery")
    settings: dict[str, Any] = {
        "kafka": {"bootstrap_servers": loop_kafka},
        "topics": {"prefix": f"t{uuid.uuid4().hex[:8]}"},
        "data_dir": str(folder / "data"),
        "http": {"port": free_port()},
        "clusters": {FED: {}, SILENT: {}, ROBBED: {}},
        "policies": {
            # A reading counts for as long as a slow machine takes for a test.
            "throttle": {**EAGER, "validity": "2h", "clusters": {SILENT: {"heartbeat": f"{HEARTBEAT_SECONDS}s"}}},
        },
        "stream": {**SOON, "stall_timeout": "40s"},  # longer than a batch of much garbage takes
    }
    create_topics(settings, folder)
    # As topics of earlier versions are; else brokers refuse what is large only when it is unpacked.
    for topic in observed_topics():
        alter_topic(loop_kafka, f"{settings['topics']['prefix']}.{topic}", "compression.type", "producer")
    query = SharedQuery(folder, settings, query_in(folder))
    try:
        query.await_ready()
        yield query
        assert query.headgate.stop() == 0, query.headgate.output()
    finally:
        query.headgate.__exit__()


@pytest.mark.long  # the faults of `test_faults` kill it once, and compare byte for byte
@pytest.mark.parametrize("kills", [[2], range(4)], ids=["once", "four times"])
def test_a_query_killed_at_any_moment_goes_on_with_the_ids_and_numbers_of_an_unbroken_run(
    settings: dict[str, Any], tmp_path: Path, loop_kafka: str, kills: Iterable[int]
) -> None:
    prefix, clusters = settings["topics"]["prefix"], ["a", "b", "c"]
    observed = f"{prefix}.observed.log-dirs"
    create_topics(settings, tmp_path)
    with Topic(loop_kafka, f"{prefix}.decided.throttle") as decided:
        for kill in kills:
            with query_in(tmp_path) as query:
                await_ready(query, settings["http"]["port"])
                started = time.monotonic()
                while time.monotonic() - started < 1.0 + 0.37 * kill:
                    for cluster in clusters:
                        produce(loop_kafka, observed, (cluster, reading(cluster, 1000 + time.time_ns() % 900_000)))
                query.kill()
        last = {cluster: 100_000 * (n + 1) for n, cluster in enumerate(clusters)}
        produce(loop_kafka, observed, *((cluster, reading(cluster, usable)) for cluster, usable in last.items()))
        with query_in(tmp_path):

            def settled() -> bool:
                newest = {d["cluster"]: d["factor"] for d in decided.data()}
                return all(newest.get(c) == pytest.approx((last[c] - 1) / 999_998) for c in clusters)

            eventually("the last readings are decided on", settled)
        _assert_unbroken(decided, clusters)


@pytest.mark.long  # varies `test_faults`
def test_a_timer_set_before_a_kill_fires_after_it_and_nothing_but_ticks_makes_batches(shared: SharedQuery) -> None:
    """The heartbeat of a silent cluster: no record comes but ticks, and the tick of its timer names its reason."""
    with shared.decided() as decided, Topic(shared.servers, f"{shared.prefix}.ticks") as ticks:
        shared.observe(SILENT, 500_000)
        eventually("a first decision", lambda: _distinct(decided, SILENT) != [])
        before = len(ticks.entries())
        shared.kill()
        shared.await_ready()
        eventually("the heartbeat", lambda: len(_distinct(decided, SILENT)) >= 2)
        batches = shared.metric("headgate_query_batch_duration_seconds_count")
        first = next(entry for entry in decided.entries() if entry.key == SILENT)
        due_ms = first.appended_ms + (HEARTBEAT_SECONDS - 1) * 1000

        def is_ticked() -> bool:
            timers = [each for each in ticks.entries()[before:] if each.key == TickReason.TIMER.value]
            return any(each.appended_ms >= due_ms for each in timers)

        eventually("the tick of its timer", is_ticked)
        assert batches <= 1 + len(ticks.entries()[before:]), "at the start, and for each tick"


@pytest.mark.long  # as in `test_faults`, whose checkpoint is deleted while all of them run
def test_every_consumer_follows_a_query_that_lost_its_checkpoint_at_once(
    settings: dict[str, Any], tmp_path: Path, loop_kafka: str, free_tcp_port_factory: Callable[[], int]
) -> None:
    """Exporter and quota actuator run on; a new subject's numbers and one that is known go on growing."""
    prefix = settings["topics"]["prefix"]
    # Valid for three heartbeats of an hour: nobody follows only because what was in force has expired.
    entity = {"client_id": f"lost-{prefix}", "base": "10MB"}
    cluster = {"kafka": {"bootstrap_servers": loop_kafka}, "quotas": {"entities": [entity], "max_told_wait": "none"}}
    act_port, export_port = free_tcp_port_factory(), free_tcp_port_factory()
    settings |= {"clusters": {"a": cluster}}
    create_topics(settings, tmp_path)
    acting = write_settings(tmp_path / "act.yaml", **{**settings, "http": {"port": act_port}})
    showing = write_settings(tmp_path / "export.yaml", **{**settings, "http": {"port": export_port}})
    observed, port = f"{prefix}.observed.log-dirs", settings["http"]["port"]

    def shown(factor: float) -> bool:
        _, page = http_get(export_port, "/metrics") or (0, "")
        stale = 'headgate_decision_stale{cluster="a",policy="throttle"} 0.0'
        return f'headgate_throttle_factor{{cluster="a"}} {factor}' in page and stale in page

    with (
        Topic(loop_kafka, f"{prefix}.decided.throttle") as decided,
        Topic(loop_kafka, f"{prefix}.audit") as audit,
        Topic(loop_kafka, f"{prefix}.decided.alerts") as alerts,
        Headgate(["act", "-s", str(acting)], tmp_path / "act.log"),
        Headgate(["export", "-s", str(showing)], tmp_path / "export.log"),
    ):

        def carried_out(decision: dict[str, Any]) -> bool:
            return any(d.get("decision_id") == decision["decision_id"] and "outcome" in d for d in audit.data())

        with query_in(tmp_path) as query:
            await_ready(query, port)
            produce(loop_kafka, observed, ("a", reading("a", 0)))
            eventually("the stop is shown", lambda: shown(0.0))
            eventually("the stop is carried out", lambda: carried_out(decided.data()[-1]))
            query.kill()
        before = decided.data()
        shutil.rmtree(tmp_path / "data" / "checkpoint")
        produce(loop_kafka, observed, ("a", reading("a", 1_000_000)))
        with query_in(tmp_path) as query:
            await_ready(query, port)
            eventually("the exporter follows", lambda: shown(1.0))
            eventually("the actuator follows", lambda: carried_out(decided.data()[-1]))
            eventually("the alert ends", lambda: [a["status"] for a in alerts.data()] == ["firing", "resolved"])
        after = decided.data()[len(before) :]
        assert min(d["sequence"] for d in after) > max(d["sequence"] for d in before)
        assert {d["decision_id"] for d in after}.isdisjoint(d["decision_id"] for d in before)


def _assert_unbroken(decided: Topic, clusters: list[str]) -> None:
    """Per cluster: sequences without a gap, the deterministic id of each, and repeats identical to the byte."""
    by_cluster: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for entry in decided.entries():
        by_cluster[entry.data["cluster"]][entry.data["sequence"]].add(json.dumps(entry.event))
        expected = deterministic_id("throttle", entry.key, entry.key, entry.data["sequence"])
        assert entry.event["id"] == entry.data["decision_id"] == expected
    assert sorted(by_cluster) == clusters
    for sequences in by_cluster.values():
        first = min(sequences)
        assert sorted(sequences) == list(range(first, first + len(sequences)))
        assert all(len(versions) == 1 for versions in sequences.values())


def test_bad_records_become_dead_letters_and_the_query_goes_on(shared: SharedQuery) -> None:
    """One poison record a topic, one of each fault, and floods of garbage and of invented names before a good one."""
    servers, prefix, good = shared.servers, shared.prefix, reading(FED, 500_000)
    bad = {
        "malformed": b"\xffgarbage",
        "too_large": reading(FED, 1)[:-1] + b" " * MAX_RECORD_BYTES + b"}",
        "unknown_type": good.replace(b"headgate.log-dirs.v1", b"headgate.weather.v1"),
        "invalid": good.replace(b'"usable_bytes":500000', b'"usable_bytes":NaN'),
    }
    names = [f"forged-{n}" for n in range(3000)]
    restarts = shared.metric("headgate_query_restarts_total")
    with shared.decided() as decided, Topic(servers, f"{prefix}.dead-letters") as dead:

        def letters() -> list[dict[str, Any]]:
            return [letter for letter in dead.data() if "value_sha256" in letter]

        # Kafka counts compressed bytes: 20 MB of spaces are few.
        for topic, codec in zip(observed_topics(), cycle(("gzip", "zstd", "lz4", "snappy")), strict=False):
            produce(servers, f"{prefix}.{topic}", (FED, b" " * 20_000_000), compression=codec)
        produce(servers, f"{prefix}.observed.log-dirs", *((FED, record) for record in bad.values()))
        produce(servers, f"{prefix}.observed.log-dirs", *[(FED, b"garbage")] * 10_000)
        produce(servers, f"{prefix}.observed.log-dirs", *((name, reading(name, 1)) for name in names))
        produce(servers, f"{prefix}.observed.log-dirs", (FED, good))
        eventually("a decision on the good record", lambda: len(_distinct(decided, FED)) == 1)
        eventually(
            "a letter for the poison of each topic",
            lambda: _poisoned(letters()) == {f"{prefix}.{topic}" for topic in observed_topics()},
        )
        eventually("a letter for each fault", lambda: bad.keys() <= {letter["reason"] for letter in letters()})
        found = {letter["reason"]: letter for letter in sorted(letters(), key=lambda each: -each["offset"])}
        heads = {reason: record[:KEPT_BYTES] for reason, record in bad.items()}
        heads["too_large"] = b" " * KEPT_BYTES
        assert {reason: base64.b64decode(found[reason]["value_base64"]) for reason in heads} == heads
        assert all(letter["detail"] for letter in found.values())
        assert "usable_bytes" in found["invalid"]["detail"]
        assert "unknown-cluster" in found
        assert len(letters()) < 200, "of 13,000"
        assert _distinct(decided, FED)[0]["factor"] == pytest.approx(499_999 / 999_998)
        keys = shared.metric("headgate_query_state_keys")
        assert keys <= (1 + len(shared.settings["clusters"])) * len(POLICIES), "invented names have no state"

        # Whoever writes ticks ends nothing and decides nothing.
        produce(servers, f"{prefix}.ticks", *(("x", tick) for tick in (b"{", b"\xff", b" " * 500_000)))
        shared.observe(FED, 600_000)
        eventually("a decision after the ticks", lambda: len(_distinct(decided, FED)) == 2)
        assert shared.headgate.process.poll() is None
        assert shared.metric("headgate_query_restarts_total") == restarts


def _poisoned(letters: list[dict[str, Any]]) -> set[str]:
    return {letter["topic"] for letter in letters if letter["value_bytes"] == 20_000_000}


def _distinct(decided: Topic, cluster: str) -> list[dict[str, Any]]:
    """Decisions, each once: a batch whose decision was published, and whose commit was not, is repeated."""
    return list({each["decision_id"]: each for each in decided.data() if each["cluster"] == cluster}.values())


def test_a_query_that_lost_its_jvm_shows_it_and_is_started_again_and_so_is_one_whose_jvm_hangs(
    shared: SharedQuery,
) -> None:
    with shared.decided() as decided:

        def decides(usable_bytes: int, count: int) -> None:
            shared.observe(ROBBED, usable_bytes)
            eventually(f"decision {count}", lambda: len(_distinct(decided, ROBBED)) == count)

        decides(500_000, 1)
        os.kill(_jvm(shared.headgate), signal.SIGKILL)
        status, why = eventually("/-/healthy says no", lambda: _unless(200, shared.get("/-/healthy")))
        assert status == 503
        assert "query failed" in why
        decides(600_000, 2)
        eventually("/-/healthy says yes", lambda: shared.get("/-/healthy") == (200, "ok\n"))
        assert "query failed, restarting it" in shared.headgate.output()

        hanging = _jvm(shared.headgate)
        freeze(hanging)
        decides(700_000, 3)
        assert not is_running(hanging)
        sequences = [d["sequence"] for d in _distinct(decided, ROBBED)]
        assert sequences == list(range(sequences[0], sequences[0] + 3))


@pytest.mark.long  # as in `test_faults`, where one on a damaged checkpoint ends with the remedy, and is mended by it
def test_a_query_that_keeps_failing_ends_with_one_line_and_a_status(settings: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = tmp_path / "data" / "checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text("not a checkpoint")
    settings["stream"] = {"restart_limit": 1}
    create_topics(settings, tmp_path)
    with query_in(tmp_path) as query:
        assert query.wait() == 2
        last = query.output().strip().splitlines()[-1]
        assert last.startswith("The query failed 2 times in a row"), query.output()


def _jvm(headgate: Headgate) -> int:
    return next(pid for pid in headgate.children() if b"java" in command_line(pid)[:200])


def _unless(status: int, answer: tuple[int, str] | None) -> tuple[int, str] | None:
    return None if answer is None or answer[0] == status else answer
