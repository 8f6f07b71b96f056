"""`headgate switch inventory` and `headgate switch collisions`: the precheck's join where references outgrow a machine.

The first publishes what the precheck would read, in parts; the second joins it in Spark, wherever `stream.master` says.
"""

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import islice

import typer
from msgspec import structs
from prometheus_client import CollectorRegistry
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console, RenderableType

from connectors.bookkeeper.identity import read_cluster
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics, observations_to
from connectors.kafka.topic_admin import check_topics
from connectors.switching.inventory import inventory_readings
from connectors.switching.places import Places
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError
from deploy.app import tell
from deploy.jars import ensure_jars
from deploy.jvm import find_java
from deploy.settings import Settings
from deploy.switch.kafka import loop_connection
from deploy.switch.precheck import check, named
from deploy.switch.view import finding_line
from policies.errors import UserError
from policies.observations import Reading
from policies.registry import topic_of
from policies.switching.ledgers import HitClass
from policies.switching.precheck.findings import FindingReason
from policies.switching.precheck.snapshot import Snapshot
from policies.switching.readings import SwitchInventory
from streaming.collisions import Collisions, Incomplete, Question, find_collisions, read_records
from streaming.session import start_session, stop_session

SOURCE = "headgate/switch-inventory"

_AT_ONCE = 64
"""So many records, 16 MiB at the most, are under way: the publisher's queue holds 64 MiB."""
_DELIVERY_SECONDS = 30.0
_INSTANCE_SECONDS = 10.0
_LOG = "collisions.log"


# --- inventory


@dataclass(frozen=True, slots=True)
class Published:
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
    connection, topic = _topic(settings)
    began = time.monotonic()
    look = check(settings, cluster, target).look
    if look.problems or look.snapshot.existing is None:
        for problem in look.problems:
            typer.echo(f"not read: {problem}", err=True)
        typer.echo("Nothing is published: an inventory counts only when it is whole.", err=True)
        return False
    took_ms = round((time.monotonic() - began) * 1000)
    published = _publish(connection, topic, _readings(cluster, target, look.snapshot, took_ms))
    if as_json:
        typer.echo(json.dumps({"cluster": cluster, "target": target, **_fields(published)}))
    else:
        typer.echo(f"{published.inventory}: {published.references} references in {published.parts} parts")
    return True


def _readings(cluster: str, target: str, seen: Snapshot, took_ms: int) -> Iterator[Reading]:
    existing, name = seen.existing, str(uuid.uuid4())
    if existing is None:
        raise ValueError("the target's ledgers are unknown")
    ids = existing.ids if existing.listed else None
    return inventory_readings(cluster, name, seen.references, existing.facts, target, took_ms, target_ids=ids)


def _publish(connection: KafkaConnection, topic: str, readings: Iterable[Reading]) -> Published:
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
    return Published(last.inventory, last.references, last.parts)


def _given_up(metrics: PublisherMetrics) -> float:
    return sum(sample.value for metric in metrics.unpublished.collect() for sample in metric.samples)


# --- collisions


def show_collisions(settings: Settings, cluster: str, inventory: str | None, *, as_json: bool) -> bool:
    """Join an inventory's references with the target's ledgers, and print what comes of it.

    Returns:
        Whether the inventory is whole and nothing foreign is in the way.

    Raises:
        UserError: the settings do not fit, Kafka cannot be reached, or Spark cannot run.
    """
    connection, topic = _topic(settings)
    found = _find(settings, connection, topic, _question(settings, cluster, inventory))
    if as_json:
        typer.echo(json.dumps(_plain(cluster, found)))
    else:
        console = Console()
        for line in _lines(found):
            console.print(line, highlight=False, soft_wrap=True)
    return isinstance(found, Collisions) and found.free


def _question(settings: Settings, cluster: str, inventory: str | None) -> Question:
    _, clusters = named(settings, cluster)
    return Question(
        cluster=cluster,
        source=clusters.source,
        bootstrap=clusters.bootstrap,
        rules=settings.policies.switching.for_cluster(cluster).rules,
        source_instance=_source_instance(settings, cluster),
        inventory=inventory,
    )


def _source_instance(settings: Settings, cluster: str) -> str | None:
    """What the source is; null, with a word on why, when its ZooKeeper does not say."""
    brokers, clusters = named(settings, cluster)
    until = time.monotonic() + _INSTANCE_SECONDS
    with Places(cluster, brokers, clusters) as places:
        place = places.place(clusters.source)
        try:
            reader = place.session.reader(lambda: until - time.monotonic())
            return read_cluster(reader, place.name, place.ledgers_root, 0).instance_id
        except (UnreadError, NotConnectedError) as error:
            typer.echo(f"{place.session.name}: {error}; so no ledger counts as headgate's own copy", err=True)
            return None


def _find(settings: Settings, connection: KafkaConnection, topic: str, question: Question) -> Collisions | Incomplete:
    try:
        with _session(settings) as spark:
            return find_collisions(read_records(spark, connection.for_spark(), topic), question)
    except (PySparkException, Py4JError) as error:
        raise UserError(f"Spark: {_reason(error)}. More in {settings.data_dir / _LOG}") from None


def _reason(error: Exception) -> str:
    """Py4J first says which of its own objects was called, and then what happened."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


@contextmanager
def _session(settings: Settings) -> Iterator[SparkSession]:
    """A session of its own: a query that runs on the same data folder keeps its own, and its log."""
    find_java()
    jars = ensure_jars("spark", settings.jars_dir, progress=tell)
    session = start_session(settings.stream, jars, settings.made_data_dir() / _LOG)
    try:
        if not settings.stream.master.startswith("local["):
            for jar in jars:  # executors elsewhere do not have this machine's class path
                session.sql(f"ADD JAR '{jar}'")
        yield session
    finally:
        stop_session(session)


def _plain(cluster: str, found: Collisions | Incomplete) -> dict[str, object]:
    if isinstance(found, Incomplete):
        reasons = [FindingReason.SNAPSHOT_INCOMPLETE.value]
        return {"cluster": cluster, "inventory": found.inventory, "reasons": reasons, "detail": found.detail}
    hits = {hit.value: structs.asdict(hits) for hit, hits in found.hits.items()}
    return {
        "cluster": cluster,
        **_fields(found),
        "hits": hits,
        "reasons": [] if found.free else [FindingReason.FOREIGN_ID.value],
    }


def _lines(found: Collisions | Incomplete) -> Iterator[RenderableType]:
    if isinstance(found, Incomplete):
        yield finding_line(FindingReason.SNAPSHOT_INCOMPLETE, f"{found.inventory or 'no inventory'}: {found.detail}")
        return
    yield (
        f"{found.inventory}: {found.references} references, {found.to_import} ledgers to import, "
        f"{found.target_ledgers} ledgers of {found.target}, greatest id {found.greatest_id}"
    )
    for hit, hits in found.hits.items():
        if hits.count and hit is not HitClass.FOREIGN:
            yield f"{hit.value}: {hits.count}, such as {', '.join(map(str, hits.samples))}"
    foreign = found.hits[HitClass.FOREIGN]
    if foreign.count:
        least = ", ".join(map(str, foreign.samples))
        detail = f"{foreign.count} ledgers exist in {found.target} and are not headgate's copies, such as {least}"
        yield finding_line(FindingReason.FOREIGN_ID, detail)
    else:
        yield "no collision"


def _topic(settings: Settings) -> tuple[KafkaConnection, str]:
    connection, topic = loop_connection(settings), settings.topics.topic(topic_of(SwitchInventory))
    if topic in check_topics(connection, settings.topics).missing:
        raise UserError(f"topics are missing: {topic}. Create them with `headgate topics create`.")
    return connection, topic


def _fields(of: Published | Collisions) -> dict[str, object]:
    return {field.name: getattr(of, field.name) for field in fields(of)}
