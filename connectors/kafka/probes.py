"""Checks of a Kafka cluster for the doctor: whether it answers, and which rights this client lacks.

Kafka reports to each client the operations it is authorized to do (KIP-430), so the checks write nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from connectors.collection import Probe, ProbeResult, whole_line
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topic_admin import KafkaRefusesError, asking, check_topics, reach
from connectors.kafka.topics import (
    GROUP,
    TopicSettings,
    acl_command,
    missing_rights,
    plan,
    quote_principal,
    rights_of,
)
from policies.observations import Outcome
from policies.registry import decided_topics
from policies.units import UserError, counted, name_some

# The operations that a Kafka cluster authorizes this client to do, as the cluster reports them (KIP-430).

_FORBIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)

LOOP = "loop Kafka"
TIMEOUT_SECONDS = 5.0
_WAIT_SECONDS = TIMEOUT_SECONDS + 1
_OPTIONS: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": TIMEOUT_SECONDS}

Operations = frozenset[str]
"""Operations by the names of `kafka-acls.sh`."""


def find_writers(connection: KafkaConnection, topic: str) -> frozenset[str] | None:
    """Return the principals that ACLs allow to write a topic, `User:*` for all; None if there is no authorizer.

    Raises UserError if there is no answer, or this client may not see the ACLs.
    """
    anybody: Any = None
    may = (anybody, anybody, AclOperation.ANY, AclPermissionType.ALLOW)
    wanted = AclBindingFilter(ResourceType.TOPIC, topic, ResourcePatternType.MATCH, *may)
    with asking(connection, TIMEOUT_SECONDS) as admin:
        found = admin.describe_acls(wanted, request_timeout=TIMEOUT_SECONDS)
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
        login = connection.login()
        return f"User:{(login and (login.username or login.client_id)) or 'the name of its login'}"
    is_by_certificate = connection.tls is not None and connection.tls.cert_file is not None
    return "User:the name in its certificate" if is_by_certificate else "User:ANONYMOUS"


def cluster_acl(connection: KafkaConnection, *operations: str) -> str:
    """Return the command that allows the client these operations on the cluster."""
    each = "".join(f" --operation {operation}" for operation in operations)
    return _kafka_acls(
        connection, f"--add --allow-principal {quote_principal(principal_of(connection))}{each} --cluster"
    )


def cluster_operations(connection: KafkaConnection) -> frozenset[str]:
    """Return the client's operations on the cluster, by the names of `kafka-acls.sh`.

    Raises UserError if there is no answer, or a file of the connection cannot be used.
    """
    with asking(connection, TIMEOUT_SECONDS) as admin:
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
            return ProbeResult(Outcome.OK, counted(reach(self._connection, timeout_seconds=TIMEOUT_SECONDS), "broker"))
        except UserError as error:
            return _failed(error, Outcome.UNREACHABLE)

    def if_it_answers(self, check: Callable[[], ProbeResult]) -> ProbeResult:
        """Return the result of a check, which needs a cluster that answers."""
        return check() if self.brokers.outcome is Outcome.OK else _NOT_ASKED

    def topics(self) -> ProbeResult:
        """Check the topics' configuration."""
        try:
            report = check_topics(self._connection, self._topics, timeout_seconds=TIMEOUT_SECONDS)
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
        with asking(self._connection, TIMEOUT_SECONDS) as admin:
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
        with asking(self._connection, TIMEOUT_SECONDS) as admin:
            found = _read_answers(admin.describe_topics(names, **_OPTIONS))
        return {name: may or frozenset() for name, may in found.items()}


_NOT_ASKED = ProbeResult(Outcome.UNREACHABLE, "skipped: the cluster does not answer, or refuses the login")


def _failed(error: UserError, outcome: Outcome) -> ProbeResult:
    is_refused = isinstance(error, KafkaRefusesError)
    return ProbeResult(Outcome.UNAUTHORIZED if is_refused else outcome, whole_line(str(error)))


def _kafka_acls(connection: KafkaConnection, arguments: str) -> str:
    return f"kafka-acls.sh --bootstrap-server {connection.servers()[0]} {arguments}"
