"""What happens to brokers: they die and come back, and their topics are altered."""

import time

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from deploy.embedded.kafka import EmbeddedKafka
from tests.system.waiting import DEADLINE_SECONDS

_START_SECONDS = 60.0


def kill_broker(kafka: EmbeddedKafka, broker: int) -> None:
    """End a broker by force, as a crash would; the cluster notices after `broker.session.timeout.ms` (5 s)."""
    kafka._processes[broker].kill()


def start_broker(kafka: EmbeddedKafka, broker: int) -> None:
    """Start a broker that was killed or has ended, and return when the cluster has it again."""
    assert broker not in kafka.pids, f"broker {broker} runs already"
    kafka._processes[broker] = kafka._launch(broker)
    kafka._await_ready(time.monotonic() + _START_SECONDS)


def alter_topic(servers: str, topic: str, key: str, value: str) -> None:
    """Set one of a topic's configs."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=DEADLINE_SECONDS)
