"""The throttle policy: how much the producers of a cluster may write while a volume fills up."""

from policies.throttle.decisions import ThrottleFactor
from policies.throttle.readings import KafkaCluster, LogDirs, ReplicaSizes
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ThrottleState

NAME = "throttle"

__all__ = ["NAME", "KafkaCluster", "LogDirs", "ReplicaSizes", "ThrottleFactor", "ThrottleSettings", "ThrottleState"]
