"""Replay: runs the same step code over recorded events, without Spark and without a clock.

`now` is each event's time, and each wake-up in between. So "what would this setting have done last night" takes
seconds, and the same file always gives the same decisions, byte for byte.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from policies.decisions import Decision
from policies.maintenance import PauseCommand, PolicyPause, commanded
from policies.observations import Observation
from policies.registry import COMMANDS, POLICIES, TO_EVERY_POLICY, observed_topics
from policies.signatures import Signatures
from policies.units import format_instant, from_millis, to_millis
from policies.wire import BadRecordError, DeadLetterReason
from streaming.batch_clock import next_timer_ms
from streaming.dead_letters import ObservedRecord
from streaming.host import PolicyHost, Remembered, read_record, require_pausable, unknown_cluster
from streaming.transition import KeyTransition, reconcile

_TO_EVERY_POLICY = {kind.event_type for kind in TO_EVERY_POLICY}
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_YEARS = range(1970, 9000)
"""Every setting's durations can be added to a time in these years."""


class Recorded(NamedTuple):
    """One recorded event. `at` is when it was appended; None in a file, where the event's own time is used."""

    place: str
    value: bytes
    at: datetime | None = None
    topic: str | None = None
    """Where it lay, without its prefix; None for one of a file."""


class Rejected(NamedTuple):
    """A record that would have become a dead letter."""

    place: str
    error: BadRecordError


@dataclass
class Replay:
    """Steps every policy a recorded event concerns.

    Args:
        host: the policies and their settings.
        rejected: collects the records that could not be read.
        taken: counts the others.
    """

    host: PolicyHost
    rejected: list[Rejected] = field(default_factory=list)
    taken: int = 0
    _now: datetime = _BEGINNING
    _kept: dict[tuple[str, str], Remembered] = field(default_factory=dict)
    _pauses: dict[tuple[str, str], PolicyPause | None] = field(default_factory=dict)

    def run(self, records: Iterable[Recorded], until: datetime | None = None) -> Iterator[Decision]:
        """Give the decisions in the order they are taken; with `until`, let the clock run on to then."""
        for record in records:
            try:
                observation = self._observation(record)
            except BadRecordError as error:
                self.rejected.append(Rejected(record.place, error))
                continue
            self.taken += 1
            yield from self._wake_before(observation.at)
            self._now = max(self._now, observation.at)
            if isinstance(observation.reading, PauseCommand):
                yield from self._pause(observation.at, observation.reading)
            for kind in POLICIES.values():
                if isinstance(observation.reading, kind.readings):
                    yield from self._step((kind.name, observation.reading.cluster), [observation], record.place)
        if until is not None:
            yield from self._wake_before(until, and_then=True)

    def _observation(self, record: Recorded) -> Observation:
        event = read_record(record.value, record.topic)
        if not self.host.knows(event.data.cluster):
            raise unknown_cluster(event.data.cluster)
        if isinstance(event.data, PauseCommand):
            require_pausable(event.data.policy)
        at = record.at or event.time
        if at is None:
            raise BadRecordError(DeadLetterReason.INVALID, "time: a recorded event needs one")
        if at.year not in _YEARS:
            raise BadRecordError(DeadLetterReason.INVALID, f"time: the year {at.year} cannot be replayed")
        return Observation(event.id, at, event.data)

    def _wake_before(self, end: datetime, *, and_then: bool = False) -> Iterator[Decision]:
        """Step what is due before `end` (with `and_then`: at it, too), earliest first."""
        last_ms = to_millis(end) if and_then else to_millis(end) - 1
        while due := min(((k.wake_ms, key) for key, k in self._kept.items() if k.wake_ms is not None), default=None):
            wake_ms, key = due
            if wake_ms > last_ms:
                return
            self._now = max(self._now, from_millis(wake_ms))
            yield from self._step(key, [])

    def _pause(self, at: datetime, command: PauseCommand) -> Iterator[Decision]:
        """A key that was never stepped has nothing to say now."""
        key = (command.policy, command.cluster)
        self._pauses[key] = commanded(self._pauses.get(key), [(at, command)])
        yield from self._step(key, []) if key in self._kept else ()

    def _step(
        self, key: tuple[str, str], observations: list[Observation], place: str | None = None
    ) -> Iterator[Decision]:
        pause = self._pauses.get(key)
        stepped = self.host.step(*key, self._kept.get(key), observations, self._now, pause)
        edge_ms, kept, failure = self.host.next_edge_ms(*key, pause, self._now), stepped.remembered, stepped.failure
        wakes = [ms for ms in (kept.wake_ms, edge_ms) if ms is not None]
        self._kept[key] = msgspec.structs.replace(kept, wake_ms=min(wakes, default=None))
        if failure is not None and place is not None:
            failed = BadRecordError(DeadLetterReason.POLICY_FAILED, f"{key[0]}: {failure}")
            self.rejected.append(Rejected(place, failed))
        yield from stepped.step.decisions


class RecordedBatch(NamedTuple):
    """A micro-batch of a live run: its time, and the records it took."""

    now_ms: int
    records: Sequence[ObservedRecord]
    begins_run: bool = False
    """Whether the query began without a checkpoint here."""
    clock_ahead_ms: int = 0
    """How far the clock that fires its timers was ahead of its time."""


class BatchReplay:
    """Repeats the transitions that the query made in its batches; their outputs are, byte for byte, what it wrote.

    Args:
        host: the policies and their settings.
        prefix: of all topics.
        signatures: by which records are believed; None: nobody signs.
    """

    def __init__(self, host: PolicyHost, prefix: str, signatures: Signatures | None = None) -> None:
        self._host = host
        self._prefix = prefix
        self._signatures = signatures
        self._kept: dict[tuple[str, str], Remembered | None] = {}
        self._timers: dict[tuple[str, str], int | None] = {}
        """By the driver's clock, whatever that is corrected by later."""
        self._ahead_ms = 0

    def take(self, batch: RecordedBatch) -> Iterator[KeyTransition]:
        """By policy and cluster, as the query does: first the records of each key, then the timers that are due.

        Where the clock was set back, the first batch after that has a tick for each key, which sets its timer anew.
        """
        now_ms, records, begins_run, ahead_ms = batch
        began_ms = now_ms + ahead_ms
        if begins_run:
            self._kept.clear()
            self._timers.clear()
        is_set_back, self._ahead_ms = ahead_ms < self._ahead_ms, ahead_ms
        of_key: defaultdict[tuple[str, str], list[ObservedRecord]] = defaultdict(list)
        for record in records:
            of_key[_key_of(self._host, self._prefix, record)].append(record)
        if is_set_back:
            known = set(self._host.known_keys())
            of_key.update({key: of_key[key] for key in self._kept if key in known})
        due = [key for key, timer_ms in self._timers.items() if timer_ms is not None and timer_ms <= began_ms]
        for key in [*of_key, *(key for key in due if key not in of_key)]:
            before = self._kept.get(key)
            transition = reconcile(self._host, self._prefix, key, before, of_key.get(key, ()), now_ms, self._signatures)
            self._kept[key] = transition.remembered
            is_kept, timer_ms = transition.remembered is not None, self._timers.get(key)
            self._timers[key] = next_timer_ms(transition.wake_ms, timer_ms, began_ms, ahead_ms) if is_kept else None
            yield transition


def replay_batches(
    host: PolicyHost, prefix: str, batches: Iterable[RecordedBatch], signatures: Signatures | None = None
) -> Iterator[KeyTransition]:
    """The transitions of all batches of a run, in order."""
    replay = BatchReplay(host, prefix, signatures)
    for batch in batches:
        yield from replay.take(batch)


def _key_of(host: PolicyHost, prefix: str, record: ObservedRecord) -> tuple[str, str]:
    """As `streaming.query` routes it."""
    topic = record.topic.removeprefix(f"{prefix}.")
    try:
        event = json.loads(record.value or b"") if record.cut is None else {}
        named, kind, policy = event["data"]["cluster"], event.get("type"), event["data"].get("policy")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        named, kind, policy = "", None, None
    is_for_any = topic == COMMANDS and kind in _TO_EVERY_POLICY and policy in POLICIES
    return (
        str(policy) if is_for_any else observed_topics()[topic],
        named if isinstance(named, str) and host.knows(named) else "",
    )


def differences(ours: Iterable[Decision], theirs: Iterable[Decision]) -> Iterator[dict[str, Any]]:
    """Where two replays differ: one line for each moment at which what is in force begins to differ in another way.

    Heartbeats and ids do not count; what counts is what each kind of decision names as `in_force`.
    """
    moments = sorted(
        [(d.decided_at, _subject(d), "settings", d) for d in ours]
        + [(d.decided_at, _subject(d), "against", d) for d in theirs],
        key=lambda moment: moment[:2],
    )
    now: dict[tuple[str, ...], dict[str, Decision]] = {}
    told: dict[tuple[str, ...], tuple[Any, Any]] = {}
    for index, (at, subject, side, decision) in enumerate(moments):
        now.setdefault(subject, {})[side] = decision
        if index + 1 < len(moments) and moments[index + 1][:2] == (at, subject):
            continue
        sides = now[subject]
        forces = (_says(sides.get("settings")), _says(sides.get("against")))
        if forces != told.get(subject, (None, None)) and (forces[0] != forces[1] or subject in told):
            told[subject] = forces
            yield {
                "time": format_instant(at),
                "type": decision.event_type,
                "cluster": decision.cluster,
                "subject": decision.record_key(),
                "same": forces[0] == forces[1],
                "settings": _told(sides.get("settings")),
                "against": _told(sides.get("against")),
            }


def _subject(decision: Decision) -> tuple[str, ...]:
    return (decision.event_type, decision.cluster, decision.record_key())


def _says(decision: Decision | None) -> tuple[Any, ...] | None:
    return None if decision is None else decision.says()


def _told(decision: Decision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    return decision.model_dump(mode="json", include={*decision.in_force, "explanation"})
