"""The whole loop in one process: `headgate run` on the user's Kafka, `headgate up` on one that it starts itself."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial

from prometheus_client import CollectorRegistry

from connectors.component import Component, first_problem
from connectors.exporter.version import VERSION
from connectors.kafka.publisher import Publisher
from connectors.kafka.topic_admin import TopicReport, create_topics
from connectors.partitions.metrics import PartitionMetrics
from deploy.commands.terminal import Terminal
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import fetch_jars
from deploy.java.jvm import find_java
from deploy.processes.act import Actuators, policy_services
from deploy.processes.collect import Collectors
from deploy.processes.connections import Connections
from deploy.processes.decide import Decider
from deploy.processes.exporting import exporting, notifier_components
from deploy.processes.running import new_registry, publishing, require_free_ports, run_components, serving
from deploy.processes.separate import restore_dropped
from deploy.processes.shared_components import SharedComponents
from deploy.processes.signals import stop_on_signals
from deploy.query.components import log_differences, require_usable
from deploy.query.spark_sessions import SparkSessions, started_ahead
from deploy.settings.application import Settings
from deploy.settings.embedded import with_embedded
from deploy.settings.reload import SettingsReload


def run_loop(load: Callable[[], Settings], terminal: Terminal) -> None:
    """Run collectors, query, actuators and exporter until SIGINT or SIGTERM, then drain and stop.

    Args:
        load: reads the settings, at the start and at each SIGHUP.
    """
    reload = SettingsReload(load, restore_dropped)

    def run(settings: Settings) -> None:
        require_free_ports(settings)
        with started_ahead(settings) as sessions:
            _run(settings, terminal, sessions, reload)

    reload.run_each(load(), run)


def run_embedded(load: Callable[[], Settings], terminal: Terminal) -> None:
    """Start a Kafka cluster, watch its own disks, and run the loop on it; parameters as for `run_loop`."""
    settings = load()
    terminal.step(f"headgate {VERSION}, data in {settings.data_dir}")
    find_java()
    data_dir = settings.create_data_dir()  # a folder that cannot be made is refused before anything is fetched
    jars, _ = fetch_jars(("kafka", "spark"), settings.jars_dir)
    kafka = EmbeddedKafka(
        data_dir / "kafka",
        jars,
        brokers=settings.embedded.brokers,
        ports=settings.embedded.ports,
        heap_mebibytes=settings.embedded.heap_mebibytes,
    )
    with ExitStack() as stack:
        stack.callback(kafka.stop)
        kafka.reserve()
        require_free_ports(settings)
        sessions = stack.enter_context(started_ahead(settings))
        kafka.start()
        terminal.step(f"Kafka ready on {kafka.bootstrap_servers}")
        reload = SettingsReload(lambda: with_embedded(load(), kafka.bootstrap_servers), restore_dropped)
        first = with_embedded(settings, kafka.bootstrap_servers)

        def run(given: Settings) -> None:
            with nullcontext(sessions) if given is first else started_ahead(given) as own:
                _run(given, terminal, own, reload, Component("brokers", partial(kafka.watch, tell=terminal.step)))

        reload.run_each(first, run)
    terminal.step("stopped")


def _run(
    settings: Settings, terminal: Terminal, sessions: SparkSessions, reload: SettingsReload, *others: Component
) -> None:
    """Run until a signal, or until the settings are reloaded."""

    def on_ready() -> None:
        reload.prove(settings)
        terminal.ready()

    report = create_topics(settings.loop_kafka(), settings.topics)
    require_usable(report)
    log_differences(report)
    terminal.step(f"{len(report.existing)} topics found, {len(report.created)} created")
    registry, stop = new_registry(), stop_on_signals()
    with publishing(settings, registry) as publisher, Connections(settings) as connections:
        components: list[Component] = []
        export = exporting(
            settings,
            registry,
            publisher,
            terminal.decision,
            healthy=lambda: first_problem(component.healthy for component in components),
        )
        components += [
            *_shared_components(settings, report, registry, sessions, publisher, connections, stop),
            *policy_services(settings),
            *export.components,
            *notifier_components(settings, registry),
            Component("settings reload", reload.watch(registry, stop)),
            *others,
        ]
        watched = ", ".join(settings.clusters)
        with serving(settings, registry, components, export.site) as server:
            url = settings.http.url(server.port)
            terminal.step(f"watching {watched}; status on {url}/, metrics on {url}/metrics")
            run_components(
                components,
                stop,
                on_ready=on_ready,
                on_stop=lambda: terminal.step("stopping; a running query first decides on the last readings"),
            )


def _shared_components(
    settings: Settings,
    report: TopicReport,
    registry: CollectorRegistry,
    sessions: SparkSessions,
    publisher: Publisher,
    connections: Connections,
    stop: threading.Event,
) -> Iterator[Component]:
    """The shared work in the order in which it stops: collectors first, so that their last readings are decided."""
    works = (
        Collectors(settings, registry, publisher.publish, connections).work(),
        Decider(settings, report, registry, sessions, publisher, stop).work(),
        Actuators(settings, registry, publisher, connections).work(),
    )
    metrics = PartitionMetrics(registry)
    for work in works:
        if work is not None:
            yield SharedComponents(settings.loop_kafka(), work, settings.shares, metrics).component()
