"""Checks of a Kafka cluster for the doctor: whether it answers, and what this client may do there.

Kafka tells each client what it is authorized to do (KIP-430), so nothing has to be written to find out.
"""

import threading
from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaException

from connectors.collection.probe import Probe, ProbeResult
from connectors.collection.read_errors import one_line
from connectors.kafka.authorized import Authorized
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.rights import Grant, Resource, acl_command, in_quotes, lacking, rights_of
from connectors.kafka.topic_admin import check_topics, reach
from connectors.kafka.topics import TopicSettings, plan
from policies.errors import UserError
from policies.observations import Outcome
from policies.units import counted

LOOP = "loop Kafka"
TIMEOUT_SECONDS = 5.0


def loop_probes(connection: KafkaConnection, topics: TopicSettings, parts: Sequence[str]) -> Iterator[Probe]:
    """What is asked of the loop's own Kafka, for a client that is to be these parts (`rights`)."""
    loop = _Loop(connection, topics, parts)
    yield Probe(LOOP, "brokers", loop.brokers)
    yield Probe(LOOP, "topics", loop.topics)
    yield Probe(LOOP, "rights", loop.rights)


def principal_of(connection: KafkaConnection) -> str:
    """Who the client is to Kafka's ACLs, as far as the settings tell."""
    if connection.sasl is not None:
        return f"User:{connection.sasl.username or connection.sasl.client_id}"
    is_by_certificate = connection.tls is not None and connection.tls.cert_file is not None
    return "User:the name in its certificate" if is_by_certificate else "User:ANONYMOUS"


def cluster_acl(connection: KafkaConnection, *operations: str) -> str:
    """The line that lets the client do these operations on the cluster."""
    each = "".join(f" --operation {operation}" for operation in operations)
    return _kafka_acls(connection, f"--add --allow-principal {in_quotes(principal_of(connection))}{each} --cluster")


def cluster_operations(connection: KafkaConnection) -> frozenset[str]:
    """What the client may do on the cluster, as `kafka-acls.sh` names it.

    Raises:
        UserError: no answer, or the connection's files are not what they should be.
    """
    try:
        return _authorized(connection).cluster()
    except KafkaException as error:
        raise UserError(error.args[0].str()) from None


class _Loop:
    """The questions to the loop's own Kafka: whether it answers at all is asked once for all of them."""

    def __init__(self, connection: KafkaConnection, topics: TopicSettings, parts: Sequence[str]) -> None:
        self._connection = connection
        self._topics = topics
        self._parts = parts
        self._asking = threading.Lock()
        self._reached: ProbeResult | None = None

    def brokers(self) -> ProbeResult:
        """Whether it answers, and lets us in."""
        with self._asking:
            if self._reached is None:
                self._reached = self._reach()
            return self._reached

    def topics(self) -> ProbeResult:
        """Whether the topics are as the loop needs them."""
        if self.brokers().outcome is not Outcome.OK:
            return _NOT_ASKED
        try:
            report = check_topics(self._connection, self._topics, timeout_seconds=TIMEOUT_SECONDS)
        except UserError as error:
            outcome = Outcome.UNAUTHORIZED if "may not do that" in str(error) else Outcome.TIMEOUT
            return ProbeResult(outcome, one_line(str(error)))
        allowed = self._allowed() if report.missing else {}
        if hidden := [name for name in report.missing if allowed.get(name) == frozenset()]:
            who = principal_of(self._connection)
            return ProbeResult(Outcome.UNAUTHORIZED, f"{who} does not see {counted(len(hidden), 'topic')}: see rights")
        if report.missing:
            missing = f"{counted(len(report.missing), 'topic')} missing, such as {report.missing[0]}"
            return ProbeResult(Outcome.ERROR, missing, ("headgate topics create",))
        if report.differences:
            many = f"{counted(len(report.differences), 'difference')} from what is needed"
            return ProbeResult(Outcome.ERROR, many, ("headgate topics check",))
        return ProbeResult(Outcome.OK, f"{counted(len(report.existing), 'topic')}, as needed")

    def rights(self) -> ProbeResult:
        """Whether we may do what the parts do."""
        if self.brokers().outcome is not Outcome.OK:
            return _NOT_ASKED
        prefix = self._topics.prefix
        allowed = self._allowed()
        if not allowed:
            return ProbeResult(Outcome.ERROR, "no topic is there yet", ("headgate topics create",))
        groups = self._allowed_groups()
        grants = dict.fromkeys(grant for part in self._parts for grant in lacking(part, prefix, allowed, groups))
        if not grants:
            return ProbeResult(Outcome.OK, f"may do what {', '.join(self._parts)} need")
        who = principal_of(self._connection)
        lines = tuple(_kafka_acls(self._connection, acl_command(grant, who, prefix)) for grant in grants)
        return ProbeResult(Outcome.UNAUTHORIZED, f"{who} lacks {counted(len(lines), 'right')}", lines)

    def _reach(self) -> ProbeResult:
        try:
            brokers = reach(self._connection, timeout_seconds=TIMEOUT_SECONDS)
        except UserError as error:
            outcome = Outcome.UNAUTHORIZED if "refuses the login" in str(error) else Outcome.UNREACHABLE
            return ProbeResult(outcome, one_line(str(error)))
        return ProbeResult(Outcome.OK, counted(brokers, "broker"))

    def _allowed_groups(self) -> dict[Grant, frozenset[str]]:
        """What may be done with a consumer group that a right is about; nobody need ever have been in it."""
        wanted = {g for part in self._parts for g in rights_of(part) if g.resource is Resource.GROUP}
        names = {f"{self._topics.prefix}.{each.name}{'doctor' if each.is_prefix else ''}": each for each in wanted}
        if not names:
            return {}
        found = _authorized(self._connection).groups(names)
        return {names[name]: may for name, may in found.items() if may is not None}

    def _allowed(self) -> dict[str, frozenset[str]]:
        found = _authorized(self._connection).topics(each.topic for each in plan(self._topics))
        return {name: may or frozenset() for name, may in found.items()}


_NOT_ASKED = ProbeResult(Outcome.UNREACHABLE, "not asked: it does not answer, or lets nobody in")


def _kafka_acls(connection: KafkaConnection, arguments: str) -> str:
    return f"kafka-acls.sh --bootstrap-server {connection.servers()[0]} {arguments}"


def _authorized(connection: KafkaConnection) -> Authorized:
    return Authorized(connection, "headgate-doctor", TIMEOUT_SECONDS)
