"""What the throttle policy warns of: conditions that are the case now.

A condition that has begun to hold ends only when it is clear by a margin, as the gate does: a saw-tooth around a limit
is one alert, not one a poll. Nor does silence end it: a volume that is no longer read stays below its limit.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass

from policies.alerts import Condition
from policies.decisions import EVIDENCE_LIMIT, Severity
from policies.throttle.decisions import LimitHit, ThrottleReason
from policies.throttle.facts import BrokerFacts, Freshness, ThrottleFacts
from policies.throttle.judge import ThrottleJudgement, VolumeVerdict
from policies.throttle.limits import Limit
from policies.throttle.messages import place
from policies.throttle.state import BrokerState, VolumeKey
from policies.units import format_duration, human_bytes, human_seconds, millis_of, to_millis

BELOW_SOFT = "volume-below-soft-limit"
BELOW_HARD = "volume-below-hard-limit"
FILLS_SOON = "volume-fills-soon"
UNREAD = "log-dirs-unread"
LIMITS_CROSS = "limits-cross"
FORGOTTEN = "departed-volume-forgotten"

_STILL_SOON = 1.25
"""A volume that fills soon stops doing so when it has a quarter more time than the setting."""


@dataclass(frozen=True, slots=True)
class ThrottleAlertContext:
    """What the conditions are read from."""

    facts: ThrottleFacts
    judgement: ThrottleJudgement
    firing: Set[tuple[str, str]]
    """The alerts (name, subject) whose condition held at the last step: it takes less to keep one than to begin it."""

    def fires(self, alert: str, key: VolumeKey) -> bool:
        """Whether the alert about this volume held at the last step."""
        return (alert, _volume_subject(self.facts.cluster, key)) in self.firing


def conditions(context: ThrottleAlertContext) -> Iterator[Condition]:
    """Everything that is the case now."""
    for volume in context.judgement.volumes:
        yield from _of_volume(context, volume)
    yield from _unread(context)
    for forgotten in context.judgement.forgotten:
        what = f"{place(forgotten.key)} left {context.facts.cluster} while it limited the cluster, and no longer counts"
        yield _condition(context, FORGOTTEN, Severity.WARNING, "departed_volume", forgotten.key, what)


def _of_volume(context: ThrottleAlertContext, volume: VolumeVerdict) -> Iterator[Condition]:
    hard, soft = context.facts.settings.hard, context.facts.settings.soft
    if hard and _is_below(context, BELOW_HARD, volume, hard):
        what = f"{_free(context, volume)}, hard limit {_on(volume, hard)}"
        yield _about(context, BELOW_HARD, Severity.CRITICAL, "hard_limit", volume, what)
    if soft and _is_below(context, BELOW_SOFT, volume, soft):
        what = f"{_free(context, volume)}, soft limit {_on(volume, soft)}"
        yield _about(context, BELOW_SOFT, Severity.WARNING, "soft_limit", volume, what)
    if volume.seconds_to_full is not None and _is_soon(context, volume, volume.seconds_to_full):
        left = human_seconds(volume.seconds_to_full)
        what = f"{_free(context, volume)} and is full in {left} at its present rate"
        yield _about(context, FILLS_SOON, Severity.WARNING, "trend", volume, what)
    if hard and soft and _cross(context, volume, hard, soft):
        what = (
            f"the soft limit is not above the hard limit on {place(volume.key)} of {context.facts.cluster}: "
            "producers would be stopped there without being slowed first"
        )
        yield _about(context, LIMITS_CROSS, Severity.WARNING, "limits_cross", volume, what)


def _is_below(context: ThrottleAlertContext, alert: str, volume: VolumeVerdict, limit: Limit) -> bool:
    usable, total = volume.state.usable_bytes, volume.state.total_bytes
    if not limit.reached(usable, total, margin=context.facts.settings.recovery_margin):
        return False
    begins = volume.freshness is Freshness.FRESH and limit.reached(usable, total)
    return begins or context.fires(alert, volume.key)


def _is_soon(context: ThrottleAlertContext, volume: VolumeVerdict, seconds_to_full: float) -> bool:
    margin = _STILL_SOON if context.fires(FILLS_SOON, volume.key) else 1.0
    return seconds_to_full < context.facts.settings.time_to_full_alert.total_seconds() * margin


def _cross(context: ThrottleAlertContext, volume: VolumeVerdict, hard: Limit, soft: Limit) -> bool:
    if not soft.crosses(hard, volume.state.total_bytes):
        return False
    begins = volume.freshness is Freshness.FRESH and volume.hit is not LimitHit.NONE
    return begins or context.fires(LIMITS_CROSS, volume.key)


def _unread(context: ThrottleAlertContext) -> Iterator[Condition]:
    """A member broker that is unread for `validity`; critical for the cluster when nothing valid is known."""
    unread = [b.state for b in context.judgement.brokers if _is_unread(b, context)]
    yield from (_of_broker(context, broker) for broker in unread)
    for volume in context.judgement.volumes:
        if volume.freshness is Freshness.STALE and volume.broker.freshness is Freshness.FRESH:
            number, log_dir = volume.key
            yield _about(
                context, UNREAD, Severity.WARNING, "unreadable", volume,
                f"broker {number} of {context.facts.cluster} answers, but cannot read {log_dir} "
                f"for {format_duration(context.facts.settings.validity)}",
            )  # fmt: skip
    cluster = context.facts.cluster
    is_fallback = context.judgement.raw.reason is ThrottleReason.NO_DATA
    if is_fallback or (unread and not any(v.freshness is Freshness.FRESH for v in context.judgement.volumes)):
        yield Condition(
            alert=UNREAD,
            subject=cluster,
            severity=Severity.CRITICAL,
            reason="no_data",
            summary=f"nothing is known of the log dirs of {cluster}: no valid reading of any of its brokers",
            labels={"cluster": cluster},
            evidence=tuple(b.tried_id for b in unread if b.tried_id)[:EVIDENCE_LIMIT],
        )


def _is_unread(broker: BrokerFacts, context: ThrottleAlertContext) -> bool:
    since_ms = max(broker.state.read_ms, broker.state.seen_ms)
    unread_ms = to_millis(context.facts.now) - since_ms
    return broker.freshness is Freshness.STALE and unread_ms >= millis_of(context.facts.settings.validity)


def _of_broker(context: ThrottleAlertContext, broker: BrokerState) -> Condition:
    why = broker.outcome if broker.outcome not in ("", "ok") else "silence"
    return Condition(
        alert=UNREAD,
        subject=f"{context.facts.cluster}/{broker.broker}",
        severity=Severity.WARNING,
        reason=why,
        summary=f"log dirs of broker {broker.broker} of {context.facts.cluster} are unread for "
        f"{format_duration(context.facts.settings.validity)} ({why})",
        labels={"cluster": context.facts.cluster, "broker": str(broker.broker)},
        evidence=(broker.tried_id,) if broker.tried_id else (),
    )


def _about(
    context: ThrottleAlertContext, alert: str, severity: Severity, reason: str, volume: VolumeVerdict, summary: str
) -> Condition:
    read_id = volume.broker.state.read_id
    return _condition(context, alert, severity, reason, volume.key, summary, (read_id,) if read_id else ())


def _condition(
    context: ThrottleAlertContext, alert: str, severity: Severity, reason: str, key: VolumeKey, summary: str,
    evidence: tuple[str, ...] = (),
) -> Condition:  # fmt: skip
    broker, log_dir = key
    return Condition(
        alert=alert,
        subject=_volume_subject(context.facts.cluster, key),
        severity=severity,
        reason=reason,
        summary=summary,
        labels={"cluster": context.facts.cluster, "broker": str(broker), "log_dir": log_dir},
        evidence=evidence,
    )


def _on(volume: VolumeVerdict, limit: Limit) -> str:
    return human_bytes(limit.in_bytes(volume.state.total_bytes))


def _free(context: ThrottleAlertContext, volume: VolumeVerdict) -> str:
    return f"{place(volume.key)} of {context.facts.cluster} has {human_bytes(volume.state.usable_bytes)} free"


def _volume_subject(cluster: str, key: VolumeKey) -> str:
    """``<cluster>/<broker>/<log dir>``."""
    broker, log_dir = key
    return f"{cluster}/{broker}/{log_dir.lstrip('/')}"
