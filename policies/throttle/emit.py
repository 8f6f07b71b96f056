"""Publishes what differs from the last decision: a decision if it changed or is due, otherwise perhaps a note."""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest

from msgspec.structs import replace

from policies.decisions import EVIDENCE_LIMIT, Issuer
from policies.printable import printable_line
from policies.succession import ends_at, next_sequence, repeated_after, repeated_by
from policies.throttle.decisions import FreshnessCounts, LimitHit, LimitingVolume, SoonestFull, ThrottleFactor
from policies.throttle.facts import Freshness, seconds_left
from policies.throttle.judge import VolumeVerdict
from policies.throttle.judgement import ThrottleJudgement
from policies.throttle.limits import as_settings
from policies.throttle.messages import explain
from policies.throttle.otherwise import otherwise
from policies.throttle.settings import ThrottleSettings
from policies.throttle.standing import ClusterStanding
from policies.throttle.state import LastPublishedFactor
from policies.units import format_instant, from_millis, millis_of

_VALID_HEARTBEATS = 3
"""A decision is valid for so many: two may be late."""
_MISLEADING = 2
"""A time to full that is out by more than this factor is said anew."""
_INSTANT_MS = 5000
"""Less time than that makes no difference."""


@dataclass(frozen=True, slots=True)
class EmittedFactor:
    """What comes of one step."""

    last_published: LastPublishedFactor
    decision: ThrottleFactor | None = None
    """To publish."""
    note: ThrottleFactor | None = None
    """For the audit alone: a verdict that changed nothing, when it first appears."""


def emit(
    judgement: ThrottleJudgement, standing: ClusterStanding, last: LastPublishedFactor | None, issuer: Issuer
) -> EmittedFactor:
    """Hold the verdict against what was published last."""
    now_ms, verdict = standing.now_ms, judgement.move.verdict.value
    limiting = judgement.decisive.key if judgement.decisive else None
    in_force, full_ms = (judgement.move.gate.factor, judgement.reason.value, limiting), _full_ms(judgement, now_ms)
    is_news = last is None or in_force != (last.factor, last.reason, last.limiting) or _is_otherwise_meant(last, issuer)
    is_due = last is None or now_ms >= heartbeat_ms(last, standing.settings)
    if last is None or is_news or is_due or _is_otherwise_full(last.full_ms, full_ms, now_ms, standing.settings):
        noted = () if last is None or is_news else last.noted
        sequence = next_sequence(last.sequence if last else 0, now_ms, is_first=last is None)
        published = LastPublishedFactor(
            sequence,
            now_ms,
            *in_force,
            tuple(sorted({*noted, verdict})),
            full_ms,
            issuer.mode,
            now_ms + _heartbeat_ms(standing.settings),
        )
        return EmittedFactor(published, decision=_decision(judgement, standing, last, issuer, sequence))
    if verdict in last.noted:
        return EmittedFactor(last)
    note = _decision(judgement, standing, last, issuer, last.sequence, "noted", verdict)
    return EmittedFactor(replace(last, noted=tuple(sorted({*last.noted, verdict}))), note=note)


def heartbeat_ms(last: LastPublishedFactor, settings: ThrottleSettings) -> int:
    """When the decision that was published last is due to be repeated, in milliseconds since the epoch."""
    return repeated_by(last.at_ms + _heartbeat_ms(settings), last.repeat_at_ms)


def _heartbeat_ms(settings: ThrottleSettings) -> int:
    return millis_of(repeated_after(settings.heartbeat, valid_for=_VALID_HEARTBEATS))


def _decision(
    judgement: ThrottleJudgement,
    standing: ClusterStanding,
    last: LastPublishedFactor | None,
    issuer: Issuer,
    sequence: int,
    *marks: str,
) -> ThrottleFactor:
    settings, full = standing.settings, _soonest_full(judgement.soonest_full)
    bare = ThrottleFactor(
        **issuer.header(issuer.cluster, sequence, standing.now, marks=marks),
        verdict=judgement.move.verdict,
        reason=judgement.reason,
        explanation="",
        evidence=_evidence(judgement, standing),
        numbers=_numbers(judgement, standing),
        factor=judgement.move.gate.factor,
        previous_factor=last.factor if last else None,
        raw_factor=judgement.raw.factor,
        limiting=_limiting(judgement.decisive, settings) if judgement.decisive else None,
        volumes=_counts(standing.volume_counts),
        brokers=_counts(standing.broker_counts),
        seconds_to_full=full.seconds if full else None,
        soonest_full=full,
        valid_until=ends_at(standing.now, _VALID_HEARTBEATS * settings.heartbeat),
        otherwise=otherwise(judgement, standing),
    )
    return bare.model_copy(update={"explanation": printable_line(explain(bare, judgement, standing))})


def _full_ms(judgement: ThrottleJudgement, now_ms: int) -> int | None:
    """When the first volume is full."""
    return None if judgement.soonest_full is None else now_ms + round(1000 * judgement.soonest_full[1])


def _is_otherwise_meant(last: LastPublishedFactor, issuer: Issuer) -> bool:
    """Whether actuators are to begin or to cease to carry it out."""
    return last.mode not in ("", issuer.mode)


def _is_otherwise_full(said_ms: int | None, full_ms: int | None, now_ms: int, settings: ThrottleSettings) -> bool:
    """Whether what was said of volumes that fill soon misleads by now: sentence, metric and alert tell one number."""
    said, left = (None if ms is None else max(ms - now_ms, 0) for ms in (said_ms, full_ms))
    soon = millis_of(settings.time_to_full_alert)
    was_soon, is_soon = said is not None and said < soon, left is not None and left < soon
    if said is None or left is None or not (was_soon and is_soon):
        return was_soon != is_soon
    return max(said, left) > _MISLEADING * min(said, left) + _INSTANT_MS


def _soonest_full(soonest: tuple[VolumeVerdict, float] | None) -> SoonestFull | None:
    if soonest is None:
        return None
    (broker, log_dir), confidence = soonest[0].key, soonest[0].state.fill_confidence or 0.0
    return SoonestFull(broker=broker, log_dir=log_dir, seconds=soonest[1], confidence=round(confidence, 2))


def _evidence(judgement: ThrottleJudgement, standing: ClusterStanding) -> tuple[str, ...]:
    """The readings that decided: those of the limiting volumes, else the newest, else the newest attempts."""
    first = [judgement.decisive] if judgement.decisive else []
    ids = [v.broker.state.read_id for v in (*first, *standing.limiting())] or _newest(standing)
    return tuple(dict.fromkeys(i for i in ids if i))[:EVIDENCE_LIMIT]


def _newest(standing: ClusterStanding) -> list[str]:
    tried = (broker.state for broker in standing.brokers() if broker.state.tried_id)
    return [b.tried_id for b in nsmallest(EVIDENCE_LIMIT, tried, key=lambda b: (-b.tried_ms, b.broker))]


def _limiting(decisive: VolumeVerdict, settings: ThrottleSettings) -> LimitingVolume | None:
    """The limiting volume as published; None when no limit is set."""
    hit = LimitHit.HARD if decisive.hit is LimitHit.HARD or settings.soft is None else LimitHit.SOFT
    limit = settings.hard if hit is LimitHit.HARD else settings.soft
    if limit is None:
        return None
    broker, log_dir = decisive.key
    return LimitingVolume(
        broker=broker,
        log_dir=log_dir,
        usable_bytes=decisive.state.usable_bytes,
        total_bytes=decisive.state.total_bytes,
        limit=hit,
        limit_kind=limit.kind,
        limit_value=limit.value,
        limit_bytes=round(limit.in_bytes(decisive.state.total_bytes)),
        read_at=from_millis(decisive.state.read_ms),
    )


def _counts(found: Mapping[Freshness, int]) -> FreshnessCounts:
    return FreshnessCounts(
        counted=found[Freshness.FRESH], stale=found[Freshness.STALE], departed=found[Freshness.DEPARTED]
    )


def _numbers(judgement: ThrottleJudgement, standing: ClusterStanding) -> dict[str, object]:
    """For the audit: the limits, and the volumes nearest to them."""
    settings = standing.settings
    nearest = nsmallest(EVIDENCE_LIMIT, standing.verdicts.values(), key=lambda v: v.tightness)
    return {
        "raw_factor": judgement.raw.factor,
        "hard": as_settings(settings.hard),
        "soft": as_settings(settings.soft),
        "volumes": [_volume_numbers(v, standing.now_ms) for v in nearest],
    }


def _volume_numbers(volume: VolumeVerdict, now_ms: int) -> dict[str, object]:
    broker, log_dir = volume.key
    return {
        "broker": broker,
        "log_dir": log_dir,
        "usable_bytes": volume.state.usable_bytes,
        "total_bytes": volume.state.total_bytes,
        "factor": volume.factor,
        "standing": volume.freshness.value,
        "read_at": format_instant(from_millis(volume.state.read_ms)),
        "seconds_to_full": seconds_left(volume.state, now_ms) if volume.freshness is Freshness.FRESH else None,
    }
