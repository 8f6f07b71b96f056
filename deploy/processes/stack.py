"""The whole loop in one process: `headgate run` on the user's Kafka, `headgate up` on one that it starts itself."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import Publish
from connectors.component import Component, first_problem
from connectors.exporter.exporter import VERSION
from connectors.exporter.page.site import StatusSite
from connectors.kafka.admin import TopicReport, check_topics, create_topics
from connectors.membership import PartitionLease, PartitionMetrics, deciders_group
from connectors.registration import acts_on, connectors_of
from deploy.console.terminal import USER_ERROR, Terminal, print_error
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import fetch_jars
from deploy.java.jvm import find_java
from deploy.processes import parts
from deploy.processes.parts import Process, acting, collecting, exporting
from deploy.processes.running import (
    Renewal,
    new_registry,
    require_free_ports,
    run_components,
    serving,
    start_anew,
    stop_on_signals,
)
from deploy.processes.shared_components import Held, SharedComponents, Work, passing_registry
from deploy.query.checkpoint import sole_query_in_turn
from deploy.query.components import (
    SparkSessions,
    query_components,
    require_own_checkpoint,
)
from deploy.query.supervisor import running_in_background
from deploy.settings.application import Settings, with_embedded
from deploy.settings.file import unusable_files
from policies.registry import POLICIES
from policies.units import UserError
from policies.wire import DECIDER_SHARE

# Runs the query in one process at a time; the others stand by, with their Spark session started and warmed up.

_log = structlog.get_logger(__name__)


def deciding(process: Process, report: TopicReport, sessions: SparkSessions, stop: threading.Event) -> Work:
    """Return the query of a prefix as work of a single unit, which one process holds at a time.

    With `stop` set, this process will not stand by. Raises UserError if the settings do not fit the checkpoint.
    """
    settings, registry, publisher, _ = process
    require_own_checkpoint(settings, report)
    sessions.stand_by()
    place = settings.checkpoint()
    checkpoint = str(place.folder or place.uri)

    @contextmanager
    def open_query(_unit: str, _held: Held, lease: PartitionLease) -> Iterator[Sequence[Component]]:
        running: list[Component] = []

        def run(stop: threading.Event) -> None:
            with sole_query_in_turn(settings, stop) as is_ours:
                if is_ours:
                    _log.info("this process decides from now on")
                    if (local := require_own_checkpoint(settings, report)) is not None:
                        local.require_whole()
                    may_decide = partial(lease.holds, DECIDER_SHARE)
                    running.extend(query_components(settings, own, sessions, publisher, may_decide))
                    run_components(running, stop)

        def ready() -> str | None:
            is_waiting = None if running else "waiting until the previous query has ended"
            return is_waiting or first_problem(component.ready for component in running)

        with passing_registry(registry) as own:
            yield [Component("query", run, lambda: first_problem(each.healthy for each in running), ready)]
            if not (lease.holds(DECIDER_SHARE) or stop.is_set()):
                sessions.stand_by()

    return Work(
        name="query",
        group=deciders_group(settings.topics, checkpoint),
        of_shares=lambda shares: frozenset({checkpoint} if DECIDER_SHARE in shares else ()),
        units=lambda held: {"query": held} if held else {},
        open=open_query,
        does="runs the query on the checkpoint",
    )


# Runs one part of the loop as its own process, with its own metrics and health endpoints.


def run_renewed(load: Callable[[], Settings], first: Settings, run: Callable[[Renewal], None]) -> None:
    """Run one of the parts below with its first settings; replace the process when they or certificates change."""

    def validate(settings: Settings) -> None:
        require_startable(first, settings, decides=run is run_query, acts=run is run_actuators)
        _require_topics(settings)

    restore = restore_dropped if run is run_actuators else lambda _dropped: None  # other parts set nothing there
    if Renewal(load, first, validate, restore).run(run):
        start_anew()


def run_collectors(renewal: Renewal) -> None:
    """Run the collectors of this process's share of the watched clusters."""
    _run_shared(renewal, lambda it, *_: collecting(it.settings, it.registry, it.publisher.publish, it.connections))


def run_query(renewal: Renewal) -> None:
    """Run the query, or stand by."""
    require_free_ports(renewal.settings)
    with closing(SparkSessions(renewal.settings)) as sessions:
        _run_shared(renewal, lambda process, report, stop: deciding(process, report, sessions, stop))


def run_exporter(renewal: Renewal) -> None:
    """Run the exporter."""
    _require_topics(renewal.settings)
    registry = new_registry()
    _run_part(renewal, registry, stop_on_signals(), *exporting(renewal.settings, registry))


def run_actuators(renewal: Renewal) -> None:
    """Run the actuators for this process's share of the clusters. When they end, their changes stay."""
    _run_shared(renewal, lambda process, *_: acting(process))


def _run_shared(renewal: Renewal, make: Callable[[Process, TopicReport, threading.Event], Work | None]) -> None:
    settings = renewal.settings
    report, stop = _require_topics(settings), stop_on_signals()
    with Process.open(settings) as process:
        work = make(process, report, stop)
        if work is None:
            needed = ", or ".join(filter(None, (connectors_of(kind).needed for kind in POLICIES.values())))
            raise UserError(f"clusters: no decision can be carried out: none has {needed}")
        metrics = PartitionMetrics(process.registry)
        shared = SharedComponents(settings.loop_kafka(), work, settings.shares, metrics)
        _run_part(renewal, process.registry, stop, [shared.component()])


def _run_part(
    renewal: Renewal,
    registry: CollectorRegistry,
    stop: threading.Event,
    components: Sequence[Component],
    site: StatusSite | None = None,
) -> None:
    components = [*components, renewal.component(registry, stop)]
    with serving(renewal.settings, registry, components, site):
        run_components(components, stop)


def restore_dropped(settings: Settings) -> None:
    """Restore the original values on the clusters of these settings on which this process acted, or raise UserError."""
    blocks = settings.policy_settings()
    acted = {
        name: each
        for name, each in settings.clusters.items()
        if any(acts_on(connectors_of(kind), blocks[kind.name], name, each) for kind in POLICIES.values())
    }
    for line in parts.release(settings.model_copy(update={"clusters": acted}), None) if acted else ():
        _log.info(line)


def require_startable(before: Settings, fresh: Settings, *, decides: bool = True, acts: bool = True) -> None:
    """Require that this process could start with new settings and certificates, while it runs with others.

    Raises UserError if a file cannot be used, a port is taken, the checkpoint does not fit, or a Kafka refuses them.
    """
    ports = [(each.host, each.port, each.probes_port) for each in (before.http, fresh.http)]
    if ports[0] != ports[1]:
        require_free_ports(fresh)
    if unusable := [f"{'.'.join(place)}: {what}" for place, what in unusable_files(fresh)]:
        raise UserError("\n".join(unusable))
    report = check_topics(fresh.loop_kafka(), fresh.topics)
    _require_usable(report)
    if decides:
        require_own_checkpoint(fresh, report)
    if acts:
        parts.require_accepted(fresh)


def _require_topics(settings: Settings) -> TopicReport:
    report = check_topics(settings.loop_kafka(), settings.topics)
    if report.missing:
        raise UserError(f"topics are missing: {', '.join(report.missing)}. Create them with `headgate topics create`.")
    _require_usable(report)
    return report


def _require_usable(report: TopicReport) -> None:
    """Raise UserError, with the commands that fix it, unless observed and share topics are set up as they must be.

    Each topic that differs from the settings is logged, with the command that changes it.
    """
    if report.fatal:
        raise UserError("\n".join(map(str, report.fatal)))
    for difference in report.differences:
        log = _log.error if difference in report.unusable else _log.warning
        log("topic differs from the settings", topic=difference.topic, difference=str(difference))


def run_loop(load: Callable[[], Settings], terminal: Terminal) -> None:
    """Run collectors, query, actuators and exporter until SIGINT or SIGTERM, then drain and stop."""
    first = load()
    require_free_ports(first)
    with closing(SparkSessions(first)) as sessions:
        is_renewed = _run_until_renewed(load, first, terminal, sessions)
    if is_renewed:
        start_anew()


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
        sessions = stack.enter_context(closing(SparkSessions(settings)))
        kafka.start()
        terminal.step(f"Kafka ready on {kafka.bootstrap_servers}")
        stack.enter_context(running_in_background("broker watch", partial(_end_without, kafka, terminal)))
        first = with_embedded(settings, kafka.bootstrap_servers)
        is_renewed = _run_until_renewed(
            lambda: with_embedded(load(), kafka.bootstrap_servers), first, terminal, sessions
        )
    terminal.step("stopped")
    if is_renewed:
        start_anew()


def _end_without(kafka: EmbeddedKafka, terminal: Terminal, stop: threading.Event) -> None:
    """End this process at once when its Kafka is dead.

    An end in order would wait for Kafka's answers until all their deadlines. The query continues from its checkpoint.
    """
    try:
        kafka.watch(stop, terminal.step)
    except UserError as error:
        print_error(error)
        kafka.stop(grace_seconds=0)
        os._exit(USER_ERROR)


def _run_until_renewed(
    load: Callable[[], Settings], first: Settings, terminal: Terminal, sessions: SparkSessions
) -> bool:
    """Run the loop until a signal arrives, or a renewal ends it; return whether the process must start anew."""

    def run(renewal: Renewal) -> None:
        stop = stop_on_signals()
        run_whole(first, terminal, sessions, stop, lambda registry: [renewal.component(registry, stop)])

    return Renewal(load, first, partial(require_startable, first), restore_dropped).run(run)


def run_whole(
    settings: Settings,
    terminal: Terminal,
    sessions: SparkSessions,
    stop: threading.Event,
    more: Callable[[CollectorRegistry], Iterable[Component]],
    through: Callable[[Publish], Publish] = lambda publish: publish,
) -> None:
    """Run the whole loop until `stop` is set.

    `more` makes components that are stopped last; collectors' readings pass `through` on their way to Kafka.
    """
    report = create_topics(settings.loop_kafka(), settings.topics)
    _require_usable(report)
    terminal.step(f"{len(report.existing)} topics found, {len(report.created)} created")
    components = list[Component]()
    with Process.open(settings) as process:
        _, registry, publisher, connections = process
        exporter, site = exporting(
            settings,
            registry,
            terminal.decision,
            healthy=lambda: first_problem(component.healthy for component in components),
        )
        # They stop in this order: collectors first, so that their last readings are decided.
        works = (
            collecting(settings, registry, through(publisher.publish), connections),
            deciding(process, report, sessions, stop),
            acting(process),
        )
        metrics = PartitionMetrics(registry)
        components += [
            *(
                SharedComponents(settings.loop_kafka(), work, settings.shares, metrics).component()
                for work in works
                if work
            ),
            *exporter,
            *more(registry),
        ]
        watched = ", ".join(settings.clusters)
        with serving(settings, registry, components, site) as server:
            url = settings.http.url(server.port)
            terminal.step(f"watching {watched}; status on {url}/, metrics on {url}/metrics")
            run_components(
                components,
                stop,
                on_ready=terminal.ready,
                on_stop=lambda: terminal.step("stopping; a running query first decides on the last readings"),
            )
