"""The query in a process of its own: killed at any moment, fed with garbage, robbed of its JVM."""

import base64
import os
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from policies.observations import Outcome
from policies.registry import POLICIES, observed_topics
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.wire import KEPT_BYTES, MAX_RECORD_BYTES, observation_event
from tests.eager import EAGER, TOTAL_BYTES
from tests.system.brokers import alter_topic
from tests.system.loop import SOON, Headgate, Topic, await_ready, http_get, make_topics, produce, series, write_settings
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
            "throttle": {**EAGER, "validity": "2h", "clusters": {SILENT: {"heartbeat": f"{HEARTBEAT_SECONDS}s"}}}
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


def _jvm(headgate: Headgate) -> int:
    return next(pid for pid in headgate.children() if b"java" in command_line(pid)[:200])


def _unless(status: int, answer: tuple[int, str] | None) -> tuple[int, str] | None:
    return None if answer is None or answer[0] == status else answer
