"""The alerts of the switching policy, and the holds of a switch: each has a bound, an alert and a command that ends it.

Alerts, the record of the switch, `headgate switch status`, refusals and the runbook are made from `HOLDS`. The judge
finds them: `judge/holds.py`.
"""

from dataclasses import dataclass

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
        "Find out who wrote below `/admin/bookie-clusters`, and undo it; then the switch goes on by itself.",
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
        "To advance is to create that `HOB` below `<ledgers root>/idgen-long` in the ZooKeeper of that cluster. A "
        "client that stays connected keeps its old ids, so each broker must open a new one.",
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


@dataclass(frozen=True, slots=True)
class HoldKind:
    """A way in which a switch is held up."""

    name: str
    alert: str
    when: str
    bound: str
    """How long it may last before it is an alert: a key of `BOUNDS`."""
    ends_with: str
    """What ends it, with commands in backticks."""
    is_about_switch: bool = True
    """Whether its sentence is about a switch; else it is about brokers or clusters, and needs no switch."""
    is_routine: bool = False
    """Whether it comes and goes all the time, as with each answer, so that only a late one is worth a record."""


_NONE, _ACK_TIMEOUT, _MINUTES, _DAY, _WINDOW = "none", "`ack_timeout`", "10 min", "1 day", "1 day after `cleanup_from`"
_WAY = "or `abort` before it is live, `rollback` in the window, `end` after it"

HOLDS = (
    HoldKind(
        "contested", CONTESTED, "the registry shows what Headgate did not order", _NONE,
        "`resume` over a foreign directive; undo any other change in the registry", is_about_switch=False,
    ),
    HoldKind(
        "impostor", IMPOSTOR, "another cluster answers at a registered address", _NONE,
        f"repair the address, {_WAY}", is_about_switch=False,
    ),
    HoldKind(
        "halted", HALTED, "an invariant is breached", _NONE, "remove the cause, then `resume`",
    ),
    HoldKind(
        "return", BLOCKED, "brokers are to go back, and cannot yet", _ACK_TIMEOUT,
        "create the HOB that is named, or make that cluster's ZooKeeper answer; or `end`",
    ),
    HoldKind(
        "blocked", BLOCKED, "it cannot go live or clean up", _NONE,
        f"remove that reason (of ids: create the HOB that is named), {_WAY}",
    ),
    HoldKind(
        "unread-ids", BLOCKED, "an id generator is not read since all brokers acked", _ACK_TIMEOUT,
        "make that cluster's ZooKeeper answer, or `abort`", is_routine=True,
    ),
    HoldKind(
        "client_init_failed", DEGRADED, "a broker cannot reach the target", _NONE,
        f"repair the broker, {_WAY}",
    ),
    HoldKind(
        "no_lease", UNATTENDED, "no executor holds the lease", _NONE, f"start `headgate act`, {_WAY}",
    ),
    HoldKind(
        "no_live_broker", AWAITED, "it is not known which brokers are alive", _ACK_TIMEOUT,
        f"start the brokers' agents, {_WAY}",
    ),
    HoldKind(
        "not_acked", AWAITED, "a broker does not follow, and the switch is not live", _ACK_TIMEOUT,
        f"restart its agent, {_WAY}", is_about_switch=False,
    ),
    HoldKind(
        "broker_astray", ASTRAY, "a broker of a live switch reports that it does not follow", _NONE,
        f"restart or stop it, {_WAY}", is_about_switch=False,
    ),
    HoldKind(
        "broker_silent", ASTRAY, "a broker of a live switch does not report", _ACK_TIMEOUT,
        f"restart or stop it, {_WAY}", is_about_switch=False,
    ),
    HoldKind(
        "old_client", IDS_BEHIND, "a client takes ids below the present `HOB`", _NONE,
        "restart the brokers that did not open a new client", is_about_switch=False,
    ),
    HoldKind(
        "ids_behind", IDS_BEHIND, "brokers write where ids lie below those of another cluster", _NONE,
        "advance to the `HOB` that is named: Headgate then directs brokers there again",
        is_about_switch=False,
    ),
    HoldKind(
        "failures", NOT_TAKEN_BACK, "some promotions were not taken back", _NONE,
        "`rollback`, or `start` of the same target where ledgers were deleted",
    ),
    HoldKind("pause", WAITING, "an operator paused it", _DAY, "`resume`",),
    HoldKind(
        "pause-between", WAITING, "it is paused while brokers are between two clusters", _ACK_TIMEOUT, "`resume`",
    ),
    HoldKind(
        "inventory", WAITING, "it needs an inventory", _MINUTES, _WAY.removeprefix("or "),
    ),
    HoldKind(
        "answers", WAITING, "orders are not answered", _MINUTES, f"`pause`, {_WAY}",
        is_routine=True,
    ),
    HoldKind(
        "brokers-left", WAITING, "it is over, and brokers write to a cluster that is not active", _DAY,
        "`rollback --with-brokers` (back) or `start` (completes their move)",
    ),
    HoldKind("hold", WAITING, "it is in hold", _WINDOW, "`cleanup --execute` or `end`",),
    HoldKind(
        "failures", LEFT_BEHIND, "it is done, and ledgers or references stay behind", _NONE,
        "`start` of the same target, which tries again, or `end`",
    ),
    HoldKind(
        "unplanned", UNPLANNED, "references outside the plan name the old cluster", _NONE,
        "`start` of the same target, which plans them; once the switch is done, unload their topics",
    ),
)  # fmt: skip
"""All holds, the most urgent first."""
