"""Alert conditions of a switch, from facts alone."""

from collections.abc import Iterator, Sequence

from policies.alerts import Condition
from policies.decisions import Severity
from policies.switching.alert_kinds import (
    ASTRAY,
    AWAITED,
    BLOCKED,
    CONTESTED,
    DEGRADED,
    HALTED,
    IDS_BEHIND,
    IMPOSTOR,
    LEFT_BEHIND,
    NOT_TAKEN_BACK,
    UNATTENDED,
    UNDONE,
    UNPLANNED,
    WAITING,
)
from policies.switching.facts import SwitchFacts
from policies.switching.id_generators import remedy_beyond
from policies.switching.judge import guards
from policies.switching.judge.holds import find_holds
from policies.switching.state import ENDED, LedgerStage, Switch, SwitchStage
from policies.switching.state import UNDONE as TAKEN_BACK
from policies.switching.watch import LIVE, Deviation, find_unknown_since_ms, overdue
from policies.units import counted_with, from_millis, name_some

NOT_REVERTED = (LedgerStage.PROMOTED, LedgerStage.PROMOTING)
_BEFORE_END = frozenset(SwitchStage) - ENDED - {SwitchStage.DONE_WITH_FAILURES}
_UNDER_WAY = frozenset(
    {
        SwitchStage.TRIGGERED, SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.CLEANUP,
        SwitchStage.ROLLBACK,
    }
)  # fmt: skip
_BLOCKS = frozenset({SwitchStage.TRIGGERED, SwitchStage.CLEANUP, SwitchStage.ROLLBACK})
_TAKEN_BACK = TAKEN_BACK | {SwitchStage.ROLLBACK}


def conditions(cluster: str, facts: SwitchFacts) -> Iterator[Condition]:
    """Return the alert conditions that hold now."""
    yield from _judge_registry(cluster, facts)
    yield from _judge_brokers(cluster, facts)
    yield from _judge_ids(cluster, facts)
    if facts.state.switch is not None:
        yield from _judge_switch(cluster, facts, facts.state.switch)


def _judge_registry(cluster: str, facts: SwitchFacts) -> Iterator[Condition]:
    if facts.state.contested:
        # `resume` answers a foreign directive by a later one; any other contest ends in the registry itself.
        end = "that is resolved" if facts.state.contested_by is None else "`resume`"
        summary = f"the registry of {cluster} is contested: {facts.state.contested}; nothing is ordered until {end}"
        yield _raise(cluster, CONTESTED, Severity.CRITICAL, "contested", summary)
    for name in facts.state.impostors:
        summary = (
            f"at the address of {name} of {cluster} another BookKeeper cluster answers than was registered: nothing "
            "that is read there counts"
        )
        labels = {"cluster": cluster, "name": name}
        yield Condition(IMPOSTOR, f"{cluster}/{name}", Severity.CRITICAL, "impostor", summary, labels)


def _raise(cluster: str, alert: str, severity: Severity, reason: str, summary: str, **labels: str) -> Condition:
    return Condition(alert, f"{cluster}/switch", severity, reason, summary, {"cluster": cluster, **labels})


# --- brokers and their ids


def _judge_brokers(cluster: str, facts: SwitchFacts) -> Iterator[Condition]:
    switch, late = facts.state.switch, overdue(facts)
    unknown_ms = find_unknown_since_ms(facts)
    if switch is not None and unknown_ms is not None and facts.now_ms >= unknown_ms + facts.limits.ack_timeout_ms:
        summary = (
            f"no live broker of {cluster} is known since {_format_instant(unknown_ms)}: the switch to {switch.target} "
            "waits until brokers' agents are registered and read"
        )
        yield _raise(cluster, AWAITED, Severity.WARNING, "no_live_broker", summary)
    if switch is not None and switch.stage in LIVE:
        for found in late:
            state = f"{found.broker} of {cluster} {found.why}, since {_format_instant(found.since_ms)}"
            summary = f"{state}: it should write to {switch.target} alone"
            labels = {"cluster": cluster, "broker": found.broker, "stage": switch.stage.value}
            yield Condition(ASTRAY, f"{cluster}/{found.broker}", Severity.CRITICAL, "broker_astray", summary, labels)
    elif late and unknown_ms is None:
        yield _await_brokers(cluster, facts, late)


def _await_brokers(cluster: str, facts: SwitchFacts, late: Sequence[Deviation]) -> Condition:
    directive = facts.state.directive
    names = name_some([f"{d.broker} {d.why} since {_format_instant(d.since_ms)}" for d in late])
    where = directive.target if directive else "?"
    summary = (
        f"brokers of {cluster} do not follow the directive to {where}: {names}; topics that move to them from "
        "brokers that do get lower ids: unload their bundles first, or stop moving bundles"
    )
    return _raise(cluster, AWAITED, Severity.WARNING, "not_acked", summary)


def _format_instant(milliseconds: int) -> str:
    return f"{from_millis(milliseconds):%Y-%m-%dT%H:%M:%SZ}"


def _judge_ids(cluster: str, facts: SwitchFacts) -> Iterator[Condition]:
    """Brokers write where ids lie below those they got elsewhere. It is too late to refuse, so name the remedy."""
    active, switch = facts.state.active(), facts.state.switch
    generator = facts.generator(active) if active else None
    if active is None or generator is None or facts.state.directive is None:
        return
    # Until a switch is live, brokers may still write to the cluster that they leave, with the clients that they have.
    # Others may use that cluster, too, so only a move of just now counts there.
    since_ms = {active: facts.state.directed_ms}
    if switch is not None and switch.stage in LIVE:
        live_ms = max(switch.live_ms, facts.now_ms - facts.limits.ack_timeout_ms)
        since_ms |= {name: live_ms for name in (switch.source, switch.home) if name != active}
    read = (seen for name in since_ms if (seen := facts.state.cluster(name)) is not None)
    seen = next((each for each in read if each.lower_moved_ms > since_ms[each.name]), None)
    if seen is not None:
        summary = (
            f"a client of {seen.name} of {cluster} still takes ids below its present HOB, seen at "
            f"{_format_instant(seen.lower_moved_ms)}: restart the brokers that did not open a new client"
        )
        yield _raise(cluster, IDS_BEHIND, Severity.CRITICAL, "old_client", summary)
        return
    if switch is not None and (switch.blocked or switch.halted):
        return  # another alert names the same remedy
    giver, gave = "", facts.gave_beyond(active)
    if gave < 0:
        higher = (m for m in facts.written_elsewhere(active) if m.given_to_us >= generator.next_id)
        most = max(higher, key=lambda m: m.given, default=None)
        if most is None:
            return
        giver, gave = f"{most.name} ", most.given
    order = f"gives {generator.next_id} next, and {giver}already gave {gave}"
    summary = f"brokers of {cluster} write to {active}, which {order}: {remedy_beyond(gave, active)}"
    yield _raise(cluster, IDS_BEHIND, Severity.CRITICAL, "ids_behind", summary)


# --- the switch


def _judge_waits(facts: SwitchFacts, switch: Switch, move: str) -> Iterator[tuple[str, Severity, str, str]]:
    if switch.stage is SwitchStage.ROLLED_BACK_WITH_FAILURES:
        paths = [t.paths[0] for t in facts.plan if t.stage in NOT_REVERTED]
        summary = f"{move} is taken back, except {name_some(paths)}: `rollback` tries again"
        yield NOT_TAKEN_BACK, Severity.WARNING, "failures", summary
    hold = next((hold for hold in find_holds(facts) if facts.now_ms >= hold.due_ms), None)
    if hold is not None:
        summary = f"{move} waits {hold.why}, since {_format_instant(hold.since_ms)}; {hold.ends_with} ends that"
        alert, severity = (BLOCKED, Severity.CRITICAL) if hold.name == "return" else (WAITING, Severity.WARNING)
        yield alert, severity, hold.name, summary


def _judge_switch(cluster: str, facts: SwitchFacts, switch: Switch) -> Iterator[Condition]:
    move = f"the switch of {cluster} from {switch.source} to {switch.target}"
    found: list[tuple[str, Severity, str, str]] = []
    if switch.halted:
        found.append((HALTED, Severity.CRITICAL, "halted", f"{move} halts: {switch.halted}"))
    returns = switch.returning or switch.stage is SwitchStage.ROLLBACK
    if switch.blocked and switch.stage in _BLOCKS and not returns:
        found.append((BLOCKED, Severity.CRITICAL, "blocked", f"{move} is blocked: {switch.blocked}"))
    if switch.degraded and switch.stage in _BEFORE_END:
        summary = f"{move} is degraded: a broker cannot reach {switch.target}"
        found.append((DEGRADED, Severity.CRITICAL, "client_init_failed", summary))
    if switch.stage in _UNDER_WAY and (why := guards.holds_lease(facts)):
        found.append((UNATTENDED, Severity.WARNING, "no_lease", f"{move} does not go on: {why}"))
    found += _judge_waits(facts, switch, move)
    if switch.automatic and switch.stage in _TAKEN_BACK:
        found.append((UNDONE, Severity.WARNING, "automatic", f"{move}: {switch.automatic}"))
    unplanned = f"{counted_with(switch.unplanned_count, 'reference', 'names', 'name')} {switch.source}"
    if switch.stage is SwitchStage.DONE_WITH_FAILURES:
        failed = "a status could not be written" if switch.status_failed else unplanned
        stay = f"{counted_with(facts.left_behind, 'ledger', 'stays', 'stay')} in {switch.source}"
        trouble = stay if facts.left_behind else failed
        found.append((LEFT_BEHIND, Severity.WARNING, "failures", f"{move} is done, but {trouble}"))
    if switch.unplanned_count and switch.stage in LIVE:
        summary = f"{unplanned} that nobody planned for: {', '.join(switch.unplanned)}"
        found.append((UNPLANNED, Severity.WARNING, "unplanned", summary))
    labels = {"source": switch.source, "target": switch.target, "stage": switch.stage.value}
    for alert, severity, reason, summary in found:
        yield _raise(cluster, alert, severity, reason, summary, **labels)
