"""The commands `headgate pause` and `resume`: send the command to the running loop and wait for its answer."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from connectors.decided import DecisionsInForce
from deploy.checking.suggestions import suggest
from deploy.commands.sending import actor, option_error, send
from deploy.inspection.in_force import InForceReader
from deploy.settings.application import Settings
from policies.decisions import Standing
from policies.errors import UserError
from policies.pauses import LONGEST_PAUSE, PauseCommand
from policies.registry import COMMANDS, POLICIES
from policies.units import format_duration

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

    Raises:
        UserError: the policy or the cluster does not exist, the pause is not allowed, Kafka does not accept the
            command, or the loop does not answer in time; the message has the remedy.
    """
    clusters = _clusters(settings, request)
    commands = _commands(request, clusters)
    connection = settings.loop_kafka()
    with InForceReader(connection, settings.topics.prefix) as reader:
        in_force = reader.now()
        if request.length is not None and not request.keep:
            request.confirm(list(_describe_lifted(in_force, request.policy, clusters)))
        before = {said.cluster: said.sequence for said in in_force.heartbeats() if said.policy == request.policy}
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


def _commands(request: PauseRequest, clusters: list[str]) -> list[PauseCommand]:
    until = None if request.length is None else datetime.now(UTC) + request.length
    said = {"policy": request.policy, "until": until, "actor": actor(), "reason": request.reason, "keep": request.keep}
    try:
        return [PauseCommand.model_validate({"cluster": cluster, **said}) for cluster in clusters]
    except ValidationError as error:
        raise option_error(error) from None


def _answers(reader: InForceReader, request: PauseRequest, awaited: dict[str, int]) -> Iterator[Standing]:
    until = time.monotonic() + request.timeout_seconds
    while awaited:
        for said in list(reader.poll().heartbeats()):
            newer = said.policy == request.policy and said.sequence > awaited.get(said.cluster, said.sequence)
            if newer and (said.quiet_until is not None) == (request.length is not None) and _is_kept(said, request):
                del awaited[said.cluster]
                yield said
        if awaited and time.monotonic() > until:
            raise UserError(
                f"policy {request.policy} has not answered for {', '.join(sorted(awaited))} within "
                f"{request.timeout_seconds:g} s: the query may not be running, or it has no readings of these clusters "
                "yet. Kafka keeps the command, and it takes effect when the query reads it."
            )


def _is_kept(said: Standing, request: PauseRequest) -> bool:
    return request.length is None or said.pause_keeps is None or said.pause_keeps == request.keep


def _describe_lifted(in_force: DecisionsInForce, policy: str, clusters: Sequence[str]) -> Iterator[str]:
    """Yield the sentence on the set values of each cluster, and the decisions that asked for them."""
    for found in in_force.in_force(datetime.now(UTC)):
        if found.policy == policy and found.cluster in clusters:
            yield f"{found.cluster}: {found.sentence}"
    for decision in in_force.decisions():
        if decision.policy == policy and decision.cluster in clusters and decision.wanted() is not None:
            yield f"{decision.subject}: {decision.explanation}"
