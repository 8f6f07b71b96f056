"""One key's part of a batch: reads its records, steps its policy, and returns the state to store and the outputs. Pure.

A policy is stepped apart from the readings that it cannot take, so that one bad reading takes no other with it. If a
step raises, the readings are halved until each failing part is one reading, and every part that succeeds is taken. A
part is like a batch of its own, and batches may be cut anywhere, so that changes nothing about the other readings. The
number of steps is bounded: with more culprits than that, whole parts are refused.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from policies.decisions import Decision
from policies.observations import Observation, Reading
from policies.pauses import PauseCommand, PolicyPause, commanded, open_at
from policies.policy import HOST_ALERTS, POLICY_FAILED, READINGS_REFUSED
from policies.recovery import OpenAlerts
from policies.registry import POLICIES, observed_topic, reading_types, topic_readers
from policies.units import counted, from_millis
from policies.wire import BadRecordError, DeadLetterReason, Event, EventReader, ObservedRecord, Output, too_large
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


class Intake:
    """Takes the records of one key and batch.

    Args:
        key: (policy, cluster); the cluster is empty for records that name no known cluster.
    """

    def __init__(self, host: PolicyHost, prefix: str, key: tuple[str, str], limiter: DeadLetterLimiter) -> None:
        self._host, self._prefix, self._limiter = host, prefix, limiter
        self._policy, self._cluster = key
        self._takes: tuple[type[Reading], ...] = (*POLICIES[self._policy].takes, PauseCommand, OpenAlerts)
        self._most_bytes = POLICIES[self._policy].most_step_bytes or MOST_BYTES
        self.taken: list[tuple[ObservedRecord, Event[Reading]]] = []
        self.left_out = 0
        """Readings for which there was no room."""

    def accept(self, records: Iterable[ObservedRecord]) -> Iterator[Output]:
        """Accept records in any order, and return the dead letters."""
        windows: defaultdict[tuple[str, int], _Window] = defaultdict(_Window)
        for record in records:
            if record.cut is not None:
                yield from self._refuse(record, too_large(record.cut.bytes))
                continue
            for dropped in windows[record.topic, record.partition].add(record):
                yield from self._leave_out(dropped)
        for _, window in sorted(windows.items()):
            yield from self._read_partition(window.records())

    def _refuse(self, record: ObservedRecord, error: BadRecordError) -> Iterator[Output]:
        """Make a dead letter, but only one of a topic that several policies read: that of the first policy."""
        readers = topic_readers()[record.topic.removeprefix(f"{self._prefix}.")]
        if self._policy not in readers[1:]:
            yield from self._limiter.put(record, error)

    def _read_partition(self, records: Sequence[ObservedRecord]) -> Iterator[Output]:
        """Read the records of a partition, the newest first, while there is room."""
        taken: list[tuple[ObservedRecord, Event[Reading]]] = []
        bad: list[tuple[ObservedRecord, BadRecordError]] = []
        displaced: list[ObservedRecord] = []
        room_bytes = self._most_bytes
        for record in reversed(records):
            room_bytes -= len(record.value or b"")
            if displaced or len(taken) >= MOST_RECORDS or (room_bytes < 0 and taken):
                displaced.append(record)
                continue
            try:
                event = self._read(record)
            except BadRecordError as error:
                event = None
                bad.append((record, error))
            if event is not None and isinstance(event.data, self._takes):
                taken.append((record, event))
            else:
                room_bytes += len(record.value or b"")
        self.taken += reversed(taken)
        for record in reversed(displaced):
            yield from self._leave_out(record)
        for record, fault in reversed(bad):
            yield from self._refuse(record, fault)

    def _leave_out(self, record: ObservedRecord) -> Iterator[Output]:
        self.left_out += 1
        what = f"more than {MOST_RECORDS} readings or {self._most_bytes} bytes came at once: {record.position()}"
        yield from self._refuse(record, BadRecordError(DeadLetterReason.TOO_MANY, what))

    def _read(self, record: ObservedRecord) -> Event[Reading]:
        event = read_record(self._host, record.value or b"", record.topic.removeprefix(f"{self._prefix}."))
        if (cluster := event.data.cluster) != self._cluster:
            raise BadRecordError(
                DeadLetterReason.CLUSTER_MISMATCH, f"data.cluster: '{cluster}' was routed as '{self._cluster}'"
            )
        record.appended_at()
        return event


class _Window:
    """The newest records of one partition; the order in which they come does not matter."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, ObservedRecord]] = []
        self._bytes = 0
        self._dropped_offset = -1

    def add(self, record: ObservedRecord) -> Iterator[ObservedRecord]:
        """Add a record, and return those for which there is no room."""
        if record.offset <= self._dropped_offset:
            yield record
            return
        heapq.heappush(self._heap, (record.offset, record))
        self._bytes += len(record.value or b"")
        while self._bytes > MOST_UNREAD_BYTES:
            self._dropped_offset, oldest = heapq.heappop(self._heap)
            self._bytes -= len(oldest.value or b"")
            yield oldest

    def records(self) -> list[ObservedRecord]:
        """Its records by offset."""
        return [record for _, record in sorted(self._heap, key=lambda each: each[0])]


@cache
def reading_reader() -> EventReader[Reading]:
    """Decodes observed records of every registered kind; built once per process."""
    return EventReader(reading_types())


def read_record(host: PolicyHost, value: bytes, topic: str | None) -> Event[Reading]:
    """Decode an observed record.

    Args:
        topic: of the record, without its prefix; None if it was read from a file.

    Raises:
        BadRecordError: it is no event, its type is unknown or belongs to another topic, its data does not fit, the
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
    decisions: tuple[Decision, ...]
    """The decisions among the outputs."""


def reconcile(
    host: PolicyHost,
    prefix: str,
    key: tuple[str, str],
    before: KeyState | None,
    records: Iterable[ObservedRecord],
    now_ms: int,
) -> KeyTransition:
    """Take one key's records of a batch, and step its policy if there are observations or a timer is due.

    Args:
        key: (policy, cluster); the cluster is empty for records that name no known cluster.
        before: the state stored by the last transition; None: there is none.
        records: in any order.
    """
    previous, records = before or NEVER_STEPPED, tuple(records)
    if any(record.appended_ms >= previous.now_ms - CLOCK_JUMP_MS for record in records):
        # Kafka's clock confirms the last step's time: if the batch is dated before it, the batch's clock is wrong.
        now_ms = max(now_ms, previous.now_ms)
    elif previous.now_ms - now_ms > CLOCK_JUMP_MS:
        before = previous = begin_again(POLICIES[key[0]], previous, now_ms)
    limiter = DeadLetterLimiter(*key, previous.letters, now_ms)
    order = Order(previous.positions, max(previous.now_ms, now_ms))
    intake = Intake(host, prefix, key, limiter)
    outputs = [*limiter.counted(), *intake.accept(records)]
    taken = [
        (record, Observation(event.id, from_millis(order.effective_ms(record)), event.data, event.source))
        for record, event in intake.taken
    ]
    readings = [(observation.at, observation.reading) for _, observation in taken]
    pause = commanded(previous.pause, [(at, each) for at, each in readings if isinstance(each, PauseCommand)])
    opened = [each for _, each in readings if isinstance(each, OpenAlerts)]
    if opened and opened[-1].policy == key[0]:
        # An alert that is not registered any more expires.
        names = HOST_ALERTS.keys() | {alert.name for alert in POLICIES[key[0]].alerts}
        alerts = previous.book.alerts.recover(each.entry() for each in opened[-1].alerts if each.alert in names)
        book = msgspec.structs.replace(previous.book, alerts=alerts)
        before = previous = msgspec.structs.replace(previous, book=book)
    observed = [each for each in taken if not isinstance(each[1].reading, PauseCommand | OpenAlerts)]
    quiet = _quiet(key, pause, now_ms)
    after = previous
    decisions: tuple[Decision, ...] = ()
    is_due = previous.wake_ms is not None and previous.wake_ms <= now_ms
    if observed or is_due or (previous.has_stepped and _quiet(key, previous.pause, previous.now_ms) != quiet):
        why = {READINGS_REFUSED: f"{counted(intake.left_out, 'reading')} too many came at once"}
        result, refused = step_apart(
            host, key, before, [o for _, o in observed], from_millis(now_ms), pause,
            why if intake.left_out else {},
        )  # fmt: skip
        outputs += [
            letter for place, error in sorted(refused.items()) for letter in limiter.put(observed[place][0], error)
        ]
        outputs += result.outputs
        after, decisions = result.key_state, result.step.decisions
    heartbeat, wakes = previous.last_heartbeat, [after.wake_ms, limiter.counts().due_ms]
    kind, positions = POLICIES[key[0]], order.positions()
    # A policy that takes readings of others watches a cluster only once it has got one of its own.
    watches = not kind.shares or any(each.topic.removeprefix(f"{prefix}.") in kind.observed for each in positions)
    if after.has_stepped and not after.failures and watches:
        if heartbeat.is_due(now_ms, quiet):
            heartbeat, record = emit_heartbeat(host.issuer(*key), heartbeat, now_ms, quiet)
            outputs.append(record)
        wakes += [heartbeat.due_ms, None if quiet is None else quiet.until_ms]
    after = msgspec.structs.replace(
        after, letters=limiter.counts(), positions=positions, last_heartbeat=heartbeat, pause=pause
    )
    wake_ms = min((at_ms for at_ms in wakes if at_ms is not None), default=None)
    return KeyTransition(None if after.is_empty else after, wake_ms, tuple(outputs), decisions)


def _quiet(key: tuple[str, str], pause: PolicyPause | None, now_ms: int) -> PolicyPause | None:
    return open_at(pause, from_millis(now_ms)) if key[1] else None


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

    Returns the result, and the refused observations by their place among all.

    Args:
        key: (policy, cluster).
        before: the key's state; None: it was never stepped.
        pause: set while an operator has paused the policy.
        refused: why other readings of the batch were refused, by alert.
    """
    first = host.step(*key, before, observations, now, pause, refused)
    if first.failure is None:
        return first, _over_bounds(first, observations)
    if not observations or host.step(*key, before, (), now, pause, refused).failure is not None:
        failed = _failed(key[0], first)  # the policy fails without them, too
        return first, dict.fromkeys(range(len(observations)), failed)
    results: list[StepResult] = []
    culprits: dict[int, BadRecordError] = {}
    ahead, steps = [range(len(observations))], 0
    while ahead:
        part, steps = ahead.pop(), steps + 1
        taken = [observations[place] for place in part]
        result = first if len(part) == len(observations) else host.step(*key, before, taken, now, pause, refused)
        if result.failure is None:
            results.append(result)
            before = result.key_state
            culprits |= {part[place]: error for place, error in _over_bounds(result, taken).items()}
        elif len(part) == 1 or steps > MOST_STEPS:
            culprits |= dict.fromkeys(part, _failed(key[0], result))
        else:
            middle = len(part) // 2
            ahead += [part[middle:], part[:middle]]
    results.append(host.step(*key, before, (), now, pause, {**refused, POLICY_FAILED: first.failure}))
    decisions = tuple(decision for each in results for decision in each.step.decisions)
    outputs = tuple(output for each in results for output in each.outputs)
    return results[-1]._replace(step=replace(results[-1].step, decisions=decisions), outputs=outputs), culprits


def _failed(policy: str, result: StepResult) -> BadRecordError:
    return BadRecordError(DeadLetterReason.POLICY_FAILED, f"{policy}: {result.failure}")


def _over_bounds(result: StepResult, observations: Sequence[Observation]) -> dict[int, BadRecordError]:
    why = result.step.refused
    return {
        place: BadRecordError(DeadLetterReason.TOO_MANY, why[each.id])
        for place, each in enumerate(observations)
        if each.id in why
    }
