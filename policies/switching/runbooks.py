"""Runbooks of the switching policy's alerts. The whole procedure is in docs/switching-runbook.md."""

from policies.policy import Runbook
from policies.switching import alerts as named

_STATUS = "headgate switch status --cluster {cluster}"

RUNBOOKS = {
    named.HALTED: Runbook(
        _STATUS,
        "Read the invariant and its evidence. Remove the cause, then run `headgate switch resume`; otherwise "
        "`headgate switch rollback`. Nothing is ordered meanwhile.",
        "The switch goes on, or was rolled back.",
    ),
    named.BLOCKED: Runbook(
        _STATUS,
        "The status names the reason. Remove it, and the switch goes on by itself.",
        "The reason no longer holds.",
    ),
    named.DEGRADED: Runbook(
        _STATUS,
        "Repair the broker's network or credentials to the target, or run `headgate switch rollback --with-brokers`. "
        "Do not wait: its topics move to brokers that write to the target.",
        "Every broker reaches the target, or the switch was rolled back.",
    ),
    named.UNATTENDED: Runbook(
        _STATUS, "Start `headgate act`. If it runs, look at its log and at ZooKeeper.", "An executor holds the lease."
    ),
    named.LEFT_BEHIND: Runbook(
        f"{_STATUS} --failed",
        "Remove the reason for each ledger, and start the same target again.",
        "No ledger is left in the old cluster.",
    ),
    named.AWAITED: Runbook(
        _STATUS,
        "Look at the named brokers: does the agent run, does it read ZooKeeper, is its clock right? A dead broker "
        "leaves the list when its session ends.",
        "Every live broker follows the directive.",
    ),
    named.ASTRAY: Runbook(
        _STATUS,
        "Stop the named broker first: its ids may collide with those that follow. Then find out why it went elsewhere.",
        "Every broker writes to the active cluster.",
    ),
    named.CONTESTED: Runbook(
        _STATUS,
        "Find out who wrote the registry. Undo a foreign entry, and the switch goes on by itself; run `headgate switch "
        "resume` over a foreign directive.",
        "The registry has one active cluster, and the directive is Headgate's.",
    ),
    named.IMPOSTOR: Runbook(
        _STATUS,
        "Look at the address of the cluster: another cluster answers there. Repair the address or the network; its "
        "readings do not count until then.",
        "The registered cluster answers at its address.",
    ),
    named.IDS_BEHIND: Runbook(
        _STATUS,
        "Send the brokers back, or advance the cluster's ids to the `HOB` in the summary. Then Headgate directs "
        "brokers there again, and they open new clients.",
        "The cluster's ids lie above those of all others.",
    ),
    named.UNPLANNED: Runbook(
        _STATUS,
        "Start the same target again, which plans them. Repair by hand what is no ledger of yours.",
        "No unplanned reference names the old cluster.",
    ),
    named.UNDONE: Runbook(
        _STATUS, "Read why brokers could not follow, and repair it before you start again.", "A new switch begins."
    ),
    named.NOT_TAKEN_BACK: Runbook(
        f"{_STATUS} --failed",
        "Remove the reason for each promotion in the list, and run `headgate switch rollback` again. Delete nothing in "
        "the target before that.",
        "Every promotion was taken back.",
    ),
    named.WAITING: Runbook(
        _STATUS,
        "The summary names what it waits for and the command that ends the wait. Repair the former, or run the latter.",
        "The switch goes on, or ended.",
    ),
}
