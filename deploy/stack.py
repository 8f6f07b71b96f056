"""The whole loop in one process: `headgate run` on the user's Kafka, `headgate up` on one it starts itself."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.topic_admin import create_topics
from deploy.act import actuator_parts
from deploy.app import (
    VERSION,
    Sessions,
    collector_parts,
    exporter_part,
    new_registry,
    publishing,
    query_part,
    run_parts,
    serving,
    tell,
)
from deploy.embedded import EmbeddedKafka
from deploy.jars import ensure_jars
from deploy.jvm import find_java
from deploy.settings import Settings, WatchedCluster
from deploy.terminal import Terminal
from policies.throttle import ThrottleSettings

_log = structlog.get_logger(__name__)

EMBEDDED_CLUSTER = "embedded"

_EMBEDDED_LIMITS = {"hard": {"available_ratio_below": 0.05}, "soft": {"available_ratio_below": 0.15}}
"""Where the user sets no limits for the embedded cluster: something to see on any disk that is nearly full."""


def run_loop(settings: Settings, terminal: Terminal) -> None:
    """Run collectors, query and exporter until SIGINT or SIGTERM, then drain and stop."""
    with ExitStack() as stack:
        sessions = stack.enter_context(_sessions(settings))
        _run(settings, terminal, sessions)


def run_embedded(settings: Settings, terminal: Terminal) -> None:
    """Start a Kafka cluster, watch its own disks, and run the loop on it."""
    terminal.step(f"headgate {VERSION}, data in {settings.data_dir}")
    find_java()
    jars = ensure_jars("kafka", settings.jars_dir, progress=tell)
    with ExitStack() as stack:
        sessions = stack.enter_context(_sessions(settings))
        kafka = EmbeddedKafka(
            settings.data_dir / "kafka",
            jars,
            brokers=settings.embedded.brokers,
            ports=settings.embedded.ports,
            heap_mebibytes=settings.embedded.heap_mebibytes,
        )
        stack.enter_context(kafka)
        terminal.step(f"Kafka ready on {kafka.bootstrap_servers}")
        _run(with_embedded(settings, kafka.bootstrap_servers), terminal, sessions)
    terminal.step("stopped")


def with_embedded(settings: Settings, bootstrap_servers: str) -> Settings:
    """The settings with the embedded cluster as the loop's own Kafka and as a watched one."""
    given = settings.clusters.get(EMBEDDED_CLUSTER)
    watched: dict[str, Any] = {"poll_interval": "1s", "timeout": "1s"}
    if given is not None and given.kafka is not None:
        watched = given.kafka.model_dump(exclude={"bootstrap_servers"})
    embedded = WatchedCluster(
        kafka=WatchedKafka(**{**watched, "bootstrap_servers": bootstrap_servers}), quotas=given and given.quotas
    )
    return settings.model_copy(
        update={
            "kafka": KafkaConnection(bootstrap_servers=bootstrap_servers),
            "clusters": {**settings.clusters, EMBEDDED_CLUSTER: embedded},
            "policies": _with_limits(settings),
        }
    )


def _with_limits(settings: Settings) -> Any:
    throttle: ThrottleSettings = settings.policies.throttle
    if throttle.for_cluster(EMBEDDED_CLUSTER).limited:
        return settings.policies
    own = throttle.model_dump(exclude_unset=True)
    overrides = {EMBEDDED_CLUSTER: {**_EMBEDDED_LIMITS, **own.pop("clusters", {}).get(EMBEDDED_CLUSTER, {})}}
    limited = ThrottleSettings.model_validate({**own, "clusters": {**overrides, **throttle.clusters}})
    return settings.policies.model_copy(update={"throttle": limited})


@contextmanager
def _sessions(settings: Settings) -> Iterator[Sessions]:
    sessions = Sessions(settings)
    try:
        yield sessions
    finally:
        sessions.close()


def _run(settings: Settings, terminal: Terminal, sessions: Sessions) -> None:
    report = create_topics(settings.loop_kafka(), settings.topics)
    for difference in report.differences:
        _log.warning("topic is not as planned", topic=difference.topic, difference=str(difference))
    terminal.step(f"{len(report.existing)} topics found, {len(report.created)} created")
    registry = new_registry()
    with publishing(settings, registry) as publisher:
        query = query_part(settings, registry, sessions)
        parts = [
            *collector_parts(settings, registry, publisher),
            query,
            *actuator_parts(settings, registry, publisher),
            exporter_part(settings, registry, terminal.decision),
        ]
        watched = ", ".join(name for name, cluster in settings.clusters.items() if cluster.kafka)
        with serving(settings, registry, parts) as server:
            terminal.step(f"watching {watched}; metrics on http://{settings.http.host}:{server.port}/metrics")
            run_parts(
                parts,
                stop_on_signals(),
                on_ready=terminal.ready,
                on_stop=lambda: terminal.step("stopping: deciding what is left"),
            )


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set; a second SIGINT interrupts as usual."""
    stop = threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop
