"""The alerts of the switching policy, each with its runbook."""

from policies.decisions import Severity
from policies.policy import AlertKind

_STATUS = "headgate switch status --cluster {cluster}"
_V = "headgate switch status --cluster {cluster} --failed"

ALERTS = (
    AlertKind(
        HALTED := "switch-halted",
        (Severity.CRITICAL,),
        "An invariant is breached, or a promotion changed more than the attribution: nothing more is ordered.",
        _STATUS,
        "Read the invariant and its evidence. Remove the cause, then run `headgate switch resume`; otherwise "
        "`headgate switch rollback`. Nothing is ordered meanwhile.",
        "The switch goes on, or was rolled back.",
    ),
    AlertKind(
        BLOCKED := "switch-blocked",
        (Severity.CRITICAL,),
        "The switch does not go live, clean up or go back; the summary names the reason.",
        _STATUS,
        "The status names the reason. Remove it, and the switch goes on by itself.",
        "The reason no longer holds.",
    ),
    AlertKind(
        DEGRADED := "switch-degraded",
        (Severity.CRITICAL,),
        "A broker cannot reach the target while others already write there.",
        _STATUS,
        "Repair the broker's network or credentials to the target, or run `headgate switch rollback --with-brokers`. "
        "Do not wait: its topics move to brokers that write to the target.",
        "Every broker reaches the target, or the switch was rolled back.",
    ),
    AlertKind(
        UNATTENDED := "switch-unattended",
        (Severity.WARNING,),
        "A switch is under way, and no orchestrator holds the lease.",
        _STATUS,
        "Start `headgate act`. If it runs, look at its log and at ZooKeeper.",
        "An executor holds the lease.",
    ),
    AlertKind(
        LEFT_BEHIND := "switch-ledgers-left-behind",
        (Severity.WARNING,),
        "A switch is done, and some ledgers stay in the old cluster.",
        _V,
        "Remove the reason for each ledger, and start the same target again.",
        "No ledger is left in the old cluster.",
    ),
    AlertKind(
        AWAITED := "switch-brokers-awaited",
        (Severity.WARNING,),
        "For longer than `ack_timeout`, live brokers do not follow the directive, or no live broker is known.",
        _STATUS,
        "Look at the named brokers: does the agent run, does it read ZooKeeper, is its clock right? A dead broker "
        "leaves the list when its session ends.",
        "Every live broker follows the directive.",
    ),
    AlertKind(
        ASTRAY := "switch-broker-astray",
        (Severity.CRITICAL,),
        "After going live, a broker writes elsewhere, went back, joined without following, or sends no report.",
        _STATUS,
        "Stop the named broker first: its ids may collide with those that follow. Then find out why it went elsewhere.",
        "Every broker writes to the active cluster.",
    ),
    AlertKind(
        CONTESTED := "switch-contested",
        (Severity.CRITICAL,),
        "The registry has two active clusters or none, or a foreign directive: nothing is ordered.",
        _STATUS,
        "Find out who wrote the registry. Undo a foreign entry, and the switch goes on by itself; run `headgate "
        "switch resume` over a foreign directive.",
        "The registry has one active cluster, and the directive is Headgate's.",
    ),
    AlertKind(
        IMPOSTOR := "switch-impostor",
        (Severity.CRITICAL,),
        "At a BookKeeper cluster's address another cluster answers than was registered; its readings do not count.",
        _STATUS,
        "Look at the address of the cluster: another cluster answers there. Repair the address or the network; its "
        "readings do not count until then.",
        "The registered cluster answers at its address.",
    ),
    AlertKind(
        IDS_BEHIND := "switch-ids-behind",
        (Severity.CRITICAL,),
        "Brokers write to a cluster whose ids lie below those that they got from another one.",
        _STATUS,
        "Send the brokers back, or advance the cluster's ids to the `HOB` in the summary. Then Headgate directs "
        "brokers there again, and they open new clients.",
        "The cluster's ids lie above those of all others.",
    ),
    AlertKind(
        UNPLANNED := "switch-unplanned-references",
        (Severity.WARNING,),
        "References that are not in the plan name the old cluster.",
        _STATUS,
        "Start the same target again, which plans them. Repair by hand what is no ledger of yours.",
        "No unplanned reference names the old cluster.",
    ),
    AlertKind(
        NOT_TAKEN_BACK := "switch-not-taken-back",
        (Severity.WARNING,),
        "A switch is rolled back, and some promotions were not taken back.",
        _V,
        "Remove the reason for each promotion in the list, and run `headgate switch rollback` again. Delete nothing "
        "in the target before that.",
        "Every promotion was taken back.",
    ),
    AlertKind(
        WAITING := "switch-waiting",
        (Severity.WARNING,),
        "A switch waits for longer than its bound: for an inventory, an answer or an operator; the summary names the "
        "command that ends it.",
        _STATUS,
        "The summary names what it waits for and the command that ends the wait. Repair the former, or run the latter.",
        "The switch goes on, or ended.",
    ),
    AlertKind(
        UNDONE := "switch-undone",
        (Severity.WARNING,),
        "`automatic_rollback` undid a switch that brokers cannot follow.",
        _STATUS,
        "Read why brokers could not follow, and repair it before you start again.",
        "A new switch begins.",
    ),
)
