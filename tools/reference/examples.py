"""One real example of each event type, produced by running each policy's example scenario."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from policies.decisions import Severity
from policies.examples import START, Examples
from policies.observations import Observation
from policies.pauses import PauseCommand
from policies.policy import (
    TICKS,
    TIMERS,
    PolicyKind,
    Tick,
    TickReason,
    tick_event,
    timer_record,
)
from policies.recovery import OpenAlert, OpenAlerts
from policies.registry import AUDIT, COMMANDS, POLICIES, observed_topic
from policies.units import UserError, to_millis
from policies.wire import BadRecordError, ObservedRecord, actuator_event, observation_event
from streaming.dead_letters import LETTERS_A_WINDOW, WINDOW_MS, DeadLetterCounts, DeadLetterLimiter
from streaming.host import PolicyHost
from streaming.intake import reading_reader
from streaming.key_state import LastHeartbeat, emit_heartbeat


class Example(NamedTuple):
    """A record as in Kafka."""

    topic: str
    """The topic's name without its prefix."""
    key: str
    event: dict[str, Any]


def examples() -> dict[str, Example]:
    """Return the first example of each event type in the policies' scenarios.

    Raises:
        UserError: a policy's scenario has no example of one of its events.
    """
    found: dict[str, Example] = {}
    for kind in POLICIES.values():
        scenario = kind.examples()
        for example in (*_observed(scenario), *_decided(kind, scenario), *_reported(kind, scenario)):
            found.setdefault(example.event["type"], example)
        _check(kind, found)
    for example in (*_dead_letters(), *_loop_events()):
        found.setdefault(example.event["type"], example)
    return found


def _check(kind: PolicyKind, found: dict[str, Example]) -> None:
    missing = [event.event_type for event in kind.events if event.event_type not in found]
    if missing:
        raise UserError(
            f"policy {kind.name}: its examples() give no {', '.join(missing)}; the references show one of each event"
        )


def _observed(scenario: Examples) -> Iterator[Example]:
    for source, id_, time, reading in (*(each for batch in scenario.batches for each in batch), *scenario.later):
        event = observation_event(reading, id=id_, source=source, time=time)
        yield Example(observed_topic(type(reading)), reading.cluster, json.loads(event))


def _decided(kind: PolicyKind, scenario: Examples) -> Iterator[Example]:
    decided = list(_step(kind, scenario))
    if scenario.is_latest_shown:
        decided.reverse()
    yield from sorted(decided, key=lambda example: scenario.rank(example.event["data"]))


def _step(kind: PolicyKind, scenario: Examples) -> Iterator[Example]:
    host, kept = PolicyHost({kind.name: scenario.settings}), None
    for batch in scenario.batches:
        observations = [Observation(each.id, each.time, each.reading) for each in batch]
        cluster, now = observations[0].reading.cluster, max(o.at for o in observations)
        kept, _, failure, records = host.step(kind.name, cluster, kept, observations, now)
        if failure is not None:
            raise UserError(f"policy {kind.name}: it fails on its own examples: {failure}")
        for topic, key, value in records:
            yield Example(topic, key, json.loads(value))


def _reported(kind: PolicyKind, scenario: Examples) -> Iterator[Example]:
    topics = {report.event: report.topic for report in kind.reports}
    for id_, time, event in scenario.reports:
        topic = topics[type(event)]
        key = event.cluster if topic == AUDIT else event.subject()
        yield Example(topic, key, json.loads(actuator_event(event, id=id_, at=time)))


def _dead_letters() -> Iterator[Example]:
    record = ObservedRecord("headgate.observed.log-dirs", 0, 42, to_millis(START), b'{"specversion":"1.0","id":"x"')
    try:
        reading_reader().read(record.value or b"")
    except BadRecordError as error:
        limiter = DeadLetterLimiter("throttle", "payments", DeadLetterCounts(), to_millis(START))
        written = [letter for _ in range(LETTERS_A_WINDOW + 2) for letter in limiter.put(record, error)][:1]
        later = DeadLetterLimiter("throttle", "payments", limiter.counts(), to_millis(START) + WINDOW_MS)
        for topic, key, value in (*written, *later.counted()):
            yield Example(topic, key, json.loads(value))


def _loop_events() -> Iterator[Example]:
    """Yield a timer, a tick, a heartbeat and a command."""
    due_at = START + timedelta(minutes=1)
    key, timer = timer_record("throttle", "payments", due_at, now=START)
    yield Example(TIMERS, key, json.loads(timer))
    tick = tick_event(Tick(reason=TickReason.TIMER), id="5b0f3c52-6f0e-4a39-9d0b-2b1c7f0e6a11", at=due_at)
    yield Example(TICKS, TickReason.TIMER.value, json.loads(tick))
    issuer = PolicyHost().issuer("throttle", "payments")
    _, (topic, key, value) = emit_heartbeat(issuer, LastHeartbeat(), to_millis(START))
    yield Example(topic, key, json.loads(value))
    pause = PauseCommand(
        cluster="payments",
        policy="throttle",
        until=START + timedelta(hours=2),
        actor="alice@bastion-1",
        reason="disks are swapped",
    )
    event = observation_event(pause, id="6c9d4a40-0a5d-4a7e-8a43-5b5f0e0a7c21", source="headgate/cli", time=START)
    yield Example(COMMANDS, pause.cluster, json.loads(event))
    alert = OpenAlert(
        alert="volume-below-hard-limit",
        subject="payments/3//data/a",
        severity=Severity.CRITICAL,
        reason="below_hard",
        summary="volume /data/a of broker 3 has 0.4 GB free",
        started_at=START,
        decided_at=due_at,
    )
    opened = OpenAlerts(cluster="payments", policy="throttle", alerts=(alert,))
    event = observation_event(opened, id="0e0bd1a5-6d3f-4f2a-9c65-2f6f7c1f3b0d", source="headgate/query", time=due_at)
    yield Example(COMMANDS, opened.cluster, json.loads(event))
