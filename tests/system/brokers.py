"""Single brokers of an embedded cluster that die and come back."""

import time

from deploy.embedded import EmbeddedKafka

_START_SECONDS = 60.0


def kill_broker(kafka: EmbeddedKafka, broker: int) -> None:
    """End a broker by force, as a crash would; the cluster notices after `broker.session.timeout.ms` (5 s)."""
    kafka._processes[broker].kill()


def start_broker(kafka: EmbeddedKafka, broker: int) -> None:
    """Start a broker that was killed or has ended, and return when the cluster has it again."""
    assert broker not in kafka.pids, f"broker {broker} runs already"
    kafka._processes[broker] = kafka._launch(broker)
    kafka._await_ready(time.monotonic() + _START_SECONDS)
