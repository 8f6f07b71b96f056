"""Alert conditions of the throttle policy.

Like the gate, a condition ends by a margin only, so a saw-tooth around a limit is one alert and not one per poll.
Silence does not end it, either: a volume that is no longer read stays below its limit.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from policies.alerts import AlertEntry, Condition
from policies.decisions import EVIDENCE_LIMIT, Severity
from policies.free_space.limits import Limit, LimitHit
from policies.free_space.repeats import is_full_soon
from policies.free_space.volumes import Freshness, seconds_left
from policies.throttle.alert_kinds import BELOW_HARD, BELOW_SOFT, FILLS_SOON, FORGOTTEN, LIMITS_CROSS, UNREAD
from policies.throttle.facts import BrokerFacts, VolumeFacts
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import BrokerState, ForgottenVolume, VolumeKey, name_volume
from policies.throttle.usage import describe_growth, find_usage
from policies.units import format_duration, human_bytes, human_seconds, millis_of

AlertKey = tuple[str, str]
"""(name, subject)"""


@dataclass(frozen=True, slots=True)
class _Context:
    cluster: str
    now_ms: int
    settings: ThrottleSettings
    firing: Container[AlertKey]
    broker: BrokerState

    def is_firing(self, alert: str, volume: VolumeVerdict) -> bool:
        """Return whether the condition of this alert held at the last step."""
        return (alert, _make_subject(self.cluster, volume.key)) in self.firing

    def describe_free(self, volume: VolumeVerdict) -> str:
        """Name the volume and its free space."""
        return f"{name_volume(volume.key)} of {self.cluster} has {human_bytes(volume.state.usable_bytes)} free"

    def describe_growth(self, volume: VolumeVerdict) -> str:
        """Name the topics that fill the volume, as the end of a sentence; empty if they are not known."""
        validity_ms = millis_of(self.settings.validity)
        growth = describe_growth(find_usage(self.broker, volume.key[1], self.now_ms, validity_ms))
        return f"; {growth}" if growth else ""

    def make_condition(
        self, alert: str, severity: Severity, reason: str, volume: VolumeFacts, summary: str
    ) -> Condition:
        """Make the condition of an alert about a volume."""
        evidence = (volume.read_id,) if volume.read_id else ()
        return _make_condition(self.cluster, alert, severity, reason, volume.key, summary, evidence)


def find_broker_conditions(
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
    context = _Context(cluster, now_ms, settings, firing, broker.state)
    number = broker.state.broker
    for volume in volumes:
        if volume.freshness is Freshness.NEVER_READ:
            continue
        yield from _find_limits_reached(context, volume)
        yield from _find_full_soon(context, volume)
        if volume.freshness is Freshness.STALE and broker.freshness is Freshness.FRESH:
            unread_for = format_duration(settings.validity)
            summary = f"broker {number} of {cluster} answers, but cannot read {volume.key[1]} for {unread_for}"
            yield context.make_condition(UNREAD, Severity.WARNING, "unreadable", volume, summary)
    if broker.freshness is Freshness.FRESH:
        yield from _find_never_read(context, broker)
    if broker.is_unread:
        outcome, tried_id = broker.state.outcome, broker.state.tried_id
        why = outcome if outcome not in ("", "ok") else "silence"
        yield Condition(
            alert=UNREAD,
            subject=f"{cluster}/{number}",
            severity=Severity.WARNING,
            reason=why,
            summary=f"log dirs of broker {number} of {cluster} are unread for "
            f"{format_duration(settings.validity)} ({why})",
            labels={"cluster": cluster, "broker": str(number)},
            evidence=(tried_id,) if tried_id else (),
        )


def find_cluster_conditions(
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
        summary = f"{name_volume(volume.key)} left {cluster} while it limited the cluster, and no longer counts"
        yield _make_condition(cluster, FORGOTTEN, Severity.WARNING, "departed_volume", volume.key, summary)
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


def list_firing(entries: Iterable[AlertEntry]) -> Iterator[tuple[int, AlertKey]]:
    """Pair each open alert about a broker or volume with the broker's number."""
    return ((int(e.labels["broker"]), (e.alert, e.subject)) for e in entries if "broker" in e.labels)


def _find_limits_reached(context: _Context, volume: VolumeVerdict) -> Iterator[Condition]:
    hard, soft, total = context.settings.hard, context.settings.soft, volume.state.total_bytes
    for alert, severity, hit, limit in (
        (BELOW_HARD, Severity.CRITICAL, LimitHit.HARD, hard),
        (BELOW_SOFT, Severity.WARNING, LimitHit.SOFT, soft),
    ):
        if limit and _is_below(context, alert, volume, limit):
            level = f"{hit.value} limit {human_bytes(limit.in_bytes(total))}"
            summary = f"{context.describe_free(volume)}, {level}{context.describe_growth(volume)}"
            yield context.make_condition(alert, severity, f"{hit.value}_limit", volume, summary)
    if hard and soft and soft.crosses(hard, total):
        begins = volume.freshness is Freshness.FRESH and volume.hit is not LimitHit.NONE
        if begins or context.is_firing(LIMITS_CROSS, volume):
            summary = (
                f"the soft limit is not above the hard limit on {name_volume(volume.key)} of {context.cluster}: "
                "producers would be stopped there without being slowed first"
            )
            yield context.make_condition(LIMITS_CROSS, Severity.WARNING, "limits_cross", volume, summary)


def _is_below(context: _Context, alert: str, volume: VolumeVerdict, limit: Limit) -> bool:
    usable, total = volume.state.usable_bytes, volume.state.total_bytes
    if not limit.reached(usable, total, margin=context.settings.recovery_margin):
        return False
    begins = volume.freshness is Freshness.FRESH and limit.reached(usable, total)
    return begins or context.is_firing(alert, volume)


def _find_never_read(context: _Context, broker: BrokerFacts) -> Iterator[Condition]:
    """Find the log dirs that a broker that answers never could read; with the preset `strimzi`, too."""
    for volume in broker.volumes:
        if volume.overdue_ms is not None and volume.overdue_ms <= context.now_ms and volume.departed_ms is None:
            summary = (
                f"broker {broker.state.broker} of {context.cluster} answers, but {volume.key[1]} was never readable"
            )
            yield context.make_condition(UNREAD, Severity.WARNING, "unreadable", volume, summary)


def _find_full_soon(context: _Context, volume: VolumeVerdict) -> Iterator[Condition]:
    seconds = None if volume.full_ms is None else seconds_left(volume.state, context.now_ms)
    if seconds is None:
        return
    if is_full_soon(seconds, context.settings, is_firing=context.is_firing(FILLS_SOON, volume)):
        when = f"is full in {human_seconds(seconds)} at its present rate"
        summary = f"{context.describe_free(volume)} and {when}{context.describe_growth(volume)}"
        yield context.make_condition(FILLS_SOON, Severity.WARNING, "trend", volume, summary)


def _make_condition(
    cluster: str,
    alert: str,
    severity: Severity,
    reason: str,
    key: VolumeKey,
    summary: str,
    evidence: tuple[str, ...] = (),
) -> Condition:
    broker, log_dir = key
    return Condition(
        alert=alert,
        subject=_make_subject(cluster, key),
        severity=severity,
        reason=reason,
        summary=summary,
        labels={"cluster": cluster, "broker": str(broker), "log_dir": log_dir},
        evidence=evidence,
    )


def _make_subject(cluster: str, key: VolumeKey) -> str:
    """``<cluster>/<broker>/<log dir>``."""
    broker, log_dir = key
    return f"{cluster}/{broker}/{log_dir.lstrip('/')}"
