"""The alerts of the switching policy, and the holds of a switch: each has a bound, an alert and a command that ends it.

Alerts, the record of the switch, `headgate switch status`, refusals and the runbook are made from `HOLDS`. The judge
finds them: `judge/table.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from policies.decisions import Severity
from policies.policy import AlertKind
from policies.switching.settings import DAY_MS

if TYPE_CHECKING:
    from policies.switching.facts import SwitchFacts

_STATUS = "headgate switch status --cluster {cluster}"
_FAILED = f"{_STATUS} --failed"


def _alert(
    name: str, meaning: str, remedy: str, ends: str, severity: Severity = Severity.CRITICAL, verify: str = _STATUS
) -> AlertKind:
    return AlertKind(name, (severity,), meaning, verify, remedy, ends)


ALERTS = (
    _alert(
        HALTED := "switch-halted",
        "An invariant is breached, or a promotion changed more than the attribution: nothing more is ordered.",
        "The status has the invariant and its evidence. INV-2 and INV-3: somebody used a generator, and the status "
        "names the `HOB` to advance to; Headgate then directs brokers again, so that they open new clients. INV-1: a "
        "foreign ledger appeared. Then `resume`, or `rollback`.",
        "The switch goes on, or was rolled back.",
    ),
    _alert(
        BLOCKED := "switch-blocked",
        "The switch does not go live, clean up or go back; the summary names the reason.",
        "The switch goes on by itself as soon as the reason is gone. Restart the agent of a broker that wrote to the "
        "old cluster after its ack. If ids are not read because a cluster's ZooKeeper is lost, restore it: "
        "`docs/switching-runbook.md` has how.",
        "The reason no longer holds.",
    ),
    _alert(
        DEGRADED := "switch-degraded",
        "A broker cannot reach the target while others already write there.",
        "Look at the broker's network and credentials, or use `rollback --with-brokers`. Do not wait: its topics move "
        "to brokers that write to the target.",
        "Every broker reaches the target, or the switch was rolled back.",
    ),
    _alert(
        UNATTENDED := "switch-unattended",
        "A switch is under way, and no orchestrator holds the lease.",
        "If it runs, look at its log and at ZooKeeper.",
        "An executor holds the lease.",
        Severity.WARNING,
    ),
    _alert(
        LEFT_BEHIND := "switch-ledgers-left-behind",
        "A switch is done, and some ledgers stay in the old cluster.",
        "First remove the reason that the status has for each ledger: unload the topics of deferred cursors.",
        "No ledger is left in the old cluster.",
        Severity.WARNING,
        _FAILED,
    ),
    _alert(
        AWAITED := "switch-brokers-awaited",
        "For longer than `ack_timeout`, live brokers do not follow the directive, or no live broker is known.",
        "Does the agent run, does it read ZooKeeper, is its clock right? A dead broker leaves the list when its "
        "session ends.",
        "Every live broker follows the directive.",
        Severity.WARNING,
    ),
    _alert(
        ASTRAY := "switch-broker-astray",
        "After going live, a broker writes elsewhere, went back, joined without following, or sends no report.",
        "Stop the broker before anything else: its ids may collide with those that follow. Then find out why it went "
        "elsewhere.",
        "Every broker writes to the active cluster.",
    ),
    _alert(
        CONTESTED := "switch-contested",
        "The registry has two active clusters or none, or a foreign directive: nothing is ordered.",
        "Find out who wrote below `/admin/bookie-clusters`, and undo it; then the switch goes on by itself.",
        "The registry has one active cluster, and the directive is Headgate's.",
    ),
    _alert(
        IMPOSTOR := "switch-impostor",
        "At a BookKeeper cluster's address another cluster answers than was registered; its readings do not count.",
        "If the registered cluster is gone for good, `unregister` it once nothing uses it, and `register` the new one.",
        "The registered cluster answers at its address.",
    ),
    _alert(
        IDS_BEHIND := "switch-ids-behind",
        "Brokers write to a cluster whose ids lie below those that they got from another one.",
        "To advance is to create that `HOB` below `<ledgers root>/idgen-long` in the ZooKeeper of that cluster. A "
        "client that stays connected keeps its old ids, so each broker must open a new one.",
        "The cluster's ids lie above those of all others, and for `ack_timeout` no client has taken a lower one.",
    ),
    _alert(
        UNPLANNED := "switch-unplanned-references",
        "References that are not in the plan name the old cluster.",
        "Repair by hand what is no ledger of yours.",
        "No unplanned reference names the old cluster.",
        Severity.WARNING,
    ),
    _alert(
        NOT_TAKEN_BACK := "switch-not-taken-back",
        "A switch is rolled back, and some promotions were not taken back.",
        "First remove the reason for each promotion in the list: unload the topics that are named. Delete nothing in "
        "the target before that.",
        "Every promotion was taken back.",
        Severity.WARNING,
        _FAILED,
    ),
    _alert(
        WAITING := "switch-waiting",
        "A switch waits for longer than its bound: for an inventory, an answer or an operator; the summary names the "
        "command that ends it.",
        "Without a command, it goes on as soon as it has what it waits for.",
        "The switch goes on, or ended.",
        Severity.WARNING,
    ),
)


class Bound(NamedTuple):
    """How long a hold may last before it is an alert."""

    words: str
    find_ms: Callable[["SwitchFacts"], int]


_NONE = Bound("none", lambda _: 0)
_ACK_TIMEOUT = Bound("`ack_timeout`", lambda facts: facts.limits.ack_timeout_ms)
# An inventory or an answer takes minutes at most, with the largest fleets that were measured.
_MINUTES = Bound("10 min", lambda _: 600_000)
_DAY = Bound("1 day", lambda _: DAY_MS)
_WINDOW = Bound(
    "1 day after `cleanup_from`", lambda facts: facts.switch.cleanup_from_ms - facts.switch.hold_ms + DAY_MS
)


@dataclass(frozen=True, slots=True)
class HoldKind:
    """A way in which a switch is held up."""

    alert: str
    when: str
    bound: Bound = _NONE
    remedy: str = ""
    """What ends it and lets the switch go on, with commands in backticks; a finder may name it more exactly."""
    commands: tuple[str, ...] = ()
    """Commands that end it where they are accepted, before those that end the switch."""
    has_ways_out: bool = True
    """Whether the commands that end the switch end it, too."""
    is_about_switch: bool = True
    """Whether its sentence is about a switch; else it is about brokers or clusters, and needs no switch."""
    is_routine: bool = False
    """Whether it comes and goes all the time, as with each answer, so that only a late one is worth a record."""

    @property
    def ends_with(self) -> str:
        """What ends it, for the runbook."""
        ways = "`abort` before it is live, `rollback` in the window, `end` after it" if self.has_ways_out else ""
        return ", or ".join(filter(None, (self.remedy, *(f"`{words}`" for words in self.commands), ways)))


HOLDS = {
    "contested": HoldKind(
        CONTESTED, "the registry shows what Headgate did not order",
        remedy="`resume` over a foreign directive; undo any other change in the registry", has_ways_out=False,
        is_about_switch=False,
    ),
    "impostor": HoldKind(
        IMPOSTOR, "another cluster answers at a registered address", remedy="repair the address", is_about_switch=False,
    ),
    "halted": HoldKind(HALTED, "an invariant is breached", remedy="remove the cause, then `resume`"),
    "return": HoldKind(
        BLOCKED, "brokers are to go back, and cannot yet", bound=_ACK_TIMEOUT,
        remedy="create the HOB that is named, or make that cluster's ZooKeeper answer",
    ),
    "blocked": HoldKind(
        BLOCKED, "it cannot go live or clean up", remedy="remove that reason (of ids: create the HOB that is named)",
    ),
    "unread-ids": HoldKind(
        BLOCKED, "an id generator is not read since all brokers acked", bound=_ACK_TIMEOUT,
        remedy="make its ZooKeeper answer", is_routine=True,
    ),
    "client_init_failed": HoldKind(DEGRADED, "a broker cannot reach the target", remedy="repair the broker"),
    "no_lease": HoldKind(UNATTENDED, "no executor holds the lease", remedy="start `headgate act`"),
    "no_live_broker": HoldKind(
        AWAITED, "it is not known which brokers are alive", bound=_ACK_TIMEOUT, remedy="start the brokers' agents",
    ),
    "not_acked": HoldKind(
        AWAITED, "brokers do not follow, and the switch is not live", bound=_ACK_TIMEOUT, remedy="restart their agents",
        is_about_switch=False,
    ),
    "broker_astray": HoldKind(
        ASTRAY, "a broker of a live switch reports that it does not follow", remedy="restart or stop it",
        is_about_switch=False,
    ),
    "broker_silent": HoldKind(
        ASTRAY, "a broker of a live switch does not report", bound=_ACK_TIMEOUT, remedy="restart or stop it",
        is_about_switch=False,
    ),
    "old_client": HoldKind(
        IDS_BEHIND, "a client takes ids below the present `HOB`",
        remedy="restart the brokers that did not open a new client", has_ways_out=False, is_about_switch=False,
    ),
    "ids_behind": HoldKind(
        IDS_BEHIND, "brokers write where ids lie below those of another cluster",
        remedy="advance to the `HOB` that is named: Headgate then directs brokers there again", has_ways_out=False,
        is_about_switch=False,
    ),
    "not_taken_back": HoldKind(
        NOT_TAKEN_BACK, "some promotions were not taken back",
        remedy="`rollback`, or `start` of the same target where ledgers were deleted", has_ways_out=False,
    ),
    "pause": HoldKind(WAITING, "an operator paused it", bound=_DAY, remedy="`resume`"),
    "pause-between": HoldKind(
        WAITING, "it is paused while brokers are between two clusters", bound=_ACK_TIMEOUT, remedy="`resume`",
    ),
    "inventory": HoldKind(WAITING, "it needs an inventory", bound=_MINUTES),
    "answers": HoldKind(WAITING, "orders are not answered", bound=_MINUTES, commands=("pause",), is_routine=True),
    "brokers-left": HoldKind(
        WAITING, "it is over, and brokers write to a cluster that is not active", bound=_DAY,
        remedy="`rollback --with-brokers` (back) or `start` (completes their move)", has_ways_out=False,
    ),
    "hold": HoldKind(WAITING, "it is in hold", bound=_WINDOW, commands=("cleanup --execute",)),
    "left_behind": HoldKind(
        LEFT_BEHIND, "it is done, and ledgers or references stay behind",
        remedy="`start` of the same target, which tries again, or `end`", has_ways_out=False,
    ),
    "unplanned": HoldKind(
        UNPLANNED, "references outside the plan name the old cluster",
        remedy="`start` of the same target, which plans them; once the switch is done, unload their topics",
        has_ways_out=False,
    ),
}  # fmt: skip
"""All holds by their names, the most urgent first."""
