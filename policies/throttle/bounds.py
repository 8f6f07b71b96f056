"""The bounds of a cluster's state: what forged or broken readings can make it hold at most.

Readings of brokers that are members count only among members, so forged ones of other brokers take no room from them.
"""

from collections.abc import Sequence

from policies.observations import Observation, sort_observations
from policies.throttle.readings import LogDirs
from policies.throttle.state import BrokerState, KafkaClusterState

MOST_BROKERS = 10_000
"""As many as a membership may name."""
MOST_VOLUMES = 20_000
"""Far more than any cluster has: 500 brokers with 40 log dirs each."""


def keep_within_bounds(
    cluster: KafkaClusterState, observations: Sequence[Observation]
) -> tuple[list[Observation], dict[str, str]]:
    """Return the observations to fold, in order, and by id the bound for which another one is refused."""
    ordered = sort_observations(tuple(observations))
    if not any(isinstance(each.reading, LogDirs) for each in ordered):
        return ordered, {}
    volumes = {broker.broker: len(broker.volumes) for broker in cluster.brokers}
    known = {broker.broker: broker for broker in cluster.brokers}
    members = frozenset(cluster.membership.brokers if cluster.membership else ())
    totals = {True: sum(map(volumes.__getitem__, members & volumes.keys())), False: sum(volumes.values())}
    refused: dict[str, str] = {}
    for seen in ordered:
        if not isinstance(seen.reading, LogDirs):
            continue
        number = seen.reading.broker
        is_member, before = number in members, volumes.get(number, 0)
        after = max(before, _count_volumes(known.get(number), seen.reading))
        if number not in volumes and len(volumes) >= MOST_BROKERS + len(members):
            refused[seen.id] = f"more than {MOST_BROKERS} brokers"
        elif totals[is_member] + after - before > MOST_VOLUMES and after > before:
            refused[seen.id] = f"more than {MOST_VOLUMES} log dirs"
        else:
            volumes[number] = after
            totals[False] += after - before
            totals[True] += (after - before) if is_member else 0
    return [seen for seen in ordered if seen.id not in refused], refused


def _count_volumes(broker: BrokerState | None, reading: LogDirs) -> int:
    """The log dirs of a broker after a reading: those that it lacks are kept for a while."""
    named = {volume.log_dir for volume in reading.volumes}
    return len(named | {volume.log_dir for volume in broker.volumes}) if broker is not None else len(named)
