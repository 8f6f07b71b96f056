"""Harm to brokers, and changes of their topics."""

import os
import signal

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from deploy.embedded.kafka import EmbeddedKafka
from tests.system.waiting import DEADLINE_SECONDS, eventually


def kill_broker(kafka: EmbeddedKafka, broker: int) -> None:
    """Kill a broker as a crash would; the cluster notices after `broker.session.timeout.ms` (5 s)."""
    os.kill(kafka.pids[broker], signal.SIGKILL)
    eventually(f"broker {broker} has ended", lambda: broker not in kafka.pids)


def alter_topic(servers: str, topic: str, key: str, value: str) -> None:
    """Set one of a topic's configs."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=DEADLINE_SECONDS)
