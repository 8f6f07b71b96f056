"""The explanation of a throttle decision, from the values that decided."""

from collections.abc import Iterable, Iterator

from policies.free_space.verdicts import hold_ends_ms
from policies.free_space.volumes import Freshness
from policies.free_space.wording import describe_age, describe_ahead, explain_factor, render_factor
from policies.throttle.decisions import ThrottleFactor, ThrottleReason
from policies.throttle.judge.cluster import ClusterVerdict
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import describe_departure, name_volume
from policies.throttle.usage import describe_filling
from policies.units import format_duration, format_second, from_millis, human_bytes, human_seconds, millis_of

_ABOUT_THE_FULLEST = (ThrottleReason.UNLIMITED, ThrottleReason.ABOVE_LIMITS)


def explain(decision: ThrottleFactor, verdict: ClusterVerdict, answers: Iterable[str] = ()) -> str:
    """Write one plain sentence: what producers should do, and why. The actuator explains its own operations.

    Args:
        answers: the answers to the commands of this step.
    """
    settings = verdict.brokers.settings
    about = verdict.decisive or verdict.brokers.fullest()
    reason = _explain_reason(decision, about, settings)
    if verdict.move.hold is None and decision.factor != decision.raw_factor:
        reason += ", which is too small a change to follow"
    details = (*_explain_details(decision, verdict, about), *_explain_failure(verdict, about))
    if (other_id := verdict.brokers.known.other_id) is not None:
        details += (f"another Kafka cluster answers now ({other_id}), and its readings do not count",)
    why = "; ".join((reason, *details, *answers))
    writers, has_actuator = f"Producers of {decision.cluster}", settings.has_actuator
    return explain_factor(decision, decision.factor, writers, why, freely="may write freely", has_actuator=has_actuator)


def _explain_details(decision: ThrottleFactor, verdict: ClusterVerdict, about: VolumeVerdict | None) -> Iterator[str]:
    """Yield which volume is full first, which topics fill it, and whether it is cordoned.

    A volume is not named again if the sentence has named it already.
    """
    full, filling, limiting = decision.soonest_full, decision.filled_by, decision.limiting
    has_named = decision.reason in _ABOUT_THE_FULLEST or (
        limiting is not None and decision.reason is not ThrottleReason.MIN_HOLD
    )
    named = about.key if about is not None and has_named else None
    if full is not None:
        key = (full.broker, full.log_dir)
        which = "" if named == key else f"{name_volume(key)} is "
        age = (
            "" if verdict.soonest_full is None else describe_age(verdict.soonest_full[0].state, verdict.brokers.now_ms)
        )
        yield f"{which}full in {human_seconds(full.seconds)} at the {age or 'present rate'}"
    if filling is not None and (growth := _explain_filling(verdict)):
        key = (filling.broker, filling.log_dir)
        yield growth if named == key else f"{name_volume(key)} is {growth}"
    if limiting is not None and limiting.cordoned:
        key = (limiting.broker, limiting.log_dir)
        yield f"{'it' if named == key else name_volume(key)} is cordoned, so it gets no new partitions"


def _explain_filling(verdict: ClusterVerdict) -> str:
    """Name what fills the volume that decided, or else the one that is full first."""
    volume = verdict.decisive or (verdict.soonest_full[0] if verdict.soonest_full else None)
    if volume is None:
        return ""
    brokers, validity_ms = verdict.brokers, millis_of(verdict.brokers.settings.validity)
    return describe_filling(brokers.brokers[volume.key[0]].facts.state, volume.state, brokers.now_ms, validity_ms)


def _explain_failure(verdict: ClusterVerdict, about: VolumeVerdict | None) -> Iterator[str]:
    """Yield the error with which a broker reports the volume that decided."""
    broker = verdict.brokers.brokers.get(about.key[0]) if about is not None else None
    if about is None or broker is None or about.departed_ms is not None:
        return
    if (error := broker.facts.state.find_error(about.key[1])) is not None:
        yield f"broker {about.key[0]} reports {about.key[1]} as failed ({error})"


def _explain_reason(decision: ThrottleFactor, about: VolumeVerdict | None, settings: ThrottleSettings) -> str:
    match decision.reason:
        case ThrottleReason.INITIAL:
            return f"no volume has been read yet, so the starting factor {render_factor(decision.raw_factor)} applies"
        case ThrottleReason.NO_DATA:
            return f"no volume is known, so the fallback factor {render_factor(settings.fallback)} applies"
        case ThrottleReason.MIN_HOLD:
            allowed, held = render_factor(decision.raw_factor), format_duration(settings.min_hold)
            return f"volumes would allow {allowed}, but a factor that changed is held for {held}"
        case ThrottleReason.UNLIMITED:
            return f"no limit is set; {_describe_fullest(decision, about)}"
        case ThrottleReason.ABOVE_LIMITS:
            return f"no volume has reached a limit; {_describe_fullest(decision, about)}"
    if about is None or (decision.limiting is None and decision.factor == 1.0):
        return f"no volume has a valid reading; what is known allows {render_factor(decision.raw_factor)}"
    return _explain_decisive(decision, about, settings)


def _describe_fullest(decision: ThrottleFactor, about: VolumeVerdict | None) -> str:
    if about is None:
        return "there is none to read"
    count = decision.volumes.counted
    return f"the fullest of {count}, {_describe_free(about)}" if count > 1 else _describe_free(about)


def _describe_free(volume: VolumeVerdict) -> str:
    free, total = human_bytes(volume.state.usable_bytes), human_bytes(volume.state.total_bytes)
    return f"{name_volume(volume.key)} has {free} free of {total}"


def _explain_decisive(decision: ThrottleFactor, decisive: VolumeVerdict, settings: ThrottleSettings) -> str:
    total = decisive.state.total_bytes
    hard = human_bytes(settings.hard.in_bytes(total)) if settings.hard else "0 B"
    soft = human_bytes(settings.soft.in_bytes(total)) if settings.soft else hard
    free = _describe_free(decisive) + describe_ahead(decisive.ahead)
    if decision.reason is ThrottleReason.RECOVERY_MARGIN:
        margin = f"{settings.recovery_margin:.0%}"
        return f"{free}, and must be clear of the hard limit {hard} by {margin} before they may write"
    where, counts = name_volume(decisive.key), render_factor(decisive.factor)
    if decisive.freshness is Freshness.NEVER_READ:
        return f"{where} was never readable, and counts as {counts} until it is read"
    if decisive.freshness is Freshness.STALE:
        age_seconds = decision.decided_at.timestamp() - decisive.state.read_ms / 1000
        return f"{where}, last read {human_seconds(age_seconds)} ago, counts as {counts} until it is read"
    if decisive.freshness is Freshness.DEPARTED:
        how = describe_departure(decisive.key, was_taken_out=decisive.state.missing_ms is not None)
        ends = format_second(from_millis(hold_ends_ms(decisive.departed_ms or 0, settings)))
        return f"{how}, and goes on counting as {counts} until {ends}"
    if decision.reason is ThrottleReason.HARD_LIMIT:
        return f"{free}, at or below the hard limit {hard}"
    return f"{free}, between the soft limit {soft} and the hard limit {hard}"
