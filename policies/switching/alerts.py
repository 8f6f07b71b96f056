"""What a person should know about a switch, from the facts alone."""

from collections.abc import Iterator

from policies.alerts import Condition
from policies.decisions import Severity
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.state import ENDED, Switch, SwitchStage

HALTED = "switch-halted"
BLOCKED = "switch-blocked"
DEGRADED = "switch-degraded"
UNATTENDED = "switch-unattended"
LEFT_BEHIND = "switch-ledgers-left-behind"
_BEFORE_END = frozenset(SwitchStage) - ENDED - {SwitchStage.DONE_WITH_FAILURES}
_UNDER_WAY = frozenset(
    {
        SwitchStage.TRIGGERED, SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.CLEANUP,
        SwitchStage.ROLLBACK,
    }
)  # fmt: skip


def conditions(cluster: str, facts: SwitchFacts) -> Iterator[Condition]:
    """What is the case now."""
    switch = facts.state.switch
    if switch is None:
        return
    move = f"the switch of {cluster} from {switch.source} to {switch.target}"
    if switch.halted:
        yield _condition(cluster, switch, HALTED, Severity.CRITICAL, "halted", f"{move} halts: {switch.halted}")
    if switch.blocked and switch.stage is SwitchStage.TRIGGERED:
        yield _condition(cluster, switch, BLOCKED, Severity.CRITICAL, "blocked", f"{move} is blocked: {switch.blocked}")
    if switch.degraded and switch.stage in _BEFORE_END:
        summary = f"{move} is degraded: a broker cannot reach {switch.target}"
        yield _condition(cluster, switch, DEGRADED, Severity.CRITICAL, "client_init_failed", summary)
    if switch.stage in _UNDER_WAY and (why := guards.holds_lease(facts)):
        yield _condition(cluster, switch, UNATTENDED, Severity.WARNING, "no_lease", f"{move} does not go on: {why}")
    if switch.stage is SwitchStage.DONE_WITH_FAILURES:
        left = facts.left_behind
        what = f"{left} ledgers stay in {switch.source}" if left else "a status could not be written"
        yield _condition(cluster, switch, LEFT_BEHIND, Severity.WARNING, "failures", f"{move} is done, but {what}")


def _condition(cluster: str, switch: Switch, alert: str, severity: Severity, reason: str, summary: str) -> Condition:
    labels = {"cluster": cluster, "source": switch.source, "target": switch.target, "stage": switch.stage.value}
    return Condition(alert, f"{cluster}/switch", severity, reason, summary, labels)
