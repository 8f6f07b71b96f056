"""The commands `headgate pause` and `resume`: send the command to the running loop and wait for its answer."""

import getpass
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.decided import DecisionsInForce
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import DELIVERY_TIMEOUT_SECONDS, Publisher, PublisherMetrics
from deploy.inspection.commands import InForceReader
from deploy.settings.application import Settings
from deploy.settings.schema import suggest
from policies.decisions import Decision, Standing
from policies.observations import Reading
from policies.pauses import LONGEST_PAUSE, PauseCommand
from policies.registry import COMMANDS, POLICIES, observed_topic
from policies.units import UserError, format_duration
from policies.wire import observation_event

# Publishes the readings of a command (pause, promise, switch) to the running loop, and waits for their delivery.

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


def send(
    connection: KafkaConnection, topic: str, readings: Mapping[str, Reading], *, what: str, client_id: str
) -> None:
    """Publish readings, by the id of their event, and wait until Kafka has accepted all of them.

    Raises UserError if it has not; `what` is their name in the message: ``the promise``.
    """
    registry = CollectorRegistry()
    with Publisher(connection, PublisherMetrics(registry), client_id=client_id) as publisher:
        for event_id, reading in readings.items():
            event = observation_event(reading, id=event_id, source="headgate/cli", time=datetime.now(UTC))
            publisher.publish(topic, reading.cluster, event)
        publisher.flush(DELIVERY_TIMEOUT_SECONDS + _GRACE_SECONDS)
    if registry.get_sample_value("headgate_records_published_total", {"topic": topic}) != len(readings):
        samples = (sample for family in registry.collect() for sample in family.samples)
        errors = [s.labels["error"] for s in samples if s.name == "headgate_records_unpublished_total" and s.value]
        raise UserError(
            f"{what} could not be sent to {topic} ({', '.join(errors) or 'no answer'}): check that Kafka at "
            f"{','.join(connection.servers())} is up, and that the topic exists (`headgate topics create`)"
        )


_CLIENT_ID = "headgate-pause"


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
    confirm: Callable[[Sequence[str]], None] = lambda _: None
    """Called with a sentence on each cluster before a pause that takes back the values that are set. It may raise."""


def command_pause(settings: Settings, request: PauseRequest) -> Iterator[Standing]:
    """Send the command to the loop, and yield the heartbeat with which the policy of each cluster answers.

    Raises UserError if the pause is not allowed, or Kafka or the loop does not answer; the message has the remedy.
    """
    clusters = _clusters(settings, request)
    until = None if request.length is None else datetime.now(UTC) + request.length
    said = {"policy": request.policy, "until": until, "actor": actor(), "reason": request.reason, "keep": request.keep}
    try:
        commands = [PauseCommand.model_validate({"cluster": cluster, **said}) for cluster in clusters]
    except ValidationError as error:
        raise option_error(error) from None
    connection = settings.loop_kafka()
    with InForceReader(connection, settings.topics.prefix) as reader:
        in_force = reader.now()
        if not request.keep:
            request.confirm(list(_describe_lifted(in_force, request.policy, clusters)))
        before = {each.cluster: each.sequence for each in in_force.heartbeats() if each.policy == request.policy}
        readings = {str(uuid.uuid4()): command for command in commands}
        send(connection, settings.topics.topic(COMMANDS), readings, what="the command", client_id=_CLIENT_ID)
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


def _describe_lifted(in_force: DecisionsInForce, policy: str, clusters: Sequence[str]) -> Iterator[str]:
    """Yield the sentence on the set values of each cluster, and the decisions that asked for them."""
    for found in in_force.in_force(datetime.now(UTC)):
        if found.policy == policy and found.cluster in clusters:
            yield f"{found.cluster}: {found.sentence}"
    for decision in in_force.decisions():
        if decision.policy == policy and decision.cluster in clusters and decision.wanted() is not None:
            yield f"{decision.subject}: {decision.explanation}"


# Sends a person's command to the running loop and waits for the decision that answers it.

Answer = TypeVar("Answer", bound=Decision)


def ask(
    settings: Settings,
    policy: str,
    command: Reading,
    kind: type[Answer],
    answers: Callable[[Answer, str], bool],
    *,
    what: str,
    about: str,
    or_else: str = "",
    timeout_seconds: float,
) -> Answer:
    """Send a command, and return the decision that answers it; raise UserError if there is none in time.

    Args:
        policy: the policy that answers.
        answers: whether a decision of this kind answers the command, whose event has the given id.
        what: the command's name in messages: ``promise``.
        about: the subject of the answer.
        or_else: another reason for no answer.
    """
    connection = settings.loop_kafka()
    in_force = DecisionsInForce(
        lambda cluster: cluster == command.cluster, policy=policy, needs=settings.actuator_needs()
    )
    with InForceReader(connection, settings.topics.prefix, in_force) as reader:
        reader.now()
        topic, event_id = settings.topics.topic(observed_topic(type(command))), str(uuid.uuid4())
        send(connection, topic, {event_id: command}, what=f"the {what}", client_id=f"headgate-{what}")
        until = time.monotonic() + timeout_seconds
        while time.monotonic() < until:
            for decision in reader.poll().decisions():
                if isinstance(decision, kind) and answers(decision, event_id):
                    return decision
    raise UserError(
        f"nothing was decided on {about} by this {what} within {timeout_seconds:g} s: the query may not be "
        f"running{or_else}. Kafka keeps the {what}, and it takes effect when the query reads it."
    )
