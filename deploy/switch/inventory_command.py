"""The command `headgate switch inventory`: publishes the precheck's readings in parts, for `collisions` to join."""

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice

import typer
from prometheus_client import CollectorRegistry

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics, observations_to
from connectors.kafka.topic_admin import check_topics
from connectors.switching.inventory import make_inventory
from deploy.settings.application import Settings
from deploy.switch.clusters import bookkeeper_clusters
from deploy.switch.loop_kafka import loop_connection
from deploy.switch.precheck_command import check
from policies.errors import UserError
from policies.observations import Reading
from policies.registry import observed_topic
from policies.switching.precheck.snapshot import PrecheckSnapshot
from policies.switching.readings import SwitchInventory

SOURCE = "headgate/switch-inventory"

_AT_ONCE = 64
"""The most records in flight, at most 16 MiB: the publisher's queue holds 64 MiB."""
_DELIVERY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PublishedInventory:
    """An inventory that was published completely."""

    inventory: str
    references: int
    parts: int


def publish_inventory(settings: Settings, cluster: str, target: str, *, as_json: bool) -> bool:
    """Read the references and the target's ledgers as the precheck does, and publish them; the manifest comes last.

    Returns:
        Whether every reading succeeded. If not, nothing is published, and standard error has the failures.

    Raises:
        UserError: the settings do not have the clusters' addresses, or Kafka rejects the records.
    """
    bookkeeper_clusters(settings, cluster)  # report wrong settings before the first connection
    connection, topic = inventory_topic(settings)
    began = time.monotonic()
    taken = check(settings, cluster, target).taken
    if taken.problems or taken.snapshot.existing is None:
        for problem in taken.problems:
            typer.echo(f"not read: {problem}", err=True)
        typer.echo("Nothing is published, because only a complete inventory counts.", err=True)
        return False
    took_ms = round((time.monotonic() - began) * 1000)
    published = _publish(connection, topic, _readings(cluster, target, taken.snapshot, took_ms))
    if as_json:
        typer.echo(json.dumps({"cluster": cluster, "target": target, **asdict(published)}))
    else:
        typer.echo(f"{published.inventory}: {published.references} references in {published.parts} parts")
    return True


def _readings(cluster: str, target: str, seen: PrecheckSnapshot, took_ms: int) -> Iterator[Reading]:
    existing, name = seen.existing, str(uuid.uuid4())
    if existing is None:
        raise ValueError("the target's ledgers are unknown")
    ids = existing.ids if existing.listed else None
    return make_inventory(
        cluster, name, seen.references, existing.facts, target, took_ms,
        target_ids=ids, staying=seen.staying, left_out=seen.left_out,
    )  # fmt: skip


def _publish(connection: KafkaConnection, topic: str, readings: Iterable[Reading]) -> PublishedInventory:
    """Publish records in groups, each delivered before the next, so the manifest follows only delivered parts."""
    metrics, left, last = PublisherMetrics(CollectorRegistry()), iter(readings), None
    with Publisher(connection, metrics, delivery_timeout_seconds=_DELIVERY_SECONDS) as publisher:
        send = observations_to(publisher.publish, topic, SOURCE)
        while some := list(islice(left, _AT_ONCE)):
            for last in some:
                send(last)
            undelivered = publisher.flush(_DELIVERY_SECONDS)
            if undelivered or any(s.value for metric in metrics.unpublished.collect() for s in metric.samples):
                raise UserError(
                    f"kafka: {topic} did not accept all records, so the inventory does not count. Try again."
                )
    if not isinstance(last, SwitchInventory):
        raise TypeError("the manifest comes last")
    return PublishedInventory(last.inventory, last.references, last.parts)


def inventory_topic(settings: Settings) -> tuple[KafkaConnection, str]:
    """Return the connection and the topic of inventories.

    Raises:
        UserError: the loop's Kafka is not known, or lacks the topic.
    """
    connection, topic = loop_connection(settings), settings.topics.topic(observed_topic(SwitchInventory))
    if topic in check_topics(connection, settings.topics).missing:
        raise UserError(f"topics are missing: {topic}. Create them with `headgate topics create`.")
    return connection, topic
