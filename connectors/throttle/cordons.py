"""Cordons of log dirs (KIP-1066, Kafka 4.3): which volumes at a limit still get new partitions, and the remedy."""

from collections.abc import Mapping
from contextlib import closing
from shlex import quote

from connectors.collection import ProbeResult
from connectors.kafka.cluster_client import ClusterClient, detail_of, outcome_of
from connectors.kafka.connection import WatchedKafka
from connectors.kafka.log_dirs import log_dirs_reading
from connectors.kafka.quotas import FAILURES
from policies.free_space.limits import Limit
from policies.free_space.volumes import name_volume
from policies.observations import Outcome
from policies.throttle import LogDirs, ThrottleSettings
from policies.units import counted

CORDONED_KEY = "cordoned.log.dirs"


def check_cordons(name: str, kafka: WatchedKafka, settings: ThrottleSettings) -> ProbeResult:
    """Check whether a volume at its soft limit (without one, its hard limit) still gets new partitions."""
    try:
        with closing(ClusterClient(kafka, kafka.timeout_seconds)) as client:
            readings = {b: log_dirs_reading(name, b, answer) for b, answer in client.log_dirs(client.describe())}
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
