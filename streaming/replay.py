"""Replay: runs the same code over recorded events, without Spark and without a clock.

`now` is the time of each event, and of each wake-up in between. So it takes seconds to see what a setting would have
done last night, and the same file always gives the same decisions, byte for byte. The order in which collectors read at
one time changes no byte.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from policies.decisions import Decision
from policies.observations import Observation, Reading
from policies.pauses import PauseCommand, commanded, open_at
from policies.recovery import OpenAlerts
from policies.registry import POLICIES, is_collected
from policies.units import format_instant, from_millis, to_millis
from policies.wire import BadRecordError, DeadLetterReason
from streaming.host import PolicyHost
from streaming.key_state import NEVER_STEPPED, KeyState
from streaming.transition import read_record, step_apart

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_YEARS = range(1970, 9000)
"""Any setting's duration can be added to a time in these years."""


class Recorded(NamedTuple):
    """One recorded event. `at` is its append time; None for an event of a file, whose own time is used."""

    place: str
    value: bytes
    at: datetime | None = None
    topic: str | None = None
    """Without its prefix; None for an event of a file."""


class Taken(NamedTuple):
    """A recorded event that was read."""

    place: str
    observation: Observation


class Rejected(NamedTuple):
    """A record that the query would have made a dead letter of."""

    place: str
    error: BadRecordError


@dataclass
class Replay:
    """Steps every policy that a recorded event concerns; has the refused records, and how many could be read."""

    host: PolicyHost
    rejected: list[Rejected] = field(default_factory=list)
    taken: int = 0
    _now: datetime = _BEGINNING
    _states: dict[tuple[str, str], KeyState] = field(default_factory=dict)

    def run(self, records: Iterable[Recorded], until: datetime | None = None) -> Iterator[Decision]:
        """Yield the decisions in order; with `until`, the clock runs on to that time after the last event."""
        for at, instant in groupby(self._read_all(records), key=lambda each: each.observation.at):
            yield from self._wake_before(at)
            self._now = max(self._now, at)
            for key, steps in sorted(_cut_steps(instant).items()):
                for taken in steps:
                    yield from self._step(key, taken)
        if until is not None:
            yield from self._wake_before(until, including=True)

    def _read_all(self, records: Iterable[Recorded]) -> Iterator[Taken]:
        for record in records:
            try:
                observation = self._read(record)
            except BadRecordError as error:
                self.rejected.append(Rejected(record.place, error))
            else:
                self.taken += 1
                yield Taken(record.place, observation)

    def _read(self, record: Recorded) -> Observation:
        event = read_record(self.host, record.value, record.topic)
        at = record.at or event.time
        if at is None:
            raise BadRecordError(DeadLetterReason.INVALID, "time: a recorded event needs one")
        if at.year not in _YEARS:
            raise BadRecordError(DeadLetterReason.INVALID, f"time: the year {at.year} cannot be replayed")
        return Observation(event.id, at, event.data, event.source)

    def _wake_before(self, end: datetime, *, including: bool = False) -> Iterator[Decision]:
        """Step the keys that are due before `end` (with `including`: at `end`, too), earliest first."""
        last_ms = to_millis(end) if including else to_millis(end) - 1
        while due := min(((s.wake_ms, key) for key, s in self._states.items() if s.wake_ms is not None), default=None):
            wake_ms, key = due
            if wake_ms > last_ms:
                return
            self._now = max(self._now, from_millis(wake_ms))
            yield from self._step(key)

    def _step(self, key: tuple[str, str], taken: Sequence[Taken] = ()) -> Iterator[Decision]:
        """Step a key; a pause command takes effect, but steps no key that was never stepped."""
        observations, before = [each.observation for each in taken], self._states.get(key, NEVER_STEPPED)
        pause = before.pause
        if observations and isinstance(command := observations[0].reading, PauseCommand):
            pause = commanded(pause, [(observations.pop().at, command)])
            if not before.has_stepped:
                self._states[key] = msgspec.structs.replace(before, pause=pause)
                return
        result, refused = step_apart(self.host, key, before, observations, self._now, pause)
        quiet, state = open_at(pause, self._now), result.key_state
        wakes = [ms for ms in (state.wake_ms, None if quiet is None else quiet.until_ms) if ms is not None]
        self._states[key] = msgspec.structs.replace(state, wake_ms=min(wakes, default=None), pause=pause)
        self.rejected += (Rejected(taken[index].place, error) for index, error in refused.items())
        yield from result.step.decisions


def _cut_steps(instant: Iterable[Taken]) -> dict[tuple[str, str], list[list[Taken]]]:
    """Cut the events of one time into the steps of each key.

    Readings of collectors are one step, as in a batch of the query: which collector was first is chance. Commands and
    reports follow each other on purpose, so each is a step of its own. So is a second reading with the same identity.
    It counts a millisecond later, as in the query (`streaming.key_state`), or the order of ids would decide.
    """
    steps: defaultdict[tuple[str, str], list[dict[Any, Taken]]] = defaultdict(list)
    repeats: Counter[Any] = Counter()
    for place, observation in instant:
        reading, source = observation.reading, observation.source
        identity = (type(reading), reading.cluster, reading.identity(), source) if is_collected(type(reading)) else None
        if identity is not None:
            observation = replace(observation, at=observation.at + timedelta(milliseconds=repeats[identity]))
            repeats[identity] += 1
        for key in _keys(reading):
            if not steps[key] or identity is None or steps[key][-1].keys() & {identity, None}:
                steps[key].append({})
            steps[key][-1][identity] = Taken(place, observation)
    return {key: [list(step.values()) for step in of_key] for key, of_key in steps.items()}


def _keys(reading: Reading) -> list[tuple[str, str]]:
    if isinstance(reading, PauseCommand):
        return [(reading.policy, reading.cluster)]
    if isinstance(reading, OpenAlerts):
        return []  # alerts of a live run, of which a replay knows nothing
    return [(kind.name, reading.cluster) for kind in POLICIES.values() if isinstance(reading, kind.takes)]


def differences(ours: Iterable[Decision], theirs: Iterable[Decision]) -> Iterator[dict[str, Any]]:
    """Compare two replays: one line for each moment at which the decisions in force begin to differ in another way.

    Repetitions and ids do not count; only the fields that a kind of decision names as `in_force` are compared.
    """
    runs = (("settings", ours), ("against", theirs))
    moments = sorted(
        ((d.decided_at, (d.event_type, d.cluster, d.record_key()), side, d) for side, run in runs for d in run),
        key=itemgetter(0, 1),
    )
    now: defaultdict[tuple[str, ...], dict[str, Decision]] = defaultdict(dict)
    reported: dict[tuple[str, ...], Sequence[tuple[Any, ...] | None]] = {}
    for (at, subject), decided in groupby(moments, key=itemgetter(0, 1)):
        now[subject] |= {side: decision for *_, side, decision in decided}
        sides = {side: now[subject].get(side) for side, _ in runs}
        contents = [None if decision is None else decision.says() for decision in sides.values()]
        if contents != reported.get(subject, [None, None]) and (contents[0] != contents[1] or subject in reported):
            reported[subject] = contents
            place = dict(zip(("type", "cluster", "subject"), subject, strict=True))
            shown = {side: None if decision is None else _summarize(decision) for side, decision in sides.items()}
            yield {"time": format_instant(at), **place, "same": contents[0] == contents[1], **shown}


def _summarize(decision: Decision) -> dict[str, Any]:
    return decision.model_dump(mode="json", include={*decision.in_force, "explanation"})
