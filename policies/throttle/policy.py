"""The throttle policy: one factor for a whole cluster whose disks fill up.

Because of replication, producers on one broker fill the disk of another; so the whole cluster slows down.
Here are the step, and the decision with its sentence. Rules: docs/design/throttle.md.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from heapq import nsmallest
from typing import Any
from weakref import ref

from policies.book import Step
from policies.decisions import EVIDENCE_LIMIT, unique_ids
from policies.free_space.alerts import (
    describe_ahead,
    describe_limit,
    describe_rate,
    describe_space,
    explain_factor,
    explain_hold,
    explain_unread,
    follow_actuator,
    follow_growth_before,
    render_factor,
)
from policies.free_space.gate import want_factor
from policies.free_space.limits import LimitHit, as_settings
from policies.free_space.volumes import (
    Freshness,
    VolumeVerdict,
    keep_within_bounds,
    name_volume,
    order_by_tightness,
    seconds_left,
)
from policies.observations import Observation
from policies.throttle import NAME
from policies.throttle.alerts import find_conditions, find_effect_conditions, follow_volumes, is_in_force
from policies.throttle.decisions import (
    FilledBy,
    FreshnessCounts,
    LimitingVolume,
    SoonestFull,
    ThrottleFactor,
    ThrottleReason,
    VolumeCounts,
)
from policies.throttle.fold import ThrottleCommand, describe_result, fold
from policies.throttle.judge import BrokerVerdict, ClusterVerdict, judge_brokers, judge_cluster
from policies.throttle.quotas import QuotaState
from policies.throttle.readings import LogDirs
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ThrottleState, describe_departure, describe_filling, list_usage
from policies.units import format_instant, from_millis, human_bytes, human_seconds, millis_of, to_millis


class ThrottlePolicy:
    """Decides the factor of one cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: ThrottleSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._validity_ms = millis_of(settings.validity)
        self._verdicts: Mapping[int, BrokerVerdict] = {}
        """The verdicts of the last step, as long as the caller keeps its state. They save time and change no result."""
        self._last: ref[ThrottleState] | None = None

    def step(
        self, state: ThrottleState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[ThrottleState]:
        """Fold the observations, judge brokers and cluster, and state the factor and the conditions that hold now."""
        before = state or ThrottleState(to_millis(now))
        kept, refused = keep_within_bounds(before.cluster.brokers, observations, LogDirs, "broker", "volumes")
        known, known_before = fold(before.cluster, kept), before.cluster
        if known_before.cluster_id not in (None, known.cluster_id):  # adopted: nothing is known of the one before
            before = ThrottleState(to_millis(now))
        stopped_by = before.gate.stopped_by if before.gate is not None else ()
        brokers = judge_brokers(known, self._settings, to_millis(now), stopped_by=stopped_by, before=self._verdicts)
        verdict = judge_cluster(brokers, before)
        answers = {
            seen.id: describe_result(seen.reading, known_before, brokers.known)
            for seen in kept
            if isinstance(seen.reading, ThrottleCommand)
        }
        effect, quotas = follow_actuator(before.effect, kept, QuotaState, brokers.now_ms, self._validity_ms)
        limiting = verdict.limiting()
        growths_before = follow_growth_before(before.growths_before, limiting, is_slowed=is_in_force(quotas))
        growths = follow_volumes(before.growths, growths_before, quotas, limiting, brokers)
        conditions, held = find_conditions(self._cluster, verdict, before.held)
        decided = (verdict.move.gate, brokers.known, verdict.decisive.key if verdict.decisive is not None else None)
        grown = (effect, growths, growths_before)
        after = ThrottleState(before.started_ms, *decided, held, verdict.forgotten, *grown)
        of_quotas = find_effect_conditions(self._cluster, after, quotas, brokers)
        self._verdicts, self._last = brokers.brokers, ref(after, self._forget)
        make = partial(_make_decision, verdict, answers, before.gate.factor if before.gate else None)
        seconds_to_full = verdict.soonest_full[1] if verdict.soonest_full else None
        wanted, asked = (verdict.move, verdict.reason.value, after.limiting, seconds_to_full), bool(answers)
        return Step(
            after,
            {(self._cluster,): want_factor(*wanted, brokers.now_ms, self._settings, make, is_asked_for=asked)},
            (*conditions, *of_quotas),
            _due_ms(verdict, after),
            refused,
        )

    def _forget(self, _: object) -> None:
        # The verdicts refer to the decoded brokers: kept longer than the state, they would defeat its cache's limit.
        self._verdicts = {}


def _due_ms(verdict: ClusterVerdict, after: ThrottleState) -> Iterator[int]:
    """When time alone may change something (milliseconds since the epoch); some may be past."""
    settings = verdict.brokers.settings
    yield after.started_ms + millis_of(settings.validity)
    yield from (forgotten.forgotten_ms + millis_of(settings.departed_hold) for forgotten in verdict.forgotten)
    yield from (ms for ms in (verdict.move.rises_at_ms, verdict.brokers.next_ms) if ms is not None)


# The explanation of a throttle decision, from the values that decided.

_ABOUT_THE_FULLEST = (ThrottleReason.UNLIMITED, ThrottleReason.ABOVE_LIMITS)


def explain(verdict: ClusterVerdict, cluster: str, answers: Iterable[str] = ()) -> str:
    """Write one plain sentence: what producers should do, why, and the answers to the commands of this step."""
    factor, settings = verdict.move.gate.factor, verdict.brokers.settings
    fresh = (volume for volume in verdict.brokers.volumes() if volume.freshness is Freshness.FRESH)
    fullest = min(fresh, key=lambda v: (v.state.usable_bytes / max(v.state.total_bytes, 1), v.key), default=None)
    about = verdict.decisive or fullest
    reason = _explain_reason(verdict, about)
    if verdict.move.hold is None and factor != verdict.raw_factor:
        reason += ", which is too small a change to follow"
    details = [reason, *_explain_details(verdict, about)]
    if (other_id := verdict.brokers.known.other_id) is not None:
        details.append(f"another Kafka cluster answers now ({other_id}), and its readings do not count")
    why, writers = "; ".join((*details, *answers)), f"Producers of {cluster}"
    return explain_factor(settings, factor, writers, why, freely="may write freely")


def _explain_details(verdict: ClusterVerdict, about: VolumeVerdict | None) -> Iterator[str]:
    """Yield which volume is full first, which topics fill it, and whether it is cordoned or has failed."""
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
    error = None if about is None else brokers.brokers[about.key[0]].state.find_error(about.key[1])
    if about is not None and error is not None:
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
    space = describe_space("broker", about)
    return f"the fullest of {count}, {space}" if count > 1 else space


def _explain_decisive(verdict: ClusterVerdict, decisive: VolumeVerdict) -> str:
    settings, now_ms, total = verdict.brokers.settings, verdict.brokers.now_ms, decisive.state.total_bytes
    hard = human_bytes(settings.hard.in_bytes(total)) if settings.hard else "0 B"
    soft = human_bytes(settings.soft.in_bytes(total)) if settings.soft else hard
    free = describe_space("broker", decisive) + describe_ahead(decisive, now_ms)
    if verdict.reason is ThrottleReason.RECOVERY_MARGIN:
        margin = f"{settings.recovery_margin:.0%}"
        return f"{free}, and must be clear of the hard limit {hard} by {margin} before they may write"
    left = describe_departure(decisive.key, was_taken_out=decisive.state.missing_ms is not None)
    unread = explain_unread(name_volume("broker", decisive.key), decisive, now_ms, left, settings)
    if unread is not None:
        return unread
    if verdict.reason is ThrottleReason.HARD_LIMIT:
        return f"{free}, at or below the hard limit {hard}"
    return f"{free}, between the soft limit {soft} and the hard limit {hard}"


def _make_decision(
    verdict: ClusterVerdict, answers: Mapping[str, str], previous: float | None, header: Mapping[str, Any]
) -> ThrottleFactor:
    brokers, full = verdict.brokers, None
    if verdict.soonest_full is not None:
        volume, seconds = verdict.soonest_full
        confidence = round(volume.state.filling.confidence if volume.state.filling else 0.0, 2)
        full = SoonestFull(broker=volume.key[0], log_dir=volume.key[1], seconds=seconds, confidence=confidence)
    counted = Counter(broker.freshness for broker in brokers.brokers.values())
    counted[Freshness.STALE] += counted[Freshness.NEVER_READ]
    filled_by, limiting, volumes = None, None, Counter(volume.freshness for volume in brokers.volumes())
    about = verdict.decisive or (verdict.soonest_full[0] if verdict.soonest_full else None)
    if about is not None and (usage := brokers.find_usage(about.key)) is not None:
        filled_by = FilledBy(**dict(usage.of), broker=about.key[0], read_at=from_millis(usage.at_ms))
    if (decisive := verdict.decisive) is not None:
        (broker, log_dir), is_hard = decisive.key, decisive.hit is LimitHit.HARD
        if (limit := describe_limit(brokers.settings, decisive, is_hard=is_hard)) is not None:
            is_cordoned = brokers.is_cordoned(decisive.key)
            limiting = LimitingVolume(broker=broker, log_dir=log_dir, **limit, cordoned=is_cordoned)
    return ThrottleFactor(
        **header,
        verdict=verdict.move.verdict,
        reason=verdict.reason,
        explanation=explain(verdict, header["cluster"], answers.values()),
        evidence=(*answers, *_collect_evidence(verdict))[:EVIDENCE_LIMIT],
        numbers=_collect_numbers(verdict) | list_usage(filled_by),
        factor=verdict.move.gate.factor,
        previous_factor=previous,
        raw_factor=verdict.raw_factor,
        limiting=limiting,
        volumes=VolumeCounts(**_count(volumes), never_read=volumes[Freshness.NEVER_READ]),
        brokers=FreshnessCounts(**_count(counted)),
        seconds_to_full=full.seconds if full else None,
        soonest_full=full,
        filled_by=filled_by,
        cluster_id=brokers.known.cluster_id,
    )


def _collect_evidence(verdict: ClusterVerdict) -> tuple[str, ...]:
    """Name the readings that decided: those of the limiting volumes, or else the newest attempts."""
    brokers = verdict.brokers
    first = [verdict.decisive] if verdict.decisive else []
    ids = [v.read_id for v in (*first, *sorted(brokers.limiting, key=order_by_tightness))]
    if not ids:
        newest_first = sorted(brokers.known.brokers, key=lambda b: (-b.tried_ms, b.name))
        ids = [b.tried_id for b in newest_first[:EVIDENCE_LIMIT]]
    return unique_ids(*ids)[:EVIDENCE_LIMIT]


def _count(found: Counter[Freshness]) -> dict[str, int]:
    fields = {"counted": Freshness.FRESH, "stale": Freshness.STALE, "departed": Freshness.DEPARTED}
    return {field: found[freshness] for field, freshness in fields.items()}


def _collect_numbers(verdict: ClusterVerdict) -> dict[str, object]:
    """Collect the limits, and the volumes nearest to them, for the audit topic."""
    brokers = verdict.brokers
    tightest = nsmallest(EVIDENCE_LIMIT, brokers.volumes(), key=order_by_tightness)
    return {
        "raw_factor": verdict.raw_factor,
        "hard": as_settings(brokers.settings.hard),
        "soft": as_settings(brokers.settings.soft),
        "volumes": [
            {
                "broker": volume.key[0],
                "log_dir": volume.key[1],
                "usable_bytes": volume.state.usable_bytes,
                "total_bytes": volume.state.total_bytes,
                "factor": volume.factor,
                "standing": volume.freshness.value,
                "read_at": format_instant(volume.read_at) if volume.read_at else None,
                "seconds_to_full": None if volume.full_ms is None else seconds_left(volume.state, brokers.now_ms),
            }
            for volume in tightest
        ],
    }
