"""A person's commands to this policy, on the topic of commands. The fold carries them out; a decision answers them."""

from shlex import join
from typing import ClassVar, Literal

from pydantic import Field

from policies.observations import LONGEST_DETAIL, LONGEST_NAME, Outcome, Reading
from policies.throttle.state import BrokerState, KafkaClusterState, VolumeKey, name_volume


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
    return _describe_forgetting(command, before, after) if isinstance(command, ForgetCommand) else ""


def _describe_forgetting(command: ForgetCommand, before: KafkaClusterState, after: KafkaClusterState) -> str:
    volume = (command.broker, command.log_dir)
    was_known, is_known = (volume in _list_volumes(state) for state in (before, after))
    if is_known:
        return f"{name_volume(volume)} is read, so it counts; it was not forgotten {command.describe_actor()}"
    if not was_known:
        return f"{name_volume(volume)} is not known; nothing was forgotten {command.describe_actor()}"
    return f"the last reading of {name_volume(volume)} counts no more, {command.describe_actor()}"


def format_forget(cluster: str, volume: VolumeKey) -> str:
    """Write the command line that makes a log dir count no more."""
    return join(["headgate", "forget", "--cluster", cluster, "--broker", str(volume[0]), "--log-dir", volume[1]])


def _list_volumes(state: KafkaClusterState) -> set[VolumeKey]:
    return {(broker.broker, volume.log_dir) for broker in state.brokers for volume in broker.volumes}
