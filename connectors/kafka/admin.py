"""Administers Kafka: creates and checks the loop's topics, and checks this client's rights for the doctor."""

import shlex
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from connectors.collection import Probe, ProbeResult, whole_line
from connectors.kafka.clients import build_client
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import (
    CLEANUP,
    GROUP,
    PARTITIONS,
    TIMESTAMPS,
    TopicDifference,
    TopicSettings,
    acl_command,
    differences,
    is_shared,
    missing_rights,
    plan,
    rights_of,
)
from policies.observations import Outcome
from policies.registry import decided_topics
from policies.units import UserError, counted, name_some

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


# Checks for the doctor: whether a cluster answers, and which rights this client lacks.
#
# Kafka reports to each client the operations it is authorized to do (KIP-430), so the checks write nothing.

_FORBIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)

LOOP = "loop Kafka"
_PROBE_SECONDS = 5.0
_WAIT_SECONDS = _PROBE_SECONDS + 1
_OPTIONS: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": _PROBE_SECONDS}

Operations = frozenset[str]
"""Operations by the names of `kafka-acls.sh`."""


def find_writers(connection: KafkaConnection, topic: str) -> frozenset[str] | None:
    """Return the principals that ACLs allow to write a topic, `User:*` for all; None if there is no authorizer.

    Raises UserError if there is no answer, or this client may not see the ACLs.
    """
    anybody: Any = None
    may = (anybody, anybody, AclOperation.ANY, AclPermissionType.ALLOW)
    wanted = AclBindingFilter(ResourceType.TOPIC, topic, ResourcePatternType.MATCH, *may)
    with asking(connection, _PROBE_SECONDS) as admin:
        found = admin.describe_acls(wanted, request_timeout=_PROBE_SECONDS)
        try:
            bindings = found.result(timeout=_WAIT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.SECURITY_DISABLED:
                return None
            if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                raise UserError("this client may not see the ACLs") from None
            raise
    return frozenset(b.principal for b in bindings if b.operation in (AclOperation.WRITE, AclOperation.ALL))


def _read_answers(futures: Mapping[str, Any]) -> dict[str, Operations | None]:
    """Return the operations on each topic or group that exists.

    They are empty if the cluster hides it from this client, and None if it does not report operations.
    """
    found: dict[str, Operations | None] = {}
    for name, future in futures.items():
        try:
            found[name] = _read_answer(future)
        except KafkaException as error:
            if error.args[0].code() in _FORBIDDEN:
                found[name] = frozenset()
            elif error.args[0].code() not in _ABSENT:
                raise
    return found


def _read_answer(future: Any) -> Operations | None:
    allowed: Sequence[AclOperation] | None = future.result(timeout=_WAIT_SECONDS).authorized_operations
    if allowed is None:
        return None
    found = AclOperation if AclOperation.ALL in allowed else allowed
    return frozenset(each.name.title().replace("_", "") for each in found)


def loop_probes(connection: KafkaConnection, topics: TopicSettings, components: Sequence[str]) -> Iterator[Probe]:
    """Yield the checks of the loop's own Kafka, for a client of these components (`rights`)."""
    loop = _Loop(connection, topics, components)
    yield Probe(LOOP, "brokers", lambda: loop.brokers)
    for asks, check in (("topics", loop.topics), ("rights", loop.rights), ("writers", loop.writers)):
        yield Probe(LOOP, asks, partial(loop.if_it_answers, check))


def principal_of(connection: KafkaConnection) -> str:
    """Return the client's principal for Kafka's ACLs, as far as the settings name it."""
    if connection.security_protocol.startswith("SASL"):
        login = connection.sasl
        return f"User:{(login and (login.username or login.client_id)) or 'the name of its login'}"
    is_by_certificate = connection.tls is not None and connection.tls.cert_file is not None
    return "User:the name in its certificate" if is_by_certificate else "User:ANONYMOUS"


def cluster_acl(connection: KafkaConnection, *operations: str) -> str:
    """Return the command that allows the client these operations on the cluster."""
    each = "".join(f" --operation {operation}" for operation in operations)
    return _kafka_acls(connection, f"--add --allow-principal {shlex.quote(principal_of(connection))}{each} --cluster")


def cluster_operations(connection: KafkaConnection) -> frozenset[str]:
    """Return the client's operations on the cluster, by the names of `kafka-acls.sh`.

    Raises UserError if there is no answer, or a file of the connection cannot be used.
    """
    with asking(connection, _PROBE_SECONDS) as admin:
        return _read_answer(admin.describe_cluster(**_OPTIONS)) or frozenset()


class _Loop:
    """The checks of the loop's own Kafka. All of them share the result of the first one."""

    def __init__(self, connection: KafkaConnection, topics: TopicSettings, components: Sequence[str]) -> None:
        self._connection = connection
        self._topics = topics
        self._components = components

    @cached_property
    def brokers(self) -> ProbeResult:
        """Whether the cluster answers and accepts the login."""
        try:
            return ProbeResult(Outcome.OK, counted(reach(self._connection, timeout_seconds=_PROBE_SECONDS), "broker"))
        except UserError as error:
            return _failed(error, Outcome.UNREACHABLE)

    def if_it_answers(self, check: Callable[[], ProbeResult]) -> ProbeResult:
        """Return the result of a check, which needs a cluster that answers."""
        return check() if self.brokers.outcome is Outcome.OK else _NOT_ASKED

    def topics(self) -> ProbeResult:
        """Check the topics' configuration."""
        try:
            report = check_topics(self._connection, self._topics, timeout_seconds=_PROBE_SECONDS)
        except UserError as error:
            return _failed(error, Outcome.TIMEOUT)
        allowed = self._allowed() if report.missing else {}
        if hidden := [name for name in report.missing if allowed.get(name) == frozenset()]:
            principal = principal_of(self._connection)
            return ProbeResult(
                Outcome.UNAUTHORIZED, f"{principal} does not see {counted(len(hidden), 'topic')}: see rights"
            )
        if report.missing:
            missing = f"{counted(len(report.missing), 'topic')} missing, such as {report.missing[0]}"
            return ProbeResult(Outcome.ERROR, missing, ("headgate topics create",))
        if report.differences:
            many = f"{counted(len(report.differences), 'difference')} from the plan"
            return ProbeResult(Outcome.ERROR, many, ("headgate topics check",))
        return ProbeResult(Outcome.OK, f"{counted(len(report.existing), 'topic')}, as planned")

    def rights(self) -> ProbeResult:
        """Check that the client has the components' rights."""
        prefix = self._topics.prefix
        allowed = self._allowed()
        if not allowed:
            return ProbeResult(Outcome.ERROR, "no topic is there yet", ("headgate topics create",))
        wanted = {g for name in self._components for g in rights_of(name) if g.resource == GROUP}
        # The operations on a group for each right on groups; the group need not exist.
        names = {f"{prefix}.{each.name}{'doctor' if each.is_prefix else ''}": each for each in wanted}
        with asking(self._connection, _PROBE_SECONDS) as admin:
            found = _read_answers(admin.describe_consumer_groups(list(names), **_OPTIONS) if names else {})
        groups = {names[name]: may for name, may in found.items() if may is not None}
        grants = dict.fromkeys(
            grant for name in self._components for grant in missing_rights(name, prefix, allowed, groups)
        )
        if not grants:
            return ProbeResult(Outcome.OK, f"has the rights of {', '.join(self._components)}")
        principal = principal_of(self._connection)
        lines = tuple(_kafka_acls(self._connection, acl_command(grant, principal, prefix)) for grant in grants)
        return ProbeResult(Outcome.UNAUTHORIZED, f"{principal} lacks {counted(len(lines), 'right')}", lines)

    def writers(self) -> ProbeResult:
        """Check that Kafka's ACLs exclude other writers: they are the boundary of docs/design/threats.md."""
        remedy = "headgate topics acls decide --principal User:NAME"
        topics = [self._topics.topic(name) for name in decided_topics()]
        try:
            allowed = {topic: find_writers(self._connection, topic) for topic in topics}
        except UserError as error:
            return ProbeResult(Outcome.OK, whole_line(f"not known: {error}"))
        if None in allowed.values():
            everybody = "the loop's Kafka has no authorizer: every client that reaches it may write decisions"
            return ProbeResult(Outcome.OK, everybody, (remedy,), is_open=True)
        if wide := sorted(topic for topic, who in allowed.items() if who and "User:*" in who):
            return ProbeResult(Outcome.OK, f"every user may write {name_some(wide)}", (remedy,), is_open=True)
        if several := sorted((topic, who) for topic, who in allowed.items() if who and len(who) > 1):
            topic, who = several[0]
            detail = f"{name_some(sorted(who))} may write {topic}: only `decide` should"
            return ProbeResult(Outcome.OK, detail, is_open=True)
        return ProbeResult(Outcome.OK, "no decided topic has a second writer")

    def _allowed(self) -> dict[str, frozenset[str]]:
        names = TopicCollection([each.topic for each in plan(self._topics)])
        with asking(self._connection, _PROBE_SECONDS) as admin:
            found = _read_answers(admin.describe_topics(names, **_OPTIONS))
        return {name: may or frozenset() for name, may in found.items()}


_NOT_ASKED = ProbeResult(Outcome.UNREACHABLE, "skipped: the cluster does not answer, or refuses the login")


def _failed(error: UserError, outcome: Outcome) -> ProbeResult:
    is_refused = isinstance(error, KafkaRefusesError)
    return ProbeResult(Outcome.UNAUTHORIZED if is_refused else outcome, whole_line(str(error)))


def _kafka_acls(connection: KafkaConnection, arguments: str) -> str:
    return f"kafka-acls.sh --bootstrap-server {connection.servers()[0]} {arguments}"
