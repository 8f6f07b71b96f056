"""What the replication policy is in every room."""

from policies.decisions import Severity
from policies.policy import AlertKind, PolicyKind

from .decisions import ReplicationDecision
from .policy import NAME, UNDER_REPLICATED, ReplicationPolicy
from .readings import UnderReplicated
from .settings import ReplicationSettings
from .state import ReplicationState

KIND = PolicyKind(
    name=NAME,
    observed={"observed.replication": (UnderReplicated,)},
    decisions=(ReplicationDecision,),
    alerts=(
        AlertKind(
            UNDER_REPLICATED,
            (Severity.WARNING,),
            "More partitions than `degraded_above` have fewer in-sync replicas than replicas.",
        ),
    ),
    settings=ReplicationSettings,
    state=ReplicationState,
    state_version=1,
    build=ReplicationPolicy,
    connectors="replication_policy.connectors:CONNECTORS",
)
