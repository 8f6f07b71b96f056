"""The actuators: what carries decisions out, as a part of the loop or as a process of its own."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry

from connectors.kafka.publisher import Publisher
from connectors.quotas import Loop, QuotaActuator, QuotaMetrics, WatchedQuotas
from deploy.app import Part
from deploy.settings import Settings
from policies.errors import UserError
from policies.registry import APPLIED_QUOTAS, AUDIT
from policies.throttle import ThrottleFactor, ThrottleSettings


def actuator_parts(settings: Settings, registry: CollectorRegistry, publisher: Publisher) -> list[Part]:
    """The quota actuator, if any cluster has quotas.

    Raises:
        UserError: a cluster with quotas is no Kafka cluster.
    """
    homeless = [name for name, cluster in settings.clusters.items() if cluster.quotas and not cluster.kafka]
    if homeless:
        raise UserError("\n".join(f"clusters.{name}.quotas: needs kafka.bootstrap_servers, too" for name in homeless))
    watched = [cluster for cluster in _watched(settings) if cluster.settings is not None]
    if not watched:
        return []
    actuator = _actuator(settings, watched, publisher.publish, registry)
    return [Part("quota actuator", actuator.run, None, actuator.caught_up)]


def release_quotas(settings: Settings, registry: CollectorRegistry, publisher: Publisher) -> None:
    """Put back what was there before Headgate on every watched cluster, those without `quotas` (any more) too.

    Raises:
        UserError: not everything could be put back.
    """
    _actuator(settings, _watched(settings), publisher.publish, registry).release()


def _watched(settings: Settings) -> list[WatchedQuotas]:
    throttle: ThrottleSettings = settings.policies.throttle
    return [
        WatchedQuotas(name, cluster.kafka, cluster.quotas, throttle.for_cluster(name).fallback)
        for name, cluster in settings.clusters.items()
        if cluster.kafka is not None
    ]


def _actuator(
    settings: Settings,
    watched: Iterable[WatchedQuotas],
    publish: Callable[[str, str, bytes], None],
    registry: CollectorRegistry,
) -> QuotaActuator:
    topics = settings.topics
    loop = Loop(
        settings.loop_kafka(), topics.topic(ThrottleFactor.topic), topics.topic(APPLIED_QUOTAS), topics.topic(AUDIT)
    )
    return QuotaActuator(loop, list(watched), publish, QuotaMetrics(registry))
