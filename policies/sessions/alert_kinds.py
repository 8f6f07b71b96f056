"""The alerts of the sessions policy, each with its runbook."""

from policies.decisions import Severity
from policies.policy import AlertKind

_EXPLAIN = "headgate explain {subject}"
_DOCTOR = "headgate doctor --part collect-sessions"
_UNLOAD = ("bundle={bundle}", 'pulsar-admin namespaces unload "${{bundle%/*}}" --bundle "${{bundle##*/}}"')

ALERTS = (
    AlertKind(
        LOST := "session-lost",
        (Severity.WARNING,),
        "A member has no ZooKeeper session.",
        _EXPLAIN,
        "Wait: most members reconnect by themselves. If it does not, look at its network to ZooKeeper and at long "
        "pauses in its garbage collection log.",
        "The member has a session again, or is gone.",
        many="members of {cluster} have no ZooKeeper session",
    ),
    AlertKind(
        FLEET_WIDE := "session-fleet-wide",
        (Severity.CRITICAL,),
        "Many members of a role have lost their sessions, and not recovered.",
        _DOCTOR,
        "Look at ZooKeeper and the network first: many members at once rarely fail by themselves. Restart no broker; "
        "Headgate shuts none down meanwhile.",
        "Enough members have recovered.",
    ),
    AlertKind(
        NOT_REGISTERED := "not-registered",
        (Severity.WARNING,),
        "The health endpoint of a member answers healthy, but it is not registered.",
        _EXPLAIN,
        "Wait for `zombie_after`: most members register again. Its clients cannot find it until then.",
        "The member has registered, says that it is unwell, or is dead.",
        many="members of {cluster} reported themselves healthy, but are not registered",
    ),
    AlertKind(
        ZOMBIE := "zombie-member",
        (Severity.CRITICAL,),
        "A healthy member has not been registered for `zombie_after`.",
        _EXPLAIN,
        "Restart the process, if Headgate has not told it to. Its bundles may be served by others already.",
        "The member has registered, says that it is unwell, or is dead.",
        many="members of {cluster} reported themselves healthy, but have not been registered for `zombie_after`",
    ),
    AlertKind(
        EXHAUSTED := "reconnect-exhausted",
        (Severity.CRITICAL,),
        "A member cannot reconnect, and was not told to shut down.",
        _EXPLAIN,
        "Look at the member's network and credentials to ZooKeeper; then restart it.",
        "The member has reconnected, or was told to shut down.",
        many="members of {cluster} cannot reconnect, and no shutdown was ordered",
    ),
    AlertKind(
        FLAPPING := "session-flapping",
        (Severity.WARNING,),
        "A member loses its session again and again within `settle`, or readings of it contradict each other.",
        _EXPLAIN,
        "Look for long pauses (garbage collection, disk, a virtual machine without processor time), for a session "
        "timeout that is too short for them, or for two collectors of which one reads another cluster.",
        "The member has kept its session for `settle`.",
        many="members of {cluster} lose their sessions or connections again and again",
    ),
    AlertKind(
        DOUBLE := "double-ownership",
        (Severity.CRITICAL,),
        "Two members claim one bundle.",
        _EXPLAIN,
        "The member whose session holds the node keeps the bundle. Unload it, if the actuator reports that it is "
        "contested.",
        "One of the two has released the bundle.",
        _UNLOAD,
        many="bundles of {cluster} are claimed by more than one member",
    ),
    AlertKind(
        ORPHAN := "orphan-bundle",
        (Severity.WARNING,),
        "A bundle has had no owner for `orphan_after`.",
        _EXPLAIN,
        "Look up one of its topics, which lets a broker take it. If that fails, look at the load manager's log.",
        "A reading shows an owner, or newer bundles that cover its range. A bundle that nobody has owned for an hour "
        "counts as deleted, unless a broker is to own it again.",
        (
            "bundle={bundle}",
            'pulsar-admin topics list "${{bundle%/*}}" --bundle "${{bundle##*/}}"',
            "pulsar-admin topics lookup {topic}",
        ),
        many="bundles of {cluster} have had no owner for a while",
    ),
    AlertKind(
        NOT_EPHEMERAL := "bundle-not-ephemeral",
        (Severity.WARNING,),
        "A bundle's node is not ephemeral, so it outlives every session.",
        _EXPLAIN,
        "Delete the bundle's node in ZooKeeper after you made sure that no broker serves it.",
        "The node is ephemeral, or gone.",
        many="bundles of {cluster} have a node that outlives every session",
    ),
    AlertKind(
        REGISTRATION := "registration-not-ephemeral",
        (Severity.WARNING,),
        "A member is registered by a node that is not ephemeral, so no session protects it.",
        _EXPLAIN,
        "If the member is dead, delete its node in ZooKeeper (`deleteall` in `zkCli.sh`): until then clients are sent "
        "to it. Update Pulsar: 4.0.2 registers brokers in this way with the extensible load manager. Watch `health`.",
        "The node is ephemeral, or gone.",
        many="members of {cluster} are registered by nodes that are not ephemeral, so no session protects them",
    ),
    AlertKind(
        TAKEN := "heartbeat-bundle-taken",
        (Severity.WARNING,),
        "A heartbeat or SLA monitor bundle is owned by another member than the one that it names.",
        _EXPLAIN,
        "Unload the bundle: the member that it names may fail at each start until then.",
        "The member that it names owns it, or nobody.",
        _UNLOAD,
        many="heartbeat bundles of {cluster} are owned by other members than those that they name",
    ),
    AlertKind(
        HIDDEN := "ownership-hidden",
        (Severity.WARNING,),
        "It is not known which members own bundles, so these get no decisions.",
        _DOCTOR,
        "With the extensible load manager, set `pulsar.admin_url`, so that the brokers are asked. If it is set, the "
        "detail of the reading names the cause.",
        "The owners are read.",
    ),
    AlertKind(
        LOAD_DATA := "load-data-missing",
        (Severity.WARNING,),
        "A member has its bundles again, but publishes no load data.",
        _EXPLAIN,
        "Restart the load manager of that broker, or the broker: without load data it gets no bundles.",
        "The member has published load data.",
        many="members of {cluster} have recovered, but have published no load data",
    ),
    AlertKind(
        UNREAD := "zookeeper-unread",
        (Severity.WARNING,),
        "ZooKeeper cannot be read; that is no loss of sessions.",
        _DOCTOR,
        "Repair what the check names: ZooKeeper's servers, the network, or their admin servers.",
        "Sessions and nodes are read again.",
    ),
)
