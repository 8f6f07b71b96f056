"""The alerts of the isolation policy, each with its runbook."""

from policies.decisions import Severity
from policies.policy import AlertKind

_EXPLAIN = "headgate explain {subject}"
_PLACEMENT = "headgate placement --cluster {cluster}"
_DOCTOR = "headgate doctor --part collect-isolation"
_SET_RACK = "pulsar-admin bookies set-bookie-rack --bookie {bookie} --group {group} --rack {rack}"

ALERTS = (
    AlertKind(
        UNASSIGNED := "unassigned-bookie",
        (Severity.WARNING, Severity.CRITICAL),
        "A writable bookie is in no group; critical while isolated namespaces can place data on it.",
        _EXPLAIN,
        "Give the bookie its group and rack, or stop it. With quarantine on, Headgate puts it into a group that no "
        "namespace uses.",
        "The bookie is in a group, or no longer registered.",
        (_SET_RACK,),
        many="bookies of {cluster} take data, and no operator has put them into a group",
    ),
    AlertKind(
        IDLE := "unassigned-bookie-idle",
        (Severity.INFO,),
        "A bookie that is read-only or not registered is in no group.",
        _EXPLAIN,
        "Give the bookie its group before it becomes writable, or remove its registration.",
        "The bookie is in a group, or gone.",
        (_SET_RACK,),
        many="bookies of {cluster} are read-only or not registered, and in no group",
    ),
    AlertKind(
        MISSING := "group-member-missing",
        (Severity.WARNING,),
        "A bookie of a group has not been registered for `member_missing_after`.",
        _EXPLAIN,
        "Start the bookie again. If it is gone for good, decommission it, and delete its rack info.",
        "The bookie is registered again, or in no group any more.",
        ("# only if it is gone for good:", "pulsar-admin bookies delete-bookie-rack --bookie {bookie}"),
        many="bookies of {cluster} are in groups, but have not been registered for a while",
    ),
    AlertKind(
        LEAK := "isolation-leak",
        (Severity.CRITICAL,),
        "A namespace may place data on bookies that the promise forbids.",
        _PLACEMENT,
        "Take the named bookies out of reach: put them into a group, or repair the namespace's affinity.",
        "The namespace can use promised bookies only.",
        many="namespaces of {cluster} can place data on bookies that the promise forbids",
    ),
    AlertKind(
        INFEASIBLE := "placement-infeasible",
        (Severity.CRITICAL,),
        "A namespace may use fewer bookies than a ledger needs.",
        _PLACEMENT,
        "Add bookies to the namespace's groups, or lower its ensemble size. Until then its producers fail.",
        "The namespace can use as many bookies as a ledger needs.",
        many="namespaces of {cluster} cannot place their data",
    ),
    AlertKind(
        HEADROOM := "isolation-headroom",
        (Severity.WARNING,),
        "If one more bookie is lost, a namespace needs the next tier.",
        _PLACEMENT,
        "Add a bookie to the namespace's groups. Plan no restart of a bookie before that.",
        "The loss of one bookie no longer changes the namespace's tier.",
        many="namespaces of {cluster} must reach further, or cannot place their data, when one more of their bookies "
        "is lost",
    ),
    AlertKind(
        UNREAD := "bookies-unread",
        (Severity.WARNING,),
        "Bookies, groups or affinity have not been read for `validity`.",
        _DOCTOR,
        "Repair what the check names: ZooKeeper, the admin REST, or Headgate's rights. Nothing is decided meanwhile.",
        "The source is read again.",
    ),
    AlertKind(
        UNCONFIRMED := "bookies-unconfirmed",
        (Severity.WARNING,),
        "Most bookies, members of a group, or namespaces are missing from a reading or unknown, or readings have "
        "contradicted each other for `member_missing_after`. The last confirmed state counts, and nothing is "
        "quarantined.",
        _DOCTOR,
        "Look whether the named bookies are really gone, or come and go. If they are gone, the next readings confirm "
        "it. If not, one collector reads another cluster, or a stale server: compare their addresses, and stop it.",
        "Two readings in a row, `confirm_after` apart, agree.",
    ),
    AlertKind(
        NO_GROUPS := "no-bookie-groups",
        (Severity.INFO, Severity.CRITICAL),
        "The cluster puts no bookie into a group; critical while namespaces ask for groups.",
        _PLACEMENT,
        "If namespaces ask for groups, restore the racks (`/bookies`). If isolation is not used, no action is needed.",
        "The cluster puts a bookie into a group.",
    ),
    AlertKind(
        STARVES := "quarantine-starves",
        (Severity.CRITICAL,),
        "A namespace cannot place its data, and could with a bookie that is in quarantine.",
        _PLACEMENT,
        "Run the command in the alert: it takes the bookie out of quarantine, and Headgate leaves it there while the "
        "namespace needs it. Or start the bookies of the namespace's groups again.",
        "The namespace can place its data, or the bookie is no longer in quarantine.",
        many="bookies of {cluster} are in quarantine, and namespaces cannot place their data without them",
    ),
    AlertKind(
        OVERDUE := "quarantine-overdue",
        (Severity.WARNING,),
        "A decision to quarantine a bookie has not been carried out.",
        _EXPLAIN,
        "The actuator's report names the obstacle: no group exists, `max_quarantined` is reached, or the write "
        "fails. Repair it, or put the bookie into a group by hand.",
        "The bookie is in a group, or no longer registered.",
        (_SET_RACK,),
        many="bookies of {cluster} were ordered into quarantine, and are not there",
    ),
)
