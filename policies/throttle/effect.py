"""Whether a throttle has the expected effect: the limiting volumes' growth, compared with what the quotas let through.

The quotas let through at most (the sum over all entities) x (brokers), and a volume holds at most one replica of each
partition. So no limiting volume grows faster, unless something escapes. Growth beyond twice that, in two quota windows
one after the other, is an alert.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from policies.alerts import AlertEntry, Condition
from policies.decisions import Severity
from policies.free_space.effect import EffectState, VolumeGrowth, follow_growth
from policies.free_space.wording import render_factor
from policies.throttle.alert_kinds import CONTESTED, ESCAPED, NOT_CARRIED_OUT, UNKNOWN_ORIGINAL, WITHOUT_EFFECT
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.quota_entities import forget_command
from policies.throttle.quota_state import NamedQuota, QuotaState
from policies.throttle.readings import VolumeUsage
from policies.throttle.state import VolumeKey, name_volume
from policies.throttle.usage import describe_growth
from policies.units import counted, format_duration, human_bytes, human_rate, human_seconds, name_some

_BY_ACTUATOR = (NOT_CARRIED_OUT, ESCAPED, CONTESTED, UNKNOWN_ORIGINAL, WITHOUT_EFFECT)
_TOLERATED = 2.0
"""Growth up to this multiple of what the quotas let through is expected: indexes, and requests under way."""

_SAME_RATE = 1.25
"""Two growths of a volume that differ by less than this factor have the same cause."""


def follow_volumes(
    before: Iterable[VolumeGrowth[VolumeKey]], quotas: QuotaState | None, limiting: Mapping[VolumeKey, VolumeVerdict]
) -> tuple[VolumeGrowth[VolumeKey], ...]:
    """Return the growth of the limiting volumes while all quotas of a throttle are in force."""
    if quotas is None or not quotas.is_settled or not quotas.set_count or quotas.factor in (None, 1.0):
        return ()
    most = _TOLERATED * quotas.let_through_bytes_per_second
    return follow_growth(before, ((volume, most) for volume in limiting.values()), quotas.window_seconds)


def find_effect_conditions(
    cluster: str,
    state: EffectState,
    quotas: QuotaState | None,
    growths: Iterable[VolumeGrowth[VolumeKey]],
    find_usage: Callable[[VolumeKey], VolumeUsage | None],
) -> Iterator[Condition]:
    """Find the alert conditions of a cluster's quotas, from the actuator's last reading and the limiting volumes."""
    if quotas is None:
        return
    labels = {"cluster": cluster}
    if quotas.factor is not None and quotas.factor < 1.0 and not quotas.set_count:
        why = quotas.not_set or "the quota actuator has set no quota"
        summary = f"{cluster} should be {_request(quotas)}, which is not carried out: nobody is slowed down: {why}"
        yield Condition(NOT_CARRIED_OUT, cluster, Severity.CRITICAL, "not_set", summary, labels, (state.id,))
    if quotas.escaping_count or quotas.clients_without_id_escape:
        severity = Severity.CRITICAL if quotas.factor == 0.0 and quotas.escaping_count else Severity.WARNING
        summary = "; ".join(_describe_escapes(cluster, quotas))
        yield Condition(ESCAPED, cluster, severity, "escaped", summary, labels, (state.id,), quotas.escaping_count)
    for each in quotas.contested:
        period = "again and again" if each.period_seconds is None else f"every {human_seconds(each.period_seconds)}"
        summary = f"somebody else sets the quota {each.entity} of {cluster} to {_render(each)} {period}: "
        summary += "take it out of the hands of that operator"
        subject = f"{cluster}/{each.entity}"
        yield Condition(CONTESTED, subject, Severity.WARNING, "contested", summary, labels, (state.id,))
    for each in quotas.unknown:
        summary = (
            f"the quota {each.entity} of {cluster} is {_render(each)}, which Headgate may have set, and no record "
        )
        summary += f"tells the original: set it, or keep it with {forget_command(each.entity)}"
        subject = f"{cluster}/{each.entity}"
        yield Condition(UNKNOWN_ORIGINAL, subject, Severity.WARNING, "unknown_original", summary, labels, (state.id,))
    growing = [growth for growth in growths if growth.is_unexpected]
    if growing:
        fastest = max(growing, key=lambda growth: growth.bytes_per_second)
        more = f" (and {counted(len(growing) - 1, 'more volume')})" if len(growing) > 1 else ""
        summary = (
            f"{cluster} is {_request(quotas)}, but {name_volume(fastest.volume)} fills by "
            f"{human_rate(fastest.bytes_per_second)}{more} where its quotas let through "
            f"{human_rate(quotas.let_through_bytes_per_second)}: "
            f"{_find_cause(quotas, find_usage(fastest.volume), fastest.bytes_per_second)}"
        )
        yield Condition(WITHOUT_EFFECT, cluster, Severity.CRITICAL, "no_effect", summary, labels)


def _describe_escapes(cluster: str, quotas: QuotaState) -> Iterator[str]:
    if quotas.escaping_count:
        decide, unscaled = ("decides", "is") if quotas.escaping_count == 1 else ("decide", "are")
        yield (
            f"{counted(quotas.escaping_count, 'quota')} of {cluster} {decide} in place of the configured entities and "
            f"{unscaled} not scaled, so these clients escape: {_list(quotas.escaping)}"
        )
    if quotas.clients_without_id_escape:
        stop = "" if quotas.factor == 0.0 else ", and only a stop with `cover: all` reaches them"
        yield f"clients of {cluster} without a client id may escape: no quota of a client id applies to them{stop}"


def _request(quotas: QuotaState) -> str:
    return f"slowed to {render_factor(quotas.factor)}" if quotas.factor else "stopped"


def find_effect_ends(
    entries: Iterable[AlertEntry], quotas: QuotaState | None, validity: timedelta
) -> dict[tuple[str, str], str]:
    """Return, by alert and subject, why alerts about quotas end though no reading shows that they are over."""
    if quotas is not None:
        return {}
    why = f"ends: the quota actuator has not reported for {format_duration(validity)}"
    return {(e.alert, e.subject): why for e in entries if e.alert in _BY_ACTUATOR}


def _find_cause(quotas: QuotaState, usage: VolumeUsage | None, bytes_per_second: float) -> str:
    """Name the likely cause of a growth."""
    if usage is not None and not _explains(usage, bytes_per_second):
        usage = None
    if quotas.escaping:
        return f"clients escape by {_list(quotas.escaping)}"
    if quotas.callback_brokers:
        listed = name_some([str(each) for each in quotas.callback_brokers])
        which = f"broker {listed} ignores" if len(quotas.callback_brokers) == 1 else f"brokers {listed} ignore"
        return f"{which} quotas because of a client.quota.callback.class"
    if usage is not None and (usage.other_share or 0.0) >= 0.5:
        return f"a user of the disk that is not Kafka ({describe_growth(usage)})"
    growing = [each for each in usage.topics if (each.share or 0.0) >= 0.5] if usage is not None else []
    if growing and growing[0].topic.startswith("__"):
        return f"the internal topic {growing[0].topic}"
    excluded = f"excluded users ({name_some(quotas.excluded_users)}), " if quotas.excluded_users else ""
    excluded += "a user of the disk that is not Kafka, " if usage is None else ""
    known = f" ({growth})" if (growth := describe_growth(usage)) else ""
    return f"{excluded}a partition that is being moved here, or more clients than entities with a default quota{known}"


def _explains(usage: VolumeUsage, bytes_per_second: float) -> bool:
    """Whether a volume still grows as it did when its usage was measured.

    The usage is measured once a minute, and a quota window takes seconds. If topics had filled the volume until their
    writers were stopped, they would be named for what fills it now.
    """
    total = max(0.0, usage.kafka_bytes_per_second or 0.0) + max(0.0, usage.other_bytes_per_second or 0.0)
    return bytes_per_second / _SAME_RATE <= total <= bytes_per_second * _SAME_RATE


def _list(named: Sequence[NamedQuota]) -> str:
    return name_some([f"{each.entity} ({_render(each)})" for each in named])


def _render(quota: NamedQuota) -> str:
    return "no quota" if quota.bytes_per_second is None else f"{human_bytes(quota.bytes_per_second)}/s"
