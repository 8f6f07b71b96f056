"""Alert conditions of the throttle policy.

Like the gate, a condition ends only when it is clear by a margin, so a saw-tooth around a limit is one alert and not
one per poll. Silence does not end it, either: a volume that is no longer read stays below its limit.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from policies.alerts import AlertEntry, Condition
from policies.decisions import EVIDENCE_LIMIT, Severity
from policies.throttle.decisions import LimitHit
from policies.throttle.facts import BrokerFacts, Freshness, seconds_left
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.limits import Limit
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import BrokerState, ForgottenVolume, VolumeKey, place
from policies.units import format_duration, human_bytes, human_seconds

BELOW_SOFT = "volume-below-soft-limit"
BELOW_HARD = "volume-below-hard-limit"
FILLS_SOON = "volume-fills-soon"
UNREAD = "log-dirs-unread"
LIMITS_CROSS = "limits-cross"
FORGOTTEN = "departed-volume-forgotten"

_STILL_SOON = 1.25
"""A volume that fills soon stops doing so when it has a quarter more time than the setting."""


AlertKey = tuple[str, str]
"""(name, subject)"""


@dataclass(frozen=True, slots=True)
class _Context:
    cluster: str
    now_ms: int
    settings: ThrottleSettings
    firing: Container[AlertKey]

    def is_firing(self, alert: str, key: VolumeKey) -> bool:
        """Whether the condition of this alert about a volume held at the last step."""
        return (alert, _volume_subject(self.cluster, key)) in self.firing


def conditions_of_broker(
    cluster: str,
    broker: BrokerFacts,
    volumes: Iterable[VolumeVerdict],
    now_ms: int,
    settings: ThrottleSettings,
    firing: Container[AlertKey],
) -> Iterator[Condition]:
    """Find the alert conditions of one broker and its volumes.

    Args:
        cluster: the broker's cluster.
        broker: its facts.
        volumes: those of its volumes that count.
        now_ms: the time of this step.
        settings: the cluster's.
        firing: the alerts whose condition held at the last step. Such a condition ends by a margin only.
    """
    context = _Context(cluster, now_ms, settings, firing)
    for volume in volumes:
        yield from _of_volume(context, volume)
        if volume.freshness is Freshness.STALE and broker.freshness is Freshness.FRESH:
            number, log_dir = volume.key
            yield _about(
                context, UNREAD, Severity.WARNING, "unreadable", volume,
                f"broker {number} of {cluster} answers, but cannot read {log_dir} "
                f"for {format_duration(settings.validity)}",
            )  # fmt: skip
    if broker.is_unread:
        yield _of_broker(context, broker.state)


def conditions_of_cluster(
    cluster: str, forgotten: Iterable[ForgottenVolume], *, is_nothing_known: bool, unread: Iterable[BrokerState]
) -> Iterator[Condition]:
    """Find the alert conditions of the cluster as a whole.

    Args:
        cluster: its name.
        forgotten: departed volumes to be named.
        is_nothing_known: whether no broker has a valid reading.
        unread: its brokers that are unread for `validity`.
    """
    for volume in forgotten:
        what = f"{place(volume.key)} left {cluster} while it limited the cluster, and no longer counts"
        yield _condition(cluster, FORGOTTEN, Severity.WARNING, "departed_volume", volume.key, what)
    if is_nothing_known:
        yield Condition(
            alert=UNREAD,
            subject=cluster,
            severity=Severity.CRITICAL,
            reason="no_data",
            summary=f"nothing is known of the log dirs of {cluster}: no valid reading of any of its brokers",
            labels={"cluster": cluster},
            evidence=tuple(b.tried_id for b in unread if b.tried_id)[:EVIDENCE_LIMIT],
        )


def pair_with_brokers(entries: Iterable[AlertEntry]) -> Iterator[tuple[int, AlertKey]]:
    """Pair each open alert about a broker or volume with the broker's number."""
    return ((int(e.labels["broker"]), (e.alert, e.subject)) for e in entries if "broker" in e.labels)


def _of_volume(context: _Context, volume: VolumeVerdict) -> Iterator[Condition]:
    hard, soft = context.settings.hard, context.settings.soft
    if hard and _is_below(context, BELOW_HARD, volume, hard):
        what = f"{_free(context, volume)}, hard limit {_on(volume, hard)}"
        yield _about(context, BELOW_HARD, Severity.CRITICAL, "hard_limit", volume, what)
    if soft and _is_below(context, BELOW_SOFT, volume, soft):
        what = f"{_free(context, volume)}, soft limit {_on(volume, soft)}"
        yield _about(context, BELOW_SOFT, Severity.WARNING, "soft_limit", volume, what)
    seconds = None if volume.full_ms is None else seconds_left(volume.state, context.now_ms)
    if seconds is not None and _is_soon(context, volume, seconds):
        what = f"{_free(context, volume)} and is full in {human_seconds(seconds)} at its present rate"
        yield _about(context, FILLS_SOON, Severity.WARNING, "trend", volume, what)
    if hard and soft and _cross(context, volume, hard, soft):
        what = (
            f"the soft limit is not above the hard limit on {place(volume.key)} of {context.cluster}: "
            "producers would be stopped there without being slowed first"
        )
        yield _about(context, LIMITS_CROSS, Severity.WARNING, "limits_cross", volume, what)


def _is_below(context: _Context, alert: str, volume: VolumeVerdict, limit: Limit) -> bool:
    usable, total = volume.state.usable_bytes, volume.state.total_bytes
    if not limit.reached(usable, total, margin=context.settings.recovery_margin):
        return False
    begins = volume.freshness is Freshness.FRESH and limit.reached(usable, total)
    return begins or context.is_firing(alert, volume.key)


def _is_soon(context: _Context, volume: VolumeVerdict, seconds_to_full: float) -> bool:
    margin = _STILL_SOON if context.is_firing(FILLS_SOON, volume.key) else 1.0
    return seconds_to_full < context.settings.time_to_full_alert.total_seconds() * margin


def _cross(context: _Context, volume: VolumeVerdict, hard: Limit, soft: Limit) -> bool:
    if not soft.crosses(hard, volume.state.total_bytes):
        return False
    begins = volume.freshness is Freshness.FRESH and volume.hit is not LimitHit.NONE
    return begins or context.is_firing(LIMITS_CROSS, volume.key)


def _of_broker(context: _Context, broker: BrokerState) -> Condition:
    why = broker.outcome if broker.outcome not in ("", "ok") else "silence"
    return Condition(
        alert=UNREAD,
        subject=f"{context.cluster}/{broker.broker}",
        severity=Severity.WARNING,
        reason=why,
        summary=f"log dirs of broker {broker.broker} of {context.cluster} are unread for "
        f"{format_duration(context.settings.validity)} ({why})",
        labels={"cluster": context.cluster, "broker": str(broker.broker)},
        evidence=(broker.tried_id,) if broker.tried_id else (),
    )


def _about(
    context: _Context, alert: str, severity: Severity, reason: str, volume: VolumeVerdict, summary: str
) -> Condition:
    evidence = (volume.read_id,) if volume.read_id else ()
    return _condition(context.cluster, alert, severity, reason, volume.key, summary, evidence)


def _condition(
    cluster: str, alert: str, severity: Severity, reason: str, key: VolumeKey, summary: str,
    evidence: tuple[str, ...] = (),
) -> Condition:  # fmt: skip
    broker, log_dir = key
    return Condition(
        alert=alert,
        subject=_volume_subject(cluster, key),
        severity=severity,
        reason=reason,
        summary=summary,
        labels={"cluster": cluster, "broker": str(broker), "log_dir": log_dir},
        evidence=evidence,
    )


def _on(volume: VolumeVerdict, limit: Limit) -> str:
    return human_bytes(limit.in_bytes(volume.state.total_bytes))


def _free(context: _Context, volume: VolumeVerdict) -> str:
    return f"{place(volume.key)} of {context.cluster} has {human_bytes(volume.state.usable_bytes)} free"


def _volume_subject(cluster: str, key: VolumeKey) -> str:
    """``<cluster>/<broker>/<log dir>``."""
    broker, log_dir = key
    return f"{cluster}/{broker}/{log_dir.lstrip('/')}"
