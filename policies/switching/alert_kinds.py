"""The alerts of the switching policy. Their runbooks begin with what ends each hold: see `judge/holds.py`."""

from policies.decisions import Severity
from policies.policy import AlertKind

_STATUS = "headgate switch status --cluster {cluster}"
_FAILED = f"{_STATUS} --failed"

ALERTS = (
    AlertKind(
        HALTED := "switch-halted",
        (Severity.CRITICAL,),
        "An invariant is breached, or a promotion changed more than the attribution: nothing more is ordered.",
        _STATUS,
        "The status has the invariant and its evidence. INV-2 and INV-3: somebody used a generator, and the status "
        "names the `HOB` to advance to. INV-1: a foreign ledger appeared. `resume` directs brokers again, so that they "
        "open new clients. Otherwise `rollback`.",
        "The switch goes on, or was rolled back.",
    ),
    AlertKind(
        BLOCKED := "switch-blocked",
        (Severity.CRITICAL,),
        "The switch does not go live, clean up or go back; the summary names the reason.",
        _STATUS,
        "The switch goes on by itself as soon as the reason is gone. Restart the agent of a broker that wrote to the "
        "old cluster after its ack. If ids are not read because a cluster's ZooKeeper is lost, restore it: "
        "`docs/switching-runbook.md` has how.",
        "The reason no longer holds.",
    ),
    AlertKind(
        DEGRADED := "switch-degraded",
        (Severity.CRITICAL,),
        "A broker cannot reach the target while others already write there.",
        _STATUS,
        "Look at the broker's network and credentials, or use `rollback --with-brokers`. Do not wait: its topics move "
        "to brokers that write to the target.",
        "Every broker reaches the target, or the switch was rolled back.",
    ),
    AlertKind(
        UNATTENDED := "switch-unattended",
        (Severity.WARNING,),
        "A switch is under way, and no orchestrator holds the lease.",
        _STATUS,
        "If it runs, look at its log and at ZooKeeper.",
        "An executor holds the lease.",
    ),
    AlertKind(
        LEFT_BEHIND := "switch-ledgers-left-behind",
        (Severity.WARNING,),
        "A switch is done, and some ledgers stay in the old cluster.",
        _FAILED,
        "First remove the reason that the status has for each ledger: unload the topics of deferred cursors.",
        "No ledger is left in the old cluster.",
    ),
    AlertKind(
        AWAITED := "switch-brokers-awaited",
        (Severity.WARNING,),
        "For longer than `ack_timeout`, live brokers do not follow the directive, or no live broker is known.",
        _STATUS,
        "Does the agent run, does it read ZooKeeper, is its clock right? A dead broker leaves the list when its "
        "session ends.",
        "Every live broker follows the directive.",
    ),
    AlertKind(
        ASTRAY := "switch-broker-astray",
        (Severity.CRITICAL,),
        "After going live, a broker writes elsewhere, went back, joined without following, or sends no report.",
        _STATUS,
        "Stop the broker before anything else: its ids may collide with those that follow. Then find out why it went "
        "elsewhere.",
        "Every broker writes to the active cluster.",
    ),
    AlertKind(
        CONTESTED := "switch-contested",
        (Severity.CRITICAL,),
        "The registry has two active clusters or none, or a foreign directive: nothing is ordered.",
        _STATUS,
        "Find out who wrote below `/admin/bookie-clusters`. An entry `<name>` there that makes another cluster active "
        "must be deleted; then the switch goes on by itself.",
        "The registry has one active cluster, and the directive is Headgate's.",
    ),
    AlertKind(
        IMPOSTOR := "switch-impostor",
        (Severity.CRITICAL,),
        "At a BookKeeper cluster's address another cluster answers than was registered; its readings do not count.",
        _STATUS,
        "If the registered cluster is gone for good, `unregister` it once nothing uses it, and `register` the new one.",
        "The registered cluster answers at its address.",
    ),
    AlertKind(
        IDS_BEHIND := "switch-ids-behind",
        (Severity.CRITICAL,),
        "Brokers write to a cluster whose ids lie below those that they got from another one.",
        _STATUS,
        "To advance is to create `<ledgers root>/idgen-long/HOB-…` in the ZooKeeper of that cluster. A client that "
        "stays connected keeps its old ids, so each broker must open a new one.",
        "The cluster's ids lie above those of all others, and for `ack_timeout` no client has taken a lower one.",
    ),
    AlertKind(
        UNPLANNED := "switch-unplanned-references",
        (Severity.WARNING,),
        "References that are not in the plan name the old cluster.",
        _STATUS,
        "Repair by hand what is no ledger of yours.",
        "No unplanned reference names the old cluster.",
    ),
    AlertKind(
        NOT_TAKEN_BACK := "switch-not-taken-back",
        (Severity.WARNING,),
        "A switch is rolled back, and some promotions were not taken back.",
        _FAILED,
        "First remove the reason for each promotion in the list: unload the topics that are named. Delete nothing in "
        "the target before that.",
        "Every promotion was taken back.",
    ),
    AlertKind(
        WAITING := "switch-waiting",
        (Severity.WARNING,),
        "A switch waits for longer than its bound: for an inventory, an answer or an operator; the summary names the "
        "command that ends it.",
        _STATUS,
        "Without a command, it goes on as soon as it has what it waits for.",
        "The switch goes on, or ended.",
    ),
)
