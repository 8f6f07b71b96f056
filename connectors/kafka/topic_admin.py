"""Creates and checks the loop's topics."""

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
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
    TopicPlan,
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
_UNAUTHORIZED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


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


_COPIES = 3
"""The usual replication factor."""


def create_topics(
    connection: KafkaConnection, settings: TopicSettings, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> TopicReport:
    """Create missing topics, and compare existing ones with the plan; existing topics are never changed.

    Raises:
        UserError: the cluster does not answer, refuses the login, or cannot have such topics.
    """
    return _compare(connection, settings, timeout_seconds, create=True)


def check_topics(
    connection: KafkaConnection, settings: TopicSettings, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> TopicReport:
    """Compare the topics with the plan, and change none. Raises as `create_topics` does."""
    return _compare(connection, settings, timeout_seconds, create=False)


def _compare(
    connection: KafkaConnection, settings: TopicSettings, timeout_seconds: float, *, create: bool
) -> TopicReport:
    admin, planned = _Admin(connection, timeout_seconds), plan(settings)
    present = admin.present(planned)
    missing = [topic for topic in planned if topic.topic not in present]
    created = admin.create(missing) if create else set()
    lacking = created if create else {topic.topic for topic in missing}
    existing = [topic for topic in planned if topic.topic not in lacking]
    return TopicReport(
        created=tuple(sorted(created)),
        existing=tuple(topic.topic for topic in existing),
        missing=() if create else tuple(topic.topic for topic in missing),
        differences=admin.differences(existing, present),
        cluster_id=admin.cluster_id,
    )


def reach(connection: KafkaConnection, *, timeout_seconds: float = TIMEOUT_SECONDS) -> int:
    """Return the number of brokers. Raises as `create_topics` does."""
    return len(_Admin(connection, timeout_seconds).metadata().brokers)


def find_single_copies(
    connection: KafkaConnection, settings: TopicSettings, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> tuple[str, ...]:
    """Return the loop's topics of one replica, if Kafka has brokers for three. Raises as `create_topics` does."""
    admin = _Admin(connection, timeout_seconds)
    if len(admin.metadata().brokers) < _COPIES:
        return ()
    return tuple(topic for topic, (_, copies) in admin.present(plan(settings)).items() if copies == 1)


class _Admin:
    """An admin client whose errors name a remedy."""

    def __init__(self, connection: KafkaConnection, timeout_seconds: float) -> None:
        self._servers = ",".join(connection.servers())
        self._is_secured = connection.security_protocol != "PLAINTEXT"
        self._timeout_seconds = timeout_seconds
        self._last_error: KafkaError | None = None
        self.cluster_id: str | None = None
        """Known after `present`."""
        options = {**connection.for_confluent(), "client.id": "headgate", "error_cb": self._note}
        self._client = build_client(AdminClient, options)

    def metadata(self) -> Any:
        """Return the cluster's brokers and topics."""
        try:
            return self._client.list_topics(timeout=self._timeout_seconds)
        except KafkaException as error:
            raise self._user_error("the topics", error.args[0]) from None

    def present(self, planned: Sequence[TopicPlan]) -> dict[str, tuple[int, int]]:
        """Return partitions and copies of each planned topic that exists."""
        metadata = self.metadata()
        found, self.cluster_id = metadata.topics, metadata.cluster_id
        there = {t.topic: found[t.topic] for t in planned if t.topic in found and found[t.topic].error is None}
        partitions = {name: list(topic.partitions.values()) for name, topic in there.items()}
        return {name: (len(of), min((len(p.replicas) for p in of), default=0)) for name, of in partitions.items()}

    def create(self, topics: Sequence[TopicPlan]) -> set[str]:
        """Create topics, and return their names, without those that another process creates meanwhile."""
        if not topics:
            return set()
        new = [
            NewTopic(
                t.topic, num_partitions=t.partitions, replication_factor=t.replication_factor, config=dict(t.config)
            )
            for t in topics
        ]
        futures = self._client.create_topics(new, request_timeout=self._timeout_seconds)
        return {topic for topic, future in futures.items() if self._is_created(topic, future)}

    def differences(
        self, topics: Sequence[TopicPlan], shapes: Mapping[str, tuple[int, int]]
    ) -> tuple[TopicDifference, ...]:
        """Return the differences of existing topics from the plan."""
        if not topics:
            return ()
        resources = [ConfigResource(ResourceType.TOPIC, topic.topic) for topic in topics]
        futures = self._client.describe_configs(resources, request_timeout=self._timeout_seconds)
        configs = {resource.name: self._config(resource.name, future) for resource, future in futures.items()}
        found = dict(shapes)
        if any(topic.topic not in found for topic in topics):
            found |= self.present(topics)
        return tuple(
            difference
            for topic in topics
            if topic.topic in found
            for difference in differences(topic, *found[topic.topic], configs[topic.topic])
        )

    def _is_created(self, topic: str, future: "Future[None]") -> bool:
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._user_error(topic, error.args[0]) from None
        return True

    def _config(self, topic: str, future: "Future[dict[str, Any]]") -> dict[str, str]:
        try:
            return {key: str(entry.value) for key, entry in future.result().items()}
        except KafkaException as error:
            raise self._user_error(topic, error.args[0]) from None

    def _user_error(self, what: str, error: KafkaError) -> UserError:
        code = error.code()
        if code in _UNAUTHORIZED:
            return UserError(
                f"{what}: this client may not do that ({error.name()}): grant its user Create, Describe and "
                "DescribeConfigs on the topics with Headgate's prefix."
            )
        if code == KafkaError.INVALID_REPLICATION_FACTOR:
            return UserError(f"topics.replication_factor does not fit the cluster: {error.str()}")
        if code == KafkaError.POLICY_VIOLATION:
            return UserError(f"{what}: the cluster's policy forbids it: {error.str()}")
        # The request's own error is only a timeout; the cause comes to the callback, which `poll` calls.
        self._client.poll(0)
        why = self._last_error or error
        if why.code() in _REFUSED_LOGIN:
            return UserError(f"kafka.sasl: {self._servers} refuses the login: {why.str()}")
        if _SPEAKS_PLAIN_TEXT in why.str():
            return UserError(
                f"kafka.tls: {self._servers} does not speak TLS ({why.str()}): name the port of its TLS listener, or "
                "leave kafka.tls out"
            )
        if why.code() == KafkaError._SSL:
            return UserError(f"kafka.tls: no encrypted connection to {self._servers}: {why.str()}")
        if not self._is_secured and any(map(_accepts_connection, self._servers.split(","))):
            return UserError(
                f"kafka: {self._servers} accepts connections and does not answer in plain text ({why.str()}): if this "
                "listener expects TLS or a login, set kafka.tls or kafka.sasl"
            )
        return UserError(
            f"kafka.bootstrap_servers: Kafka at {self._servers} did not answer within {self._timeout_seconds:g} s "
            f"({why.str()}): check the address, and that the cluster is up."
        )

    def _note(self, error: KafkaError) -> None:
        # One failure causes several errors; keep the one that names the remedy.
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        if self._last_error is None or error.code() in _TELLING or self._last_error.code() not in _TELLING:
            self._last_error = error


def _accepts_connection(server: str) -> bool:
    host, _, port = server.rpartition(":")
    with suppress(OSError, ValueError), socket.create_connection((host.strip("[]"), int(port)), timeout=2):
        return True
    return False
