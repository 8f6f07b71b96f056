"""Gives a query without a checkpoint the pauses in force and the firing alerts back.

It reads the query's own compacted topics, and publishes what it finds as commands, before the query reads anything.

The commands are kept for a day, but a pause may last 30. The heartbeats name the pause in force. Where a command is
still in its topic, the query reads it and the last one counts: all that are not kept are older. A comparison of its
time with the heartbeat's would depend on two clocks, and could undo `headgate resume`.

An alert that fires would go on firing until its `valid_until`, hours later, although its cause has ended. So each key
learns which of its alerts fire: it goes on with those that its readings confirm, and resolves the others.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import structlog

from connectors.decided import DecisionsInForce
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail, read_past
from connectors.kafka.topics import TopicSettings
from policies.decisions import Alert, Standing
from policies.pauses import PauseCommand
from policies.recovery import OpenAlerts
from policies.registry import COMMANDS, POLICIES
from policies.units import UserError, counted
from policies.wire import BadRecordError, EventReader, observation_event

_LIMIT_SECONDS = 30.0

_log = structlog.get_logger(__name__)


def recover(
    connection: KafkaConnection,
    topics: TopicSettings,
    publish: Callable[[str, str, bytes], None],
    knows: Callable[[str], bool],
) -> None:
    """Publish the pauses in force, and the firing alerts of watched clusters, as commands.

    Raises TimeoutError if the topics cannot be read; without them decisions could act again.
    """
    standing, alerts, commands = map(topics.topic, (Standing.topic, Alert.topic, COMMANDS))
    with Tail(connection, dict.fromkeys((standing, alerts, commands)), f"{topics.prefix}-recovery") as tail:
        try:
            records = list(read_past(tail, patience_seconds=_LIMIT_SECONDS))
        except UserError as error:
            raise TimeoutError(f"the pauses in force and the firing alerts cannot be read: {error}") from None
    decided = [each for each in records if each.topic != commands]
    given = [each for each in records if each.topic == commands]
    pauses = find_pauses([each for each in decided if each.topic == standing], given, datetime.now(UTC))
    fired = find_open_alerts([each for each in decided if each.topic == alerts], given, knows)
    found: tuple[PauseCommand | OpenAlerts, ...] = (*pauses, *fired)
    for command in found:
        what = "a pause goes" if isinstance(command, PauseCommand) else f"{counted(len(command.alerts), 'alert')} go"
        _log.info(f"{what} on without the checkpoint", policy=command.policy, cluster=command.cluster)
        event = observation_event(command, id=str(uuid.uuid4()), source="headgate/query", time=datetime.now(UTC))
        publish(commands, command.cluster, event)


def find_open_alerts(
    alerts: Sequence[Record], commands: Sequence[Record], knows: Callable[[str], bool]
) -> Iterator[OpenAlerts]:
    """Yield the firing alerts of each policy and cluster; an empty list if only an earlier command names some."""
    in_force = DecisionsInForce(knows, kinds=(Alert,))
    in_force.fold_records(alerts)
    firing: dict[tuple[str, str], list[Alert]] = {subject: [] for subject in _read_subjects(commands, OpenAlerts)}
    for alert in in_force.alerts():
        if alert.policy in POLICIES:
            firing.setdefault((alert.policy, alert.cluster), []).append(alert)
    yield from (OpenAlerts.build(policy, cluster, of_key) for (policy, cluster), of_key in sorted(firing.items()))


def find_pauses(heartbeats: Sequence[Record], commands: Sequence[Record], now: datetime) -> Iterator[PauseCommand]:
    """Yield the pause of each heartbeat that names one, unless a command for its policy and cluster is kept."""
    in_force, commanded = DecisionsInForce(kinds=(Standing,)), set(_read_subjects(commands, PauseCommand))
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


def _read_subjects(
    commands: Sequence[Record], kind: type[PauseCommand] | type[OpenAlerts]
) -> Iterator[tuple[str, str]]:
    """Yield policy and cluster of each command of this kind."""
    reader: EventReader[PauseCommand | OpenAlerts] = EventReader((kind,))
    for record in commands:
        with suppress(BadRecordError):
            command = reader.read(record.value or b"").data
            yield command.policy, command.cluster
