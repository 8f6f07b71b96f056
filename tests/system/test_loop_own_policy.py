"""The whole loop with a policy of an installed package: its collector reads, it decides, its gauge is shown."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.embedded.kafka import EmbeddedKafka
from tests.system.brokers import kill_broker
from tests.system.loop import UNHURRIED, Headgate, Topic, await_ready, http_get, write_settings
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tests.wheels import TOY, install


@pytest.fixture
def watched(kafka_jars: tuple[Path, ...], tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path / "watched", kafka_jars, brokers=2, heap_mebibytes=128) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 4, 2)])["orders"].result(DEADLINE_SECONDS)
        yield kafka


def test_a_cluster_that_loses_a_broker_is_degraded(
    watched: EmbeddedKafka, loop_kafka: str, tmp_path: Path, free_port: int
) -> None:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    settings = write_settings(
        tmp_path / "settings.yaml",
        kafka={"bootstrap_servers": loop_kafka},
        topics={"prefix": prefix},
        data_dir=str(tmp_path / "data"),
        http={"port": free_port},
        stream=UNHURRIED,
        clusters={
            "payments": {
                "kafka": {"bootstrap_servers": watched.bootstrap_servers},
                "replication": {"poll_interval": "500ms"},
            }
        },
    )
    environment = {"PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[2]), str(install(TOY, tmp_path))))}
    with (
        Headgate(["run", "-s", str(settings)], tmp_path / "run.log", environment) as headgate,
        Topic(loop_kafka, f"{prefix}.decided.replication") as decided,
    ):
        await_ready(headgate, free_port)
        eventually("it is ok", lambda: _has(decided, "ok", "replicated"))
        kill_broker(watched, 2)
        eventually("it is degraded", lambda: _has(decided, "degraded", "under_replicated"))
        eventually("its gauge shows it", lambda: _shows_lacking(free_port))
        assert headgate.stop() == 0, headgate.output()


def _has(topic: Topic, verdict: str, reason: str) -> bool | None:
    return any((data["verdict"], data["reason"]) == (verdict, reason) for data in topic.data()) or None


def _shows_lacking(port: int) -> bool | None:
    answer = http_get(port, "/metrics")
    gauge = 'headgate_under_replicated_partitions{cluster="payments"} '
    values = [line for line in (answer[1] if answer else "").splitlines() if line.startswith(gauge)]
    return any(float(line.split()[-1]) > 0 for line in values) or None
