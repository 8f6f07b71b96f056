"""Runbooks of the isolation policy's alerts."""

from policies.isolation.alerts import context as named
from policies.policy import Runbook

RUNBOOKS = {
    named.UNASSIGNED: Runbook(
        "headgate explain {subject}",
        "Give the bookie its group and rack (`pulsar-admin bookies set-bookie-rack`), or stop it. With quarantine on, "
        "Headgate puts it into a group that no namespace uses.",
        "The bookie is in a group, or no longer registered.",
    ),
    named.IDLE: Runbook(
        "headgate explain {subject}",
        "Give the bookie its group before it becomes writable, or remove its registration.",
        "The bookie is in a group, or gone.",
    ),
    named.MISSING: Runbook(
        "headgate explain {subject}",
        "Start the bookie again. If it is gone for good, decommission it, and delete its rack info.",
        "The bookie is registered again, or in no group any more.",
    ),
    named.LEAK: Runbook(
        "headgate placement {cluster}",
        "Take the named bookies out of reach: put them into a group, or repair the namespace's affinity.",
        "The namespace can use promised bookies only.",
    ),
    named.INFEASIBLE: Runbook(
        "headgate placement {cluster}",
        "Add bookies to the namespace's groups, or lower its ensemble size. Until then its producers fail.",
        "The namespace can use as many bookies as a ledger needs.",
    ),
    named.HEADROOM: Runbook(
        "headgate placement {cluster}",
        "Add a bookie to the namespace's groups. Plan no restart of a bookie before that.",
        "The loss of one bookie no longer changes the namespace's tier.",
    ),
    named.UNREAD: Runbook(
        "headgate doctor --part collect-isolation",
        "Repair what the check names: ZooKeeper, the admin REST, or Headgate's rights. Nothing is decided meanwhile.",
        "The source is read again.",
    ),
    named.UNCONFIRMED: Runbook(
        "headgate doctor --part collect-isolation",
        "Look whether the bookies are really gone, or come and go. If they are gone, the next readings confirm it; if "
        "not, look for an address or a ZooKeeper that is not the cluster's.",
        "Further readings have confirmed the new set, or show the old one.",
    ),
    named.DISAGREE: Runbook(
        "headgate doctor --part collect-isolation",
        "Compare the addresses of the two named collectors: one of them reads another cluster, or a stale server. Stop "
        "that one. What was confirmed last counts meanwhile.",
        "The collectors have not contradicted each other for `validity`.",
    ),
    named.NO_GROUPS: Runbook(
        "headgate placement {cluster}",
        "If namespaces ask for groups, restore the racks (`/bookies`). If isolation is not used, no action is needed.",
        "The cluster puts a bookie into a group.",
    ),
    named.JOINED: Runbook(
        "headgate explain {subject}",
        "No action is needed. If the group is not what you meant, change it now.",
        "After `member_missing_after`.",
    ),
    named.OVERDUE: Runbook(
        "headgate explain {subject}",
        "The actuator's report names the obstacle: no group exists, `max_quarantined` is reached, or the write fails. "
        "Repair it, or put the bookie into a group by hand.",
        "The bookie is in a group, or no longer registered.",
    ),
}
