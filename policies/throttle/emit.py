"""The decision about a cluster: its content, and how it is made with its sentence."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

from policies.book import Wanted
from policies.decisions import EVIDENCE_LIMIT, unique_ids
from policies.free_space.alerts import (
    describe_ahead,
    describe_limit,
    describe_rate,
    explain_factor,
    explain_hold,
    explain_stale,
    render_factor,
)
from policies.free_space.limits import LimitHit, as_settings
from policies.free_space.publication import want_factor
from policies.free_space.volumes import Freshness, VolumeVerdict, name_volume, order_by_tightness, seconds_left
from policies.throttle.decisions import (
    FilledBy,
    FreshnessCounts,
    LimitingVolume,
    SoonestFull,
    ThrottleFactor,
    ThrottleReason,
    VolumeCounts,
)
from policies.throttle.judge import BrokerVerdicts, ClusterVerdict
from policies.throttle.state import describe_departure, describe_filling, list_usage
from policies.units import format_instant, format_second, from_millis, human_bytes, human_seconds, millis_of

# The explanation of a throttle decision, from the values that decided.

_ABOUT_THE_FULLEST = (ThrottleReason.UNLIMITED, ThrottleReason.ABOVE_LIMITS)


def explain(verdict: ClusterVerdict, cluster: str, answers: Iterable[str] = ()) -> str:
    """Write one plain sentence: what producers should do, and why. The actuator explains its own operations.

    Args:
        answers: the answers to the commands of this step.
    """
    factor, settings = verdict.move.gate.factor, verdict.brokers.settings
    about = verdict.decisive or verdict.brokers.fullest()
    reason = _explain_reason(verdict, about)
    if verdict.move.hold is None and factor != verdict.raw_factor:
        reason += ", which is too small a change to follow"
    details = (*_explain_details(verdict, about), *_explain_failure(verdict, about))
    if (other_id := verdict.brokers.known.other_id) is not None:
        details += (f"another Kafka cluster answers now ({other_id}), and its readings do not count",)
    why, writers = "; ".join((reason, *details, *answers)), f"Producers of {cluster}"
    return explain_factor(settings, factor, writers, why, freely="may write freely", has_actuator=settings.has_actuator)


def _explain_details(verdict: ClusterVerdict, about: VolumeVerdict | None) -> Iterator[str]:
    """Yield which volume is full first, which topics fill it, and whether it is cordoned.

    A volume is not named again if the sentence has named it already.
    """
    brokers, limiting = verdict.brokers, verdict.decisive if verdict.brokers.settings.limited else None
    has_named = verdict.reason in _ABOUT_THE_FULLEST or (
        limiting is not None and verdict.reason is not ThrottleReason.MIN_HOLD
    )
    named = about.key if about is not None and has_named else None
    if verdict.soonest_full is not None:
        full, seconds = verdict.soonest_full
        which = "" if named == full.key else f"{name_volume('broker', full.key)} is "
        yield f"{which}full in {human_seconds(seconds)} at the {describe_rate(full.state, brokers.now_ms)}"
    if (filling := verdict.decisive or (verdict.soonest_full[0] if verdict.soonest_full else None)) is not None:
        broker, validity_ms = brokers.brokers[filling.key[0]].state, millis_of(brokers.settings.validity)
        if growth := describe_filling(broker, filling.state, brokers.now_ms, validity_ms):
            yield growth if named == filling.key else f"{name_volume('broker', filling.key)} is {growth}"
    if limiting is not None and brokers.is_cordoned(limiting.key):
        which = "it" if named == limiting.key else name_volume("broker", limiting.key)
        yield f"{which} is cordoned, so it gets no new partitions"


def _explain_failure(verdict: ClusterVerdict, about: VolumeVerdict | None) -> Iterator[str]:
    """Yield the error with which a broker reports the volume that decided."""
    broker = verdict.brokers.brokers.get(about.key[0]) if about is not None else None
    if about is None or broker is None or about.departed_ms is not None:
        return
    if (error := broker.state.find_error(about.key[1])) is not None:
        yield f"broker {about.key[0]} reports {about.key[1]} as failed ({error})"


def _explain_reason(verdict: ClusterVerdict, about: VolumeVerdict | None) -> str:
    settings, raw_factor = verdict.brokers.settings, verdict.raw_factor
    match verdict.reason:
        case ThrottleReason.INITIAL:
            return f"no volume has been read yet, so the starting factor {render_factor(raw_factor)} applies"
        case ThrottleReason.NO_DATA:
            return f"no volume is known, so the fallback factor {render_factor(settings.fallback)} applies"
        case ThrottleReason.MIN_HOLD:
            return explain_hold("volumes", raw_factor, settings)
        case ThrottleReason.UNLIMITED:
            return f"no limit is set; {_describe_fullest(verdict, about)}"
        case ThrottleReason.ABOVE_LIMITS:
            return f"no volume has reached a limit; {_describe_fullest(verdict, about)}"
    has_limiting = verdict.decisive is not None and settings.limited
    if about is None or (not has_limiting and verdict.move.gate.factor == 1.0):
        return f"no volume has a valid reading; what is known allows {render_factor(raw_factor)}"
    return _explain_decisive(verdict, about)


def _describe_fullest(verdict: ClusterVerdict, about: VolumeVerdict | None) -> str:
    if about is None:
        return "there is none to read"
    count = sum(volume.freshness is Freshness.FRESH for volume in verdict.brokers.volumes())
    return f"the fullest of {count}, {_describe_free(about)}" if count > 1 else _describe_free(about)


def _describe_free(volume: VolumeVerdict) -> str:
    free, total = human_bytes(volume.state.usable_bytes), human_bytes(volume.state.total_bytes)
    return f"{name_volume('broker', volume.key)} has {free} free of {total}"


def _explain_decisive(verdict: ClusterVerdict, decisive: VolumeVerdict) -> str:
    settings, now_ms, total = verdict.brokers.settings, verdict.brokers.now_ms, decisive.state.total_bytes
    hard = human_bytes(settings.hard.in_bytes(total)) if settings.hard else "0 B"
    soft = human_bytes(settings.soft.in_bytes(total)) if settings.soft else hard
    free = _describe_free(decisive) + describe_ahead(decisive, now_ms)
    if verdict.reason is ThrottleReason.RECOVERY_MARGIN:
        margin = f"{settings.recovery_margin:.0%}"
        return f"{free}, and must be clear of the hard limit {hard} by {margin} before they may write"
    where, counts = name_volume("broker", decisive.key), render_factor(decisive.factor)
    if decisive.freshness is Freshness.NEVER_READ:
        return f"{where} was never readable, and counts as {counts} until it is read"
    if decisive.freshness is Freshness.STALE:
        return explain_stale(where, decisive, now_ms)
    if decisive.freshness is Freshness.DEPARTED:
        how = describe_departure(decisive.key, was_taken_out=decisive.state.missing_ms is not None)
        ends = format_second(from_millis(decisive.departed_ms or 0) + settings.departed_hold)
        return f"{how}, and goes on counting as {counts} until {ends}"
    if verdict.reason is ThrottleReason.HARD_LIMIT:
        return f"{free}, at or below the hard limit {hard}"
    return f"{free}, between the soft limit {soft} and the hard limit {hard}"


def want(verdict: ClusterVerdict, answers: Mapping[str, str]) -> Wanted:
    """Want the factor of a cluster.

    Args:
        answers: the answer to each command of this step, by its id.
    """
    limiting = verdict.decisive.key if verdict.decisive else None
    seconds_to_full = verdict.soonest_full[1] if verdict.soonest_full else None
    brokers, make = verdict.brokers, partial(_make_decision, verdict, answers)
    decided = (verdict.move, verdict.reason.value, limiting, seconds_to_full)
    return want_factor(*decided, brokers.now_ms, brokers.settings, make, is_asked_for=bool(answers))


def _make_decision(verdict: ClusterVerdict, answers: Mapping[str, str], header: Mapping[str, Any]) -> ThrottleFactor:
    brokers, full = verdict.brokers, None
    if verdict.soonest_full is not None:
        volume, seconds = verdict.soonest_full
        confidence = round(volume.state.fill_confidence or 0.0, 2)
        full = SoonestFull(broker=volume.key[0], log_dir=volume.key[1], seconds=seconds, confidence=confidence)
    counted = Counter(broker.freshness for broker in brokers.brokers.values())
    counted[Freshness.STALE] += counted[Freshness.NEVER_READ]
    filled_by, volumes = _find_filling(verdict), Counter(map(attrgetter("freshness"), brokers.volumes()))
    return ThrottleFactor(
        **header,
        verdict=verdict.move.verdict,
        reason=verdict.reason,
        explanation=explain(verdict, header["cluster"], answers.values()),
        evidence=(*answers, *_collect_evidence(verdict))[:EVIDENCE_LIMIT],
        numbers=_collect_numbers(verdict) | list_usage(filled_by),
        factor=verdict.move.gate.factor,
        previous_factor=verdict.previous_factor,
        raw_factor=verdict.raw_factor,
        limiting=_describe_limiting(verdict.decisive, brokers) if verdict.decisive else None,
        volumes=VolumeCounts(**_count(volumes), never_read=volumes[Freshness.NEVER_READ]),
        brokers=FreshnessCounts(**_count(counted)),
        seconds_to_full=full.seconds if full else None,
        soonest_full=full,
        filled_by=filled_by,
        cluster_id=brokers.known.cluster_id,
    )


def _find_filling(verdict: ClusterVerdict) -> FilledBy | None:
    """Find the usage of the volume that decided, or else of the one that is full first."""
    brokers = verdict.brokers
    about = verdict.decisive or (verdict.soonest_full[0] if verdict.soonest_full else None)
    if about is None:
        return None
    usage = brokers.find_usage(about.key)
    return FilledBy(**dict(usage.of), broker=about.key[0], read_at=from_millis(usage.at_ms)) if usage else None


def _collect_evidence(verdict: ClusterVerdict) -> tuple[str, ...]:
    """Name the readings that decided: those of the limiting volumes, or else the newest attempts."""
    brokers = verdict.brokers
    first = [verdict.decisive] if verdict.decisive else []
    ids = [v.read_id for v in (*first, *sorted(brokers.limiting, key=order_by_tightness))]
    if not ids:
        newest_first = sorted(brokers.known.brokers, key=lambda b: (-b.tried_ms, b.name))
        ids = [b.tried_id for b in newest_first[:EVIDENCE_LIMIT]]
    return unique_ids(*ids)[:EVIDENCE_LIMIT]


def _describe_limiting(decisive: VolumeVerdict, brokers: BrokerVerdicts) -> LimitingVolume | None:
    """Describe the limiting volume; None if no limit is set."""
    limit = describe_limit(brokers.settings, decisive, is_hard=decisive.hit is LimitHit.HARD)
    if limit is None:
        return None
    broker, log_dir = decisive.key
    return LimitingVolume(broker=broker, log_dir=log_dir, **limit, cordoned=brokers.is_cordoned(decisive.key))


def _count(found: Counter[Freshness]) -> dict[str, int]:
    fields = {"counted": Freshness.FRESH, "stale": Freshness.STALE, "departed": Freshness.DEPARTED}
    return {field: found[freshness] for field, freshness in fields.items()}


def _collect_numbers(verdict: ClusterVerdict) -> dict[str, object]:
    """Collect the limits, and the volumes nearest to them, for the audit topic."""
    brokers = verdict.brokers
    return {
        "raw_factor": verdict.raw_factor,
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
        "read_at": format_instant(volume.read_at) if volume.read_at else None,
        "seconds_to_full": None if volume.full_ms is None else seconds_left(volume.state, now_ms),
    }
