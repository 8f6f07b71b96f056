"""Alert conditions of the throttle policy, in addition to those of `policies.free_space.alerts`."""

from collections.abc import Container, Iterable, Iterator
from shlex import join

from policies.alerts import AlertEntry, Condition
from policies.decisions import EVIDENCE_LIMIT, Severity
from policies.free_space.alerts import AlertKey, SpaceAlertContext, SpaceAlerts
from policies.free_space.limits import LimitHit
from policies.free_space.verdicts import VolumeFacts, is_overdue
from policies.free_space.volumes import Freshness
from policies.throttle.alert_kinds import (
    BELOW_HARD,
    BELOW_SOFT,
    FILLS_SOON,
    FORGOTTEN,
    LIMITS_CROSS,
    OFFLINE,
    REPLACED,
    UNREAD,
)
from policies.throttle.facts import BrokerFacts
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import (
    BrokerState,
    ForgottenVolume,
    KafkaClusterState,
    VolumeKey,
    describe_departure,
    name_volume,
)
from policies.throttle.usage import describe_filling
from policies.units import format_duration, format_second, from_millis, human_bytes, millis_of

_NAMES = SpaceAlerts("broker", "log_dir", BELOW_HARD, BELOW_SOFT, FILLS_SOON)


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
        volumes: those of its volumes that count.
        firing: the alerts whose condition held at the last step. Such a condition ends by a margin only.
    """
    context = SpaceAlertContext(_NAMES, cluster, now_ms, settings, firing)
    number, validity_ms = broker.state.broker, millis_of(settings.validity)
    for volume in volumes:
        if volume.freshness is Freshness.NEVER_READ:
            continue
        growth = describe_filling(broker.state, volume.state, now_ms, validity_ms)
        yield from context.find_conditions(volume, f"; {growth}" if growth else "")
        yield from _find_limits_cross(context, volume)
    yield from _find_unreadable(context, broker)
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
    cluster: str,
    known: KafkaClusterState,
    forgotten: Iterable[ForgottenVolume],
    *,
    is_nothing_known: bool,
    unread: Iterable[BrokerState],
) -> Iterator[Condition]:
    """Find the alert conditions of the cluster as a whole.

    Args:
        forgotten: departed volumes to be named.
        unread: its brokers that are unread for `validity`.
    """
    if known.other_id is not None:
        summary = (
            f"another Kafka cluster answers for {cluster}: its id is {known.other_id}, before it was "
            f"{known.cluster_id}; its readings do not count, and nothing is set on it until somebody runs "
            f"{join(['headgate', 'adopt', '--cluster', cluster])}"
        )
        labels = {"cluster": cluster, "cluster_id": known.other_id}
        yield Condition(REPLACED, cluster, Severity.CRITICAL, "replaced", summary, labels)
    for volume in forgotten:
        how = describe_departure(volume.key, was_taken_out=volume.was_taken_out)
        summary = f"{cluster}: {how}, and no longer counts"
        yield _NAMES.make_condition(cluster, FORGOTTEN, Severity.WARNING, "departed_volume", volume.key, summary)
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


def _find_limits_cross(context: SpaceAlertContext, volume: VolumeVerdict) -> Iterator[Condition]:
    hard, soft = context.settings.hard, context.settings.soft
    if hard is None or soft is None:
        return
    begins = volume.freshness is Freshness.FRESH and volume.hit is not LimitHit.NONE
    if (begins or context.is_firing(LIMITS_CROSS, volume)) and soft.crosses(hard, volume.state.total_bytes):
        summary = (
            f"the soft limit is not above the hard limit on {name_volume(volume.key)} of {context.cluster}: "
            "producers would be stopped there without being slowed first"
        )
        yield context.make_condition(LIMITS_CROSS, Severity.WARNING, "limits_cross", volume, summary)


def _find_unreadable(context: SpaceAlertContext, broker: BrokerFacts) -> Iterator[Condition]:
    """Find the log dirs that their broker reports as failed, and those that it has not read for `validity`.

    With the preset `strimzi`, too: there they are watched, though they no longer count.
    """
    state = broker.state
    name = f"broker {state.broker} of {context.cluster}"
    volumes = {volume.key[1]: volume for volume in broker.volumes if volume.departed_ms is None}
    if state.left_ms is None:
        for log_dir, error in state.errors:
            known = _describe_last_read(volumes.get(log_dir))
            summary, key = f"{name} reports its log dir {log_dir} as failed ({error}){known}", (state.broker, log_dir)
            yield _NAMES.make_condition(
                context.cluster, OFFLINE, Severity.CRITICAL, "offline", key, summary, state.read_id
            )
    if broker.freshness is Freshness.FRESH:
        for log_dir, volume in volumes.items():
            if is_overdue(volume, context.now_ms) and state.find_error(log_dir) is None:
                unread_for = format_duration(context.settings.validity)
                summary = f"{name} answers, but cannot read {log_dir} for {unread_for}"
                yield context.make_condition(UNREAD, Severity.WARNING, "unreadable", volume, summary)


def _describe_last_read(volume: VolumeFacts[VolumeKey] | None) -> str:
    if volume is None or volume.freshness is Freshness.NEVER_READ:
        return ""
    free, read_at = human_bytes(volume.state.usable_bytes), format_second(from_millis(volume.state.read_ms))
    return f"; it had {free} free when it was last read, at {read_at}"
