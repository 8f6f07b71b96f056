"""Alert conditions of a switch, from the facts alone."""

from collections.abc import Iterator

from policies.alerts import Condition
from policies.decisions import Severity
from policies.switching.facts import SwitchFacts
from policies.switching.id_generators import remedy_beyond
from policies.switching.judge import guards
from policies.switching.state import ENDED, Switch, SwitchStage
from policies.switching.watch import LIVE, Deviation, nobody_is_heard, overdue
from policies.units import counted_with, from_millis

HALTED = "switch-halted"
BLOCKED = "switch-blocked"
DEGRADED = "switch-degraded"
UNATTENDED = "switch-unattended"
LEFT_BEHIND = "switch-ledgers-left-behind"
AWAITED = "switch-brokers-awaited"
ASTRAY = "switch-broker-astray"
CONTESTED = "switch-contested"
IMPOSTOR = "switch-impostor"
IDS_BEHIND = "switch-ids-behind"
UNPLANNED = "switch-unplanned-references"
UNDONE = "switch-undone"
_BEFORE_END = frozenset(SwitchStage) - ENDED - {SwitchStage.DONE_WITH_FAILURES}
_UNDER_WAY = frozenset(
    {
        SwitchStage.TRIGGERED, SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.CLEANUP,
        SwitchStage.ROLLBACK,
    }
)  # fmt: skip
_BLOCKS = frozenset({SwitchStage.TRIGGERED, SwitchStage.CLEANUP, SwitchStage.ROLLBACK})
_TAKEN_BACK = frozenset({SwitchStage.ROLLBACK, SwitchStage.ROLLED_BACK, SwitchStage.ABORTED})


def conditions(cluster: str, facts: SwitchFacts) -> Iterator[Condition]:
    """What is the case now."""
    yield from _of_the_fleet(cluster, facts)
    switch = facts.state.switch
    if switch is not None:
        yield from _of_the_switch(cluster, facts, switch)
        yield from _left_behind(cluster, facts, switch)


def _of_the_fleet(cluster: str, facts: SwitchFacts) -> Iterator[Condition]:
    """Also when no switch is under way: brokers, and what others wrote."""
    if facts.state.contested:
        # `resume` answers a directive by a later one; all else is for the registry to say otherwise.
        end = "that is resolved" if facts.state.contested_by is None else "`resume`"
        summary = f"the registry of {cluster} is contested: {facts.state.contested}; nothing is ordered until {end}"
        yield Condition(CONTESTED, f"{cluster}/switch", Severity.CRITICAL, "contested", summary, {"cluster": cluster})
    for name in facts.state.impostors:
        summary = (
            f"at the address of {name} of {cluster} another BookKeeper cluster answers than was registered: nothing "
            "that is read there counts"
        )
        labels = {"cluster": cluster, "name": name}
        yield Condition(IMPOSTOR, f"{cluster}/{name}", Severity.CRITICAL, "impostor", summary, labels)
    late: list[Deviation] = []
    for found in overdue(facts):
        if facts.state.switch is not None and facts.state.switch.stage in LIVE:
            yield _astray(cluster, facts.state.switch, found)
        else:
            late.append(found)
    if late:
        yield _awaited(cluster, facts, late)
    elif nobody_is_heard(facts):
        yield _nobody(cluster, facts.switch)
    yield from _ids_behind(cluster, facts)


def _astray(cluster: str, switch: Switch, found: Deviation) -> Condition:
    since = from_millis(found.since_ms).strftime("%Y-%m-%dT%H:%M:%SZ")
    summary = f"{found.broker} of {cluster} {found.why}, since {since}: it should write to {switch.target} alone"
    labels = {"cluster": cluster, "broker": found.broker, "stage": switch.stage.value}
    return Condition(ASTRAY, f"{cluster}/{found.broker}", Severity.CRITICAL, "broker_astray", summary, labels)


def _awaited(cluster: str, facts: SwitchFacts, late: list[Deviation]) -> Condition:
    directive = facts.state.directive
    names = ", ".join(f"{d.broker} {d.why} since {from_millis(d.since_ms):%Y-%m-%dT%H:%M:%SZ}" for d in late[:10])
    more = f" and {len(late) - 10} more" if len(late) > 10 else ""
    where = directive.target if directive else "?"
    summary = (
        f"brokers of {cluster} do not follow the directive to {where}: {names}{more}; topics that move to them from "
        "brokers that do get lower ids: unload their bundles first, or stop moving bundles"
    )
    return Condition(AWAITED, f"{cluster}/switch", Severity.WARNING, "not_acked", summary, {"cluster": cluster})


def _nobody(cluster: str, switch: Switch) -> Condition:
    since = f"{from_millis(switch.started_ms):%Y-%m-%dT%H:%M:%SZ}"
    summary = (
        f"no live broker of {cluster} is known since {since}, when the switch to {switch.target} began: it waits until "
        "brokers' agents are registered and read"
    )
    return Condition(AWAITED, f"{cluster}/switch", Severity.WARNING, "no_live_broker", summary, {"cluster": cluster})


def _ids_behind(cluster: str, facts: SwitchFacts) -> Iterator[Condition]:
    """Brokers are where ids lie below what they got elsewhere: known too late to refuse, so the remedy is told."""
    active = facts.state.active()
    generator = facts.generator(active) if active else None
    switch = facts.state.switch
    if active is None or generator is None or facts.state.directive is None:
        return
    if switch is not None and (switch.blocked or switch.halted):
        return  # which say it, with the same remedy
    if (gave := facts.gave_beyond(active)) >= 0:
        yield _behind(cluster, active, generator.next_id, f"already gave {gave}", remedy_beyond(gave, active))
        return
    most = max(
        (m for m in facts.written_elsewhere(active) if m.given_to_us >= generator.next_id),
        key=lambda m: m.given,
        default=None,
    )
    if most is not None:
        gave_more = f"{most.name} already gave {most.given}"
        yield _behind(cluster, active, generator.next_id, gave_more, remedy_beyond(most.given, active))


def _behind(cluster: str, active: str, next_id: int, gave: str, remedy: str) -> Condition:
    summary = f"brokers of {cluster} write to {active}, which gives {next_id} next, and {gave}: {remedy}"
    return Condition(IDS_BEHIND, f"{cluster}/switch", Severity.CRITICAL, "ids_behind", summary, {"cluster": cluster})


def _of_the_switch(cluster: str, facts: SwitchFacts, switch: Switch) -> Iterator[Condition]:
    move = f"the switch of {cluster} from {switch.source} to {switch.target}"
    if switch.halted:
        yield _condition(cluster, switch, HALTED, Severity.CRITICAL, "halted", f"{move} halts: {switch.halted}")
    if switch.blocked and switch.stage in _BLOCKS:
        yield _condition(cluster, switch, BLOCKED, Severity.CRITICAL, "blocked", f"{move} is blocked: {switch.blocked}")
    if switch.degraded and switch.stage in _BEFORE_END:
        summary = f"{move} is degraded: a broker cannot reach {switch.target}"
        yield _condition(cluster, switch, DEGRADED, Severity.CRITICAL, "client_init_failed", summary)
    if switch.stage in _UNDER_WAY and (why := guards.holds_lease(facts)):
        yield _condition(cluster, switch, UNATTENDED, Severity.WARNING, "no_lease", f"{move} does not go on: {why}")
    if switch.automatic and switch.stage in _TAKEN_BACK:
        yield _condition(cluster, switch, UNDONE, Severity.WARNING, "automatic", f"{move}: {switch.automatic}")


def _left_behind(cluster: str, facts: SwitchFacts, switch: Switch) -> Iterator[Condition]:
    left, move = facts.left_behind, f"the switch of {cluster} from {switch.source} to {switch.target}"
    if switch.stage is SwitchStage.DONE_WITH_FAILURES:
        trouble = f"{counted_with(left, 'ledger', 'stays', 'stay')} in {switch.source}" if left else ""
        trouble = trouble or ("a status could not be written" if switch.status_failed else _still_named(switch))
        summary = f"{move} is done, but {trouble}"
        yield _condition(cluster, switch, LEFT_BEHIND, Severity.WARNING, "failures", summary)
    if switch.unplanned_count and switch.stage in LIVE:
        names = ", ".join(switch.unplanned)
        name = counted_with(switch.unplanned_count, "reference", "names", "name")
        summary = f"{name} {switch.source} that nobody planned for: {names}"
        yield _condition(cluster, switch, UNPLANNED, Severity.WARNING, "unplanned", summary)


def _still_named(switch: Switch) -> str:
    return f"{counted_with(switch.unplanned_count, 'reference', 'names', 'name')} {switch.source}"


def _condition(cluster: str, switch: Switch, alert: str, severity: Severity, reason: str, summary: str) -> Condition:
    labels = {"cluster": cluster, "source": switch.source, "target": switch.target, "stage": switch.stage.value}
    return Condition(alert, f"{cluster}/switch", severity, reason, summary, labels)
