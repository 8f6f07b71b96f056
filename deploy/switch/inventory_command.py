"""The command `headgate switch inventory`: publishes the precheck's input in parts, for `collisions` to join."""

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
from connectors.switching.inventory import inventory_readings
from deploy.settings.application import Settings
from deploy.switch.loop_kafka import loop_connection
from deploy.switch.precheck_command import check, named
from policies.errors import UserError
from policies.observations import Reading
from policies.registry import topic_of
from policies.switching.precheck.snapshot import PrecheckSnapshot
from policies.switching.readings import SwitchInventory

SOURCE = "headgate/switch-inventory"

_AT_ONCE = 64
"""So many records, 16 MiB at the most, are under way: the publisher's queue holds 64 MiB."""
_DELIVERY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PublishedInventory:
    """An inventory that the loop's Kafka has taken whole."""

    inventory: str
    references: int
    parts: int


def publish_inventory(settings: Settings, cluster: str, target: str, *, as_json: bool) -> bool:
    """Read the references and the target's ledgers as the precheck does, and publish them; the manifest comes last.

    Returns:
        Whether everything could be read. Else nothing is published, and standard error says why.

    Raises:
        UserError: the settings do not say where the clusters are, or Kafka does not take the records.
    """
    named(settings, cluster)  # what is wrong with the settings is told before anything is asked
    connection, topic = inventory_topic(settings)
    began = time.monotonic()
    taken = check(settings, cluster, target).taken
    if taken.problems or taken.snapshot.existing is None:
        for problem in taken.problems:
            typer.echo(f"not read: {problem}", err=True)
        typer.echo("Nothing is published: an inventory counts only when it is whole.", err=True)
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
    return inventory_readings(
        cluster, name, seen.references, existing.facts, target, took_ms,
        target_ids=ids, staying=seen.staying, left_out=seen.left_out,
    )  # fmt: skip


def _publish(connection: KafkaConnection, topic: str, readings: Iterable[Reading]) -> PublishedInventory:
    """Some at a time, each taken before the next are made; so the manifest follows only what has arrived."""
    metrics, left, last = PublisherMetrics(CollectorRegistry()), iter(readings), None
    with Publisher(connection, metrics, delivery_timeout_seconds=_DELIVERY_SECONDS) as publisher:
        send = observations_to(publisher.publish, topic, SOURCE)
        while some := list(islice(left, _AT_ONCE)):
            for last in some:
                send(last)
            if publisher.flush(_DELIVERY_SECONDS) or _given_up(metrics):
                raise UserError(f"kafka: {topic} did not take all records; the inventory does not count. Try again.")
    if not isinstance(last, SwitchInventory):
        raise TypeError("the manifest comes last")
    return PublishedInventory(last.inventory, last.references, last.parts)


def _given_up(metrics: PublisherMetrics) -> float:
    return sum(sample.value for metric in metrics.unpublished.collect() for sample in metric.samples)


def inventory_topic(settings: Settings) -> tuple[KafkaConnection, str]:
    """Where inventories are published.

    Raises:
        UserError: the loop's Kafka is not known, or has no such topic.
    """
    connection, topic = loop_connection(settings), settings.topics.topic(topic_of(SwitchInventory))
    if topic in check_topics(connection, settings.topics).missing:
        raise UserError(f"topics are missing: {topic}. Create them with `headgate topics create`.")
    return connection, topic
