"""Creates and checks the loop's topics."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from connectors.kafka.connection import KafkaConnection, build_client
from connectors.kafka.topics import (
    CLEANUP,
    PARTITIONS,
    TIMESTAMPS,
    TopicDifference,
    TopicSettings,
    differences,
    is_shared,
    plan,
)
from policies.units import UserError

TIMEOUT_SECONDS = 10.0

_REFUSED_LOGIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_TELLING = (*_REFUSED_LOGIN, KafkaError._SSL)
_SPEAKS_PLAIN_TEXT = "connecting to a PLAINTEXT broker listener"
"""The words of librdkafka when a listener ends a TLS handshake."""
_COPIES = 3
"""The usual replication factor."""


class KafkaRefusesError(UserError):
    """Kafka refuses the login, or what this client asks for."""


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The result of creating or checking the topics."""

    created: tuple[str, ...] = ()
    existing: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    differences: tuple[TopicDifference, ...] = ()
    cluster_id: str | None = None
    """The cluster id that this Kafka reports."""

    @property
    def fatal(self) -> tuple[TopicDifference, ...]:
        """Differences with which the loop does not start.

        Where producers set the append time, old readings could look fresh; with too few work partitions, no process
        would get the clusters of the others.
        """
        return tuple(
            each
            for each in self.differences
            if each.key == TIMESTAMPS
            or (each.key == PARTITIONS and is_shared(each.topic) and int(each.found) < int(each.expected))
        )

    @property
    def unusable(self) -> tuple[TopicDifference, ...]:
        """The differences that lose what the loop needs: also topics that delete records by age, or keep each one."""
        return (*self.fatal, *(each for each in self.differences if each.key == CLEANUP))

    @property
    def as_planned(self) -> bool:
        """Whether all topics exist without a difference."""
        return not self.missing and not self.differences


def create_topics(
    connection: KafkaConnection, settings: TopicSettings, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> TopicReport:
    """Create missing topics, and compare existing ones with the plan; existing topics are never changed.

    Raises UserError if the cluster does not answer, refuses the login, or cannot have such topics.
    """
    report = check_topics(connection, settings, timeout_seconds=timeout_seconds)
    new = [
        NewTopic(t.topic, num_partitions=t.partitions, replication_factor=t.replication_factor, config=dict(t.config))
        for t in plan(settings)
        if t.topic in report.missing
    ]
    created, existing = list[str](), list(report.existing)
    with asking(connection, timeout_seconds) as admin:
        for topic, future in (admin.create_topics(new, request_timeout=timeout_seconds) if new else {}).items():
            try:
                future.result()
                created.append(topic)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                existing.append(topic)  # another process has created it meanwhile
    return replace(report, created=tuple(sorted(created)), existing=tuple(sorted(existing)), missing=())


def check_topics(
    connection: KafkaConnection, settings: TopicSettings, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> TopicReport:
    """Compare the topics with the plan, and change none. Raises as `create_topics` does."""
    planned = plan(settings)
    with asking(connection, timeout_seconds) as admin:
        metadata = admin.list_topics(timeout=timeout_seconds)
        shapes = _read_shapes(metadata)
        existing = {topic.topic: topic for topic in planned if topic.topic in shapes}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in existing]
        futures = admin.describe_configs(resources, request_timeout=timeout_seconds) if resources else {}
        configs = {each.name: {k: str(v.value) for k, v in future.result().items()} for each, future in futures.items()}
    found = (each for name, topic in existing.items() for each in differences(topic, *shapes[name], configs[name]))
    return TopicReport(
        existing=tuple(existing),
        missing=tuple(topic.topic for topic in planned if topic.topic not in existing),
        differences=tuple(found),
        cluster_id=metadata.cluster_id,
    )


def reach(connection: KafkaConnection, *, timeout_seconds: float = TIMEOUT_SECONDS) -> int:
    """Return the number of brokers. Raises as `create_topics` does."""
    with asking(connection, timeout_seconds) as admin:
        return len(admin.list_topics(timeout=timeout_seconds).brokers)


def find_single_copies(connection: KafkaConnection, settings: TopicSettings) -> tuple[str, ...]:
    """Return the loop's topics of one replica, if Kafka has brokers for three. Raises as `create_topics` does."""
    with asking(connection, TIMEOUT_SECONDS) as admin:
        metadata = admin.list_topics(timeout=TIMEOUT_SECONDS)
    shapes = _read_shapes(metadata) if len(metadata.brokers) >= _COPIES else {}
    return tuple(t.topic for t in plan(settings) if t.topic in shapes and shapes[t.topic][1] == 1)


def _read_shapes(metadata: Any) -> dict[str, tuple[int, int]]:
    """Return partitions and copies of each topic whose metadata can be read."""
    found = {name: topic.partitions.values() for name, topic in metadata.topics.items() if topic.error is None}
    return {name: (len(of), min((len(p.replicas) for p in of), default=0)) for name, of in found.items()}


@contextmanager
def asking(connection: KafkaConnection, timeout_seconds: float) -> Iterator[AdminClient]:
    """Give an admin client whose errors name a remedy."""
    told: list[KafkaError] = []
    client = build_client(AdminClient, {**connection.for_confluent(), "client.id": "headgate", "error_cb": told.append})
    try:
        yield client
    except KafkaException as error:
        # The request's own error is only a timeout; the causes come to the callback, which `poll` calls.
        client.poll(0)
        raise _explain(connection, timeout_seconds, error.args[0], told) from None


def _explain(
    connection: KafkaConnection, timeout_seconds: float, error: KafkaError, told: Sequence[KafkaError]
) -> UserError:
    match error.code():
        case KafkaError.TOPIC_AUTHORIZATION_FAILED | KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return KafkaRefusesError(
                f"kafka: this client may not do that ({error.name()}): grant its user Create, Describe and "
                "DescribeConfigs on the topics with Headgate's prefix."
            )
        case KafkaError.INVALID_REPLICATION_FACTOR:
            return UserError(f"topics.replication_factor does not fit the cluster: {error.str()}")
        case KafkaError.POLICY_VIOLATION:
            return UserError(f"kafka: the cluster's policy forbids such a topic: {error.str()}")
    # One failure causes several errors; the last one that names the remedy counts.
    causes = [error, *(each for each in told if each.code() != KafkaError._ALL_BROKERS_DOWN)]
    why = next((each for each in reversed(causes) if each.code() in _TELLING), causes[-1])
    servers = ",".join(connection.servers())
    if why.code() in _REFUSED_LOGIN:
        return KafkaRefusesError(f"kafka.sasl: {servers} refuses the login: {why.str()}")
    if _SPEAKS_PLAIN_TEXT in why.str():
        return UserError(
            f"kafka.tls: {servers} does not speak TLS ({why.str()}): name the port of its TLS listener, or leave "
            "kafka.tls out"
        )
    if why.code() == KafkaError._SSL:
        return UserError(f"kafka.tls: no encrypted connection to {servers}: {why.str()}")
    if connection.security_protocol == "PLAINTEXT" and any(map(_accepts_connection, connection.servers())):
        return UserError(
            f"kafka: {servers} accepts connections and does not answer in plain text ({why.str()}): if this listener "
            "expects TLS or a login, set kafka.tls or kafka.sasl"
        )
    return UserError(
        f"kafka.bootstrap_servers: Kafka at {servers} did not answer within {timeout_seconds:g} s ({why.str()}): check "
        "the address, and that the cluster is up."
    )


def _accepts_connection(server: str) -> bool:
    host, _, port = server.rpartition(":")
    with suppress(OSError, ValueError), socket.create_connection((host.strip("[]"), int(port)), timeout=2):
        return True
    return False
