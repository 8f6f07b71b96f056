"""Runs one part of the loop as its own process, with its own metrics and health endpoints."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import structlog
from prometheus_client import CollectorRegistry

from connectors.component import Component
from connectors.exporter.page.site import StatusSite
from connectors.kafka.topic_admin import TopicReport, check_topics
from connectors.partitions.metrics import PartitionMetrics
from connectors.registration import acts_on, connectors_of
from deploy.processes import act
from deploy.processes.act import Actuators, policy_services
from deploy.processes.collect import Collectors
from deploy.processes.connections import Connections
from deploy.processes.decide import Decider
from deploy.processes.exporting import exporting, notifier_components
from deploy.processes.running import new_registry, publishing, require_free_ports, run_components, serving
from deploy.processes.shared_components import SharedComponents
from deploy.processes.signals import stop_on_signals
from deploy.query.components import log_differences, require_usable
from deploy.query.spark_sessions import started_ahead
from deploy.settings.application import Settings
from policies.errors import UserError
from policies.registry import POLICIES

_log = structlog.get_logger(__name__)


def run_collectors(settings: Settings) -> None:
    """Run the collectors of this process's share of the watched clusters."""
    _require_topics(settings)
    registry = new_registry()
    with publishing(settings, registry) as publisher, Connections(settings) as connections:
        work = Collectors(settings, registry, publisher.publish, connections).work()
        shared = SharedComponents(settings.loop_kafka(), work, settings.shares, PartitionMetrics(registry))
        _run(settings, registry, [shared.component()])


def run_query(settings: Settings) -> None:
    """Run the query, or stand by."""
    require_free_ports(settings)
    with started_ahead(settings) as sessions:
        report = _require_topics(settings)
        registry, stop = new_registry(), stop_on_signals()
        with publishing(settings, registry) as publisher:
            work = Decider(settings, report, registry, sessions, publisher, stop).work()
            shared = SharedComponents(settings.loop_kafka(), work, settings.shares, PartitionMetrics(registry))
            with serving(settings, registry, components := [shared.component()]):
                run_components(components, stop)


def run_exporter(settings: Settings) -> None:
    """Run the exporter."""
    _require_topics(settings)
    registry = new_registry()
    # without the canary it only reads
    with publishing(settings, registry) if settings.canary else nullcontext() as publisher:
        export = exporting(settings, registry, publisher)
        _run(settings, registry, [*export.components, *notifier_components(settings, registry)], export.site)


def run_actuators(settings: Settings) -> None:
    """Run the actuators for this process's share of the clusters. When they end, their changes stay."""
    _require_topics(settings)
    registry = new_registry()
    with publishing(settings, registry) as publisher, Connections(settings) as connections:
        work = Actuators(settings, registry, publisher, connections).work()
        if work is None:
            needed = ", or ".join(words for kind in POLICIES.values() if (words := connectors_of(kind).acts_if))
            raise UserError(f"clusters: no decision can be carried out: none has {needed}")
        shared = SharedComponents(settings.loop_kafka(), work, settings.shares, PartitionMetrics(registry))
        _run(settings, registry, [shared.component(), *policy_services(settings)])


def release(settings: Settings, forget: str | None) -> Iterator[str]:
    """Restore the quotas from before Headgate, whether or not the loop's own Kafka answers. Yields the results."""
    registry = new_registry()
    with publishing(settings, registry) as publisher:
        yield from act.release(settings, registry, publisher, forget)


def restore_dropped(settings: Settings) -> None:
    """Restore what was set on the clusters of these settings on which this process acted.

    Raises:
        UserError: not everything could be restored.
    """
    blocks = settings.policy_settings()
    acted = {
        name: each
        for name, each in settings.clusters.items()
        if any(acts_on(connectors_of(kind), blocks[kind.name], name, each) for kind in POLICIES.values())
    }
    for line in release(settings.model_copy(update={"clusters": acted}), None) if acted else ():
        _log.info(line)


def _run(
    settings: Settings, registry: CollectorRegistry, components: Sequence[Component], site: StatusSite | None = None
) -> None:
    with serving(settings, registry, components, site):
        run_components(components, stop_on_signals())


def _require_topics(settings: Settings) -> TopicReport:
    report = check_topics(settings.loop_kafka(), settings.topics)
    if report.missing:
        raise UserError(f"topics are missing: {', '.join(report.missing)}. Create them with `headgate topics create`.")
    require_usable(report)
    log_differences(report)
    return report
