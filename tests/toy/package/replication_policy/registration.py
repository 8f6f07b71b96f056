"""The registration of the replication policy."""

from policies.decisions import Severity
from policies.policy import AlertKind, PolicyKind

from .decisions import ReplicationDecision
from .policy import NAME, UNDER_REPLICATED, ReplicationPolicy, ReplicationState
from .readings import UnderReplicated
from .settings import ReplicationSettings

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
