"""The throttle policy: how much the producers of a cluster may write while a volume fills up."""

from policies.policy import PolicyKind
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.policy import NAME, ThrottlePolicy
from policies.throttle.readings import KafkaCluster, LogDirs
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ThrottleState

__all__ = [
    "KIND",
    "NAME",
    "KafkaCluster",
    "LogDirs",
    "ThrottleFactor",
    "ThrottlePolicy",
    "ThrottleSettings",
    "ThrottleState",
]

KIND = PolicyKind(
    name=NAME,
    observed={"observed.log-dirs": (LogDirs, KafkaCluster)},
    decisions=(ThrottleFactor,),
    settings=ThrottleSettings,
    state=ThrottleState,
    state_version=1,
    build=ThrottlePolicy,
)
