"""The throttle policy's I/O: reads log dirs through Kafka's admin API, and applies factors as client quotas."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from shlex import quote
from threading import Event

import structlog

import connectors.kafka.log_dirs
from connectors.actuation.actuator import Actuator
from connectors.collection import Probe, ProbeResult, whole_line
from connectors.component import Component
from connectors.kafka.admin import cluster_acl, cluster_operations, principal_of
from connectors.kafka.cluster_client import ClusterClient, detail_of, outcome_of
from connectors.kafka.connection import KafkaConnection, WatchedKafka
from connectors.kafka.log_dirs import LogDirsCollector, log_dirs_reading
from connectors.kafka.quotas import FAILURES, QuotaClient
from connectors.policy_io import ActuatorContext, CollectorContext, ProbeContext
from connectors.registration import ClusterSources
from connectors.throttle.own_quotas import OwnQuotas, QuotaMetrics, QuotaReports, Released, find_problems
from connectors.throttle.quota_worker import QuotaWorker
from policies.free_space.levels import render_rate
from policies.free_space.limits import Limit
from policies.free_space.volumes import name_volume
from policies.observations import Outcome, Reading
from policies.registry import APPLIED_QUOTAS
from policies.throttle import LogDirs, ThrottleFactor, ThrottleSettings
from policies.throttle.quotas import QuotaState, exclude_own, find_coverage, may_be_ours, misses_empty_ids
from policies.throttle.readings import QuotaApplication
from policies.throttle.settings import Cover, Entity, QuotaSettings, forget_command, parse_entity
from policies.units import UserError, counted, human_bytes, name_some

_log = structlog.get_logger(__name__)


def list_probes(context: ProbeContext) -> Iterator[Probe]:
    """Yield the doctor's checks of a cluster."""
    kafka, quotas = context.cluster.kafka, context.cluster.setting(QuotaSettings)
    throttle: ThrottleSettings = context.settings
    if kafka is not None and throttle.limited:
        yield Probe(f"{context.name}: Kafka", "cordons", lambda: check_cordons(context.name, kafka, throttle))
    if kafka is not None and quotas is not None:
        yield Probe(f"{context.name}: Kafka", "quotas", lambda: _check_quotas(context.name, kafka, quotas))
        yield Probe(f"{context.name}: Kafka", "rights on quotas", lambda: _check_quota_rights(kafka))
    loop = context.loop
    if kafka is not None and loop is not None:
        line = None if quotas is None else exclude_own(quotas, loop.username)
        yield Probe(f"{context.name}: Kafka", "own clients", lambda: _check_own_clients(kafka, loop, line))


def check_cordons(name: str, kafka: WatchedKafka, settings: ThrottleSettings) -> ProbeResult:
    """Check whether a volume at its soft limit (without one, its hard limit) still gets new partitions."""
    try:
        with closing(ClusterClient(kafka, kafka.timeout_seconds)) as client:
            brokers = [each.broker for each in client.describe()]
            readings = {b: log_dirs_reading(name, b, answer) for b, answer in client.log_dirs(brokers)}
    except FAILURES as error:
        return ProbeResult(outcome_of(error), detail_of(error))
    return judge_cordons(kafka.bootstrap_servers, readings, settings.soft or settings.hard)


def judge_cordons(servers: str, readings: Mapping[int, LogDirs], limit: Limit | None) -> ProbeResult:
    """Return the result for readings of brokers, with one command for each broker that needs one."""
    open_ = [
        (broker, volume.log_dir)
        for broker, reading in sorted(readings.items())
        for volume in reading.volumes
        if limit is not None and volume.readable and not volume.cordoned
        if limit.reached(volume.usable_bytes, volume.total_bytes)
    ]
    if not open_:
        count = sum(volume.cordoned for reading in readings.values() for volume in reading.volumes)
        return ProbeResult(Outcome.OK, f"{counted(count, 'volume')} cordoned; none at a limit gets new partitions")
    remedies = []
    for broker in dict.fromkeys(broker for broker, _ in open_):
        cordoned = [volume.log_dir for volume in readings[broker].volumes if volume.cordoned]
        wanted = ",".join(sorted({*cordoned, *(log_dir for number, log_dir in open_ if number == broker)}))
        remedies.append(
            f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type brokers --entity-name {broker} "
            f"--add-config {quote(f'{CORDONED_KEY}=[{wanted}]')} (Kafka 4.3 or newer)"
        )
    more = f" (and {len(open_) - 1} more)" if len(open_) > 1 else ""
    return ProbeResult(
        Outcome.ERROR,
        f"{name_volume('broker', open_[0])} is at its limit and still gets new partitions{more}",
        tuple(remedies),
    )


CORDONED_KEY = "cordoned.log.dirs"
"""Since Kafka 4.3 (KIP-1066)."""


def _check_quotas(cluster: str, kafka: WatchedKafka, quotas: QuotaSettings) -> ProbeResult:
    """Check whether quotas can be read, whether the brokers apply them, and whether clients escape them."""
    try:
        with closing(QuotaClient(kafka, kafka.timeout_seconds)) as client:
            client.describe()
            seen, brokers = client.read(), client.broker_settings()
    except FAILURES as error:
        remedies = (cluster_acl(kafka, *_QUOTA_RIGHTS),) if outcome_of(error) is Outcome.UNAUTHORIZED else ()
        return ProbeResult(outcome_of(error), detail_of(error), remedies)
    rates = OwnQuotas(cluster, quotas).without_ours(seen)
    if problems := [*find_problems(quotas, brokers, rates)]:
        return ProbeResult(Outcome.ERROR, f"`act` does not start: {'; '.join(problems)}")
    coverage = find_coverage(quotas, rates)
    if coverage.escaping:
        shown = [f"{e} ({human_bytes(rates[e])}/s)" for e in coverage.escaping[:_MOST_NAMED]]
        more = f" and {len(coverage.escaping) - _MOST_NAMED} more" if len(coverage.escaping) > _MOST_NAMED else ""
        detail = f"{counted(len(coverage.escaping), 'quota')} more specific than `entities` escape: {', '.join(shown)}"
        return ProbeResult(Outcome.ERROR, detail + more, ("clusters.<name>.quotas.cover: all",))
    floor = int(quotas.floor_bytes_per_second)
    unrecorded = [spec for spec in quotas.entities if spec.entity not in seen.originals]
    unknown = [str(s.entity) for s in unrecorded if may_be_ours(seen.rates.get(s.entity), s.base, floor, ())]
    if unknown:
        forget = tuple(map(forget_command, unknown))
        detail = f"{', '.join(unknown)}: at the floor, and no record tells the original quota; keep it, or set another"
        return ProbeResult(Outcome.ERROR, detail, forget)
    scaled = (
        f", {len(coverage.scaled)} of them more specific than `entities` and scaled, too" if coverage.scaled else ""
    )
    escape = f"; {_WITHOUT_ID[quotas.cover]}" if misses_empty_ids(quotas, coverage.scaled) else ""
    free = [user for user in quotas.exclude if Entity(user) not in rates]
    unlimited = f"; excluded and without a quota, so without a limit in a throttle: {name_some(free)}" if free else ""
    detail = f"{counted(len(seen.rates), 'quota')} read, and heeded by every broker{scaled}{escape}{unlimited}"
    return ProbeResult(Outcome.OK, detail)


_MOST_NAMED = 5
_WITHOUT_ID = {
    Cover.ALL: "clients without a client id escape above factor 0, a stop reaches them",
    Cover.LISTED: "clients without a client id escape, which {user: default} or `cover: all` would stop",
}


def _check_own_clients(kafka: WatchedKafka, loop: KafkaConnection, line: str | None) -> ProbeResult:
    """Check that a stop does not slow down Headgate, whose records may be on this Kafka; `line` excludes it."""
    ids = []
    for connection in (kafka, loop):
        try:
            with closing(ClusterClient(connection, kafka.timeout_seconds)) as client:
                client.describe()
                ids.append(client.cluster_id)
        except FAILURES as error:
            return ProbeResult(outcome_of(error), detail_of(error))
    if ids[0] is None or ids[0] != ids[1]:
        return ProbeResult(Outcome.OK, "the loop's topics are on another Kafka")
    detail = "the loop's topics are on this Kafka, too, so "
    if line is None:
        return ProbeResult(
            Outcome.OK, f"{detail}a disk that is full there stops the loop: move them once you have tried it"
        )
    remedy = f"another Kafka for the loop, or clusters.<name>.quotas: {line}"
    return ProbeResult(Outcome.ERROR, f"{detail}a stop slows Headgate down and delays its own end", (remedy,))


def _check_quota_rights(kafka: WatchedKafka) -> ProbeResult:
    try:
        lacking = [each for each in _QUOTA_RIGHTS if each not in cluster_operations(kafka)]
    except (UserError, TimeoutError) as error:
        return ProbeResult(Outcome.UNREACHABLE, whole_line(str(error)))
    if lacking:
        who = f"{principal_of(kafka)} may not set quotas ({', '.join(lacking)})"
        return ProbeResult(Outcome.UNAUTHORIZED, who, (cluster_acl(kafka, *lacking),))
    return ProbeResult(Outcome.OK, "quotas may be set")


_QUOTA_RIGHTS = ("DescribeConfigs", "AlterConfigs")


def list_remedies(cluster: ClusterSources, reading: Reading) -> Iterator[str]:
    """Yield remedies for a reading that is not `ok`."""
    if cluster.kafka is not None and reading.outcome is Outcome.UNAUTHORIZED and isinstance(reading, LogDirs):
        yield cluster_acl(cluster.kafka, "Describe")
    if reading.outcome is Outcome.UNSUPPORTED:
        yield "upgrade to Kafka 3.3 or newer: older brokers do not report the size and free space of their volumes"


def make_collectors(context: CollectorContext) -> Iterator[Component]:
    """Yield the collectors of a cluster."""
    if context.cluster.kafka is not None:
        publish = context.sink(LogDirs, connectors.kafka.log_dirs.SOURCE)
        throttle: ThrottleSettings = context.settings
        limits = [limit for limit in (throttle.soft, throttle.hard) if limit is not None]
        soon_seconds = throttle.time_to_full_alert.total_seconds()
        collector = LogDirsCollector(
            context.name, context.cluster.kafka, publish, context.metrics, limits, soon_seconds
        )
        yield Component(f"collector of {context.name}", collector.run)


def find_refusals(workers: Iterable[QuotaWorker]) -> list[str]:
    """Return why clusters refuse the settings of their quotas."""
    with ThreadPoolExecutor(_CONCURRENT_CHECKS, thread_name_prefix="quota check") as pool:
        return [problem for problems in pool.map(QuotaWorker.preflight, workers) for problem in problems]


_CONCURRENT_CHECKS = 16
"""Clusters are checked in parallel, so that one that does not answer delays the others little."""


def make_actuators(context: ActuatorContext) -> Iterator[Component]:
    """Yield the actuator of the clusters that the settings let it act on."""
    if quotas := _make_quota_workers(context, only_set=True):
        topics, about = context.loop_topics(ThrottleFactor), ("quota actuator", "headgate-actuator")
        actuator = Actuator(*about, topics, quotas, ThrottleFactor)

        def run(stop: Event) -> None:
            if problems := find_refusals(quotas.values()):
                raise UserError("\n".join(problems))
            actuator.run(stop)

        yield Component("quota actuator", run, None, actuator.caught_up)


def list_refusals(context: ActuatorContext) -> Iterator[str]:
    """Yield why clusters refuse the settings of their quotas."""
    yield from find_refusals(_make_quota_workers(context, only_set=True).values())


def _make_quota_workers(context: ActuatorContext, *, only_set: bool) -> dict[str, QuotaWorker]:
    """Make a worker for each watched cluster; `only_set`: for each with `quotas`."""
    throttle: ThrottleSettings = context.settings
    report = context.loop_topics(ThrottleFactor).reporter(context.publish)
    applied = partial(context.publish, context.topic(APPLIED_QUOTAS))
    observe, metrics = context.sink(QuotaState, QuotaApplication.source), QuotaMetrics(context.registry)
    found = {}
    for name, cluster in context.clusters.items():
        quotas = cluster.setting(QuotaSettings)
        if cluster.kafka is not None and (not only_set or quotas is not None):
            reports = QuotaReports(name, report, applied, metrics)
            found[name] = QuotaWorker(name, cluster.kafka, quotas, throttle.for_cluster(name), reports, observe)
    return found


def release_quotas(context: ActuatorContext, forget: str | None = None) -> Iterator[str]:
    """Restore the original quotas of every watched cluster, including those without `quotas` (any more).

    It reads nothing from the loop's own Kafka: the originals are on the watched clusters. An operator declares the
    present quota of the entity `forget` to be the original. Yields a sentence for each cluster.

    Raises:
        UserError: some could not be restored; the others were.
    """
    entity = None if forget is None else parse_entity(forget)
    if forget is not None and entity is None:
        raise UserError(f"--forget {forget}: {_NO_ENTITY}")
    left: list[str] = []
    is_found = entity is None
    for cluster, quotas in _make_quota_workers(context, only_set=False).items():
        result = quotas.release(Event(), entity)
        left += (f"Not put back on {cluster}: {name}: {why}" for name, why in result.left.items())
        is_found = is_found or bool(result.confirmed)
        yield from _describe_released(cluster, result)
    if not is_found:
        left.append(f"--forget {entity}: no watched cluster has such a quota")
    if left:
        raise UserError("\n".join(left))


def _describe_released(cluster: str, result: Released) -> Iterator[str]:
    for name, rate in result.restored.items():
        yield f"{cluster}: {name} has {render_rate(rate, 'no quota')} again, as before Headgate."
    for name, confirmed in result.confirmed.items():
        if name not in result.restored:
            yield f"{cluster}: {name} has {render_rate(confirmed, 'no quota')}, which counts as its original."
    if not (result.restored or result.left or result.confirmed):
        yield f"{cluster}: no record of Headgate is there, so no quota was changed."


_NO_ENTITY = (
    "not an entity such as user=alice,client-id=<default>; where a name contains `,user=` or `,client-id=`, or is "
    'called <default>: {"user": "name", "client_id": "default"}'
)
