"""The actuators: what carries decisions out, as a part of the loop or as a process of its own."""

from prometheus_client import CollectorRegistry

from connectors.by_policy import throttle
from connectors.kafka.publisher import Publisher
from connectors.part import Part
from connectors.registration import ActuatorContext, connectors_of
from deploy.app import tell
from deploy.connections import Connections
from deploy.jar_bar import fetched_jars
from deploy.jvm import find_java
from deploy.settings import Settings
from deploy.switch.admin_api import admin_api_parts
from policies.policy import PolicyKind
from policies.registry import POLICIES


def actuator_parts(
    settings: Settings, registry: CollectorRegistry, publisher: Publisher, connections: Connections
) -> list[Part]:
    """The actuators that the settings ask for."""
    return [
        part
        for kind in POLICIES.values()
        for part in connectors_of(kind).actuators(_context(kind, settings, registry, publisher, connections))
    ] + list(admin_api_parts(settings))


def release_quotas(settings: Settings, registry: CollectorRegistry, publisher: Publisher) -> None:
    """Put back what was there before Headgate on every watched cluster, those without `quotas` (any more) too.

    Raises:
        UserError: not everything could be put back.
    """
    with Connections(settings) as connections:
        throttle.release_quotas(_context(POLICIES["throttle"], settings, registry, publisher, connections))


def _context(
    kind: PolicyKind, settings: Settings, registry: CollectorRegistry, publisher: Publisher, connections: Connections
) -> ActuatorContext:
    return ActuatorContext(
        clusters=settings.clusters,
        settings=settings.policy_settings()[kind.name],
        loop=settings.loop_kafka(),
        topic=settings.topics.topic,
        publish=publisher.publish,
        registry=registry,
        clients=connections,
        jars=lambda group: fetched_jars(group, settings.jars_dir, tell),
        java=find_java,
        data_dir=settings.made_data_dir,
    )
