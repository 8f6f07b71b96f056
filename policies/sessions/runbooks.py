"""Runbooks of the sessions policy's alerts."""

from policies.policy import Runbook
from policies.sessions import alerts as named

RUNBOOKS = {
    named.LOST: Runbook(
        "headgate explain {subject}",
        "Wait: most members reconnect by themselves. If it does not, look at its network to ZooKeeper and at long "
        "pauses in its garbage collection log.",
        "The member has a session again, or is gone.",
    ),
    named.FLEET_WIDE: Runbook(
        "headgate doctor --part collect-sessions",
        "Look at ZooKeeper and the network first: many members at once rarely fail by themselves. Restart no broker; "
        "Headgate shuts none down meanwhile.",
        "Enough members have recovered.",
    ),
    named.NOT_REGISTERED: Runbook(
        "headgate explain {subject}",
        "Wait for `zombie_after`: most members register again. Its clients cannot find it until then.",
        "The member has registered, says that it is unwell, or is dead.",
    ),
    named.ZOMBIE: Runbook(
        "headgate explain {subject}",
        "Restart the process, if Headgate has not told it to. Its bundles may be served by others already.",
        "The member has registered, says that it is unwell, or is dead.",
    ),
    named.EXHAUSTED: Runbook(
        "headgate explain {subject}",
        "Look at the member's network and credentials to ZooKeeper; then restart it.",
        "The member has reconnected, or was told to shut down.",
    ),
    named.FLAPPING: Runbook(
        "headgate explain {subject}",
        "Look for long pauses (garbage collection, disk, a virtual machine without processor time), or a session "
        "timeout that is too short for them.",
        "The member has kept its session for `settle`.",
    ),
    named.DOUBLE: Runbook(
        "headgate explain {subject}",
        "The member whose session holds the node keeps the bundle. Unload it on the other one "
        "(`pulsar-admin namespaces unload --bundle`), if the actuator reports that it is contested.",
        "One of the two has released the bundle.",
    ),
    named.ORPHAN: Runbook(
        "headgate explain {subject}",
        "Look up one of its topics, which lets a broker take it (`pulsar-admin topics lookup`). If that fails, look at "
        "the load manager's log.",
        "A broker owns the bundle, or its last owner is back for `settle`.",
    ),
    named.NOT_EPHEMERAL: Runbook(
        "headgate explain {subject}",
        "Delete the bundle's node in ZooKeeper after you made sure that no broker serves it.",
        "The node is ephemeral, or gone.",
    ),
    named.LOAD_DATA: Runbook(
        "headgate explain {subject}",
        "Restart the load manager of that broker, or the broker: without load data it gets no bundles.",
        "The member has published load data.",
    ),
    named.UNREAD: Runbook(
        "headgate doctor --part collect-sessions",
        "Repair what the check names: ZooKeeper's servers, the network, or the words that it may answer (`4lw`).",
        "Sessions and nodes are read again.",
    ),
}
