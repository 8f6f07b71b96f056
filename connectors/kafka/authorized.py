"""What this client is authorized to do at a Kafka cluster, as the cluster reports it (KIP-430), without trying."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.librdkafka import LOGGER
from policies.errors import UserError

_NAMES = {AclOperation.READ: "Read", AclOperation.WRITE: "Write", AclOperation.DESCRIBE: "Describe",
          AclOperation.DESCRIBE_CONFIGS: "DescribeConfigs", AclOperation.ALTER_CONFIGS: "AlterConfigs",
          AclOperation.CREATE: "Create", AclOperation.ALL: "All"}  # fmt: skip
"""As `kafka-acls.sh` has them."""
_EVERYTHING = frozenset(_NAMES.values())
_FORBIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)
_CANARY_SECONDS = 10.0

Operations = frozenset[str]
"""What may be done, as `kafka-acls.sh` names it."""


class Authorized:
    """Asks one cluster.

    Args:
        connection: how to reach it.
        client_id: by which the brokers know who asks.
        timeout_seconds: how long one answer may take.

    Raises:
        UserError: the connection's files are not what they should be.
    """

    def __init__(self, connection: KafkaConnection, client_id: str, timeout_seconds: float) -> None:
        try:
            self._admin = AdminClient({**connection.for_confluent(), "client.id": client_id}, logger=LOGGER)
        except KafkaException as error:
            raise UserError(f"kafka: {error.args[0].str()}.") from None
        self._seconds = timeout_seconds

    def cluster(self) -> Operations:
        """What may be done to the cluster itself; raises KafkaException when it does not answer."""
        future = self._admin.describe_cluster(include_authorized_operations=True, request_timeout=self._seconds)
        return _operations(self._answer(future)) or frozenset()

    def topics(self, names: Iterable[str]) -> Mapping[str, Operations | None]:
        """By topic what may be done to it, nothing for one that is hidden from us; those that are not there left out.

        None where the cluster does not say. Raises KafkaException when it does not answer.
        """
        asked = TopicCollection(list(names))
        return self._found(
            self._admin.describe_topics(asked, include_authorized_operations=True, request_timeout=self._seconds)
        )

    def groups(self, names: Iterable[str]) -> Mapping[str, Operations | None]:
        """The same of consumer groups; nobody need ever have been in them."""
        return self._found(
            self._admin.describe_consumer_groups(
                list(names), include_authorized_operations=True, request_timeout=self._seconds
            )
        )

    def _found(self, futures: Mapping[str, Any]) -> dict[str, Operations | None]:
        found: dict[str, Operations | None] = {}
        for name, future in futures.items():
            try:
                found[name] = _operations(self._answer(future))
            except KafkaException as error:
                if error.args[0].code() in _FORBIDDEN:
                    found[name] = frozenset()
                elif error.args[0].code() not in _ABSENT:
                    raise
        return found

    def _answer(self, future: Any) -> Sequence[AclOperation] | None:
        allowed: Sequence[AclOperation] | None = future.result(timeout=self._seconds + 1).authorized_operations
        return allowed


def why_not_writable(connection: KafkaConnection, topic: str) -> str | None:
    """Why a topic cannot be written, in a sentence; None where it can, or where the cluster does not say."""
    try:
        allowed = Authorized(connection, "headgate-canary", _CANARY_SECONDS).topics([topic]).get(topic)
    except (KafkaException, TimeoutError):
        return None  # it is away, which passes
    if allowed is None or "Write" in allowed:
        return None
    return f"this principal may not write {topic}: `headgate topics acls canary` names what it needs"


def _operations(found: Sequence[AclOperation] | None) -> Operations | None:
    if found is None:
        return None
    names = frozenset(_NAMES[each] for each in found if each in _NAMES)
    return _EVERYTHING if "All" in names else names
