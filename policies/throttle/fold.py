"""Folds readings into a cluster's state.

It keeps the last good reading of each broker's volumes with their trends, the last attempt, the last good membership,
and since when an absent broker is missing. The result depends on the readings alone, not on their order within a batch
or on repetition.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec.structs import replace
from pydantic import Field

from policies.free_space.volumes import fold_server, name_volume
from policies.observations import LONGEST_DETAIL, LONGEST_NAME, Observation, Outcome, Reading, sort_observations
from policies.throttle.readings import KafkaCluster, KafkaReading, LogDirs, ReplicaSizes
from policies.throttle.state import BrokerMembership, BrokerState, BrokerUsage, KafkaClusterState

# A person's commands to this policy, on the topic of commands. The fold carries them out; a decision answers them.


class ThrottleCommand(Reading):
    """A command to this policy about one cluster."""

    outcome: Outcome = Field(default=Outcome.OK, description="Always `ok`, as a command is not read from a system.")
    policy: Literal["throttle"] = Field(default="throttle", description="Always `throttle`.")
    actor: str = Field(default="", max_length=LONGEST_NAME, description="The person who asks.")
    reason: str = Field(default="", max_length=LONGEST_DETAIL, description="Why, in the actor's words.")

    def describe_actor(self) -> str:
        """Return ``as alice@host asked: disk replaced``."""
        return f"as {self.actor or 'nobody named'} asked" + (f": {self.reason}" if self.reason else "")


class ForgetCommand(ThrottleCommand):
    """A command that the last reading of a log dir counts no more, because the log dir is gone or has failed."""

    event_type: ClassVar[str] = "headgate.forget-command.v1"

    broker: int = Field(ge=0, le=2**31 - 1, description="The broker's node id.")
    log_dir: str = Field(min_length=1, max_length=4096, description="Absolute path on the broker.")

    def subject(self) -> str:
        """``<cluster>/<broker>/<log dir>``."""
        return f"{self.cluster}/{self.broker}/{self.log_dir.lstrip('/')}"


class AdoptCommand(ThrottleCommand):
    """A command that the Kafka cluster that answers now takes the place of the one before; its state begins empty."""

    event_type: ClassVar[str] = "headgate.adopt-command.v1"

    cluster_id: str = Field(min_length=1, max_length=LONGEST_NAME, description="Kafka's id of the new cluster.")


def may_forget(broker: BrokerState, log_dir: str) -> bool:
    """Return whether a log dir is gone, failed or silent. One that is read would count again with the next reading."""
    is_missing = any(v.log_dir == log_dir and v.missing_ms is not None for v in broker.volumes)
    is_silent = broker.left_ms is not None or broker.tried_id != broker.read_id
    return is_missing or is_silent or broker.find_error(log_dir) is not None


def describe_result(command: ThrottleCommand, before: KafkaClusterState, after: KafkaClusterState) -> str:
    """Write the answer to a command, from the states before and after its step."""
    if isinstance(command, AdoptCommand):
        did = "is" if after.cluster_id == command.cluster_id else "is not what answers, so it was not"
        return f"the Kafka cluster {command.cluster_id} {did} adopted, {command.describe_actor()}"
    if not isinstance(command, ForgetCommand):
        return ""
    volume = (command.broker, command.log_dir)
    name, by = name_volume("broker", volume), command.describe_actor()
    was_known, is_known = (
        any((broker.name, each.log_dir) == volume for broker in state.brokers for each in broker.volumes)
        for state in (before, after)
    )
    if is_known:
        return f"{name} is read, so it counts; it was not forgotten {by}"
    if not was_known:
        return f"{name} is not known; nothing was forgotten {by}"
    return f"the last reading of {name} counts no more, {by}"


_LONGEST_ERROR = 200
_KINDS = (KafkaCluster, LogDirs, ReplicaSizes)
"""The order in which readings of one instant are folded, because their ids are random."""


def fold(cluster: KafkaClusterState, observations: Sequence[Observation]) -> KafkaClusterState:
    """Return the cluster after some readings; readings older than the last one change nothing."""
    cluster, own = _select_own(cluster, sort_observations(tuple(observations), kinds=_KINDS))
    brokers = {b.name: b for b in cluster.brokers}
    membership, ever_read = cluster.membership, cluster.ever_read
    for seen in own:
        match seen.reading:
            case KafkaCluster():
                is_newer = membership is None or (seen.at_ms, seen.id) > (membership.at_ms, membership.id)
                if seen.reading.outcome is not Outcome.OK or not is_newer:
                    continue
                listed = tuple(sorted({member.broker for member in seen.reading.brokers}))
                membership = BrokerMembership(seen.at_ms, seen.id, listed)
                for member in membership.brokers:
                    brokers.setdefault(member, BrokerState(member, seen_ms=seen.at_ms))
                brokers = {number: _update_departure(broker, membership) for number, broker in brokers.items()}
            case LogDirs(broker=number):
                broker = brokers.get(number) or BrokerState(number, seen_ms=seen.at_ms)
                brokers[number] = _update_departure(_fold_log_dirs(broker, seen, seen.reading), membership)
                ever_read = ever_read or seen.reading.outcome is Outcome.OK
            case ReplicaSizes(broker=number) if number in brokers:
                brokers[number] = _fold_replica_sizes(brokers[number], seen, seen.reading)
            case ForgetCommand(broker=number, log_dir=path) if number in brokers and may_forget(brokers[number], path):
                left = tuple(volume for volume in brokers[number].volumes if volume.log_dir != path)
                brokers[number] = replace(brokers[number], volumes=left)
    ordered = tuple(brokers[number] for number in sorted(brokers))
    return replace(cluster, membership=membership, brokers=ordered, ever_read=ever_read)


def _select_own(
    cluster: KafkaClusterState, ordered: Sequence[Observation]
) -> tuple[KafkaClusterState, list[Observation]]:
    """Leave out the readings of another cluster behind the same address. An adopted cluster begins without a state."""
    own: list[Observation] = []
    for seen in ordered:
        reading, found = seen.reading, None
        if isinstance(reading, AdoptCommand) and reading.cluster_id == cluster.other_id:
            cluster, own = KafkaClusterState(cluster_id=reading.cluster_id), []
        elif isinstance(reading, KafkaReading) and (found := reading.cluster_id) is not None:
            known = cluster.cluster_id or found
            ids = (known, None if found == known else found)
            if ids != (cluster.cluster_id, cluster.other_id):
                cluster = replace(cluster, cluster_id=ids[0], other_id=ids[1])
        if found in (None, cluster.cluster_id):
            own.append(seen)
    return cluster, own


def _update_departure(broker: BrokerState, membership: BrokerMembership | None) -> BrokerState:
    """Set when a broker left: a membership as new as its last good reading lacks it."""
    if membership is None:
        return broker if broker.left_ms is None else replace(broker, left_ms=None)
    if membership.has(broker.name) or broker.read_ms > membership.at_ms:
        # A broker that is back gets the full validity again, because it could not be read in between.
        return broker if broker.left_ms is None else replace(broker, left_ms=None, seen_ms=membership.at_ms)
    return broker if broker.left_ms is not None else replace(broker, left_ms=membership.at_ms)


def _fold_log_dirs(known: BrokerState, seen: Observation, reading: LogDirs) -> BrokerState:
    after = fold_server(known, seen, reading.outcome, reading.volumes)
    if after.read_id != seen.id:
        return after
    return replace(
        after,
        cordoned=tuple(sorted({volume.log_dir for volume in reading.volumes if volume.cordoned})),
        errors=tuple(sorted({v.log_dir: v.error[:_LONGEST_ERROR] for v in reading.volumes if v.error}.items())),
    )


def _fold_replica_sizes(known: BrokerState, seen: Observation, reading: ReplicaSizes) -> BrokerState:
    if reading.outcome is not Outcome.OK or (
        known.usage and (seen.at_ms, seen.id) <= (known.usage.at_ms, known.usage.id)
    ):
        return known
    volumes = tuple(sorted((volume.log_dir, volume.model_dump_json()) for volume in reading.volumes))
    return replace(known, usage=BrokerUsage(seen.at_ms, seen.id, volumes))
