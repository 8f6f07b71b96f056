"""The parts of the loop as processes of their own, each with its own metrics and health."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from connectors.kafka.topic_admin import TopicReport, check_topics
from connectors.part import Part
from connectors.status_page.site import StatusSite
from deploy.act import actuator_parts, release_quotas
from deploy.app import (
    Sessions,
    exporting,
    new_registry,
    notifier_parts,
    publishing,
    query_parts,
    require_append_times,
    require_own_checkpoint,
    retirement_parts,
    run_parts,
    serving,
)
from deploy.collect import collector_parts
from deploy.connections import Connections
from deploy.settings import Settings
from deploy.signals import stop_on_signals
from deploy.sole_use import sole_actuators, sole_query
from policies.errors import UserError


def run_collectors(settings: Settings) -> None:
    """Run the collectors of all watched clusters."""
    _require_topics(settings)
    registry = new_registry()
    with publishing(settings, registry) as publisher, Connections(settings) as connections:
        _run(settings, registry, collector_parts(settings, registry, publisher, connections))


def run_query(settings: Settings) -> None:
    """Run the query."""
    with sole_query(settings):
        sessions = Sessions(settings)
        try:
            require_own_checkpoint(settings, _require_topics(settings))
            registry = new_registry()
            with publishing(settings, registry) as publisher:
                parts = query_parts(settings, registry, sessions, publisher)
                _run(settings, registry, [*parts, *retirement_parts(settings, publisher)])
        finally:
            sessions.close()


def run_exporter(settings: Settings) -> None:
    """Run the exporter."""
    _require_topics(settings)
    registry = new_registry()
    export = exporting(settings, registry)
    _run(settings, registry, [*export.parts, *notifier_parts(settings, registry)], export.site)


def run_actuators(settings: Settings) -> None:
    """Run the actuators. What they did stays as it is when they end."""
    _require_topics(settings)
    registry = new_registry()
    with publishing(settings, registry) as publisher, Connections(settings) as connections:
        parts = actuator_parts(settings, registry, publisher, connections)
        if not parts:
            raise UserError(
                "clusters: there is nothing to carry out: none has `quotas`, `unload`, `switching`, "
                "or `bookies` with policies.isolation.quarantine on"
            )
        with sole_actuators(settings, tuple(settings.clusters)):
            _run(settings, registry, parts)


def release(settings: Settings) -> None:
    """Put back the quotas that were there before Headgate, and return."""
    _require_topics(settings)
    registry = new_registry()
    with publishing(settings, registry) as publisher:
        release_quotas(settings, registry, publisher)


def _run(
    settings: Settings, registry: CollectorRegistry, parts: Sequence[Part], site: StatusSite | None = None
) -> None:
    with serving(settings, registry, parts, site):
        run_parts(parts, stop_on_signals())


def _require_topics(settings: Settings) -> TopicReport:
    report = check_topics(settings.loop_kafka(), settings.topics)
    if report.missing:
        raise UserError(f"topics are missing: {', '.join(report.missing)}. Create them with `headgate topics create`.")
    require_append_times(report)
    return report
