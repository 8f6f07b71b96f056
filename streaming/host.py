"""Hosts any registered policy: from records and stored bytes to output records and bytes to store.

Pure, and the same for the live query and for replay; they differ only in where records come from and where bytes are
kept.
"""

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from policies.alerts import AlertBook, Condition, Sender, review
from policies.decisions import Alert, Issuer, Severity
from policies.maintenance import MaintenanceWindow, PolicyPause, Quiet, next_edge_ms, quiet_at
from policies.observations import Observation, Reading
from policies.policy import PolicyKind, Step
from policies.registry import AUDIT, POLICIES, reading_types, topic_of
from policies.settings import PolicySettings
from policies.units import from_millis, to_millis
from policies.wire import (
    MAX_AUDIT_BYTES,
    MAX_DECISION_BYTES,
    BadRecordError,
    DeadLetterReason,
    Event,
    EventReader,
    audit_event,
    decision_event,
)
from streaming.leap import turned_back
from streaming.letter_box import LetterBook
from streaming.order import LEAP_MS, Place
from streaming.output import Output
from streaming.packing import packed, unpacked
from streaming.standing import LastStanding
from streaming.warm import OF_THIS_PROCESS, Warm, WarmKey

POLICY_FAILED = "policy-failed"
"""The alert of a policy that raised."""

_FORMAT = 1
_FIRST_BACK_OFF = timedelta(seconds=1)
_LONGEST_BACK_OFF = timedelta(minutes=5)
_MOST_DOUBLINGS = 10
_LONGEST_FAILURE = 300
_LONGEST_KEY = 80
_NOTHING = b"\xc0"
"""What msgpack makes of None."""


class Remembered(msgspec.Struct, array_like=True, frozen=True):
    """The one value kept per (policy, cluster)."""

    format: int
    state_version: int
    now_ms: int
    """The time of the last step: a clock that jumps back must not take the policy along."""
    wake_ms: int | None
    """When to step again without observations."""
    state: msgspec.Raw
    """The policy's own state, msgpack; None while it has never had one."""
    failures: int = 0
    """Steps in a row that failed."""
    alerts: AlertBook = AlertBook()
    """What is said of the policy itself."""
    letters: LetterBook = LetterBook()
    """Dead letters of its records."""
    places: tuple[Place, ...] = ()
    """How far each partition was read for it."""
    last_standing: LastStanding = LastStanding()
    """When it was last said that the policy watches the cluster."""
    pause: PolicyPause | None = None
    """A person's word that it only watches."""

    @property
    def has_stepped(self) -> bool:
        """Whether the policy was ever asked: of a cluster of which only bad records came it was not."""
        return self.now_ms > 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep."""
        return not self.has_stepped and not self.letters.kinds and self.pause is None


NEVER = Remembered(_FORMAT, 0, 0, None, msgspec.Raw(_NOTHING))
"""Of a key that has no state."""


class Stepped(NamedTuple):
    """What came of a step."""

    remembered: Remembered
    step: Step[Any]
    failure: str | None
    """What the policy raised, and where, or that it decided what no topic takes; None: nothing. Then its state is as it
    was, and what it was given is lost to it."""
    outputs: tuple[Output, ...]
    """The records to write."""


class TooLargeError(Exception):
    """A policy decided something that is larger than its topic takes."""


class UnreadableStateError(Exception):
    """The checkpoint was written by a newer version; going on would forget what it knows."""


@dataclass(frozen=True)
class PolicyHost:
    """Steps policies by (policy, cluster).

    Args:
        settings: each policy's block; a policy without one runs with its defaults.
        clusters: those there are; None: every one that a reading names.
    """

    settings: Mapping[str, PolicySettings] = field(default_factory=dict)
    clusters: frozenset[str] | None = None
    _keys: dict[tuple[str, str, bool], WarmKey] = field(default_factory=dict, init=False, repr=False, compare=False)
    _resolved: dict[tuple[str, str], PolicySettings] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def step(
        self,
        policy: str,
        cluster: str,
        remembered: Remembered | None,
        observations: Sequence[Observation],
        now: datetime,
        pause: PolicyPause | None = None,
    ) -> Stepped:
        """Step one policy for one cluster; `now` is held at the last step's time if it lies a little before it.

        Where it lies far before it, a clock had leapt: then what is remembered is turned back with it.

        A policy that raises fails for this key alone: its state stays as it was, an alert says so, and it is stepped
        again when the next observations come, without any after a back-off. While it is paused, or in a window of the
        settings, it only watches.
        """
        kind = POLICIES[policy]
        is_quiet = self.quiet(policy, cluster, pause, now) is not None
        key = self._key(kind, cluster, is_quiet)
        warm = OF_THIS_PROCESS.take(key)
        state = None if remembered is None else _state_of(kind, remembered, warm)
        if remembered is not None and remembered.now_ms > to_millis(now) + LEAP_MS:
            leapt_ms = remembered.now_ms - to_millis(now)
            # What a policy built on its state holds those times, too.
            state, warm = turned_back(state, to_millis(now), leapt_ms), None
            book = turned_back(remembered.alerts, to_millis(now), leapt_ms)
            remembered = msgspec.structs.replace(remembered, now_ms=to_millis(now), alerts=book)
        elif remembered is not None:
            now = max(now, from_millis(remembered.now_ms))
        try:
            own = warm.policy if warm else kind.build(cluster, self._in_force(kind, cluster, is_quiet))
            step = own.step(state, observations, now)
            encoded = msgspec.msgpack.encode(step.state)
            records = tuple(outputs(step, observations))
            _check_sizes(records)
        except Exception as error:
            return self._failed(kind, cluster, remembered, now, _told(error))
        OF_THIS_PROCESS.keep(key, Warm(own, step.state, encoded))
        book, alerts, review_at = self._review(kind, cluster, remembered, now, None)
        wake_ms = min((to_millis(at) for at in (step.wake_at, review_at) if at is not None), default=None)
        after = Remembered(_FORMAT, kind.state_version, to_millis(now), wake_ms, msgspec.Raw(encoded), 0, book)
        if alerts:
            records += tuple(outputs(Step(None, alerts, None)))
            step = replace(step, decisions=(*step.decisions, *alerts))
        return Stepped(after, step, None, records)

    def known_keys(self) -> Iterator[tuple[str, str]]:
        """Each (policy, cluster) there may be, as far as clusters are known; '' is none of them."""
        return ((policy, cluster) for policy in POLICIES for cluster in ("", *sorted(self.clusters or ())))

    def knows(self, cluster: str) -> bool:
        """Whether there is such a cluster."""
        return self.clusters is None or cluster in self.clusters

    def _failed(
        self, kind: PolicyKind, cluster: str, before: Remembered | None, now: datetime, failure: str
    ) -> Stepped:
        state = before.state if before is not None else msgspec.Raw(_NOTHING)
        version = before.state_version if before is not None else kind.state_version
        failures = 1 + (before.failures if before is not None else 0)
        book, alerts, _ = self._review(kind, cluster, before, now, failure)
        back_off = min(_LONGEST_BACK_OFF, _FIRST_BACK_OFF * 2 ** min(failures - 1, _MOST_DOUBLINGS))
        after = Remembered(_FORMAT, version, to_millis(now), to_millis(now + back_off), state, failures, book)
        step: Step[Any] = Step(None, alerts, now + back_off)
        return Stepped(after, step, failure, tuple(outputs(step)))

    def _review(
        self, kind: PolicyKind, cluster: str, before: Remembered | None, now: datetime, failure: str | None
    ) -> tuple[AlertBook, tuple[Alert, ...], datetime | None]:
        """What is said of the policy itself."""
        book = before.alerts if before is not None else AlertBook()
        if failure is None and not book.entries:
            return book, (), None
        summary = f"policy {kind.name} fails for {cluster}, what it decided last stays in force: {failure}"
        labels = {"cluster": cluster, "policy": kind.name}
        failing = Condition(POLICY_FAILED, cluster, Severity.CRITICAL, "exception", summary, labels)
        sender = self._sender(kind, cluster)
        return review(book, [] if failure is None else [failing], now, replace(sender, grace=timedelta(0)))

    def issuer(self, policy: str, cluster: str) -> Issuer:
        """What all that a policy says of a cluster has in common."""
        return self._sender(POLICIES[policy], cluster).issuer

    def quiet(self, policy: str, cluster: str, pause: PolicyPause | None, now: datetime) -> Quiet | None:
        """That the policy only watches the cluster at this time; None: it does what it is there for."""
        return quiet_at(pause, self._windows(policy, cluster), now)

    def next_edge_ms(self, policy: str, cluster: str, pause: PolicyPause | None, now: datetime) -> int | None:
        """When that may change next by itself; None: never."""
        return next_edge_ms(pause, self._windows(policy, cluster), now)

    def _windows(self, policy: str, cluster: str) -> tuple[MaintenanceWindow, ...]:
        return self._settings_of(POLICIES[policy], cluster).maintenance

    def _sender(self, kind: PolicyKind, cluster: str) -> Sender:
        return Sender.of(kind.name, cluster, self._settings_of(kind, cluster))

    def _in_force(self, kind: PolicyKind, cluster: str, is_quiet: bool) -> PolicySettings:
        settings = self._settings_of(kind, cluster)
        return settings.while_quiet() if is_quiet else settings

    def _settings_of(self, kind: PolicyKind, cluster: str) -> PolicySettings:
        """Those of the cluster; found once, as there may be a thousand overrides to look through."""
        about = (kind.name, cluster)
        if about not in self._resolved:
            self._resolved[about] = (self.settings.get(kind.name) or kind.settings()).for_cluster(cluster)
        return self._resolved[about]

    def _key(self, kind: PolicyKind, cluster: str, is_quiet: bool) -> WarmKey:
        about = (kind.name, cluster, is_quiet)
        if about not in self._keys:
            settings_hash = self._in_force(kind, cluster, is_quiet).fingerprint()
            self._keys[about] = WarmKey(kind.build, cluster, f"{settings_hash}{'-quiet' if is_quiet else ''}")
        return self._keys[about]


def outputs(step: Step[Any], seen: Sequence[Observation] = ()) -> Iterator[Output]:
    """The records a step gives: decisions to their topics, and with the notes and what it saw to the audit."""
    for decision in step.decisions:
        yield Output(decision.topic, decision.record_key(), decision_event(decision))
    all_said = (*step.decisions, *step.notes)
    # A step may see thousands and decide thousands, of which all rest on the same few.
    evidence = {each for said in all_said for each in said.evidence}
    rested_on = [each for each in seen if each.id in evidence]
    for said in all_said:
        yield Output(AUDIT, said.cluster, audit_event(said, rested_on))


def _check_sizes(records: Iterable[Output]) -> None:
    """A record that no topic takes would end the query at each start."""
    for topic, key, value in records:
        most = MAX_AUDIT_BYTES if topic == AUDIT else MAX_DECISION_BYTES
        if len(value) > most:
            raise TooLargeError(
                f"a record of {topic} about {key[:_LONGEST_KEY]} has {len(value)} bytes, more than {most}"
            )


@cache
def reading_reader() -> EventReader[Reading]:
    """Decodes observed records of every registered kind; built once a process."""
    return EventReader(reading_types())


def read_record(value: bytes, topic: str | None) -> Event[Reading]:
    """Decode an observed record.

    Args:
        value: the record's.
        topic: where it lies, without its prefix; None for one that lies in a file.

    Raises:
        BadRecordError: it is no event, of no known type, its data does not fit its type, or its type not its topic.
    """
    event = reading_reader().read(value)
    if topic is not None and (own := topic_of(type(event.data))) != topic:
        raise BadRecordError(DeadLetterReason.WRONG_TOPIC, f"type: {event.type} belongs to {own}, not to {topic}")
    return event


def unknown_cluster(name: str) -> BadRecordError:
    """What is said of a reading of a cluster that the settings do not name."""
    detail = f"data.cluster: '{name}' is not among the clusters of the settings"
    return BadRecordError(DeadLetterReason.UNKNOWN_CLUSTER, detail, name)


def require_pausable(policy: str) -> None:
    """Refuse a command to a policy that there is not, or that is paused otherwise.

    Raises:
        BadRecordError: it is such.
    """
    kind = POLICIES.get(policy)
    if kind is None:
        detail = f"'{policy}' is no policy: {', '.join(sorted(POLICIES))} are"
    elif kind.paused_by is not None:
        detail = f"policy {policy} is paused by `{kind.paused_by}`"
    else:
        return
    raise BadRecordError(DeadLetterReason.INVALID, f"data.policy: {detail}")


def remember(remembered: Remembered) -> bytes:
    """Encode what is kept."""
    return packed(msgspec.msgpack.encode(remembered))


def recall(value: bytes) -> Remembered:
    """Decode what was kept.

    Raises:
        UnreadableStateError: a newer version wrote it.
    """
    remembered = msgspec.msgpack.decode(unpacked(value), type=Remembered)
    if remembered.format != _FORMAT:
        raise UnreadableStateError(f"state format {remembered.format} is newer than {_FORMAT}: use the newer headgate")
    return remembered


def _told(error: Exception) -> str:
    """What was raised and where, without what was in the variables there."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"[:_LONGEST_FAILURE]


def _state_of(kind: PolicyKind, remembered: Remembered, warm: Warm | None) -> Any:
    """The policy's state, upgraded step by step from the version that wrote it."""
    if warm and remembered.state_version == kind.state_version and bytes(remembered.state) == warm.encoded:
        return warm.state
    if bytes(remembered.state) == _NOTHING:
        return None
    if remembered.state_version == kind.state_version:
        return msgspec.msgpack.decode(remembered.state, type=kind.state)
    if remembered.state_version > kind.state_version:
        raise UnreadableStateError(
            f"{kind.name}: state version {remembered.state_version} is newer than {kind.state_version}: "
            "use the newer headgate"
        )
    plain = msgspec.msgpack.decode(remembered.state)
    for version in range(remembered.state_version, kind.state_version):
        plain = kind.upgrades[version](plain)
    return msgspec.convert(plain, kind.state)
