"""The command `headgate switch collisions`: finds ledger id collisions if the references outgrow one machine.

It joins a published inventory in Spark, on the master of `stream.master`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import typer
from msgspec import structs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import RenderableType

from connectors.kafka.connection import KafkaConnection
from connectors.switching.cluster_sessions import ClusterSessions
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError
from deploy.commands.console import SafeConsole
from deploy.java.jars import fetch_jars
from deploy.java.jvm import find_java
from deploy.settings.application import Settings
from deploy.switch.clusters import bookkeeper_clusters
from deploy.switch.inventory_command import inventory_topic
from deploy.switch.precheck_view import finding_line
from policies.errors import UserError
from policies.switching.ledgers import HitClass
from policies.switching.precheck.findings import FindingReason
from streaming.collisions import Collisions, Incomplete, Question, find_collisions, read_records
from streaming.session import start_session, stop_session

_LOG = "collisions.log"


def show_collisions(settings: Settings, cluster: str, inventory: str | None, *, as_json: bool) -> bool:
    """Join an inventory's references with the target's ledgers, and print the result.

    Returns:
        Whether the inventory is complete and there is no collision.

    Raises:
        UserError: the settings do not fit, Kafka cannot be reached, or Spark cannot run.
    """
    bookkeeper_clusters(settings, cluster)  # report wrong settings before the first connection
    connection, topic = inventory_topic(settings)
    found = _find(settings, connection, topic, _question(settings, cluster, inventory))
    if as_json:
        typer.echo(json.dumps(_plain(cluster, found)))
    else:
        console = SafeConsole()
        for line in _lines(found):
            console.print(line, highlight=False, soft_wrap=True)
    return isinstance(found, Collisions) and found.free


def _question(settings: Settings, cluster: str, inventory: str | None) -> Question:
    brokers, clusters = bookkeeper_clusters(settings, cluster)
    instance: str | None = None
    with ClusterSessions(cluster, brokers, clusters) as sessions:
        try:
            instance = sessions.read_cluster(clusters.source).instance_id
        except (UnreadError, NotConnectedError) as error:
            name = sessions.find_metadata(clusters.source).session.name
            typer.echo(f"{name}: {error}; so no ledger counts as Headgate's own copy", err=True)
    return Question(
        cluster=cluster,
        source=clusters.source,
        bootstrap=clusters.bootstrap,
        rules=settings.policies.switching.for_cluster(cluster).rules,
        source_instance=instance,
        inventory=inventory,
    )


def _find(settings: Settings, connection: KafkaConnection, topic: str, question: Question) -> Collisions | Incomplete:
    try:
        with _session(settings) as spark:
            return find_collisions(read_records(spark, connection.for_spark(), topic), question)
    except (PySparkException, Py4JError) as error:
        raise UserError(f"Spark: {_reason(error)}. More in {settings.data_dir / _LOG}") from None


def _reason(error: Exception) -> str:
    """A Py4J message names its own objects first; the error is the line after."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


@contextmanager
def _session(settings: Settings) -> Iterator[SparkSession]:
    """Start a session with its own log, so that a query on the same data folder keeps its log."""
    find_java()
    jars = fetch_jars(["spark"], settings.jars_dir)[0]
    session = start_session(settings.stream, jars, settings.create_data_dir() / _LOG)
    try:
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
        **{field.name: getattr(found, field.name) for field in fields(found)},
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
