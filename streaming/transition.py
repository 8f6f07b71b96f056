"""One key's part of a batch: reads its records, steps its policy, and returns the state to store and the outputs. Pure.

A policy is stepped apart from the readings that it cannot take, so that one bad reading takes no other with it. If a
step raises, the readings are halved until each failing part is one reading, and every part that succeeds is taken. A
part is like a batch of its own, and batches may be cut anywhere, so that changes nothing about the other readings. The
number of steps is bounded: with more culprits than that, whole parts are refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import chain, groupby
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from policies.observations import Observation, Reading
from policies.pauses import PauseCommand, PolicyPause, commanded, open_at
from policies.policy import HOST_ALERTS, POLICY_FAILED, READINGS_REFUSED
from policies.recovery import OpenAlerts
from policies.registry import POLICIES, observed_topic, reading_types, topic_readers
from policies.units import counted, from_millis
from policies.wire import (
    LAST_MS,
    BadRecordError,
    DeadLetterReason,
    Event,
    EventReader,
    ObservedRecord,
    Output,
    too_large,
)
from streaming.dead_letters import DeadLetterLimiter
from streaming.host import PolicyHost, StepResult
from streaming.key_state import CLOCK_JUMP_MS, NEVER_STEPPED, KeyState, Order, begin_again, emit_heartbeat

MOST_RECORDS = 5000
MOST_BYTES = 8 * 1024 * 1024
"""A step takes no more of one partition, the newest first, so that a flood for one cluster does not delay the others.
The largest cluster that a policy accepts publishes less at once; `PolicyKind.most_step_bytes` names exceptions."""
MOST_UNREAD_BYTES = 64 * 1024 * 1024
"""A batch parses no more of one partition: records that cannot be read use up nothing else."""
MOST_STEPS = 40
"""Steps of one key in one batch: enough to find one culprit among 5,000 readings twice."""


def take_records(
    host: PolicyHost, prefix: str, key: tuple[str, str], records: Iterable[ObservedRecord]
) -> tuple[list[tuple[ObservedRecord, Event[Reading]]], list[tuple[ObservedRecord, BadRecordError]]]:
    """Read one key's records of a batch: those of each partition from the newest on, while there is room.

    Returns the readings by partition and offset, and the refused records with their errors: first those for which
    there was no room.
    """
    kind = POLICIES[key[0]]
    takes: tuple[type[Reading], ...] = (*kind.takes, PauseCommand, OpenAlerts)
    most_bytes = kind.most_step_bytes or MOST_BYTES
    readings: list[tuple[ObservedRecord, Event[Reading]]] = []
    refused: list[tuple[ObservedRecord, BadRecordError]] = []
    ordered = sorted(records, key=attrgetter("topic", "partition", "offset"))
    for _, partition in groupby(ordered, key=attrgetter("topic", "partition")):
        taken: list[tuple[ObservedRecord, Event[Reading]]] = []
        left_out: list[tuple[ObservedRecord, BadRecordError]] = []
        bad: list[tuple[ObservedRecord, BadRecordError]] = []
        room_bytes, unread_bytes = most_bytes, MOST_UNREAD_BYTES
        for record in reversed(list(partition)):
            size = 0 if record.cut is not None else len(record.value or b"")
            unread_bytes -= size
            is_full = len(taken) >= MOST_RECORDS or (taken and size > room_bytes) or unread_bytes < 0
            if record.cut is None and (left_out or is_full):
                what = f"more than {MOST_RECORDS} readings or {most_bytes} bytes came at once: {record.position()}"
                left_out.append((record, BadRecordError(DeadLetterReason.TOO_MANY, what)))
                continue
            try:
                event = _read(host, prefix, key[1], record)
            except BadRecordError as error:
                bad.append((record, error))
                continue
            if isinstance(event.data, takes):
                taken.append((record, event))
                room_bytes -= size
        readings += reversed(taken)
        refused += (*reversed(left_out), *reversed(bad))
    return readings, refused


def _read(host: PolicyHost, prefix: str, cluster: str, record: ObservedRecord) -> Event[Reading]:
    """Decode a record of a key; raises as `read_record` does, and for another cluster or a time out of range."""
    if record.cut is not None:
        raise too_large(record.cut.bytes)
    event = read_record(host, record.value or b"", record.topic.removeprefix(f"{prefix}."))
    if event.data.cluster != cluster:
        raise BadRecordError(
            DeadLetterReason.CLUSTER_MISMATCH, f"data.cluster: '{event.data.cluster}' was routed as '{cluster}'"
        )
    if not 0 <= record.appended_ms <= LAST_MS:
        # Where a topic was created without append times, Kafka accepts any number from a producer.
        raise BadRecordError(DeadLetterReason.INVALID, f"timestamp: {record.appended_ms} ms is no time")
    return event


@cache
def reading_reader() -> EventReader[Reading]:
    """Decodes observed records of every registered kind; built once per process."""
    return EventReader(reading_types())


def read_record(host: PolicyHost, value: bytes, topic: str | None) -> Event[Reading]:
    """Decode an observed record of a topic without its prefix; the topic is None for a file.

    Raises BadRecordError: it is no event, its type is unknown or belongs to another topic, its data does not fit, the
    settings do not name its cluster, or it pauses a policy that is unknown or has a command of its own for it.
    """
    event = reading_reader().read(value)
    reading, invalid = event.data, DeadLetterReason.INVALID
    if topic is not None and (own := observed_topic(type(reading))) != topic:
        raise BadRecordError(DeadLetterReason.WRONG_TOPIC, f"type: {event.type} belongs to {own}, not to {topic}")
    if not host.knows(reading.cluster):
        detail = f"data.cluster: '{reading.cluster}' is not among the clusters of the settings"
        raise BadRecordError(DeadLetterReason.UNKNOWN_CLUSTER, detail, reading.cluster)
    if isinstance(reading, PauseCommand):
        if (kind := POLICIES.get(reading.policy)) is None:
            known = ", ".join(sorted(POLICIES))
            raise BadRecordError(invalid, f"data.policy: '{reading.policy}' is no policy: {known} are")
        if kind.paused_by is not None:
            detail = f"data.policy: policy {reading.policy} is paused by `{kind.paused_by}`"
            raise BadRecordError(invalid, detail)
    return event


class KeyTransition(NamedTuple):
    """The result of `reconcile`."""

    key_state: KeyState | None
    """The state to store; None: delete it."""
    wake_ms: int | None
    """When to step the key next even without records, in milliseconds since the epoch; None: never."""
    outputs: tuple[Output, ...]
    """The records to write."""


def reconcile(
    host: PolicyHost,
    prefix: str,
    key: tuple[str, str],
    before: KeyState | None,
    records: Iterable[ObservedRecord],
    now_ms: int,
) -> KeyTransition:
    """Take one key's records of a batch, and step its policy if there are observations or a timer is due.

    The key is (policy, cluster); the cluster is empty for records that name no known cluster.
    """
    kind, previous, records = POLICIES[key[0]], before or NEVER_STEPPED, tuple(records)
    if any(record.appended_ms >= previous.now_ms - CLOCK_JUMP_MS for record in records):
        # Kafka's clock confirms the last step's time: if the batch is dated before it, the batch's clock is wrong.
        now_ms = max(now_ms, previous.now_ms)
    elif previous.now_ms - now_ms > CLOCK_JUMP_MS:
        previous = begin_again(kind, previous, now_ms)
    limiter = DeadLetterLimiter(*key, previous.letters, now_ms)
    order = Order(previous.positions, max(previous.now_ms, now_ms))
    readings, bad = take_records(host, prefix, key, records)
    outputs = [*limiter.counted()]
    for record, error in bad:
        # Of a topic that several policies read, the first one makes the dead letters.
        if key[0] not in topic_readers()[record.topic.removeprefix(f"{prefix}.")][1:]:
            outputs += limiter.put(record, error)
    taken = [
        (record, Observation(event.id, from_millis(order.effective_ms(record)), event.data, event.source))
        for record, event in readings
    ]
    observed = [each for each in taken if not isinstance(each[1].reading, PauseCommand | OpenAlerts)]
    pause = commanded(previous.pause, [(o.at, o.reading) for _, o in taken if isinstance(o.reading, PauseCommand)])
    opened = [o.reading for _, o in taken if isinstance(o.reading, OpenAlerts)]
    if opened and opened[-1].policy == key[0]:
        # An alert that is not registered any more expires.
        names = HOST_ALERTS.keys() | {alert.name for alert in kind.alerts}
        alerts = previous.book.alerts.recover(each.entry() for each in opened[-1].alerts if each.alert in names)
        previous = msgspec.structs.replace(previous, book=msgspec.structs.replace(previous.book, alerts=alerts))
    now, after = from_millis(now_ms), previous
    quiet, was_quiet = open_at(pause, now), open_at(previous.pause, from_millis(previous.now_ms))
    is_due = previous.wake_ms is not None and previous.wake_ms <= now_ms
    if observed or is_due or (previous.has_stepped and quiet != was_quiet):
        left_out = sum(error.reason is DeadLetterReason.TOO_MANY for _, error in bad)
        why = {READINGS_REFUSED: f"{counted(left_out, 'reading')} too many came at once"} if left_out else {}
        result, refused = step_apart(host, key, previous, [o for _, o in observed], now, pause, why)
        for place, error in sorted(refused.items()):
            outputs += limiter.put(observed[place][0], error)
        outputs += result.outputs
        after = result.key_state
    heartbeat, wakes = previous.last_heartbeat, [after.wake_ms, limiter.counts().due_ms]
    positions = order.positions()
    # A policy that takes readings of others watches a cluster only once it has got one of its own.
    watches = not kind.shares or any(each.topic.removeprefix(f"{prefix}.") in kind.observed for each in positions)
    if after.has_stepped and not after.failures and watches:
        if heartbeat.is_due(now_ms, quiet):
            heartbeat, said = emit_heartbeat(host.issuer(*key), heartbeat, now_ms, quiet)
            outputs.append(said)
        wakes += [heartbeat.due_ms, None if quiet is None else quiet.until_ms]
    after = msgspec.structs.replace(
        after, letters=limiter.counts(), positions=positions, last_heartbeat=heartbeat, pause=pause
    )
    wake_ms = min((at_ms for at_ms in wakes if at_ms is not None), default=None)
    return KeyTransition(None if after.is_empty else after, wake_ms, tuple(outputs))


def step_apart(
    host: PolicyHost,
    key: tuple[str, str],
    before: KeyState | None,
    observations: Sequence[Observation],
    now: datetime,
    pause: PolicyPause | None = None,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> tuple[StepResult, Mapping[int, BadRecordError]]:
    """Step a policy; if it raises, without the readings for which it does.

    Returns the result, and the refused observations by their place among all. `refused` says, by alert, why other
    readings of the batch were refused.
    """
    first = host.step(*key, before, observations, now, pause, refused)
    if first.failure is None:
        return first, _over_bounds(first, observations)
    if not observations or host.step(*key, before, (), now, pause, refused).failure is not None:
        # The policy fails without them, too.
        return first, dict.fromkeys(range(len(observations)), _failed(key[0], first))
    results: list[StepResult] = []
    culprits: dict[int, BadRecordError] = {}
    ahead, steps = [range(len(observations))], 0
    while ahead:
        part, steps = ahead.pop(), steps + 1
        taken = [observations[place] for place in part]
        result = host.step(*key, before, taken, now, pause, refused)
        if result.failure is None:
            results.append(result)
            before = result.key_state
            culprits |= {part[place]: error for place, error in _over_bounds(result, taken).items()}
        elif len(part) == 1 or steps > MOST_STEPS:
            culprits |= dict.fromkeys(part, _failed(key[0], result))
        else:
            middle = len(part) // 2
            ahead += [part[middle:], part[:middle]]
    last = host.step(*key, before, (), now, pause, {**refused, POLICY_FAILED: first.failure})
    results.append(last)
    decisions = tuple(chain.from_iterable(each.step.decisions for each in results))
    outputs = tuple(chain.from_iterable(each.outputs for each in results))
    return last._replace(step=replace(last.step, decisions=decisions), outputs=outputs), culprits


def _failed(policy: str, result: StepResult) -> BadRecordError:
    return BadRecordError(DeadLetterReason.POLICY_FAILED, f"{policy}: {result.failure}")


def _over_bounds(result: StepResult, observations: Sequence[Observation]) -> dict[int, BadRecordError]:
    why = result.step.refused
    return {
        place: BadRecordError(DeadLetterReason.TOO_MANY, why[each.id])
        for place, each in enumerate(observations)
        if each.id in why
    }
