"""The transition table of a switch, and the holds that its state shows now (`alert_kinds.HOLDS`).

Each command and each reading stands with its row. Which command ends a hold is
asked of this table, so no hold or refusal names one that it rejects.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from policies.switching.alert_kinds import HOLDS, HoldKind
from policies.switching.decisions import RejectCode
from policies.switching.facts import NEEDS_BROKERS, SwitchFacts, deviations, find_unknown_since_ms, moved_ms
from policies.switching.fold import InventorySeen, Judged
from policies.switching.judge import commands, events, guards, stages
from policies.switching.judge.guards import Refused, Row
from policies.switching.ledgers import remedy_beyond
from policies.switching.readings import (
    CommandArgs,
    CommandName,
    SwitchBroker,
    SwitchCommand,
    SwitchLedger,
    SwitchRegistry,
    SwitchStatus,
)
from policies.switching.state import (
    ENDED,
    LIVE,
    NEVER,
    ORDERED,
    REVERSIBLE,
    UNDONE,
    UNREVERTED,
    OrchestratorLease,
    PrecheckResult,
    SwitchAction,
    SwitchStage,
)
from policies.switching.transition import Transition
from policies.units import counted_with, format_second, from_millis, name_some

_COMMANDS: Mapping[CommandName, Callable[[SwitchFacts, SwitchCommand], Row]] = {
    CommandName.REGISTER: commands.register,
    CommandName.UNREGISTER: commands.unregister,
    CommandName.PRECHECK: commands.precheck,
    CommandName.START: commands.start,
    CommandName.ROLLBACK: stages.rollback,
    CommandName.ABORT: stages.abort,
    CommandName.PAUSE: commands.pause,
    CommandName.RESUME: commands.resume,
    CommandName.CLEANUP: commands.cleanup,
    CommandName.END: stages.end,
    CommandName.CLOSE_CLIENT: commands.close_client,
}
_READINGS: Mapping[type, Callable[[SwitchFacts, Any, Transition], None]] = {
    OrchestratorLease: events.judge_lease,
    SwitchRegistry: commands.judge_registry,
    SwitchBroker: events.judge_broker,
    PrecheckResult: commands.judge_precheck,
    InventorySeen: events.judge_inventory,
    SwitchLedger: events.judge_result,
    SwitchStatus: stages.judge_status,
}


def refuse(facts: SwitchFacts, command: SwitchCommand, step: Transition | None = None) -> Refused | None:
    """Return why a command is refused; None if it is accepted. A given step carries it out."""
    if command.expected_epoch not in (None, facts.state.epoch):
        sentence = f"the epoch is {facts.state.epoch}, not {command.expected_epoch} as the command expects"
        return Refused(RejectCode.INVALID_TRANSITION, sentence)
    row = _COMMANDS[command.command](facts, command)
    while (asked := next(row)) is not None:
        code, why = asked
        if why:
            return Refused(code, str(why))
    if step is not None:
        with suppress(StopIteration):
            row.send(step)
    return None


def judge(facts: SwitchFacts, event: Judged, step: Transition) -> None:
    """Write what follows from a reading."""
    _READINGS[type(event)](facts, event, step)


class Hold(NamedTuple):
    """Something that holds a switch up now."""

    key: str
    """The key of its kind."""
    why: str
    """What the switch does, as the end of a sentence about it; or a sentence about brokers or clusters."""
    since_ms: int | None = None
    """None: not known. Then it is an alert at once."""
    ends_with: str = ""
    """The commands that end it, of which one is accepted now. A finder names the remedy where it knows more."""
    subject: str = "switch"
    """The broker or cluster that it is about."""
    labels: Mapping[str, str] = MappingProxyType({})
    due_ms: int = NEVER
    """When it becomes an alert."""

    @property
    def name(self) -> str:
        """Its name in records and alerts."""
        return "failures" if self.key in ("not_taken_back", "left_behind") else self.key

    @property
    def kind(self) -> HoldKind:
        """The row of the table."""
        return HOLDS[self.key]


def find_holds(facts: SwitchFacts) -> list[Hold]:
    """Return all holds, the most urgent first."""
    finders = [_find_in_registry, _find_deviating, _find_old_client, _find_ids_behind]
    if facts.state.switch is not None:
        finders += [_find_standstills, _find_troubles, _find_leftovers, _find_waits]
    found = [_complete(facts, hold) for find in finders for hold in find(facts)]
    return sorted(found, key=lambda hold: list(HOLDS).index(hold.key))


def _complete(facts: SwitchFacts, hold: Hold) -> Hold:
    kind, due_ms = hold.kind, NEVER
    if hold.since_ms is not None:
        due_ms = hold.since_ms + kind.bound.find_ms(facts)
    ways = name_ways(facts, *kind.commands) if kind.has_ways_out else ""
    ends_with = ", or ".join(filter(None, (hold.ends_with or kind.remedy, ways)))
    return hold._replace(due_ms=due_ms, ends_with=ends_with)


def _find_in_registry(facts: SwitchFacts) -> Iterator[Hold]:
    if why := facts.state.contested:
        # `resume` answers a foreign directive by a later one; any other contest ends in the registry itself.
        undo = "undo that in the registry"
        if facts.state.contested_by is not None:
            behind = guards.refuse_lower_ids(facts, facts.state.active() or "")
            undo = f"`resume`, once this is mended: {behind}" if behind else "`resume`"
        yield Hold("contested", f"the registry is contested: {why}; nothing is ordered", ends_with=undo)
    for name in facts.state.impostors:
        why = f"at the address of {name} another BookKeeper cluster answers than was registered"
        yield Hold("impostor", f"{why}: no reading of it counts", subject=name, labels={"name": name})


def _find_standstills(facts: SwitchFacts) -> Iterator[Hold]:
    """The switch is halted, blocked or paused."""
    switch, stage = facts.switch, facts.switch.stage
    if why := switch.halted:
        yield Hold("halted", f"halts: {why}", None, f"{_name_remedy(why, 'remove the cause')}, then `resume`")
    if switch.blocked and _is_returning(facts):
        since_ms = max(switch.stage_ms, switch.started_ms, facts.state.directed_ms)
        remedy = _name_remedy(switch.blocked, "make its ZooKeeper answer")
        yield Hold("return", f"waits to send brokers back: {switch.blocked}", since_ms, remedy)
    elif switch.blocked and stage in (SwitchStage.TRIGGERED, SwitchStage.CLEANUP):
        remedy = _name_remedy(switch.blocked, "remove that reason")
        yield Hold("blocked", f"is blocked: {switch.blocked}", None, remedy)
    if switch.paused:
        moves = stage is SwitchStage.TRIGGERED or (stage is SwitchStage.ROLLBACK and not switch.attribution_only)
        is_between = moves and guards.refuse_straying_brokers(facts) is not None
        risk = " while brokers are between two clusters: topics that move between them may get lower ids"
        why = f"is paused{risk if is_between else ' by an operator'}"
        yield Hold("pause-between" if is_between else "pause", why, max(switch.paused_ms, switch.started_ms))


def _is_returning(facts: SwitchFacts) -> bool:
    return bool(facts.unreachable_before_moves) or facts.switch.stage is SwitchStage.ROLLBACK


def _name_remedy(why: str, other: str) -> str:
    """Name the command that raises a generator that is behind; the other remedy if that is not the reason."""
    return "create that HOB below `<ledgers root>/idgen-long`" if "advance to HOB-" in why else other


def _find_troubles(facts: SwitchFacts) -> Iterator[Hold]:
    """Something that the switch needs is missing: a cluster's ids, a broker's client, the lease, the live brokers."""
    switch, directive = facts.switch, facts.state.directive
    is_waiting = switch.stage is SwitchStage.TRIGGERED and not switch.blocked and not facts.stands_still
    if is_waiting and guards.refuse_missing_acks(facts) is None and (why := guards.refuse_early_readings(facts)):
        since_ms = max((moved_ms(report) for report in facts.acked), default=switch.started_ms)
        yield Hold("unread-ids", f"does not go live: {why}", since_ms)
    failing = [d.broker for d in deviations(facts) if d.cannot]
    is_over = switch.stage in ENDED | {SwitchStage.DONE_WITH_FAILURES}
    if failing and directive is not None and not is_over and not (switch.blocked and _is_returning(facts)):
        yield Hold("client_init_failed", f"is degraded: {name_some(failing)} cannot reach {directive.target}")
    if switch.stage in NEEDS_BROKERS - {SwitchStage.HOLD} and (why := guards.refuse_without_lease(facts)):
        yield Hold("no_lease", f"does not go on: {why}")
    if (unknown_ms := find_unknown_since_ms(facts)) is not None:
        yield Hold("no_live_broker", "waits for brokers: none is known to be alive", unknown_ms)


def _find_leftovers(facts: SwitchFacts) -> Iterator[Hold]:
    """The switch is over or nearly so, and left something undone."""
    switch, again = facts.switch, f"`start --target {facts.switch.target}`"
    unplanned = f"{counted_with(switch.unplanned_count, 'reference', 'names', 'name')} {switch.source}"
    if switch.stage is SwitchStage.ROLLED_BACK_WITH_FAILURES:
        left = list(facts.plan.at(*UNREVERTED))
        can_retry = any(guards.refuse_missing_source(facts, task) is None for task in left)
        if can_retry or facts.state.committed() != switch.target:  # else the target is where they belong
            why = f"is taken back, except {name_some([task.paths[0] for task in left])}"
            way = "`rollback`" if can_retry else f"{again}: their ledgers were deleted"
            yield Hold("not_taken_back", why, None, way)
    if switch.stage is SwitchStage.DONE_WITH_FAILURES:
        stay = f"{counted_with(facts.left_behind, 'ledger', 'stays', 'stay')} in {switch.source}"
        left_over = [stay] if facts.left_behind else []
        left_over += ["a status could not be written"] if switch.status_failed else []
        left_over += [unplanned] if switch.unplanned_count else []
        why = "; ".join(left_over or ["not every broker followed when it ended"])
        yield Hold("left_behind", f"is done, but {why}", None, again)
    if switch.unplanned_count and switch.stage in LIVE:
        # A switch back begins with a registered cluster.
        is_known = facts.state.entry(switch.source) is not None
        back = f"`start --target {switch.source}`" if is_known else f"`register --name {switch.source}`"
        unload = f"unload their topics, so that they roll over, or {back} and then move again"
        why = f"meets references that nobody planned for: {unplanned}: {', '.join(switch.unplanned)}"
        yield Hold("unplanned", why, None, unload if switch.stage is SwitchStage.DONE else again)


def _find_deviating(facts: SwitchFacts) -> Iterator[Hold]:
    """Until a switch is live, brokers may be late: one hold names them all. After that each one is a hold."""
    directive, switch, found = facts.state.directive, facts.state.switch, tuple(deviations(facts))
    if switch is not None and switch.stage in LIVE:
        for each in found:
            labels = {"broker": each.broker, "stage": switch.stage.value}
            why = f"{each.broker} {each.why}: it should write to {switch.target} alone"
            key = "broker_astray" if each.reported else "broker_silent"
            yield Hold(key, why, each.since_ms, subject=each.broker, labels=labels)
    elif found and directive is not None and find_unknown_since_ms(facts) is None:
        names = name_some([f"{d.broker} {d.why} since {format_second(from_millis(d.since_ms))}" for d in found])
        why = (
            f"brokers do not follow the directive to {directive.target}: {names}; topics that move to them from "
            "brokers that do get lower ids: unload their bundles first, or stop moving bundles"
        )
        yield Hold("not_acked", why, min(d.since_ms for d in found))


def _find_old_client(facts: SwitchFacts) -> Iterator[Hold]:
    """Find a cluster of which a client still takes ids below the present ``HOB``.

    Until a switch is live, brokers may still write to the cluster that they leave, with the clients that they have.
    Only a move of just now counts: a client that was closed takes no more ids.
    """
    active, switch = facts.state.active(), facts.state.switch
    if active is None or facts.generator(active) is None or facts.state.directive is None:
        return
    since_ms = {active: facts.state.directed_ms}
    if switch is not None and switch.stage in LIVE:
        since_ms |= {name: switch.live_ms for name in (switch.source, switch.home) if name != active}
    read = (seen for name in since_ms if (seen := facts.state.cluster(name)) is not None)
    moved = (each for each in read if each.lower_moved_ms > since_ms[each.name])
    seen = next((each for each in moved if facts.is_recent(each.lower_moved_ms)), None)
    if seen is not None:
        when = f"seen at {format_second(from_millis(seen.lower_moved_ms))}"
        yield Hold("old_client", f"a client of {seen.name} still takes ids below its present HOB, {when}")


def _find_ids_behind(facts: SwitchFacts) -> Iterator[Hold]:
    """Find that brokers write where ids lie below those they got elsewhere. It is too late to refuse."""
    active, switch = facts.state.active(), facts.state.switch
    generator = facts.generator(active) if active else None
    if active is None or generator is None or facts.state.directive is None:
        return
    if switch is not None and (switch.blocked or switch.halted):
        return  # that hold names the same remedy
    giver, gave = "", facts.gave_beyond(active)
    if gave < 0:
        higher = (m for m in facts.written_elsewhere(active) if m.given_to_us >= generator.next_id)
        most = max(higher, key=lambda m: m.given, default=None)
        if most is None:
            return
        giver, gave = f"{most.name} ", most.given
    order = f"gives {generator.next_id} next, and {giver}already gave {gave}"
    yield Hold("ids_behind", f"brokers write to {active}, which {order}", None, remedy_beyond(gave, active))


def _find_waits(facts: SwitchFacts) -> Iterator[Hold]:
    """The switch waits for an inventory, for answers or for an operator."""
    switch, away, home = facts.switch, facts.state.active(), facts.state.committed()
    if facts.stands_still:
        return
    if facts.needs_inventory and switch.stage not in UNDONE:
        why = "waits for a complete inventory of all references: the executor's log names what it cannot read"
        since_ms = max(switch.stage_ms, switch.confirm_ms, switch.started_ms, switch.recovering_ms)
        yield Hold("inventory", why, since_ms)
    count = facts.plan.count_ordered(*ORDERED) + (switch.awaiting is SwitchAction.STATUS_NEW)
    if count and switch.stage is not SwitchStage.ABORTED:
        since_ms = max(switch.progress_ms, switch.stage_ms, switch.started_ms)
        yield Hold("answers", f"waits for the executor's answers to {count} orders", since_ms)
    if switch.stage in UNDONE | {SwitchStage.REJECTED} and away != home:
        why = f"is over while brokers write to {away}, which the registry does not show as active"
        ways = f"`rollback --with-brokers` (back to {home}) or `start --target {away}` (completes their move)"
        ways = ways if home is not None else f"`register --name {away} --status active`"
        yield Hold("brokers-left", why, max(switch.ended_ms, switch.started_ms), ways)
    if switch.stage is SwitchStage.HOLD:
        yield Hold("hold", "waits in hold for an operator", max(switch.hold_ms, switch.started_ms))


def name_ways(facts: SwitchFacts, *others: str) -> str:
    """Name the commands that end the live switch, and those of the others that are accepted now; empty if none is."""
    if facts.state.switch is None:
        return ""
    back = ("rollback",) if facts.switch.stage in REVERSIBLE else ()
    ways = [words for words in (*others, "abort", *back, "end") if _is_accepted(facts, words)]
    ways = ways or [words for words in (f"start --target {facts.switch.target}",) if _is_accepted(facts, words)]
    return " or ".join(f"`{words}`" for words in ways)


def _is_accepted(facts: SwitchFacts, words: str) -> bool:
    """Whether a command about the switch, as an operator writes it, is accepted."""
    name, args = CommandName(words.split()[0]), CommandArgs.model_construct(target=facts.switch.target)
    command = SwitchCommand.model_construct(cluster="", command=name, args=args, idempotency_key="")
    return refuse(facts, command) is None


def explain_refusal(facts: SwitchFacts, refused: Refused) -> str:
    """Return the sentence of a refused command with what an operator may do instead: see to its cause, or end it."""
    if refused.code not in _BY_STAGE:
        return refused.sentence
    causes = _STANDSTILLS | (_BROKERS if refused.code is RejectCode.BROKERS_BEHIND else frozenset())
    way = next((hold.ends_with for hold in find_holds(facts) if hold.key in causes), name_ways(facts))
    return f"{refused.sentence}; to go on: {way}" if way else refused.sentence


_STANDSTILLS = frozenset({"contested", "halted", "pause", "pause-between"})
_BROKERS = frozenset({"no_live_broker", "not_acked", "broker_astray", "broker_silent"})
_BY_STAGE = frozenset(
    {
        RejectCode.CONTESTED, RejectCode.BROKERS_BEHIND, RejectCode.SWITCH_IN_PROGRESS, RejectCode.WINDOW_EXPIRED,
        RejectCode.CLEANUP_STARTED, RejectCode.WINDOW_NOT_ELAPSED, RejectCode.INVALID_TRANSITION,
    }
)  # fmt: skip
"""The codes of commands that the stage does not allow, or something that holds the switch up."""
