"""The stateful operator: reads a key's records, steps its policy, stores one state and one timer.

Each of Spark's state calls costs a good part of a millisecond. So a key makes at most one read, one write, and sets a
timer only if the next step is due before the timer already set. A timer that fires early steps without observations,
which changes nothing. A timer that is due in the same batch as records of its key is deleted, because the key was
stepped at that time already. Each timer that is set is also published: without records there is no batch, so the ticker
must know when a timer is due (`policies/policy.py`).
"""

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from policies.decisions import Decision
from policies.observations import Observation
from policies.pauses import PauseCommand, PolicyPause, commanded, open_at
from policies.policy import HOST_ALERTS, POLICY_FAILED, READINGS_REFUSED, TIMERS, timer_record
from policies.recovery import OpenAlerts
from policies.registry import POLICIES
from policies.units import counted, from_millis
from policies.wire import BadRecordError, Cut, DeadLetterReason, ObservedRecord, Output
from streaming.clocks import CLOCK_JUMP_MS, Order, next_timer_ms
from streaming.dead_letters import DeadLetterLimiter
from streaming.host import PolicyHost, StepResult
from streaming.intake import Intake
from streaming.key_state import NEVER_STEPPED, KeyState, begin_again, decode, emit_heartbeat, encode
from streaming.settings import SparkInternals
from streaming.spark_internals import are_used, convert_rows_by_column, pipeline_state_calls
from streaming.worker_memory import WrittenStates, begin_batch, build_once, collect_garbage, current_batch, end_batch

# One key's part of a batch: takes its records, steps its policy, and returns the state to store and the outputs.
#
# Pure.
#
# A policy is stepped apart from the readings that it cannot take, so that one bad reading takes no other with it. If
# a step raises, the readings are halved until each failing part is one reading, and every part that succeeds is
# taken. A part is like a batch of its own, and batches may be cut anywhere, so that changes nothing about the other
# readings. The number of steps is bounded: with more culprits than that, whole parts are refused.

MOST_STEPS = 40
"""Steps of one key in one batch: enough to find one culprit among 5,000 readings twice."""


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
    intake = Intake(host, prefix, key, limiter, order)
    outputs = [*limiter.counted(), *intake.accept(records)]
    taken = intake.observed()
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
    if after.has_stepped and not after.failures and _watches(key[0], prefix, order):
        if heartbeat.is_due(now_ms, quiet):
            heartbeat, record = emit_heartbeat(host.issuer(*key), heartbeat, now_ms, quiet)
            outputs.append(record)
        wakes += [heartbeat.due_ms, None if quiet is None else quiet.until_ms]
    after = msgspec.structs.replace(
        after, letters=limiter.counts(), positions=order.positions(), last_heartbeat=heartbeat, pause=pause
    )
    wake_ms = min((at_ms for at_ms in wakes if at_ms is not None), default=None)
    return KeyTransition(None if after.is_empty else after, wake_ms, tuple(outputs), decisions)


def _watches(policy: str, prefix: str, order: Order) -> bool:
    """Whether a policy has got a reading of its own, or takes none of others."""
    kind = POLICIES[policy]
    own = (position.topic.removeprefix(f"{prefix}.") in kind.observed for position in order.positions())
    return not kind.shares or any(own)


def _quiet(key: tuple[str, str], pause: PolicyPause | None, now_ms: int) -> PolicyPause | None:
    return open_at(pause, from_millis(now_ms)) if key[1] else None


class SteppedApart(NamedTuple):
    """The result of a step, and the readings that it did not take."""

    result: StepResult
    refused: Mapping[int, BadRecordError]
    """The refused observations, by their place among all."""


def step_apart(
    host: PolicyHost,
    key: tuple[str, str],
    before: KeyState | None,
    observations: Sequence[Observation],
    now: datetime,
    pause: PolicyPause | None = None,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> SteppedApart:
    """Step a policy; if it raises, without the readings for which it does.

    Args:
        key: (policy, cluster).
        before: the key's state; None: it was never stepped.
        pause: set while an operator has paused the policy.
        refused: why other readings of the batch were refused, by alert.
    """
    first = host.step(*key, before, observations, now, pause, refused)
    if first.failure is None:
        return SteppedApart(first, _over_bounds(first, observations))
    if not observations or host.step(*key, before, (), now, pause, refused).failure is not None:
        failed = _failed(key[0], first)  # the policy fails without them, too
        return SteppedApart(first, dict.fromkeys(range(len(observations)), failed))
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
    return SteppedApart(_join(results), culprits)


def _failed(policy: str, result: StepResult) -> BadRecordError:
    return BadRecordError(DeadLetterReason.POLICY_FAILED, f"{policy}: {result.failure}")


def _over_bounds(result: StepResult, observations: Sequence[Observation]) -> dict[int, BadRecordError]:
    why = result.step.refused
    return {
        place: BadRecordError(DeadLetterReason.TOO_MANY, why[each.id])
        for place, each in enumerate(observations)
        if each.id in why
    }


def _join(results: Sequence[StepResult]) -> StepResult:
    last = results[-1]
    decisions = tuple(decision for result in results for decision in result.step.decisions)
    outputs = tuple(output for result in results for output in result.outputs)
    return last._replace(step=replace(last.step, decisions=decisions), outputs=outputs)


OUTPUT_SCHEMA = "topic string, key string, value binary"
# A text would be parsed by the JVM twice per batch.
STATE_SCHEMA = StructType([StructField("value", BinaryType()), StructField("timer_ms", LongType())])

_MARK_EVERY_SECONDS = 1.0
_marked_at = 0.0


@dataclass(frozen=True)
class StepMark:
    """The time of the last step, in a file that the query's supervisor reads.

    A batch of many large clusters may take longer than the time after which a silent query counts as stalled. Each of
    its steps is bounded, so a query that hangs shows in its steps. Spark itself reports only whole batches.

    Args:
        file: holds the time in seconds, by the machine's monotonic clock, which its processes share.
    """

    file: Path

    def mark(self) -> None:
        """Note that a step begins; at most once a second. A mark that cannot be written is left out."""
        global _marked_at
        now = time.monotonic()
        if now - _marked_at >= _MARK_EVERY_SECONDS:
            _marked_at = now
            with suppress(OSError):
                self.file.write_text(str(now))

    def seconds_ago(self) -> float:
        """Return the seconds since the last mark; infinite if there is none."""
        try:
            marked_at = float(self.file.read_text())
        except (OSError, ValueError):
            return float("inf")
        ago = time.monotonic() - marked_at
        return ago if ago >= 0 else float("inf")  # the machine was started again


class PolicyOperator(StatefulProcessor):
    """Hosts any registered policy; the grouping key is (policy, cluster).

    Args:
        internals: whether private parts of PySpark may be replaced.
        steps: marks each step, for the watch over the query's progress; None: nobody on this machine watches.

    Input rows: ``value binary, topic string, partition int, offset long, appended_ms long``. A record that is too large
    has ``cut struct<bytes int, sha256 string>``, too, and only the first bytes of its value.
    Output rows: `OUTPUT_SCHEMA`.
    """

    def __init__(
        self,
        host: PolicyHost,
        prefix: str,
        internals: SparkInternals = SparkInternals.OFF,
        steps: StepMark | None = None,
    ) -> None:
        self._host = host
        self._prefix = prefix
        self.internals = internals
        self._steps = steps
        self._batch = current_batch()
        self._written = WrittenStates()

    def __reduce__(self) -> tuple[Any, ...]:
        """Spark ships the operator with each batch; a process builds it once."""
        arguments = (replace(self._host), self._prefix, self.internals, self._steps)
        return build_once, (_build, pickle.dumps(arguments))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variable; a batch begins."""
        self._handle = handle
        self._batch = current_batch()
        self._written = begin_batch(self._batch)
        self._state = handle.getValueState("state", STATE_SCHEMA)
        pipelines = are_used(self.internals)
        self._update = pipeline_state_calls(handle, self._state) if pipelines else self._state.update

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Read the key's new records and step."""
        return self._run(key, map(_record, rows), timerValues, fires=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002
        """Step without observations, or delete the state of a cluster or policy that is gone."""
        policy, cluster = key
        if policy not in POLICIES or (cluster and not self._host.knows(cluster)):
            self._clear((policy, cluster))
            return iter(())
        return self._run(key, (), timerValues, fires=True)

    def close(self) -> None:
        """A batch ends."""
        end_batch(self._batch, self._written)
        collect_garbage()

    def _run(self, key: Any, records: Iterable[ObservedRecord], timer_values: Any, *, fires: bool) -> Iterator[Row]:
        """Step the key; `fires` means that its timer fired, which Spark deletes afterwards."""
        policy, cluster = key
        if self._steps is not None:
            self._steps.mark()
        now_ms = timer_values.getCurrentProcessingTimeInMs()
        before, timer_ms = self._read_state((policy, cluster))
        transition = reconcile(self._host, self._prefix, (policy, cluster), before, records, now_ms)
        outputs = transition.outputs
        if transition.key_state is not None:
            before_ms, timer_ms = timer_ms, next_timer_ms(transition.wake_ms, timer_ms, now_ms)
            if before_ms is not None and before_ms != timer_ms and not fires:
                self._handle.deleteTimer(before_ms)
            if timer_ms is not None and timer_ms != before_ms:
                self._handle.registerTimer(timer_ms)
                outputs += (_timer(policy, cluster, timer_ms, now_ms),)
            self._update((encode(transition.key_state), timer_ms))
            self._written.put((policy, cluster), transition.key_state, timer_ms)
        elif before is not None:
            self._clear((policy, cluster))  # otherwise the same counts would be published again
            if timer_ms is not None and not fires:
                self._handle.deleteTimer(timer_ms)
        return map(self._row, outputs)

    def _clear(self, key: tuple[str, str]) -> None:
        self._state.clear()
        self._written.drop(key)

    def _read_state(self, key: tuple[str, str]) -> tuple[KeyState | None, int | None]:
        """Return the key's stored state, and the time of its timer."""
        if (written := self._written.get(key)) is not None:
            return written
        stored = self._state.get()
        return (decode(bytes(stored[0])), stored[1]) if stored else (None, None)

    def _row(self, output: Output) -> Row:
        return Row(topic=f"{self._prefix}.{output.topic}", key=output.key, value=output.value)


def _build(*arguments: Any) -> PolicyOperator:
    operator = PolicyOperator(*arguments)
    if are_used(operator.internals):
        convert_rows_by_column()
    return operator


def _timer(policy: str, cluster: str, due_ms: int, now_ms: int) -> Output:
    return Output(TIMERS, *timer_record(policy, cluster, from_millis(due_ms), now=from_millis(now_ms)))


def _record(row: Row) -> ObservedRecord:
    # One dictionary: a Row searches its names at each access, which takes a tenth of a step.
    fields = dict(zip(row.__fields__, row, strict=True))
    cut = fields.get("cut")
    # A Row in Spark's tester, a dict in the query.
    known = None if cut is None else Cut(int(cut["bytes"]), cut["sha256"])
    position = (fields["topic"], fields["partition"], fields["offset"], fields["appended_ms"])
    return ObservedRecord(*position, fields["value"], known)
