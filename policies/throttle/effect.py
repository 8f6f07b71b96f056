"""Whether a throttle has the expected effect: the limiting volumes' growth, compared with the growth before it.

Kafka does not report how many clients share an entity, so what the quotas let through is no upper bound. But where all
quotas fell to below half, a growth that did not fall to below half is not slowed down. So is a growth that the replica
sizes ascribe to files that are not Kafka's. What one client of each entity may write is expected in any case. Two
quota windows one after the other are an alert.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from math import inf

from policies.alerts import AlertEntry, Condition
from policies.decisions import Severity
from policies.free_space.effect import EffectState, VolumeGrowth, follow_growth
from policies.free_space.wording import render_factor
from policies.throttle.alert_kinds import CONTESTED, ESCAPED, NOT_CARRIED_OUT, UNKNOWN_ORIGINAL, WITHOUT_EFFECT
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.quota_entities import forget_command
from policies.throttle.quota_state import NamedQuota, QuotaState
from policies.throttle.readings import VolumeUsage
from policies.throttle.state import GrowthBefore, VolumeKey, name_volume
from policies.throttle.usage import describe_growth, explains
from policies.units import counted, format_duration, human_bytes, human_rate, human_seconds, name_some

_BY_ACTUATOR = (NOT_CARRIED_OUT, ESCAPED, CONTESTED, UNKNOWN_ORIGINAL, WITHOUT_EFFECT)
FindUsage = Callable[[VolumeKey], VolumeUsage | None]

_TOLERATED = 2.0
"""Growth up to this multiple of what the quotas let through is expected: indexes, and requests under way."""
_HALF = 0.5


def follow_growth_before(
    known: Iterable[GrowthBefore], quotas: QuotaState | None, limiting: Mapping[VolumeKey, VolumeVerdict]
) -> tuple[GrowthBefore, ...]:
    """Return the fastest growth of each limiting volume from before all quotas of the throttle were in force."""
    rates = {growth.volume: growth.bytes_per_second for growth in known if growth.volume in limiting}
    if not _is_in_force(quotas):
        for key, volume in limiting.items():
            if volume.state.line is not None:
                rates[key] = max(rates.get(key, 0.0), -1000 * volume.state.line.slope)
    return tuple(GrowthBefore(key, rates[key]) for key in sorted(rates))


def follow_volumes(
    before: Iterable[VolumeGrowth[VolumeKey]],
    growths_before: Iterable[GrowthBefore],
    quotas: QuotaState | None,
    limiting: Mapping[VolumeKey, VolumeVerdict],
    find_usage: FindUsage,
) -> tuple[VolumeGrowth[VolumeKey], ...]:
    """Return the growth of the limiting volumes while all quotas of a throttle are in force."""
    if quotas is None or not _is_in_force(quotas) or (quotas.factor or 0.0) >= _HALF:
        return ()
    before = tuple(before)
    known = {growth.volume: growth for growth in before}
    usual = {growth.volume: growth.bytes_per_second for growth in growths_before}
    # In a stop all entities have about the same quota, the floor. Clients of one of them may fill the volume.
    entities = quotas.set_count if quotas.factor == 0.0 else 1
    least = _TOLERATED * quotas.let_through_bytes_per_second / entities

    def expect(volume: VolumeVerdict) -> float:
        growth, usage, most = known.get(volume.key), find_usage(volume.key), _HALF * usual.get(volume.key, inf)
        if growth is not None and growth.is_unexpected and growth.most_bytes_per_second < most:
            return least  # it was foreign: usage that is not known any more is no recovery
        rate = growth.bytes_per_second if growth is not None else 0.0
        return least if usage is not None and _is_foreign(usage) and explains(usage, rate) else max(least, most)

    return follow_growth(before, ((volume, expect(volume)) for volume in limiting.values()), quotas.window_seconds)


def _is_in_force(quotas: QuotaState | None) -> bool:
    """Whether all quotas of a throttle are in force."""
    is_throttled = quotas is not None and quotas.factor is not None and quotas.factor < 1.0
    return quotas is not None and is_throttled and quotas.is_settled and quotas.set_count > 0


def find_effect_conditions(
    cluster: str,
    state: EffectState,
    quotas: QuotaState | None,
    growths: Iterable[VolumeGrowth[VolumeKey]],
    growths_before: Iterable[GrowthBefore],
    find_usage: FindUsage,
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
        rate = human_rate(fastest.bytes_per_second)
        fills = f"filled by {rate} until it was full" if fastest.is_full else f"fills by {rate}"
        usual = next((each for each in growths_before if each.volume == fastest.volume), None)
        compared = f" (before: {human_rate(usual.bytes_per_second)})" if usual else ""
        summary = (
            f"{cluster} is {_request(quotas)}, but {name_volume(fastest.volume)} {fills}{compared}{more} where its "
            f"quotas let through {human_rate(quotas.let_through_bytes_per_second)}: "
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
    if usage is not None and not explains(usage, bytes_per_second):
        usage = None
    if quotas.escaping:
        return f"clients escape by {_list(quotas.escaping)}"
    if quotas.callback_brokers:
        listed = name_some([str(each) for each in quotas.callback_brokers])
        which = f"broker {listed} ignores" if len(quotas.callback_brokers) == 1 else f"brokers {listed} ignore"
        return f"{which} quotas because of a client.quota.callback.class"
    if usage is not None and _is_foreign(usage):
        return f"a user of the disk that is not Kafka ({describe_growth(usage)})"
    growing = [each for each in usage.topics if (each.share or 0.0) >= 0.5] if usage is not None else []
    if growing and growing[0].topic.startswith("__"):
        return f"the internal topic {growing[0].topic}"
    if growing and growing[0].is_moved:
        return describe_growth(usage)
    excluded = f"excluded users ({name_some(quotas.excluded_users)}), " if quotas.excluded_users else ""
    excluded += "a user of the disk that is not Kafka, " if usage is None else ""
    known = f" ({growth})" if (growth := describe_growth(usage)) else ""
    excluded += "clients without a client id, " if quotas.clients_without_id_escape else ""
    return f"{excluded}a partition that is being moved here, or many clients that write less than their quotas{known}"


def _is_foreign(usage: VolumeUsage) -> bool:
    """Whether files that are not Kafka's are at least half of what grows."""
    return (usage.other_share or 0.0) >= _HALF


def _list(named: Sequence[NamedQuota]) -> str:
    return name_some([f"{each.entity} ({_render(each)})" for each in named])


def _render(quota: NamedQuota) -> str:
    return "no quota" if quota.bytes_per_second is None else f"{human_bytes(quota.bytes_per_second)}/s"
