"""The bounds of a cluster's state, far above real fleets. Rules: `policies.free_space.bounds`."""

from collections.abc import Sequence

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
        if isinstance(seen.reading, LogDirs)
    ]
    if not readings:
        return ordered, {}
    known = {broker.broker: broker.volumes for broker in cluster.brokers}
    members = frozenset(cluster.membership.brokers if cluster.membership else ())
    refused = find_excess(BOUNDS, known, members, readings)
    return [seen for seen in ordered if seen.id not in refused], refused
