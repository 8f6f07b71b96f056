"""The bounds of a cluster's state, far above real fleets. Rules: `policies.free_space.bounds`."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from policies.free_space.bounds import ServerReading, VolumeBounds, find_excess
from policies.observations import Observation, sort_observations
from policies.throttle.readings import LogDirs
from policies.throttle.state import KafkaClusterState

BOUNDS = VolumeBounds(most_servers=10_000, most_volumes=20_000, servers="brokers", volumes="log dirs")
"""A membership names at most 10,000 brokers. 20,000 log dirs are those of 500 brokers with 40 each."""


def keep_within_bounds(
    cluster: KafkaClusterState, observations: Sequence[Observation]
) -> tuple[list[Observation], dict[str, str]]:
    """Return the observations to fold, in order, and by id the bound for which another one is refused."""
    ordered = sort_observations(tuple(observations))
    readings = [
        ServerReading(seen.id, seen.reading.broker, frozenset(volume.log_dir for volume in seen.reading.volumes))
        for seen in ordered
        if isinstance(seen.reading, LogDirs) and not _is_known(cluster, seen.reading)
    ]
    if not readings:
        return ordered, {}
    known = {broker.broker: broker.volumes for broker in cluster.brokers}
    members = frozenset(cluster.membership.brokers if cluster.membership else ())
    refused = find_excess(BOUNDS, known, members, readings)
    return [seen for seen in ordered if seen.id not in refused], refused


def _is_known(cluster: KafkaClusterState, reading: LogDirs) -> bool:
    """Return whether the state has the broker and all its log dirs, so that the reading takes no room."""
    at = bisect_left(cluster.brokers, reading.broker, key=attrgetter("broker"))
    if at == len(cluster.brokers) or cluster.brokers[at].broker != reading.broker:
        return False
    return {volume.log_dir for volume in reading.volumes} <= {volume.log_dir for volume in cluster.brokers[at].volumes}
