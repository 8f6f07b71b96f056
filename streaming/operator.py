"""The stateful operator: reads a key's records, steps its policy, keeps one value and one timer.

Spark's state calls cost a good part of a millisecond each, so a key that is touched pays for as few as can be: one
read, one write, and a timer only when the next step is due before the one already set. A timer that fires early steps
without observations, which changes nothing. Each timer that is set is said on a topic, too: without records there is no
batch, so somebody must know when one is due (`policies/timers.py`).
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from policies.observations import Observation
from policies.timers import TIMERS, timer_event, timer_key
from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason
from streaming.dead_letters import ObservedRecord, dead_letter
from streaming.host import Output, PolicyHost, read_record, recall, remember

OUTPUT_SCHEMA = "topic string, key string, value binary"
STATE_SCHEMA = "value binary, timer_ms bigint"


class PolicyOperator(StatefulProcessor):
    """Hosts any registered policy; the grouping key is (policy, cluster).

    Input rows: ``value binary, topic string, partition int, offset long, appended_ms long``.
    Output rows: `OUTPUT_SCHEMA`.
    """

    def __init__(self, host: PolicyHost, prefix: str) -> None:
        self._host = host
        self._prefix = prefix

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the one state variable."""
        self._handle = handle
        self._state = handle.getValueState("state", STATE_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Read the key's new records, dead letters aside, and step."""
        policy, cluster = _split(key)
        observed: list[tuple[ObservedRecord, Observation]] = []
        for row in rows:
            record = ObservedRecord(row.topic, row.partition, row.offset, row.appended_ms, row.value)
            try:
                observed.append((record, self._observation(record, cluster)))
            except BadRecordError as error:
                yield self._row(dead_letter(record, error))
        if observed:
            yield from self._step(policy, cluster, observed, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002
        """Step without observations: time itself may decide."""
        yield from self._step(*_split(key), [], timerValues)

    def close(self) -> None:
        """Nothing to release."""

    def _step(
        self, policy: str, cluster: str, observed: list[tuple[ObservedRecord, Observation]], timer_values: Any
    ) -> Iterator[Row]:
        now_ms = timer_values.getCurrentProcessingTimeInMs()
        kept = self._state.get()
        value, timer_ms = kept if kept else (None, None)
        before = recall(bytes(value)) if value is not None else None
        observations = [observation for _, observation in observed]
        after, _, failure, records = self._host.step(policy, cluster, before, observations, from_millis(now_ms))
        pending = timer_ms is not None and timer_ms > now_ms
        if after.wake_ms is not None and not (pending and timer_ms <= after.wake_ms):
            timer_ms = max(after.wake_ms, now_ms + 1)
            self._handle.registerTimer(timer_ms)
            yield self._row(_timer(policy, cluster, timer_ms, now_ms))
        self._state.update((remember(after), timer_ms))
        if failure is not None:
            failed = BadRecordError(DeadLetterReason.POLICY_FAILED, f"{policy}: {failure}")
            yield from (self._row(dead_letter(record, failed)) for record, _ in observed)
        yield from map(self._row, records)

    def _observation(self, record: ObservedRecord, cluster: str) -> Observation:
        event = read_record(record.value or b"", record.topic.removeprefix(f"{self._prefix}."))
        if event.data.cluster != cluster:
            raise BadRecordError(
                DeadLetterReason.CLUSTER_MISMATCH, f"data.cluster: '{event.data.cluster}' was routed as '{cluster}'"
            )
        return Observation(event.id, record.appended_at(), event.data)

    def _row(self, output: Output) -> Row:
        return Row(topic=f"{self._prefix}.{output.topic}", key=output.key, value=output.value)


def _timer(policy: str, cluster: str, due_ms: int, now_ms: int) -> Output:
    event = timer_event(policy, cluster, from_millis(due_ms), now=from_millis(now_ms))
    return Output(TIMERS, timer_key(policy, cluster), event)


def _split(key: Any) -> tuple[str, str]:
    return (key[0], key[1])
