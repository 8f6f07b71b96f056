"""The processes that decide on a prefix, or stand by to: the members of one consumer group.

Each member's client id names its host and its checkpoint. Members with the same checkpoint are one loop and its
stand-bys. Another checkpoint is another loop: copied settings with another `data_dir`.
"""

import hashlib
import socket
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.librdkafka import build_client
from connectors.kafka.topics import TopicSettings
from connectors.partitions.membership import Group
from policies.shares import DECIDER_TOPIC

_GROUP = "decide.query"
_SECONDS = 5.0


class Decider(NamedTuple):
    """A process that decides, or stands by."""

    host: str
    loop: str
    """Eight hexadecimal digits that identify its checkpoint's path."""


def deciders_group(topics: TopicSettings, checkpoint: str) -> Group:
    """Return the group in which processes take turns deciding; its name depends on the prefix alone."""
    loop = hashlib.sha256(checkpoint.encode()).hexdigest()[:8]
    return Group(topics.topic(_GROUP), topics.topic(DECIDER_TOPIC), f"@{socket.gethostname()}/{loop}")


def find_deciders(connection: KafkaConnection, topics: TopicSettings) -> list[Decider]:
    """Return the processes that are members now.

    Raises:
        KafkaException: Kafka does not answer, or forbids it.
        UserError: a file of the connection cannot be used.
    """
    group = topics.topic(_GROUP)
    admin = build_client(AdminClient, {**connection.for_confluent(), "client.id": group})
    (future,) = admin.describe_consumer_groups([group], request_timeout=_SECONDS).values()
    try:
        members = future.result(timeout=_SECONDS + 1).members
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return []
        raise
    names = (str(member.client_id).rpartition("@")[2].rpartition("/") for member in members)
    return sorted(Decider(host, loop) for host, _, loop in names)


def describe_loops(deciders: Sequence[Decider], prefix: str) -> str | None:
    """Return one sentence that names the hosts, if there is more than one loop; else None."""
    hosts: defaultdict[str, list[str]] = defaultdict(list)
    for decider in deciders:
        hosts[decider.loop].append(decider.host)
    if len(hosts) < 2:
        return None
    loops = "; ".join(f"{', '.join(dict.fromkeys(names))} (checkpoint {loop})" for loop, names in sorted(hosts.items()))
    return (
        f"{len(hosts)} loops with checkpoints of their own are started on the prefix {prefix}: {loops}. One of them "
        "decides; another continues from another state when that one ends"
    )
