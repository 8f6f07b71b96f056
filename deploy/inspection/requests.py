"""Sends a person's command to the running loop and waits for its answer: pause, resume, forget, adopt and promise."""

import getpass
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar, cast

import typer
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.decided import DecisionsInForce
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import DELIVERY_TIMEOUT_SECONDS, Publisher, PublisherMetrics
from deploy.console.options import print_sentence
from deploy.inspection.commands import InForceReader
from deploy.settings.application import Settings
from deploy.settings.schema import suggest
from policies.decisions import Decision, Standing
from policies.isolation.decisions import Placement
from policies.isolation.readings import NamespacePromise
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.observations import Reading
from policies.pauses import LONGEST_PAUSE, PauseCommand
from policies.registry import COMMANDS, POLICIES, observed_topic
from policies.throttle.alerts import REPLACED
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.fold import AdoptCommand, ForgetCommand, ThrottleCommand
from policies.units import UserError, format_duration
from policies.wire import observation_event

Command = TypeVar("Command", bound=Reading)

_GRACE_SECONDS = 2.0
"""The time that the Kafka client needs to report why it gave up a record."""


def actor() -> str:
    """Return user@host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container, a user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def option_error(error: ValidationError) -> UserError:
    """Convert the refusal of a value that is too long for a record; name the option that has it."""
    first = error.errors(include_url=False, include_input=False)[0]
    return UserError(f"--{str(first['loc'][-1]).replace('_', '-')}: {first['msg']}")


def _build(kind: type[Command], **given: object) -> Command:
    try:
        return kind.model_validate({**given, "actor": actor()})
    except ValidationError as error:
        raise option_error(error) from None


def send(connection: KafkaConnection, topic: str, commands: Mapping[str, Reading]) -> None:
    """Publish commands, by the id of their event; raise UserError unless Kafka has accepted all of them."""
    registry = CollectorRegistry()
    with Publisher(connection, PublisherMetrics(registry), client_id="headgate-command") as publisher:
        for event_id, command in commands.items():
            event = observation_event(command, id=event_id, source="headgate/cli", time=datetime.now(UTC))
            publisher.publish(topic, command.cluster, event)
        publisher.flush(DELIVERY_TIMEOUT_SECONDS + _GRACE_SECONDS)
    if registry.get_sample_value("headgate_records_published_total", {"topic": topic}) != len(commands):
        samples = (sample for family in registry.collect() for sample in family.samples)
        errors = [s.labels["error"] for s in samples if s.name == "headgate_records_unpublished_total" and s.value]
        raise UserError(
            f"the command could not be sent to {topic} ({', '.join(errors) or 'no answer'}): check that Kafka at "
            f"{','.join(connection.servers())} is up, and that the topic exists (`headgate topics create`)"
        )


# Pauses and resumes: each policy of each cluster answers with its heartbeat.


@dataclass(frozen=True)
class PauseRequest:
    """The options of the command."""

    policy: str
    cluster: str | None
    """None for every cluster of the settings."""
    length: timedelta | None
    """None to resume."""
    reason: str = ""
    timeout_seconds: float = 60.0
    keep: bool = True
    """Whether actuators leave what they have set; otherwise they take it back."""
    is_agreed: bool = False
    """Whether a pause that takes values back does not ask."""


def command_pause(settings: Settings, request: PauseRequest) -> Iterator[Standing]:
    """Send the command to the loop, and yield the heartbeat with which the policy of each cluster answers.

    Raises UserError if the pause is not allowed, or Kafka or the loop does not answer; the message has the remedy.
    """
    clusters = _clusters(settings, request)
    until = None if request.length is None else datetime.now(UTC) + request.length
    given = {"policy": request.policy, "until": until, "reason": request.reason, "keep": request.keep}
    commands = {str(uuid.uuid4()): _build(PauseCommand, cluster=cluster, **given) for cluster in clusters}
    connection = settings.loop_kafka()
    with InForceReader(connection, settings.topics.prefix) as reader:
        in_force = reader.now()
        if not request.keep:
            _confirm(_describe_lifted(in_force, request.policy, clusters), is_agreed=request.is_agreed)
        before = {each.cluster: each.sequence for each in in_force.heartbeats() if each.policy == request.policy}
        send(connection, settings.topics.topic(COMMANDS), commands)
        # A policy that has never published a heartbeat for a cluster has nothing to do there and does not answer. Wait
        # for it only if the user names that cluster.
        speak = [name for name in clusters if name in before] if request.cluster is None else []
        yield from _answers(reader, request, {name: before.get(name, 0) for name in speak or clusters})


def _clusters(settings: Settings, request: PauseRequest) -> list[str]:
    if request.policy not in POLICIES:
        raise UserError(f"policy: '{request.policy}' is no policy{suggest(request.policy, POLICIES)}")
    if (own := POLICIES[request.policy].paused_by) is not None:
        raise UserError(f"policy {request.policy} is paused by `{own}`, which stops between two steps")
    if request.length is not None and request.length > LONGEST_PAUSE:
        longest, mode = format_duration(LONGEST_PAUSE), f"policies.{request.policy}.mode: shadow"
        raise UserError(f"--for: a pause lasts {longest} at most; for longer set {mode}")
    if not settings.clusters:
        raise UserError("the settings name no cluster: pass the file of the running loop (-s)")
    if request.cluster is None:
        return sorted(settings.clusters)
    settings.watched(request.cluster, "cluster")
    return [request.cluster]


def _answers(reader: InForceReader, request: PauseRequest, awaited: dict[str, int]) -> Iterator[Standing]:
    until = time.monotonic() + request.timeout_seconds
    while awaited:
        if time.monotonic() > until:
            raise UserError(
                f"policy {request.policy} has not answered for {', '.join(sorted(awaited))} within "
                f"{request.timeout_seconds:g} s: the query may not be running, or it has no readings of these clusters "
                "yet. Kafka keeps the command, and it takes effect when the query reads it."
            )
        for said in list(reader.poll().heartbeats()):
            newer = said.policy == request.policy and said.sequence > awaited.get(said.cluster, said.sequence)
            is_kept = request.length is None or said.pause_keeps is None or said.pause_keeps == request.keep
            if newer and (said.quiet_until is not None) == (request.length is not None) and is_kept:
                del awaited[said.cluster]
                yield said


def _confirm(lifted: Iterable[str], *, is_agreed: bool) -> None:
    """Name what a pause takes back, and ask, unless the user has agreed already."""
    for sentence in lifted:
        print_sentence(sentence)
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise UserError("--release puts the original values back: add --yes, or run it in a terminal, which asks")
    if not typer.confirm("Pause, and take back what Headgate has set there?"):
        raise UserError("nothing was changed")


def _describe_lifted(in_force: DecisionsInForce, policy: str, clusters: Sequence[str]) -> Iterator[str]:
    """Yield the sentence on the set values of each cluster, and the decisions that asked for them."""
    for found in in_force.in_force(datetime.now(UTC)):
        if found.policy == policy and found.cluster in clusters:
            yield f"{found.cluster}: {found.sentence}"
    for decision in in_force.decisions():
        if decision.policy == policy and decision.cluster in clusters and decision.wanted() is not None:
            yield f"{decision.subject}: {decision.explanation}"


# Commands that a decision answers: `headgate forget`, `adopt` and `promise`.


def forget_log_dir(
    settings: Settings, cluster: str, broker: int, log_dir: str, reason: str, timeout_seconds: float
) -> ThrottleFactor:
    """Send the command to the loop, and return the factor that is decided with it."""
    settings.watched(cluster)
    command = _build(ForgetCommand, cluster=cluster, broker=broker, log_dir=log_dir, reason=reason)
    return _ask_throttle(settings, command, timeout_seconds)


def adopt_cluster(settings: Settings, cluster: str, reason: str, timeout_seconds: float) -> ThrottleFactor:
    """Adopt the Kafka cluster that the alert about a replaced one names, and return the factor that is decided."""
    settings.watched(cluster)
    with InForceReader(settings.loop_kafka(), settings.topics.prefix) as reader:
        alerts = [a for a in reader.now().alerts() if a.alert == REPLACED and a.cluster == cluster]
    if not alerts:
        raise UserError(f"the alert {REPLACED} does not fire for {cluster}: there is no other cluster to adopt")
    command = _build(AdoptCommand, cluster=cluster, cluster_id=alerts[0].labels["cluster_id"], reason=reason)
    return _ask_throttle(settings, command, timeout_seconds)


def send_promise(
    settings: Settings, cluster: str, namespace: str, promise: RuleSet | None, reason: str, timeout_seconds: float
) -> Placement:
    """Send a namespace's promise (None: that of the settings), and return the placement that the loop decides by it."""
    settings.watched(cluster)
    command = _build(NamespacePromise, cluster=cluster, namespace=namespace, promise=promise, reason=reason)
    block: IsolationSettings = settings.policies.isolation
    wanted = promise or block.for_cluster(cluster).promise

    def answers(decision: Decision, _event_id: str) -> bool:
        return isinstance(decision, Placement) and (decision.namespace, decision.promise) == (namespace, wanted)

    answer = _ask(settings, command, answers, namespace, timeout_seconds, ", or the namespace has no bookie affinity")
    return cast("Placement", answer)


def _ask_throttle(settings: Settings, command: ThrottleCommand, timeout_seconds: float) -> ThrottleFactor:
    def answers(decision: Decision, event_id: str) -> bool:
        return isinstance(decision, ThrottleFactor) and event_id in decision.evidence

    return cast("ThrottleFactor", _ask(settings, command, answers, command.cluster, timeout_seconds))


def _ask(
    settings: Settings,
    command: Reading,
    answers: Callable[[Decision, str], bool],
    about: str,
    timeout_seconds: float,
    or_else: str = "",
) -> Decision:
    """Send a command, and return the decision that answers it; raise UserError if there is none in time.

    Args:
        answers: whether a decision answers the command, whose event has the given id.
        about: the subject of the answer.
        or_else: another reason for no answer.
    """
    connection, event_id = settings.loop_kafka(), str(uuid.uuid4())
    in_force = DecisionsInForce(lambda cluster: cluster == command.cluster)
    with InForceReader(connection, settings.topics.prefix, in_force) as reader:
        reader.now()
        send(connection, settings.topics.topic(observed_topic(type(command))), {event_id: command})
        until = time.monotonic() + timeout_seconds
        while time.monotonic() < until:
            for decision in reader.poll().decisions():
                if answers(decision, event_id):
                    return decision
    raise UserError(
        f"nothing was decided on {about} by this command within {timeout_seconds:g} s: the query may not be "
        f"running{or_else}. Kafka keeps the command, and it takes effect when the query reads it."
    )
