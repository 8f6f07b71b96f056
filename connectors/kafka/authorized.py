"""The operations that a Kafka cluster authorizes this client to do, as the cluster reports them (KIP-430)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.librdkafka import build_client

_NAMES = {AclOperation.READ: "Read", AclOperation.WRITE: "Write", AclOperation.DESCRIBE: "Describe",
          AclOperation.DESCRIBE_CONFIGS: "DescribeConfigs", AclOperation.ALTER_CONFIGS: "AlterConfigs",
          AclOperation.CREATE: "Create", AclOperation.ALL: "All"}  # fmt: skip
_FORBIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)
_CANARY_SECONDS = 10.0

Operations = frozenset[str]
"""Operations by the names of `kafka-acls.sh`."""


class Authorized:
    """Queries one cluster; all methods raise KafkaException if it does not answer.

    Raises:
        UserError: a file of the connection cannot be used.
    """

    def __init__(self, connection: KafkaConnection, client_id: str, timeout_seconds: float) -> None:
        self._admin = build_client(AdminClient, {**connection.for_confluent(), "client.id": client_id})
        self._options: dict[str, Any] = {
            "include_authorized_operations": True,
            "request_timeout": timeout_seconds,
        }
        self._wait_seconds = timeout_seconds + 1

    def cluster(self) -> Operations:
        """Return the operations on the cluster itself."""
        return self._answer(self._admin.describe_cluster(**self._options)) or frozenset()

    def topics(self, names: Iterable[str]) -> Mapping[str, Operations | None]:
        """Return the operations on each topic that exists.

        They are empty if the cluster hides the topic from this client, and None if it does not report operations.
        """
        return self._answers(self._admin.describe_topics(TopicCollection(list(names)), **self._options))

    def groups(self, names: Iterable[str]) -> Mapping[str, Operations | None]:
        """Return the operations on each consumer group, as `topics` does; a group without members is reported, too."""
        return self._answers(self._admin.describe_consumer_groups(list(names), **self._options))

    def writers_of(self, topic: str) -> frozenset[str] | None:
        """Return the principals that ACLs allow to write a topic, `User:*` for all; None if there is no authorizer.

        Raises:
            KafkaException: no answer, or this client may not see the ACLs.
        """
        anybody: Any = None
        may = (anybody, anybody, AclOperation.ANY, AclPermissionType.ALLOW)
        wanted = AclBindingFilter(ResourceType.TOPIC, topic, ResourcePatternType.MATCH, *may)
        try:
            found = self._admin.describe_acls(wanted, request_timeout=self._wait_seconds - 1)
            bindings = found.result(timeout=self._wait_seconds)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.SECURITY_DISABLED:
                return None
            raise
        return frozenset(b.principal for b in bindings if b.operation in (AclOperation.WRITE, AclOperation.ALL))

    def _answers(self, futures: Mapping[str, Any]) -> dict[str, Operations | None]:
        found: dict[str, Operations | None] = {}
        for name, future in futures.items():
            try:
                found[name] = self._answer(future)
            except KafkaException as error:
                if error.args[0].code() in _FORBIDDEN:
                    found[name] = frozenset()
                elif error.args[0].code() not in _ABSENT:
                    raise
        return found

    def _answer(self, future: Any) -> Operations | None:
        allowed: Sequence[AclOperation] | None = future.result(timeout=self._wait_seconds).authorized_operations
        if allowed is None:
            return None
        return frozenset(
            _NAMES.values() if AclOperation.ALL in allowed else (_NAMES[o] for o in allowed if o in _NAMES)
        )


def why_not_writable(connection: KafkaConnection, topic: str) -> str | None:
    """Return one sentence if the cluster forbids this client to write a topic, else None."""
    try:
        allowed = Authorized(connection, "headgate-canary", _CANARY_SECONDS).topics([topic]).get(topic)
    except (KafkaException, TimeoutError):
        return None  # the cluster is away for the moment
    if allowed is None or "Write" in allowed:
        return None
    return f"this principal may not write {topic}: `headgate topics acls canary` names what it needs"
