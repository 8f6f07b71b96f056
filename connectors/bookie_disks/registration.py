"""The bookie-disks policy's I/O: reads the disks of bookies over HTTP, and sets Pulsar's publish limits."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from prometheus_client import CollectorRegistry

import connectors.bookie_disks.collector
from connectors.bookie_disks.collector import BookieDisksCollector, WatchedBookieDisks
from connectors.bookie_disks.limits import (
    BrokerLimits,
    NamespaceLimits,
    PublishAdmin,
    PublishLimits,
)
from connectors.bookie_disks.publishing import PublishActuator, PublishMetrics, PublishWorker
from connectors.bookie_disks.view import DETAIL, BookieDisksView
from connectors.collection import PollMetrics, Probe, ProbeResult
from connectors.component import Component
from connectors.pulsar.probes import superuser_probe
from connectors.pulsar.rest import PULSAR_READ_ERRORS
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
from policies.bookie_disks import BookieDisks, BookieDisksSettings, BookieThrottle
from policies.bookie_disks.readings import PublishApplication, PublishState
from policies.bookie_disks.settings import PublishBy, PublishSettings
from policies.bookie_readings import BookieAffinity
from policies.observations import Outcome, Reading
from policies.registry import observed_topic
from policies.units import UserError, counted, name_some


def _warnings(settings: BookieDisksSettings, clusters: Mapping[str, ClusterSources]) -> Iterator[SettingsWarning]:
    """Warn of intervals that are too long, and of a hard limit beyond BookKeeper's default for compaction."""
    for name, cluster in clusters.items():
        watched, own = cluster.setting(WatchedBookieDisks), settings.for_cluster(name)
        if watched is None:
            continue
        if watched.poll_interval >= own.validity:
            place = ("clusters", name, "bookie_disks", "poll_interval")
            yield warn_of_interval(place, watched.poll_interval, "bookie_disks", own.validity)
        share = None if own.hard is None else own.hard.available_ratio_below
        if share is not None and share <= _SUSPENDED_FREE:
            yield SettingsWarning(
                ("policies", "bookie_disks", "hard"),
                f"{share:.0%} free is not above {_SUSPENDED_FREE:.0%}, where a bookie suspends compaction by default: "
                f"then deleting data on {name} may free no space; raise it",
            )


_SUSPENDED_FREE = 0.10
"""The free share of a disk at which a bookie suspends major compaction by default."""


def _remedies(cluster: ClusterSources, reading: Reading) -> Iterator[str]:
    if cluster.setting(WatchedBookieDisks) is None or not isinstance(reading, BookieDisks):
        return
    if reading.outcome in (Outcome.UNSUPPORTED, Outcome.UNREACHABLE) and "statsProvider" not in (reading.detail or ""):
        yield "bookkeeper.conf: httpServerEnabled=true (and restart the bookie): its HTTP server has the free space"


def _probes(context: ProbeContext) -> Iterator[Probe]:
    watched, pulsar = context.cluster.setting(WatchedBookieDisks), context.cluster.pulsar
    admin = context.clients.pulsar(context.name)
    if admin is not None and context.cluster.setting(PublishSettings) is not None:
        yield superuser_probe(f"{context.name}: Pulsar", admin, "set publish limits")
    if watched is None or pulsar is None:
        return

    def ask() -> ProbeResult:
        found: list[Reading] = []
        metrics = PollMetrics(CollectorRegistry())
        with closing(BookieDisksCollector(context.name, watched, pulsar, found.append, metrics)) as collector:
            collector.poll_once()
        return compare_limits([each for each in found if isinstance(each, BookieDisks)], context.settings)

    yield Probe(f"{context.name}: BookKeeper", "hard limit above the bookies' thresholds", ask)


def compare_limits(readings: Sequence[BookieDisks], settings: BookieDisksSettings) -> ProbeResult:
    """Compare the hard limit with the used share at which each bookie suspends compaction or turns read-only."""
    good = [each for each in readings if each.outcome is Outcome.OK]
    late = sorted(each.bookie for each in good if _is_hard_too_late(each, settings))
    unknown = [f"{each.bookie} ({each.detail})" for each in good if each.detail is not None]
    if not good:
        return ProbeResult(Outcome.ERROR, "no bookie could be read")
    if late:
        remedy = "policies.bookie_disks.hard: raise it above the bookies' diskUsageWarnThreshold"
        return ProbeResult(Outcome.ERROR, f"at the hard limit {name_some(late)} suspend compaction already", (remedy,))
    if unknown:
        return ProbeResult(Outcome.ERROR, f"thresholds of bookies are no shares: {name_some(unknown)}")
    return ProbeResult(Outcome.OK, f"{counted(len(good), 'bookie')} compared")


def _is_hard_too_late(reading: BookieDisks, settings: BookieDisksSettings) -> bool:
    found = reading.thresholds
    shares = (found.major_compaction, found.minor_compaction, found.read_only) if found is not None else ()
    first = min((share for share in shares if share is not None), default=None)
    if first is None or settings.hard is None:
        return False
    # Rounded, because 1 - 0.9 is a little less than 0.1.
    return any(settings.hard.in_bytes(d.total_bytes) <= round((1 - first) * d.total_bytes) for d in reading.dirs)


def _collectors(context: CollectorContext) -> Iterator[Component]:
    watched, pulsar = context.cluster.setting(WatchedBookieDisks), context.cluster.pulsar
    if watched is not None and pulsar is not None:
        publish = context.sink(BookieDisks, connectors.bookie_disks.collector.SOURCE)
        collector = BookieDisksCollector(context.name, watched, pulsar, publish, context.metrics)
        yield Component(f"bookie disks collector of {context.name}", collector.run)


def _informed(settings: BookieDisksSettings, clusters: Mapping[str, ClusterSources]) -> BookieDisksSettings:
    """Add whether an actuator can carry the factor out, which the decisions' sentences state, and how fast it stops."""
    acts = {name: _acts_on(settings, name, cluster) for name, cluster in clusters.items()}
    return settings.with_defaults(
        {name: {"has_actuator": each, "stop_time": _EFFECT_TIME if each else "0s"} for name, each in acts.items()}
    )


_EFFECT_TIME = "2s"
"""From a publish limit that is set to its effect, as measured for each kind."""


_KINDS: Mapping[PublishBy, type[PublishLimits]] = {
    PublishBy.BROKER: BrokerLimits,
    PublishBy.NAMESPACE: NamespaceLimits,
}


def _make_worker(
    context: ActuatorContext, name: str, settings: PublishSettings, metrics: PublishMetrics
) -> PublishWorker | None:
    pulsar, policy = context.clusters[name].pulsar, context.settings.for_cluster(name)
    if pulsar is None:
        return None
    kinds = {by: make(PublishAdmin(pulsar)) for by, make in _KINDS.items()}
    limits = kinds.pop(settings.by)
    publish = context.loop_topics(BookieThrottle).reporter(context.publish)
    observe = context.sink(PublishState, PublishApplication.source)
    return PublishWorker(name, settings, policy, limits, publish, observe, metrics, tuple(kinds.values()))


def _actuators(context: ActuatorContext) -> Iterator[Component]:
    metrics, workers = PublishMetrics(context.registry), dict[str, PublishWorker]()
    for name, cluster in context.clusters.items():
        settings = cluster.setting(PublishSettings)
        if settings is not None and (worker := _make_worker(context, name, settings, metrics)) is not None:
            workers[name] = worker
    if workers:
        topics, bookies = context.loop_topics(BookieThrottle), context.topic(observed_topic(BookieAffinity))
        actuator = PublishActuator(topics, bookies, workers)
        yield Component("publish actuator", actuator.run, None, actuator.caught_up)


def _acts_on(settings: BookieDisksSettings, name: str, cluster: ClusterSources) -> bool:  # noqa: ARG001 - as for all
    return cluster.pulsar is not None and cluster.setting(PublishSettings) is not None


def release_publishing(context: ActuatorContext, forget: str | None = None) -> Iterator[str]:
    """Put back the original publish limits of all three kinds on every cluster with `publish` or `bookie_disks`.

    The records are on the clusters themselves, so it reads nothing from the loop's own Kafka.

    Args:
        forget: the entity of a quota; no publish limit is one, so nothing is done then.

    Yields:
        A sentence for each cluster.

    Raises:
        UserError: some could not be put back; the others were.
    """
    metrics, left = PublishMetrics(context.registry), list[str]()
    for name, cluster in context.clusters.items() if forget is None else ():
        if cluster.setting(PublishSettings) is None and cluster.setting(WatchedBookieDisks) is None:
            continue
        worker = _make_worker(context, name, PublishSettings(by=PublishBy.NAMESPACE), metrics)
        try:
            failed = [] if worker is None else worker.release()
        except PULSAR_READ_ERRORS.expected as error:
            failed = [PULSAR_READ_ERRORS.detail_of(error)]
        left += (f"Not put back on {name}: publish limit: {why}" for why in failed)
        if not failed:
            yield f"{name}: publish limits are as before Headgate."
    if left:
        raise UserError("\n".join(left))


CONNECTORS = PolicyConnectors(
    cluster_settings={
        "publish": ClusterSetting(
            PublishSettings,
            "If present, `headgate run` or `headgate act` carries the factors of placement groups out with Pulsar's "
            "own publish limits. Its token then needs a superuser's rights.",
            needs=("pulsar.admin_url",),
        ),
        "bookie_disks": ClusterSetting(
            WatchedBookieDisks,
            "If present, the disks of its bookies are read over HTTP. The groups of bookies and the namespaces come "
            "from `bookies` or `pulsar_bookies`; without them all bookies are one group.",
            needs=("pulsar.admin_url",),
        ),
    },
    warnings=_warnings,
    probes=_probes,
    remedies=_remedies,
    informed=_informed,
    collectors=_collectors,
    actuators=_actuators,
    acts_on=_acts_on,
    acts_if="`publish`",
    release=release_publishing,
    metrics={"The publish actuator": PublishMetrics},
    view=BookieDisksView,
    detail=DETAIL,
    commands="deploy.policy_commands.apps:app",
)
