"""Checks the contents of files that settings name (keys, certificates, tokens) before anything connects."""

from collections.abc import Callable, Iterator
from typing import Any

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.http.access import HttpAccess
from connectors.kafka.connection import KafkaConnection
from connectors.pulsar.connection import PulsarAdmin
from connectors.zookeeper.connection import ZooKeeperConnection
from deploy.settings.application import Settings
from policies.errors import UserError


def unusable_files(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the connections that cannot be built from their files: the path of each, and the reason."""
    yield from _tried(("kafka",), settings.kafka)
    yield from _tried(("alertmanager",), settings.alertmanager)
    yield from _tried(("http", "access"), settings.http.access)
    if settings.kafka is not None:  # Spark's Java client supports fewer kinds of keys than the other clients
        yield from _refused(("kafka",), settings.kafka.for_spark)
    for name, cluster in settings.clusters.items():
        for block in ("kafka", "zookeeper", "pulsar"):
            yield from _tried(("clusters", name, block), getattr(cluster, block))


def _tried(place: tuple[str, ...], connection: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    match connection:
        case KafkaConnection():
            yield from _refused(place, connection.for_kafka_python)
        case ZooKeeperConnection():
            yield from _refused(place, connection.credential)
            if connection.tls is not None:
                yield from _refused(place, connection.tls.ssl_context)
        case PulsarAdmin():
            yield from _refused(place, connection.bearer_token)
            yield from _refused(place, lambda: connection.http_client().close())
        case AlertmanagerSettings():
            yield from _refused(place, lambda: connection.http_client().close())
        case HttpAccess():
            yield from _refused(place, connection.bearer_token)
            yield from _refused(place, connection.tls)


def _refused(place: tuple[str, ...], build: Callable[[], object]) -> Iterator[tuple[tuple[str, ...], str]]:
    try:
        build()
    except UserError as error:
        yield place, str(error)
