"""Publishes a decision if it differs from the one in force or its heartbeat is due, or else perhaps a note."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from operator import attrgetter

from policies.decisions import EVIDENCE_LIMIT, Issuer
from policies.free_space.limits import LimitHit, as_settings
from policies.free_space.repeats import Emitted, FactorContent, LastPublished, emit_factor, repeat_schedule
from policies.free_space.volumes import Freshness, seconds_left
from policies.printable import printable_line
from policies.throttle.counterfactuals import counterfactuals
from policies.throttle.decisions import (
    FilledBy,
    FreshnessCounts,
    LimitingVolume,
    SoonestFull,
    ThrottleFactor,
    VolumeCounts,
)
from policies.throttle.judge.brokers import BrokerVerdicts, order_by_tightness
from policies.throttle.judge.cluster import ClusterVerdict
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.messages import explain
from policies.throttle.state import VolumeKey
from policies.throttle.usage import list_usage
from policies.units import format_instant, from_millis


def emit(
    verdict: ClusterVerdict, last: LastPublished[VolumeKey] | None, issuer: Issuer, answers: Mapping[str, str]
) -> Emitted[VolumeKey, ThrottleFactor]:
    """Compare the verdict with the decision in force.

    Args:
        answers: the answer to each command of this step, by its id.
    """
    limiting = verdict.decisive.key if verdict.decisive else None
    seconds_to_full = verdict.soonest_full[1] if verdict.soonest_full else None
    content = FactorContent(verdict.move, verdict.reason.value, limiting, seconds_to_full, bool(answers))
    brokers, make = verdict.brokers, partial(_make_decision, verdict, last, issuer, answers)
    return emit_factor(content, last, brokers.now_ms, brokers.settings, issuer, make)


def _make_decision(
    verdict: ClusterVerdict,
    last: LastPublished[VolumeKey] | None,
    issuer: Issuer,
    answers: Mapping[str, str],
    sequence: int,
    *marks: str,
) -> ThrottleFactor:
    brokers, settings, full = verdict.brokers, verdict.brokers.settings, _describe_soonest(verdict.soonest_full)
    filled_by, volumes = _find_filling(verdict), Counter(map(attrgetter("freshness"), brokers.volumes()))
    bare = ThrottleFactor(
        **issuer.header(issuer.cluster, sequence, brokers.now, marks=marks),
        verdict=verdict.move.verdict,
        reason=verdict.reason,
        explanation="",
        evidence=(*answers, *_collect_evidence(verdict))[:EVIDENCE_LIMIT],
        numbers=_collect_numbers(verdict) | list_usage(filled_by),
        factor=verdict.move.gate.factor,
        previous_factor=last.factor if last else None,
        raw_factor=verdict.raw.factor,
        limiting=_describe_limiting(verdict.decisive, brokers) if verdict.decisive else None,
        volumes=VolumeCounts(**_count(volumes), never_read=volumes[Freshness.NEVER_READ]),
        brokers=FreshnessCounts(**_count(Counter(broker.facts.freshness for broker in brokers.brokers.values()))),
        seconds_to_full=full.seconds if full else None,
        soonest_full=full,
        filled_by=filled_by,
        cluster_id=brokers.known.cluster_id,
        valid_until=repeat_schedule(settings).ends_at(brokers.now),
        otherwise=counterfactuals(verdict),
    )
    return bare.model_copy(update={"explanation": printable_line(explain(bare, verdict, answers.values()))})


def _describe_soonest(soonest: tuple[VolumeVerdict, float] | None) -> SoonestFull | None:
    if soonest is None:
        return None
    (broker, log_dir), confidence = soonest[0].key, soonest[0].state.fill_confidence or 0.0
    return SoonestFull(broker=broker, log_dir=log_dir, seconds=soonest[1], confidence=round(confidence, 2))


def _find_filling(verdict: ClusterVerdict) -> FilledBy | None:
    """Find the usage of the volume that decided, or else of the one that is full first."""
    brokers = verdict.brokers
    about = verdict.decisive or (verdict.soonest_full[0] if verdict.soonest_full else None)
    if about is None:
        return None
    broker, usage = brokers.brokers[about.key[0]].facts.state, brokers.find_usage(about.key)
    if usage is None or broker.usage is None:
        return None
    return FilledBy(**dict(usage), broker=broker.broker, read_at=from_millis(broker.usage.at_ms))


def _collect_evidence(verdict: ClusterVerdict) -> tuple[str, ...]:
    """Name the readings that decided: those of the limiting volumes, or else the newest attempts."""
    brokers = verdict.brokers
    first = [verdict.decisive] if verdict.decisive else []
    ids = [v.read_id for v in (*first, *sorted(brokers.limiting, key=order_by_tightness))]
    if not ids:
        newest_first = sorted(brokers.known.brokers, key=lambda b: (-b.tried_ms, b.broker))
        ids = [b.tried_id for b in newest_first[:EVIDENCE_LIMIT]]
    return tuple(dict.fromkeys(i for i in ids if i))[:EVIDENCE_LIMIT]


def _describe_limiting(decisive: VolumeVerdict, brokers: BrokerVerdicts) -> LimitingVolume | None:
    """Describe the limiting volume; None if no limit is set."""
    settings = brokers.settings
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
        limit_bytes=round(limit.in_bytes(max(decisive.state.total_bytes, 0))),
        read_at=_read_at(decisive),
        cordoned=log_dir in brokers.brokers[broker].facts.state.cordoned,
    )


def _count(found: Counter[Freshness]) -> dict[str, int]:
    fields = {"counted": Freshness.FRESH, "stale": Freshness.STALE, "departed": Freshness.DEPARTED}
    return {field: found[freshness] for field, freshness in fields.items()}


def _read_at(volume: VolumeVerdict) -> datetime | None:
    return None if volume.freshness is Freshness.NEVER_READ else from_millis(volume.state.read_ms)


def _collect_numbers(verdict: ClusterVerdict) -> dict[str, object]:
    """Collect the limits, and the volumes nearest to them, for the audit topic."""
    brokers = verdict.brokers
    return {
        "raw_factor": verdict.raw.factor,
        "hard": as_settings(brokers.settings.hard),
        "soft": as_settings(brokers.settings.soft),
        "volumes": [_describe_volume(v, brokers.now_ms) for v in islice(brokers.tightest_first(), EVIDENCE_LIMIT)],
    }


def _describe_volume(volume: VolumeVerdict, now_ms: int) -> dict[str, object]:
    broker, log_dir = volume.key
    return {
        "broker": broker,
        "log_dir": log_dir,
        "usable_bytes": volume.state.usable_bytes,
        "total_bytes": volume.state.total_bytes,
        "factor": volume.factor,
        "standing": volume.freshness.value,
        "read_at": format_instant(read_at) if (read_at := _read_at(volume)) else None,
        "seconds_to_full": None if volume.full_ms is None else seconds_left(volume.state, now_ms),
    }
