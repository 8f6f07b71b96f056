"""Courses: micro-batches of the records of one key, as a query would take them in, and what is published for them.

A course was recorded from a scenario of the policies' tests, and is run by the operator in Spark's tester and by the
replay engine. This adds the courses of some tests, and writes what is published for all courses anew::

    python -m tests.streaming.courses tests/policies/throttle/test_policy.py::test_it
"""

import json
import lzma
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql.streaming.tws_tester import TwsTester

from policies.observations import Observation
from policies.registry import POLICIES, observed_topic
from policies.switching.policy import SwitchingPolicy
from policies.switching.transition import DecisionDraft
from policies.units import from_millis, to_millis
from policies.wire import ObservedRecord, decision_event, observation_event
from streaming.host import PolicyHost
from streaming.replay import Recorded, Replay
from streaming.transition import KeyTransition
from tests.golden import DATA, OF_A_KEY, Batch, Course, Published, read_courses
from tests.policies.scenario import at
from tests.policies.switching.events import Event, readings_of
from tests.policies.switching.wire import CLUSTER, SETTINGS
from tests.policies.switching.world import World
from tests.policies.virtual_run import VirtualRun
from tests.streaming.records import UnwrappedOperator, row
from tests.streaming.transitions import Transitions

PREFIX = "headgate"
TIMERS = f"{PREFIX}.timers"
_IDENTITIES = frozenset({"id", "decision_id", "sequence", "evidence", "settings_hash", "triggered_by"})


def publish(course: Course) -> Iterator[Published]:
    """Run a course through the operator in Spark's tester."""
    key, offset = (course.policy, course.cluster), 0
    tester = TwsTester(UnwrappedOperator(_host(course), PREFIX), timeMode="ProcessingTime")
    tester.handle.setGroupingKey(key)
    for number, batch in enumerate(course.batches):
        tester._currentProcessingTimeMs = batch.at_ms
        rows = [
            row(event.encode(), offset=offset + n, appended_ms=appended_ms, topic=f"{PREFIX}.{topic}")
            for n, (topic, appended_ms, event) in enumerate(batch.records)
        ]
        offset += len(rows)
        out = [*(tester.test(key, rows) if rows else []), *tester._handleExpiredTimers()]
        yield from (Published(number, each.topic, json.loads(each.value)) for each in out if each.value is not None)


def replay(course: Course) -> Iterator[Published]:
    """Run a course through the replay engine."""
    engine = Replay(_host(course))
    records = [
        Recorded(f"{number}", event.encode(), from_millis(appended_ms), topic)
        for number, batch in enumerate(course.batches)
        for topic, appended_ms, event in batch.records
    ]
    for decision in engine.run(records, from_millis(course.batches[-1].at_ms)):
        yield Published(0, "replay", json.loads(decision_event(decision)))
    for place, error in engine.rejected:
        yield Published(0, "rejected", {"place": place, "error": str(error)})


def without_identities(published: Iterable[Published]) -> list[Published]:
    """Leave out what a redesign may change: ids, sequences, evidence, hashes, and the query's own timers.

    What is published in one batch is sorted, because a redesign may publish it in another order.
    """
    kept = [each._replace(event=_strip(each.event)) for each in published if each.topic != TIMERS]
    return sorted(kept, key=lambda each: (each.batch, each.topic, json.dumps(each.event, sort_keys=True)))


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _strip(each) for name, each in value.items() if name not in _IDENTITIES}
    return [_strip(each) for each in value] if isinstance(value, list) else value


def _host(course: Course) -> PolicyHost:
    return PolicyHost({course.policy: POLICIES[course.policy].settings.model_validate(course.settings)})


# --- recording


class Recorder:
    """A pytest plugin that records what the policies of the tests are given."""

    def __init__(self) -> None:
        self.courses: list[Course] = []
        self._runs: dict[int, tuple[Any, list[Batch]]] = {}
        self._worlds: dict[int, World] = {}
        self._keys: dict[int, tuple[Transitions, list[Batch]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Record one test."""
        self._runs, self._worlds, self._keys, before, take = {}, {}, {}, World.tell, Transitions.take

        def tell(world: World, *events: Event) -> list[DecisionDraft]:
            self._worlds[id(world)] = world
            return before(world, *events)

        def take_batch(key: Transitions, seconds: float, *records: ObservedRecord) -> KeyTransition:
            self._keys.setdefault(id(key), (key, []))[1].append(_read_batch(seconds, records))
            return take(key, seconds, *records)

        with (
            patch.object(VirtualRun, "step", self._hook(VirtualRun.step)),
            patch.object(World, "tell", tell),
            patch.object(Transitions, "take", take_batch),
        ):
            yield
        runs = list(self._runs.values())
        for world in self._worlds.values():
            history = enumerate(world.history)
            batches = [_batch(_read_event(at_ms, event, n), from_millis(at_ms)) for n, (at_ms, event) in history]
            runs.append((SwitchingPolicy(CLUSTER, SETTINGS), batches))
        self.courses += (_describe(f"{item.nodeid}#{number}", *run) for number, run in enumerate(runs))
        for number, (key, batches) in enumerate(self._keys.values()):
            block = key.host.settings.get(key.key[0])
            settings = {} if block is None else block.model_dump(mode="json", exclude_unset=True)
            self.courses.append(Course(f"{item.nodeid}{OF_A_KEY}{number}", *key.key, settings, tuple(batches)))

    def _hook(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def record(run: Any, observations: Sequence[Observation], now: datetime) -> Any:
            _, batches = self._runs.setdefault(id(run.policy), (run.policy, []))
            batches.append(_batch(observations, now))
            return step(run, observations, now)

        return record


def _read_event(at_ms: int, event: Event, number: int) -> list[Observation]:
    """The readings that a collector, an executor or an operator would publish for an event of the machine."""
    readings = enumerate(readings_of(event, at_ms))
    return [Observation(f"o{number:04d}-{part}", from_millis(at_ms), reading) for part, reading in readings]


def _read_batch(seconds: float, records: Sequence[ObservedRecord]) -> Batch:
    named = (
        (r.topic.removeprefix(f"{PREFIX}."), r.appended_ms, (r.value or b"").decode(errors="replace")) for r in records
    )
    return Batch(to_millis(at(seconds)), tuple(named))


def _batch(observations: Sequence[Observation], now: datetime) -> Batch:
    return Batch(to_millis(now), tuple(_record(seen) for seen in observations))


def _record(seen: Observation) -> tuple[str, int, str]:
    source = seen.source or "headgate/collector/test"
    event = observation_event(seen.reading, id=seen.id, source=source, time=seen.at)
    return observed_topic(type(seen.reading)), seen.at_ms, event.decode()


def _describe(name: str, policy: Any, batches: list[Batch]) -> Course:
    settings = policy._settings.model_dump(mode="json", exclude_unset=True)
    return Course(name, policy.name, policy._cluster, settings, tuple(batches))


def write(courses: Iterable[Course]) -> None:
    """Write courses, and what is published for them."""
    by_policy: dict[str, list[Course]] = defaultdict(list)
    for course in courses:
        by_policy[course.policy].append(course)
    for policy, found in by_policy.items():
        folder = DATA / "courses"
        _write_lines(folder / f"{policy}.jsonl.xz", ([it.name, *it[2:]] for it in found))
        _write_lines(folder / f"{policy}.published.jsonl.xz", ([it.name, [*publish(it), *replay(it)]] for it in found))


def _write_lines(path: Path, rows: Iterable[object]) -> None:
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))


def main(tests: Sequence[str]) -> None:
    """Add the courses of some tests, and write what is published for all courses anew."""
    recorder = Recorder()
    if tests:
        pytest.main(["-q", "-n0", *tests], plugins=[recorder])
    kept = (course for policy in POLICIES for course in read_courses(policy))
    write({(course.policy, course.name): course for course in (*kept, *recorder.courses)}.values())


if __name__ == "__main__":
    main(sys.argv[1:])
