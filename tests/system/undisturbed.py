"""An undisturbed run: the policies over the observed topics, in the batches of a checkpoint's plans, without Spark."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from policies.policy import TICKS
from policies.registry import COMMANDS, POLICIES, commands, decided_topics, observed_topics, topic_readers
from policies.wire import KEPT_BYTES, MAX_RECORD_BYTES, Cut, ObservedRecord
from streaming.host import PolicyHost
from streaming.key_state import KeyState
from streaming.operator import next_timer_ms
from streaming.transition import KeyTransition, reconcile
from tests.golden import read_reference

EVERY_PLAN = {"spark.sql.streaming.minBatchesToRetain": 10_000}
"""`stream.spark`: the checkpoint keeps the plans of a whole test."""
_COMMANDS = {kind.event_type for kind in commands()}


class Taken(NamedTuple):
    """Records of one partition, from one offset up to another."""

    topic: str
    """Without its prefix."""
    partition: int
    start: int
    end: int


class Batch(NamedTuple):
    """A micro-batch that was committed."""

    number: int
    at_ms: int
    taken: tuple[Taken, ...]


class Plans:
    """Reads the committed batches of a checkpoint, each once. After a reset they begin with number 0 again."""

    def __init__(self, checkpoint: Path, prefix: str) -> None:
        self._checkpoint = checkpoint
        self._prefix = prefix
        self._last = -1
        self._began_ms: int | None = None

    def read(self) -> Iterator[Batch]:
        """Yield the batches since the last call; one whose plan is gone or damaged is left out."""
        if (first := self._plan(0)) is not None and first[0] != self._began_ms:
            self._began_ms, self._last = first[0], -1
        committed = max(self._numbers("commits"), default=-1)
        for number in self._numbers("offsets"):
            plan, before = self._plan(number), self._plan(number - 1) if number else (0, {})
            if self._last < number <= committed and plan is not None and before is not None:
                self._last = number
                yield Batch(number, plan[0], tuple(self._taken(before[1], plan[1])))

    def _numbers(self, log: str) -> list[int]:
        return sorted(int(path.name) for path in (self._checkpoint / log).glob("*") if path.name.isdigit())

    def _plan(self, number: int) -> tuple[int, dict[str, dict[str, int]]] | None:
        """The time of a planned batch, and its end offsets."""
        with suppress(OSError, ValueError):
            _, conditions, ends = (self._checkpoint / "offsets" / str(number)).read_text().splitlines()
            return int(json.loads(conditions)["batchTimestampMs"]), json.loads(ends)
        return None

    def _taken(self, before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> Iterator[Taken]:
        for name in sorted(after):
            topic = name.removeprefix(f"{self._prefix}.")
            for partition, end in sorted(after[name].items()) if topic != TICKS else ():
                if (start := before.get(name, {}).get(partition, 0)) != end:
                    yield Taken(topic, int(partition), start, end)


class Undisturbed:
    """Repeats the query's transitions; their outputs equal the query's, byte for byte."""

    def __init__(self, host: PolicyHost, prefix: str) -> None:
        self._host = host
        self._prefix = prefix
        self._states: dict[tuple[str, str], KeyState | None] = {}
        self._timers: dict[tuple[str, str], int | None] = {}

    def step(self, batch: Batch, records: Iterable[ObservedRecord], *, begins: bool) -> Iterator[KeyTransition]:
        """Step the keys in the query's order: first the keys with records, then those whose timers are due."""
        if begins:
            self._states.clear()
            self._timers.clear()
        by_key: defaultdict[tuple[str, str], list[ObservedRecord]] = defaultdict(list)
        for record in records:
            for key in self._route(record):
                by_key[key].append(record)
        due = [key for key, timer_ms in self._timers.items() if timer_ms is not None and timer_ms <= batch.at_ms]
        for key in [*by_key, *(key for key in due if key not in by_key)]:
            before = self._states.get(key)
            transition = reconcile(self._host, self._prefix, key, before, by_key.get(key, ()), batch.at_ms)
            self._states[key] = transition.key_state
            is_stored, timer_ms = transition.key_state is not None, self._timers.get(key)
            self._timers[key] = next_timer_ms(transition.wake_ms, timer_ms, batch.at_ms) if is_stored else None
            yield transition

    def _route(self, record: ObservedRecord) -> Iterator[tuple[str, str]]:
        """The keys to which `streaming.query` routes a record."""
        topic = record.topic.removeprefix(f"{self._prefix}.")
        try:
            event = json.loads(record.value or b"") if record.cut is None else {}
            named, kind, policy = event["data"]["cluster"], event.get("type"), event["data"].get("policy")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            named, kind, policy = "", None, None
        is_for_any = topic == COMMANDS and kind in _COMMANDS and policy in POLICIES
        cluster = named if isinstance(named, str) and self._host.knows(named) else ""
        return ((reader, cluster) for reader in ((str(policy),) if is_for_any else topic_readers()[topic]))


def decided_alone(checkpoint: Path, servers: str, prefix: str, host: PolicyHost) -> list[str]:
    """What an undisturbed run decides in the batches of a checkpoint that was never reset; topics of one partition."""
    lines = read_all(servers, [f"{prefix}.{topic}" for topic in observed_topics()])
    records: defaultdict[str, list[ObservedRecord]] = defaultdict(list)
    for line in lines:
        value = None if line["payload"] is None else line["payload"]
        record = ObservedRecord(line["topic"], 0, line["offset"], line["ts"], value)
        records[line["topic"].removeprefix(f"{prefix}.")].append(_cut_if_too_large(record))
    run, decided = Undisturbed(host, prefix), []
    for batch in Plans(checkpoint, prefix).read():
        taken = (record for each in batch.taken for record in records[each.topic][each.start : each.end])
        for transition in run.step(batch, taken, begins=batch.number == 0):
            decided += [out.value.decode() for out in transition.outputs if out.topic in decided_topics()]
    return decided


def _cut_if_too_large(record: ObservedRecord) -> ObservedRecord:
    """Keep only the first bytes of a record that is too large, as the query does."""
    value = record.value or b""
    if len(value) <= MAX_RECORD_BYTES:
        return record
    return record._replace(value=value[:KEPT_BYTES], cut=Cut(len(value), hashlib.sha256(value).hexdigest()))


def observed() -> list[tuple[str, str, bytes]]:
    """Topic, cluster and record of all reference courses, a few of them bad, in the order of their times."""
    records = sorted(
        (at_ms, course.policy, topic, course.cluster, event)
        for course in map(read_reference, POLICIES)
        for topic, at_ms, event in course.records()
    )
    good = [(topic, cluster, event.encode()) for _, _, topic, cluster, event in records]
    bad = [("observed.log-dirs", "payments", value) for value in (b"garbage", b"[" * 2_000_000, b" " * KEPT_BYTES)]
    return [*good[: len(good) // 2], *bad, *good[len(good) // 2 :]]


def read_all(servers: str, topics: Sequence[str]) -> list[dict[str, Any]]:
    """All records of topics of one partition."""
    lines: list[dict[str, Any]] = []
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    for topic in topics:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        offset = 0
        while offset < end:
            (message,) = consumer.consume(1, timeout=30)
            offset = (message.offset() or 0) + 1
            lines.append(
                {"topic": topic, "offset": offset - 1, "ts": message.timestamp()[1], "payload": message.value()}
            )
    consumer.close()
    return lines
