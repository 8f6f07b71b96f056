"""The throttle policy: one factor for a cluster whose disks fill up.

Because of replication a full disk on one broker is filled by producers on another, so the whole cluster slows down.
Rules: docs/design/throttle.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from policies.alerts import AlertBook, Sender, review
from policies.decisions import EVIDENCE_LIMIT, Decision, deterministic_id
from policies.observations import Observation
from policies.policy import Step
from policies.succession import ends_at, next_sequence
from policies.throttle import alerts, fleet
from policies.throttle.decision import Counts, Reason, ThrottleFactor, explain, limiting_of
from policies.throttle.fleet import Fleet, KnownVolume, Standing
from policies.throttle.gate import Gate, Hold, Move, Verdict, move
from policies.throttle.limits import Hit, as_settings
from policies.throttle.settings import ThrottleSettings
from policies.units import format_instant, from_millis, millis_of, to_millis

NAME = "throttle"


class Said(Struct, array_like=True, frozen=True):
    """The last published decision, as far as the next one depends on it."""

    sequence: int
    at_ms: int
    factor: float
    reason: str
    limiting: tuple[int, str] | None
    noted: tuple[str, ...] = ()
    """Verdicts the audit has had since the factor, its reason or the limiting volume last changed."""


class ThrottleState(Struct, array_like=True, frozen=True):
    """Everything the policy remembers of one cluster."""

    started_ms: int
    gate: Gate
    fleet: Fleet = Fleet()
    said: Said | None = None
    alerts: AlertBook = AlertBook()
    forgotten: tuple[tuple[int, str, int], ...] = ()
    """Departed volumes (broker, log dir) that limited the cluster and were forgotten at that millisecond."""


@dataclass(frozen=True, slots=True)
class _Raw:
    """The least factor of all volumes that count, and the volume that decided it."""

    factor: float
    reason: Reason
    decisive: KnownVolume | None = None


@dataclass(frozen=True, slots=True)
class _Situation:
    """All that one step found out, before it is put into words."""

    now: datetime
    seen: Fleet
    known: Sequence[KnownVolume]
    raw: _Raw
    moved: Move
    decisive: KnownVolume | None
    reason: Reason


class ThrottlePolicy:
    """Decides the factor of one cluster.

    Args:
        cluster: its name.
        settings: those in force for it.
    """

    name = NAME

    def __init__(self, cluster: str, settings: ThrottleSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.of(NAME, cluster, settings)

    def step(
        self, state: ThrottleState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[ThrottleState]:
        """Fold the observations in, move the gate, and say what changed."""
        before = state or ThrottleState(to_millis(now), Gate(self._settings.start_factor))
        seen = fleet.observe(before.fleet, observations)
        known = fleet.standings(seen, self._settings, now, before.gate.stopped_by)
        forgotten = self._forgotten(before, seen, known, now)
        situation = self._situation(before, fleet.without_forgotten(seen, known), known, now)
        said, decision, note = self._say(before.said, situation)
        book, raised, review_at = self._review(before, situation, forgotten)
        after = ThrottleState(before.started_ms, situation.moved.gate, situation.seen, said, book, forgotten)
        decisions: tuple[Decision, ...] = (*((decision,) if decision else ()), *raised)
        return Step(after, decisions, self._wake_at(after, situation, review_at), (note,) if note else ())

    def _situation(self, before: ThrottleState, seen: Fleet, known: Sequence[KnownVolume], now: datetime) -> _Situation:
        raw = self._raw(before, seen, known, now)
        moved = self._move(before, raw, known, now)
        if moved.hold is Hold.RECOVERY_MARGIN:
            blocking = min((k for k in known if k.key in moved.gate.stopped_by), key=_tightness, default=None)
            return _Situation(now, seen, known, raw, moved, blocking, Reason.RECOVERY_MARGIN)
        reason = Reason.MIN_HOLD if moved.hold is Hold.MIN_HOLD else raw.reason
        return _Situation(now, seen, known, raw, moved, raw.decisive, reason)

    def _raw(self, before: ThrottleState, seen: Fleet, known: Sequence[KnownVolume], now: datetime) -> _Raw:
        if not known:
            return self._raw_of_nothing(before, seen, now)
        named = before.said.limiting if before.said else None
        # Among equals the one already named, so that two full volumes do not take turns.
        decisive = min(known, key=lambda k: (k.factor, k.key != named, *_tightness(k)))
        if decisive.factor < 1.0:
            return _Raw(decisive.factor, _reason(decisive), decisive)
        if all(k.standing is not Standing.FRESH for k in known):
            return _Raw(1.0, Reason.STALE_VOLUME)
        return _Raw(1.0, Reason.ABOVE_LIMITS if self._settings.limited else Reason.UNLIMITED)

    def _raw_of_nothing(self, before: ThrottleState, seen: Fleet, now: datetime) -> _Raw:
        """Without a volume that counts: the start, then the fallback."""
        now_ms = to_millis(now)
        if self._settings.forgets_unread and any(
            fleet.broker_standing(b, self._settings, now_ms) is Standing.FRESH for b in seen.brokers
        ):
            return _Raw(1.0, Reason.ABOVE_LIMITS if self._settings.limited else Reason.UNLIMITED)
        if not seen.ever_read and now_ms < before.started_ms + millis_of(self._settings.validity):
            return _Raw(self._settings.start_factor, Reason.INITIAL)
        return _Raw(self._settings.fallback, Reason.NO_DATA)

    def _move(self, before: ThrottleState, raw: _Raw, known: Sequence[KnownVolume], now: datetime) -> Move:
        stopping = {k.key for k in known if k.assessment.hit is Hit.HARD}
        if before.said is None:
            return _first_move(before.gate.factor, raw, stopping, now)
        waiting = {k.key for k in known if self._within_margin(k)}
        recovered = {key for key in before.gate.stopped_by if key not in waiting}
        return move(before.gate, raw.factor, stopping, recovered, now, self._settings)

    def _within_margin(self, known: KnownVolume) -> bool:
        hard, volume, margin = self._settings.hard, known.volume, self._settings.recovery_margin
        return hard is not None and hard.reached(volume.usable_bytes, volume.total_bytes, margin=margin)

    def _say(self, last: Said | None, it: _Situation) -> tuple[Said, ThrottleFactor | None, ThrottleFactor | None]:
        """What is now said last, the decision to publish, if any, and the note for the audit, if any."""
        now_ms, limiting = to_millis(it.now), it.decisive.key if it.decisive else None
        spoken, verdict = (it.moved.gate.factor, it.reason.value, limiting), it.moved.verdict.value
        news = last is None or spoken != (last.factor, last.reason, last.limiting)
        if last is None or news or now_ms >= last.at_ms + millis_of(self._settings.heartbeat):
            noted = () if last is None or news else last.noted
            number = next_sequence(last.sequence if last else 0, now_ms, is_first=last is None)
            said = Said(number, now_ms, *spoken, tuple(sorted({*noted, verdict})))
            return said, self._decision(it, last, said.sequence), None
        if verdict in last.noted:
            return last, None, None
        note = self._decision(it, last, last.sequence, "noted", verdict)
        return replace(last, noted=tuple(sorted({*last.noted, verdict}))), None, note

    def _decision(self, it: _Situation, last: Said | None, sequence: int, *marks: str) -> ThrottleFactor:
        bare = ThrottleFactor(
            decision_id=deterministic_id(NAME, self._cluster, self._cluster, sequence, *marks),
            policy=NAME,
            cluster=self._cluster,
            subject=self._cluster,
            sequence=sequence,
            verdict=it.moved.verdict,
            reason=it.reason,
            explanation="",
            decided_at=it.now,
            mode=self._settings.mode,
            settings_hash=self._sender.issuer.settings_hash,
            evidence=_evidence(it),
            numbers=self._numbers(it),
            factor=it.moved.gate.factor,
            previous_factor=last.factor if last else None,
            raw_factor=it.raw.factor,
            limiting=limiting_of(it.decisive, self._settings) if it.decisive else None,
            volumes=_counts([k.standing for k in it.known]),
            brokers=_counts([fleet.broker_standing(b, self._settings, to_millis(it.now)) for b in it.seen.brokers]),
            seconds_to_full=min((k.seconds_to_full for k in it.known if k.seconds_to_full is not None), default=None),
            valid_until=ends_at(it.now, 3 * self._settings.heartbeat),
        )
        return bare.model_copy(update={"explanation": explain(bare, it.decisive or _fullest(it.known), self._settings)})

    def _numbers(self, it: _Situation) -> dict[str, object]:
        """For the audit: the limits, and the volumes nearest to them."""
        return {
            "raw_factor": it.raw.factor,
            "hard": as_settings(self._settings.hard),
            "soft": as_settings(self._settings.soft),
            "volumes": [_volume_numbers(k) for k in sorted(it.known, key=_tightness)[:EVIDENCE_LIMIT]],
        }

    def _review(
        self, before: ThrottleState, it: _Situation, forgotten: Sequence[tuple[int, str, int]]
    ) -> tuple[AlertBook, tuple[Decision, ...], datetime | None]:
        gone = [(broker, log_dir) for broker, log_dir, _ in forgotten]
        firing, nothing = before.alerts.keys(), it.raw.reason is Reason.NO_DATA
        view = alerts.View(self._cluster, it.seen, it.known, gone, firing, self._settings, it.now, nothing)
        return review(before.alerts, alerts.conditions(view), it.now, self._sender)

    def _forgotten(
        self, before: ThrottleState, seen: Fleet, known: Sequence[KnownVolume], now: datetime
    ) -> tuple[tuple[int, str, int], ...]:
        """Departed volumes that limited the cluster: named for as long after their end as they were held before it."""
        now_ms, hold_ms = to_millis(now), millis_of(self._settings.departed_hold)
        there = {(b.broker, v.log_dir) for b in seen.brokers for v in b.volumes}
        named = [f for f in before.forgotten if now_ms < f[2] + hold_ms and (f[0], f[1]) not in there]
        held = {k.key for k in known}
        ended = [
            key for key in fleet.limiting_departed(seen, self._settings, before.gate.stopped_by) if key not in held
        ]
        return tuple(sorted(named + [(broker, log_dir, now_ms) for broker, log_dir in ended if hold_ms]))

    def _wake_at(self, after: ThrottleState, it: _Situation, review_at: datetime | None) -> datetime:
        now_ms = to_millis(it.now)
        due = [ms for ms in self._due_ms(after, it, review_at) if ms > now_ms]
        return from_millis(min(due))

    def _due_ms(self, after: ThrottleState, it: _Situation, review_at: datetime | None) -> Iterator[int]:
        """When (milliseconds) something may change without an observation; the heartbeat is always among them."""
        validity_ms = millis_of(self._settings.validity)
        yield (after.said.at_ms if after.said else to_millis(it.now)) + millis_of(self._settings.heartbeat)
        yield after.started_ms + validity_ms
        if it.moved.rises_at_ms is not None:
            yield it.moved.rises_at_ms
        if review_at is not None:
            yield to_millis(review_at)
        yield from fleet.expiries(it.seen, it.known, self._settings)
        yield from (at_ms + millis_of(self._settings.departed_hold) for _, _, at_ms in after.forgotten)


def _first_move(start_factor: float, raw: _Raw, stopping: set[tuple[int, str]], now: datetime) -> Move:
    """Nothing was published yet, so no change can be too small or too soon."""
    if raw.reason is Reason.INITIAL:
        return Move(Gate(raw.factor), Verdict.INITIAL)
    stopped_by = tuple(sorted(stopping)) if raw.factor == 0.0 else ()
    if raw.factor == start_factor:
        return Move(Gate(raw.factor, None, stopped_by), Verdict.NO_CHANGE)
    verdict = Verdict.LOWER if raw.factor < start_factor else Verdict.RAISE
    return Move(Gate(raw.factor, to_millis(now), stopped_by), verdict)


def _tightness(known: KnownVolume) -> tuple[float, int, tuple[int, str]]:
    """Order of volumes: the one that allows least, then the fullest."""
    return (known.factor, known.volume.usable_bytes, known.key)


def _fullest(known: Sequence[KnownVolume]) -> KnownVolume | None:
    """The freshly read volume with the least share free: the one a person asks about when nothing limits."""
    fresh = [k for k in known if k.standing is Standing.FRESH]
    return min(fresh, key=lambda k: (k.volume.usable_bytes / max(k.volume.total_bytes, 1), k.key), default=None)


def _reason(decisive: KnownVolume) -> Reason:
    if decisive.standing is Standing.STALE:
        return Reason.STALE_VOLUME
    if decisive.standing is Standing.DEPARTED:
        return Reason.DEPARTED_VOLUME
    return Reason.HARD_LIMIT if decisive.assessment.hit is Hit.HARD else Reason.SOFT_LIMIT


def _evidence(it: _Situation) -> tuple[str, ...]:
    """The readings that decided: those of the limiting volumes, else the newest, else the newest attempts."""
    limiting = sorted((k for k in it.known if k.factor < 1.0), key=_tightness)
    first = [it.decisive] if it.decisive else []
    newest = sorted(it.seen.brokers, key=lambda b: (-b.tried_ms, b.broker))
    ids = [k.broker.read_id for k in (*first, *limiting)] or [b.tried_id for b in newest]
    return tuple(dict.fromkeys(i for i in ids if i))[:EVIDENCE_LIMIT]


def _counts(standings: Sequence[Standing]) -> Counts:
    return Counts(
        counted=standings.count(Standing.FRESH),
        stale=standings.count(Standing.STALE),
        departed=standings.count(Standing.DEPARTED),
    )


def _volume_numbers(known: KnownVolume) -> dict[str, object]:
    return {
        "broker": known.broker.broker,
        "log_dir": known.volume.log_dir,
        "usable_bytes": known.volume.usable_bytes,
        "total_bytes": known.volume.total_bytes,
        "factor": known.factor,
        "standing": known.standing.value,
        "read_at": format_instant(from_millis(known.volume.read_ms)),
    }
