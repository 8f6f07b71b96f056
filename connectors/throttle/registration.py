"""The throttle policy's I/O: reads log dirs through Kafka's admin API, and applies factors as client quotas."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import connectors.kafka.log_dirs
from connectors.collection.probe import Probe, ProbeResult
from connectors.collection.read_errors import one_line
from connectors.component import Component
from connectors.kafka.log_dirs import LogDirsCollector, WatchedKafka
from connectors.kafka.outcomes import detail_of, outcome_of
from connectors.kafka.probes import cluster_acl, cluster_operations, principal_of
from connectors.kafka.quotas import FAILURES, QuotaClient
from connectors.kafka.replica_sizes import ReplicaSizesReader
from connectors.registration import (
    ActuatorContext,
    ClusterSetting,
    ClusterSources,
    CollectorContext,
    PolicyConnectors,
    ProbeContext,
    SettingsWarning,
    warn_of_interval,
)
from connectors.throttle.detail import DETAIL
from connectors.throttle.quotas import QuotaActuator, QuotaMetrics, WatchedQuotas
from connectors.throttle.view import ThrottleView
from policies.errors import UserError
from policies.observations import Outcome, Reading
from policies.registry import APPLIED_QUOTAS
from policies.throttle import LogDirs, ThrottleFactor, ThrottleSettings
from policies.throttle.quota_settings import QuotaSettings
from policies.units import counted


def _informed(settings: ThrottleSettings, clusters: Mapping[str, ClusterSources]) -> ThrottleSettings:
    """Add whether an actuator carries out the factor, which the decisions' sentences state."""
    return settings.with_defaults(
        {name: {"has_actuator": cluster.setting(QuotaSettings) is not None} for name, cluster in clusters.items()}
    )


def _warnings(settings: ThrottleSettings, clusters: Mapping[str, ClusterSources]) -> Iterator[SettingsWarning]:
    for name, cluster in clusters.items():
        if cluster.kafka is None:
            continue
        own, place = settings.for_cluster(name), ("clusters", name)
        if not own.limited and cluster.setting(QuotaSettings) is not None:
            yield SettingsWarning((*place, "quotas"), f"carries nothing out: {_NO_LIMIT}")
        elif not own.limited:
            yield SettingsWarning((*place, "kafka"), f"is watched and never throttled: {_NO_LIMIT}")
        if own.hard is not None and (own.hard.available_ratio_below or 0.0) * (1 + own.recovery_margin) >= 1.0:
            yield SettingsWarning(
                ("policies", "throttle", "recovery_margin"), f"once {name} is stopped it stays so: {_NEVER_FREE}"
            )
        if own.limited and cluster.kafka.poll_interval >= own.validity:
            yield warn_of_interval(
                (*place, "kafka", "poll_interval"), cluster.kafka.poll_interval, "throttle", own.validity
            )


_NEVER_FREE = "no volume has more free than the hard limit and this share of it"
_NO_LIMIT = (
    "policies.throttle has no limit for it; set hard: {available_bytes_below: 5GB}, or soft: {available_ratio_below: "
    "0.15}, or both"
)


def _probes(context: ProbeContext) -> Iterator[Probe]:
    kafka, quotas = context.cluster.kafka, context.cluster.setting(QuotaSettings)
    if kafka is not None and quotas is not None:
        yield Probe(f"{context.name}: Kafka", "quotas", lambda: _check_quotas(kafka, quotas))
        yield Probe(f"{context.name}: Kafka", "rights on quotas", lambda: _check_quota_rights(kafka))


def _check_quotas(kafka: WatchedKafka, quotas: QuotaSettings) -> ProbeResult:
    """Check whether quotas can be read, and whether the brokers apply them."""
    try:
        with closing(QuotaClient(kafka, kafka.timeout_seconds)) as client:
            client.describe()
            rates = client.rates([spec.entity for spec in quotas.entities])
            deaf = client.callback_classes()
    except FAILURES as error:
        remedies = (cluster_acl(kafka, *_QUOTA_RIGHTS),) if outcome_of(error) is Outcome.UNAUTHORIZED else ()
        return ProbeResult(outcome_of(error), detail_of(error), remedies)
    if deaf:
        broker, name = next(iter(deaf.items()))
        remedy = f"server.properties of broker {broker}: take client.quota.callback.class={name} out"
        return ProbeResult(Outcome.ERROR, f"{counted(len(deaf), 'broker')} heed no quotas, but a callback", (remedy,))
    return ProbeResult(Outcome.OK, f"{counted(len(rates), 'quota')} read, and heeded by every broker")


def _check_quota_rights(kafka: WatchedKafka) -> ProbeResult:
    try:
        lacking = [each for each in _QUOTA_RIGHTS if each not in cluster_operations(kafka)]
    except (UserError, TimeoutError) as error:
        return ProbeResult(Outcome.UNREACHABLE, one_line(str(error)))
    if lacking:
        who = f"{principal_of(kafka)} may not set quotas ({', '.join(lacking)})"
        return ProbeResult(Outcome.UNAUTHORIZED, who, (cluster_acl(kafka, *lacking),))
    return ProbeResult(Outcome.OK, "quotas may be set")


_QUOTA_RIGHTS = ("DescribeConfigs", "AlterConfigs")


def _remedies(cluster: ClusterSources, reading: Reading) -> Iterator[str]:
    if cluster.kafka is not None and reading.outcome is Outcome.UNAUTHORIZED and isinstance(reading, LogDirs):
        yield cluster_acl(cluster.kafka, "Describe")
    if reading.outcome is Outcome.UNSUPPORTED:
        yield "upgrade to Kafka 3.3 or newer: older brokers do not report the size and free space of their volumes"


def _collectors(context: CollectorContext) -> Iterator[Component]:
    if context.cluster.kafka is not None:
        publish = context.sink(LogDirs, connectors.kafka.log_dirs.SOURCE)
        throttle: ThrottleSettings = context.settings
        limits = [limit for limit in (throttle.soft, throttle.hard) if limit is not None]
        replica_sizes = ReplicaSizesReader(limits, throttle.time_to_full_alert.total_seconds())
        collector = LogDirsCollector(
            context.name, context.cluster.kafka, publish, context.metrics, limits, replica_sizes
        )
        yield Component(f"collector of {context.name}", collector.run)


def _actuators(context: ActuatorContext) -> Iterator[Component]:
    watched = [each for each in _list_watched(context) if each.settings is not None]
    if watched:
        actuator = _make_actuator(context, watched)
        yield Component("quota actuator", actuator.run, None, actuator.caught_up)


def _acts_on(settings: ThrottleSettings, name: str, cluster: ClusterSources) -> bool:  # noqa: ARG001 - as for all
    return cluster.kafka is not None and cluster.setting(QuotaSettings) is not None


def release_quotas(context: ActuatorContext) -> None:
    """Restore the original quotas of every watched cluster, including those without `quotas` (any more).

    Raises:
        UserError: some could not be restored.
    """
    _make_actuator(context, _list_watched(context)).release()


def _list_watched(context: ActuatorContext) -> list[WatchedQuotas]:
    throttle: ThrottleSettings = context.settings
    return [
        WatchedQuotas(name, cluster.kafka, cluster.setting(QuotaSettings), throttle.for_cluster(name))
        for name, cluster in context.clusters.items()
        if cluster.kafka is not None
    ]


def _make_actuator(context: ActuatorContext, watched: Sequence[WatchedQuotas]) -> QuotaActuator:
    topics, applied = context.loop_topics(ThrottleFactor), context.topic(APPLIED_QUOTAS)
    metrics = QuotaMetrics(context.registry)
    return QuotaActuator(topics, applied, watched, context.publish, metrics, elsewhere=context.elsewhere)


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
    probes=_probes,
    remedies=_remedies,
    informed=_informed,
    collectors=_collectors,
    actuators=_actuators,
    release=release_quotas,
    acts_on=_acts_on,
    view=ThrottleView,
    detail=DETAIL,
    commands="deploy.policy_commands.throttle:app",
    metrics={"The quota actuator": QuotaMetrics},
)
