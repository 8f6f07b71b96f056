"""The alerts that the host raises about any policy, not about what the policy watches."""

from collections.abc import Mapping
from types import MappingProxyType

from policies.decisions import Severity
from policies.policy import AlertKind

POLICY_FAILED = "policy-failed"
"""The alert about a policy that raised an exception."""
READINGS_REFUSED = "readings-refused"
"""The alert about readings beyond the bounds of one policy and cluster."""
TWO_LOOPS_DECIDE = "two-loops-decide"
"""The alert about a second loop on the same topics."""
TOPIC_UNUSABLE = "topic-unusable"
"""The alert about a topic of the loop that is missing or set up in another way."""
LOOP = "headgate-loop"
"""Stands for the cluster in alerts about the loop itself; no watched cluster has this name."""

HOST_ALERT_KINDS = (
    AlertKind(
        POLICY_FAILED,
        (Severity.CRITICAL,),
        "For this cluster the policy raised an error, or its decisions exceed the size of a record. If single readings "
        "are the cause, they are refused, the policy goes on without them, and the alert ends 10 min after the last "
        "one. Otherwise its last decisions stay in force, its input goes to the dead letters, and it is retried. Other "
        "clusters are not affected.",
        "headgate alerts",
        "The summary has the error and its place. Report it with the dead letters of the cluster (reason "
        "`policy-failed`). If the values that are set are wrong meanwhile, run `headgate act --release`.",
        "The policy has stepped without an error, or 10 min after the last refused reading.",
    ),
    AlertKind(
        READINGS_REFUSED,
        (Severity.WARNING,),
        "Readings of this cluster exceed a bound of the policy: too many at once, or more brokers, volumes, members or "
        "nodes than a cluster may have (docs/operating.md). They are in the dead letters as `too-many`. Somebody "
        "floods or forges them, or a collector is out of order. It ends 10 min after the last one.",
        "headgate alerts",
        "Look at the dead letters of the cluster (reason `too-many`): their source names the collector. Stop it, "
        "or take away its right to write.",
        "10 min after the last refused reading.",
    ),
    AlertKind(
        TWO_LOOPS_DECIDE,
        (Severity.CRITICAL,),
        "Processes with different checkpoints are started to decide on the same topics (`topics.prefix`), such as a "
        "second host with copied settings and another `data_dir`. One of them decides. When it ends, another one "
        "continues from another state: holds, trends and a switch under way begin anew.",
        "headgate doctor",
        "Stop the process that does not belong there; the summary names the hosts. A loop of its own needs another "
        "`topics.prefix`. A stand-by needs the same `stream.checkpoint_dir` on a shared file system.",
        "All processes of the group have the same checkpoint.",
    ),
    AlertKind(
        TOPIC_UNUSABLE,
        (Severity.CRITICAL,),
        "A topic of the loop is missing, or its `cleanup.policy` or `message.timestamp.type` is another one. A decided "
        "topic that deletes by age forgets what holds; without `audit` the query makes no progress.",
        "headgate topics check",
        "Run the command in the summary.",
        "The topic is as planned.",
    ),
)

HOST_ALERTS: Mapping[str, Severity] = MappingProxyType({kind.name: kind.severities[0] for kind in HOST_ALERT_KINDS})
"""Their severities by name."""
