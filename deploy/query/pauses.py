"""Gives a query without a checkpoint the pauses back that were in force.

The commands are kept for a day, but a pause may last 30. The heartbeats name the pause in force, and their topic is
compacted. So the first start without a checkpoint publishes each such pause again, before the query reads anything.
Where a command is still in its topic, the query reads it and the last one counts: all that are not kept are older.
A comparison of its time with the heartbeat's would depend on two clocks, and could undo `headgate resume`.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import structlog

from connectors.decided import DecisionsInForce
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from connectors.kafka.topics import TopicSettings
from policies.decisions import Standing
from policies.pauses import PauseCommand
from policies.registry import COMMANDS, POLICIES
from policies.wire import BadRecordError, EventReader, observation_event

_LIMIT_SECONDS = 30.0
_POLL_SECONDS = 0.2

_log = structlog.get_logger(__name__)


def restore_pauses(
    connection: KafkaConnection, topics: TopicSettings, publish: Callable[[str, str, bytes], None]
) -> None:
    """Publish the pauses in force again, as commands.

    Raises:
        TimeoutError: the topics cannot be read; without them decisions could act again.
    """
    standing, commands = topics.topic(Standing.topic), topics.topic(COMMANDS)
    records: list[Record] = []
    give_up_at = time.monotonic() + _LIMIT_SECONDS
    with Tail(connection, dict.fromkeys((standing, commands)), f"{topics.prefix}-pauses") as tail:
        while not tail.caught_up:
            records += tail.poll(_POLL_SECONDS)
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"the pauses in force cannot be read: {tail.problem or tail.backlog}")
    heartbeats = [each for each in records if each.topic == standing]
    given = [each for each in records if each.topic == commands]
    for command in find_pauses(heartbeats, given, datetime.now(UTC)):
        _log.info("a pause goes on without the checkpoint", policy=command.policy, cluster=command.cluster)
        event = observation_event(command, id=str(uuid.uuid4()), source="headgate/query", time=datetime.now(UTC))
        publish(commands, command.cluster, event)


def find_pauses(heartbeats: Sequence[Record], commands: Sequence[Record], now: datetime) -> Iterator[PauseCommand]:
    """Yield the pause of each heartbeat that names one, unless a command for its policy and cluster is kept.

    Args:
        heartbeats: records of the topic of heartbeats.
        commands: records of the topic of commands.
    """
    in_force, commanded = DecisionsInForce(kinds=(Standing,)), set(_read_subjects(commands))
    in_force.fold_records(heartbeats)
    for said in in_force.heartbeats():
        is_paused = said.paused_by is not None and said.quiet_until is not None and said.quiet_until > now
        is_known = said.policy in POLICIES and said.cluster
        if is_known and is_paused and (said.policy, said.cluster) not in commanded:
            yield PauseCommand(
                cluster=said.cluster,
                policy=said.policy,
                until=said.quiet_until,
                actor=said.paused_by or "",
                reason=said.pause_reason or "",
                keep=said.pause_keeps is not False,
            )


def _read_subjects(commands: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield policy and cluster of each pause command."""
    reader: EventReader[PauseCommand] = EventReader((PauseCommand,))
    for record in commands:
        with suppress(BadRecordError):
            command = reader.read(record.value or b"").data
            yield command.policy, command.cluster
