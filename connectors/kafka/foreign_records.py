"""Finds records on the decided topics that the query cannot have written."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.history import read_history
from connectors.kafka.topics import TopicSettings
from policies.registry import decided_topics, decision_types
from policies.units import counted
from policies.wire import BadRecordError, EventReader

RECENT = timedelta(minutes=10)


def find_foreign_records(connection: KafkaConnection, topics: TopicSettings) -> Iterator[str]:
    """Yield one sentence for each decided topic with such records in the last minutes.

    Raises:
        UserError: the cluster does not answer, or a topic does not exist.
    """
    reader, now, found = EventReader(decision_types()), datetime.now(UTC), Counter[str]()
    for record in read_history(connection, [topics.topic(name) for name in decided_topics()], now - RECENT, now):
        try:
            if record.value is not None:
                reader.read(record.value)
        except BadRecordError:
            found[record.topic] += 1
    yield from (describe_foreign(topic, count) for topic, count in sorted(found.items()))


def describe_foreign(topic: str, count: int) -> str:
    """Return the sentence about the records of another writer, for people."""
    return (
        f"{topic}: {counted(count, 'record')} of the last {RECENT // timedelta(minutes=1)} min "
        "are no decisions: another process writes there, which `headgate topics acls decide` excludes"
    )
