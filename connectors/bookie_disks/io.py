"""The bookie-disks policy's I/O: reads the disks of bookies over HTTP, and sets Pulsar's publish limits."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta

from prometheus_client import CollectorRegistry

import connectors.bookie_disks.collector
from connectors.actuation.actuator import Actuator, SideTopic
from connectors.bookie_disks.collector import BookieDisksCollector
from connectors.bookie_disks.publishing import (
    BrokerLimits,
    NamespaceLimits,
    PublishAdmin,
    PublishLimits,
    PublishMetrics,
    PublishWorker,
)
from connectors.bookie_disks.registration import WatchedBookieDisks
from connectors.collection import PollMetrics, Probe, ProbeResult
from connectors.component import Component
from connectors.http.rest import REST_READ_ERRORS
from connectors.policy_io import ActuatorContext, CollectorContext, ProbeContext
from connectors.pulsar.admin import superuser_probe
from connectors.registration import ClusterSources
from policies.bookie_disks import BookieDisks, BookieDisksSettings, BookieThrottle
from policies.bookie_disks.readings import PublishApplication, PublishState
from policies.bookie_disks.settings import PublishBy, PublishSettings
from policies.bookie_readings import BookieAffinity
from policies.observations import Outcome, Reading
from policies.registry import observed_topic
from policies.units import UserError, counted, name_some
from policies.wire import EventReader


def list_remedies(cluster: ClusterSources, reading: Reading) -> Iterator[str]:
    """Yield remedies for a reading that is not `ok`."""
    if cluster.setting(WatchedBookieDisks) is None or not isinstance(reading, BookieDisks):
        return
    if reading.outcome in (Outcome.UNSUPPORTED, Outcome.UNREACHABLE) and "statsProvider" not in (reading.detail or ""):
        yield "bookkeeper.conf: httpServerEnabled=true (and restart the bookie): its HTTP server has the free space"


def list_probes(context: ProbeContext) -> Iterator[Probe]:
    """Yield the doctor's checks of a cluster."""
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


def make_collectors(context: CollectorContext) -> Iterator[Component]:
    """Yield the collectors of a cluster."""
    watched, pulsar = context.cluster.setting(WatchedBookieDisks), context.cluster.pulsar
    if watched is not None and pulsar is not None:
        publish = context.sink(BookieDisks, connectors.bookie_disks.collector.SOURCE)
        collector = BookieDisksCollector(context.name, watched, pulsar, publish, context.metrics)
        yield Component(f"bookie disks collector of {context.name}", collector.run)


_KINDS: Mapping[PublishBy, type[PublishLimits]] = {PublishBy.BROKER: BrokerLimits, PublishBy.NAMESPACE: NamespaceLimits}


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


def make_actuators(context: ActuatorContext) -> Iterator[Component]:
    """Yield the actuator of the clusters that the settings let it act on."""
    metrics, workers = PublishMetrics(context.registry), dict[str, PublishWorker]()
    for name, cluster in context.clusters.items():
        settings = cluster.setting(PublishSettings)
        if settings is not None and (worker := _make_worker(context, name, settings, metrics)) is not None:
            workers[name] = worker
    if workers:
        topics, bookies = context.loop_topics(BookieThrottle), context.topic(observed_topic(BookieAffinity))

        def place(affinity: BookieAffinity) -> None:
            if affinity.outcome is Outcome.OK and affinity.cluster in workers:
                workers[affinity.cluster].place(affinity)

        actuator = Actuator(
            "publish actuator",
            "headgate-publish-actuator",
            topics,
            workers,
            BookieThrottle,
            SideTopic(bookies, EventReader((BookieAffinity,)), place, _AFFINITY_HISTORY),
        )
        yield Component("publish actuator", actuator.run, None, actuator.caught_up)


_AFFINITY_HISTORY = timedelta(hours=1)


def release_publishing(context: ActuatorContext, forget: str | None = None) -> Iterator[str]:
    """Put back the original publish limits of both kinds on every cluster with `publish` or `bookie_disks`.

    The records are on the clusters themselves, so it reads nothing from the loop's own Kafka. If it is to `forget` the
    entity of a quota, nothing is done. Yields a sentence for each cluster.

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
        except REST_READ_ERRORS.expected as error:
            failed = [REST_READ_ERRORS.detail_of(error)]
        left += (f"Not put back on {name}: publish limit: {why}" for why in failed)
        if not failed:
            yield f"{name}: publish limits are as before Headgate."
    if left:
        raise UserError("\n".join(left))
