"""The components of a process that exports: metrics, status page, canary, and notifications to Alertmanager."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from connectors.alertmanager.notifier import Notifier, NotifierMetrics
from connectors.canary.canary import Canary, CanaryMetrics
from connectors.component import Check, Component
from connectors.exporter.exporter import Exporter
from connectors.exporter.page.site import StatusSite
from connectors.exporter.version import VERSION
from connectors.kafka.authorized import why_not_writable
from connectors.kafka.publisher import Publisher
from connectors.views.loop_snapshot import LoopSnapshot
from deploy.settings.application import Settings
from policies.decisions import Alert, Decision, Standing
from policies.registry import REPORTS


class Exporting(NamedTuple):
    """The exporter's components, and the status page that its HTTP server shows."""

    components: list[Component]
    site: StatusSite


def exporting(
    settings: Settings,
    registry: CollectorRegistry,
    publisher: Publisher | None,
    on_decision: Callable[[Decision, bool], None] = lambda _decision, _caught_up: None,
    *,
    healthy: Check = lambda: None,
) -> Exporting:
    """Make the components of the exporter: metrics, the status page, and the canary if the settings have it.

    Args:
        publisher: publishes the canary's readings; None: there is no canary.
        on_decision: called with each decision, and whether the exporter has read its history by then.
        healthy: the problem that /-/healthy of this process shows; while it has one, the page shows it, too.
    """
    settings_hash, kafka = settings.fingerprint(), settings.loop_kafka()
    canary = None
    if settings.canary and publisher is not None:
        canary = Canary(
            settings.topics.prefix,
            publisher.publish,
            CanaryMetrics(registry),
            forbidden=lambda topic: why_not_writable(kafka, topic),
            ready=lambda: exporter.caught_up(),
        )
    exporter = Exporter(
        settings.loop_kafka(),
        settings.topics.prefix,
        settings.policy_settings(),
        registry,
        settings_hash=settings_hash,
        clusters=settings.watched_clusters(),
        on_decision=on_decision,
        on_records=None if canary is None else canary.fold_records,
    )

    def snapshot() -> LoopSnapshot:
        found = exporter.snapshot()
        if (problem := healthy()) is not None:  # the last answer of the canary is older than that
            return replace(found, problem=found.problem or problem)
        return replace(found, answers=None if canary is None else canary.answers())

    site = StatusSite(snapshot, version=VERSION, settings_hash=settings_hash)
    components = [Component("exporter", exporter.run, None, exporter.caught_up), Component("status page", site.run)]
    return Exporting([*components, *([] if canary is None else [Component("canary", canary.run)])], site)


def notifier_components(settings: Settings, registry: CollectorRegistry) -> list[Component]:
    """Make the component that sends alerts to Alertmanager; none if the settings do not name one."""
    if settings.alertmanager is None:
        return []
    topics = [settings.topics.topic(name) for name in (Alert.topic, Standing.topic, REPORTS)]
    metrics, page_url = NotifierMetrics(registry), settings.http.public_url
    notifier = Notifier(settings.loop_kafka(), topics, settings.alertmanager, metrics, page_url=page_url)
    return [Component("alertmanager", notifier.run, None, notifier.caught_up)]
