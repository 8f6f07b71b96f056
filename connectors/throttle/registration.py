"""The throttle policy's settings and registration."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from connectors.registration import ClusterSetting, ClusterSources, PolicyConnectors, SettingsWarning, warn_of_interval
from policies.throttle import ThrottleSettings
from policies.throttle.quotas import CATCH_ALL, DEFAULT_WINDOW_SECONDS, full_rate_seconds
from policies.throttle.settings import QuotaSettings
from policies.units import format_duration


def _informed(settings: ThrottleSettings, clusters: Mapping[str, ClusterSources]) -> ThrottleSettings:
    """Add whether an actuator carries out the factor, which the decisions' sentences state, and how fast it stops."""
    return settings.with_defaults({name: _describe_actuator(cluster) for name, cluster in clusters.items()})


def _describe_actuator(cluster: ClusterSources) -> dict[str, object]:
    quotas = cluster.setting(QuotaSettings)
    if quotas is None:
        return {"has_actuator": False, "stop_time": "0s"}
    wait_seconds = quotas.max_told_wait.total_seconds() if quotas.max_told_wait is not None else None
    rate = max(int(spec.base or _USUAL_BASE) for spec in quotas.entities)
    seconds = full_rate_seconds(rate, quotas.floor_bytes_per_second, wait_seconds, DEFAULT_WINDOW_SECONDS)
    return {"has_actuator": True, "stop_time": format_duration(timedelta(seconds=round(seconds, 1)))}


_USUAL_BASE = 10_000_000
"""Assumed for the dead time where an entity's base is its quota in Kafka: the result depends little on it."""


def _warnings(settings: ThrottleSettings, clusters: Mapping[str, ClusterSources]) -> Iterator[SettingsWarning]:
    for name, cluster in clusters.items():
        if cluster.kafka is None:
            continue
        own, place = settings.for_cluster(name), ("clusters", name)
        if not own.limited and cluster.setting(QuotaSettings) is not None:
            yield SettingsWarning((*place, "quotas"), f"carries nothing out: {_NO_LIMIT}")
        elif not own.limited:
            yield SettingsWarning((*place, "kafka"), f"is watched and never throttled: {_NO_LIMIT}")
        quotas = cluster.setting(QuotaSettings)
        if quotas is not None and not any(spec.entity in CATCH_ALL for spec in quotas.entities):
            yield SettingsWarning((*place, "quotas", "entities"), _ESCAPES)
        if quotas is not None and any("*" in (spec.user, spec.client_id) for spec in quotas.entities):
            yield SettingsWarning((*place, "quotas", "entities"), _LITERAL_STAR)
        if own.limited and cluster.kafka.poll_interval >= own.validity:
            yield warn_of_interval(
                (*place, "kafka", "poll_interval"), cluster.kafka.poll_interval, "throttle", own.validity
            )


_LITERAL_STAR = "`*` is a name like any other for Kafka: write default for all without a quota of their own"
_ESCAPES = (
    "clients that none of them names escape: a stop does not reach them; add {client_id: default, base: 10MB}, or the "
    "default user"
)
_NO_LIMIT = (
    "policies.throttle has no limit for it; set hard: {available_bytes_below: 5GB}, or soft: {available_ratio_below: "
    "0.15}, or both"
)
CONNECTORS = PolicyConnectors(
    cluster_settings={
        "quotas": ClusterSetting(
            QuotaSettings,
            "If present, `headgate run` or `headgate act` carries out its throttle factor with Kafka's client quotas. "
            "Its user then needs DescribeConfigs and AlterConfigs on the cluster, too.",
            needs=("kafka.bootstrap_servers",),
        )
    },
    warnings=_warnings,
    informed=_informed,
    commands="deploy.policy_commands.apps:app",
    acts_with=("quotas",),
    collectors="connectors.throttle.io:make_collectors",
    actuators="connectors.throttle.io:make_actuators",
    release="connectors.throttle.io:release_quotas",
    refusals="connectors.throttle.io:list_refusals",
    probes="connectors.throttle.io:list_probes",
    remedies="connectors.throttle.io:list_remedies",
    view="connectors.throttle.view:ThrottleView",
)
