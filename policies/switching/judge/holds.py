"""Finds the holds of a switch (`alert_kinds.HOLDS`), and names the commands that end them.

Which command ends a switch at its stage is asked of the judge itself, so no hold or refusal names one that it rejects.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from policies.switching import alert_kinds as kinds
from policies.switching.decisions import RejectCode
from policies.switching.facts import LIVE, SwitchFacts, deviations, find_unknown_since_ms, moved_ms
from policies.switching.judge import guards
from policies.switching.judge.guards import Refused
from policies.switching.judge.table import refuse
from policies.switching.ledgers import remedy_beyond
from policies.switching.readings import CommandArgs, CommandName, SwitchCommand
from policies.switching.settings import DAY_MS
from policies.switching.state import ENDED, NEVER, REVERSIBLE, UNDONE, UNREVERTED, SwitchAction, SwitchStage
from policies.units import counted_with, format_second, from_millis, name_some

_NOT_OPEN = (SwitchAction.NONE, SwitchAction.GIVEN_UP, SwitchAction.SETTLED, SwitchAction.INVENTORY)
_OPEN = tuple(action for action in SwitchAction if action not in _NOT_OPEN)
_BLOCKED_AT = frozenset({SwitchStage.TRIGGERED, SwitchStage.CLEANUP, SwitchStage.ROLLBACK})
_UNDER_WAY = (REVERSIBLE - {SwitchStage.HOLD}) | _BLOCKED_AT


class Hold(NamedTuple):
    """Something that holds a switch up now."""

    why: str
    """What the switch does, as the end of a sentence about it; or a sentence about brokers or clusters."""
    since_ms: int | None = None
    """None: not known. Then it is an alert at once."""
    ends_with: str = ""
    """The commands that end it, of which one is accepted now; empty where a finder leaves it to the kind."""
    subject: str = "switch"
    """The broker or cluster that it is about."""
    labels: Mapping[str, str] = MappingProxyType({})


class DatedHold(NamedTuple):
    """A hold with its kind, and the instant when it becomes an alert."""

    kind: kinds.HoldKind
    hold: Hold
    due_ms: int


def find_holds(facts: SwitchFacts) -> Iterator[DatedHold]:
    """Return all holds, the most urgent first."""
    for kind in kinds.HOLDS:
        if kind.is_about_switch and facts.state.switch is None:
            continue
        for hold in _FINDERS[kind.alert, kind.name](facts):
            due_ms = NEVER if hold.since_ms is None else hold.since_ms + BOUNDS[kind.bound](facts)
            yield DatedHold(kind, hold._replace(ends_with=hold.ends_with or kind.ends_with), due_ms)


# --- the registry


def _find_contested(facts: SwitchFacts) -> Iterator[Hold]:
    if why := facts.state.contested:
        # `resume` answers a foreign directive by a later one; any other contest ends in the registry itself.
        undo = "undo that in the registry"
        if facts.state.contested_by is not None:
            behind = guards.refuse_lower_ids(facts, facts.state.active() or "")
            undo = f"`resume`, once this is mended: {behind}" if behind else "`resume`"
        yield Hold(f"the registry is contested: {why}; nothing is ordered", ends_with=undo)


def _find_impostors(facts: SwitchFacts) -> Iterator[Hold]:
    for name in facts.state.impostors:
        why = (
            f"at the address of {name} another BookKeeper cluster answers than was registered: no reading of it counts"
        )
        yield Hold(why, None, f"repair the address{_or_way(facts)}", name, {"name": name})


# --- the switch


def _find_halted(facts: SwitchFacts) -> Iterator[Hold]:
    if why := facts.switch.halted:
        yield Hold(f"halts: {why}", None, f"{_name_remedy(why, 'remove the cause')}, then `resume`{_or_way(facts)}")


def _find_blocked(facts: SwitchFacts) -> Iterator[Hold]:
    switch = facts.switch
    if switch.blocked and switch.stage in _BLOCKED_AT and not _is_returning(facts):
        remedy = _name_remedy(switch.blocked, "remove that reason")
        yield Hold(f"is blocked: {switch.blocked}", None, f"{remedy}{_or_way(facts)}")


def _find_unread_ids(facts: SwitchFacts) -> Iterator[Hold]:
    switch = facts.switch
    if switch.stage is not SwitchStage.TRIGGERED or switch.blocked or facts.stands_still:
        return
    if guards.refuse_missing_acks(facts) is None and (why := guards.refuse_early_readings(facts)):
        since_ms = max((moved_ms(report) for report in facts.acked), default=switch.started_ms)
        yield Hold(f"does not go live: {why}", since_ms, f"make its ZooKeeper answer{_or_way(facts)}")


def _find_return(facts: SwitchFacts) -> Iterator[Hold]:
    switch = facts.switch
    if switch.blocked and _is_returning(facts):
        since_ms = max(switch.stage_ms, switch.started_ms, facts.state.directed_ms)
        ends_with = f"{_name_remedy(switch.blocked, 'make its ZooKeeper answer')}{_or_way(facts)}"
        yield Hold(f"waits to send brokers back: {switch.blocked}", since_ms, ends_with)


def _is_returning(facts: SwitchFacts) -> bool:
    return bool(facts.unreachable_before_moves) or facts.switch.stage is SwitchStage.ROLLBACK


def _find_degraded(facts: SwitchFacts) -> Iterator[Hold]:
    directive, failing = facts.state.directive, [d.broker for d in deviations(facts) if d.cannot]
    is_over = facts.switch.stage in ENDED | {SwitchStage.DONE_WITH_FAILURES}
    if failing and directive is not None and not is_over and not (facts.switch.blocked and _is_returning(facts)):
        why = f"is degraded: {name_some(failing)} cannot reach {directive.target}"
        yield Hold(why, None, f"repair the broker{_or_way(facts)}")


def _find_no_lease(facts: SwitchFacts) -> Iterator[Hold]:
    if facts.switch.stage in _UNDER_WAY and (why := guards.refuse_without_lease(facts)):
        yield Hold(f"does not go on: {why}", None, f"start `headgate act`{_or_way(facts)}")


def _find_not_reverted(facts: SwitchFacts) -> Iterator[Hold]:
    if facts.switch.stage is SwitchStage.ROLLED_BACK_WITH_FAILURES:
        left = list(facts.plan.at(*UNREVERTED))
        can_retry, target = any(guards.refuse_missing_source(facts, task) is None for task in left), facts.switch.target
        way = "`rollback`" if can_retry else f"`start --target {target}`: their ledgers were deleted"
        if can_retry or facts.state.committed() != target:  # else the target is where they belong
            yield Hold(f"is taken back, except {name_some([task.paths[0] for task in left])}", None, way)


def _find_left_behind(facts: SwitchFacts) -> Iterator[Hold]:
    switch = facts.switch
    if switch.stage is SwitchStage.DONE_WITH_FAILURES:
        stay = f"{counted_with(facts.left_behind, 'ledger', 'stays', 'stay')} in {switch.source}"
        why = [stay] if facts.left_behind else []
        why += ["a status could not be written"] if switch.status_failed else []
        why += [_count_unplanned(facts)] if switch.unplanned_count else []
        left = "; ".join(why or ["not every broker followed when it ended"])
        yield Hold(f"is done, but {left}", None, f"`start --target {switch.target}`")


def _find_unplanned(facts: SwitchFacts) -> Iterator[Hold]:
    switch = facts.switch
    if switch.unplanned_count and switch.stage in LIVE:
        why = f"meets references that nobody planned for: {_count_unplanned(facts)}: {', '.join(switch.unplanned)}"
        back = (
            f"unload their topics, so that they roll over, or {_name_start(facts, switch.source)} and then move again"
        )
        yield Hold(why, None, back if switch.stage is SwitchStage.DONE else f"`start --target {switch.target}`")


def _count_unplanned(facts: SwitchFacts) -> str:
    return f"{counted_with(facts.switch.unplanned_count, 'reference', 'names', 'name')} {facts.switch.source}"


# --- brokers and their ids


def _find_no_broker(facts: SwitchFacts) -> Iterator[Hold]:
    if (since_ms := find_unknown_since_ms(facts)) is not None:
        why = "waits for brokers: none is known to be alive"
        yield Hold(why, since_ms, f"start the brokers' agents{_or_way(facts)}")


def _find_not_acked(facts: SwitchFacts) -> Iterator[Hold]:
    directive, switch = facts.state.directive, facts.state.switch
    late = tuple(deviations(facts))
    is_live = switch is not None and switch.stage in LIVE
    if late and directive is not None and not is_live and find_unknown_since_ms(facts) is None:
        names = name_some([f"{d.broker} {d.why} since {_format(d.since_ms)}" for d in late])
        why = (
            f"brokers do not follow the directive to {directive.target}: {names}; topics that move to them from "
            "brokers that do get lower ids: unload their bundles first, or stop moving bundles"
        )
        yield Hold(why, min(d.since_ms for d in late), f"restart their agents{_or_way(facts)}")


def _find_astray(facts: SwitchFacts, *, is_reported: bool) -> Iterator[Hold]:
    switch = facts.state.switch
    if switch is None or switch.stage not in LIVE:
        return
    for found in deviations(facts):
        if found.reported is is_reported:
            labels = {"broker": found.broker, "stage": switch.stage.value}
            why = f"{found.broker} {found.why}: it should write to {switch.target} alone"
            yield Hold(why, found.since_ms, f"restart or stop it{_or_way(facts)}", found.broker, labels)


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
        when = f"seen at {_format(seen.lower_moved_ms)}"
        yield Hold(f"a client of {seen.name} still takes ids below its present HOB, {when}")


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
    yield Hold(f"brokers write to {active}, which {order}", None, remedy_beyond(gave, active))


# --- waits


def _find_pause(facts: SwitchFacts, *, is_between: bool) -> Iterator[Hold]:
    switch = facts.switch
    moves = switch.stage is SwitchStage.TRIGGERED
    moves = moves or (switch.stage is SwitchStage.ROLLBACK and not switch.attribution_only)
    if switch.paused and (moves and guards.refuse_straying_brokers(facts) is not None) is is_between:
        risk = " while brokers are between two clusters: topics that move between them may get lower ids"
        why = f"is paused{risk if is_between else ' by an operator'}"
        yield Hold(why, max(switch.paused_ms, switch.started_ms), f"`resume`{_or_way(facts)}")


def _find_inventory(facts: SwitchFacts) -> Iterator[Hold]:
    switch = facts.switch
    if facts.needs_inventory and switch.stage not in UNDONE and not facts.stands_still:
        why = "waits for a complete inventory of all references: the executor's log names what it cannot read"
        since_ms = max(switch.stage_ms, switch.confirm_ms, switch.started_ms, switch.recovering_ms)
        yield Hold(why, since_ms, name_ways(facts))


def _find_answers(facts: SwitchFacts) -> Iterator[Hold]:
    switch = facts.switch
    count = facts.plan.count_ordered(*_OPEN) + (switch.awaiting is SwitchAction.STATUS_NEW)
    if count and switch.stage is not SwitchStage.ABORTED and not facts.stands_still:
        since_ms = max(switch.progress_ms, switch.stage_ms, switch.started_ms)
        yield Hold(f"waits for the executor's answers to {count} orders", since_ms, name_ways(facts, "pause"))


def _find_brokers_left(facts: SwitchFacts) -> Iterator[Hold]:
    switch, away, home = facts.switch, facts.state.active(), facts.state.committed()
    if switch.stage in UNDONE | {SwitchStage.REJECTED} and away != home and not facts.stands_still:
        why = f"is over while brokers write to {away}, which the registry does not show as active"
        ways = f"`rollback --with-brokers` (back to {home}) or `start --target {away}` (completes their move)"
        ways = ways if home is not None else f"`register --name {away} --status active`"
        yield Hold(why, max(switch.ended_ms, switch.started_ms), ways)


def _find_in_hold(facts: SwitchFacts) -> Iterator[Hold]:
    if facts.switch.stage is SwitchStage.HOLD and not facts.stands_still:
        ways = name_ways(facts, "cleanup --execute")
        yield Hold("waits in hold for an operator", max(facts.switch.hold_ms, facts.switch.started_ms), ways)


def _name_remedy(why: str, other: str) -> str:
    """Name the command that raises a generator that is behind; the other remedy if that is not the reason."""
    return "create that HOB below `<ledgers root>/idgen-long`" if "advance to HOB-" in why else other


# --- commands


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


def _name_start(facts: SwitchFacts, target: str) -> str:
    """Name the command that begins a switch to a cluster, which must be registered before."""
    return f"`start --target {target}`" if facts.state.entry(target) else f"`register --name {target}`"


def _or_way(facts: SwitchFacts) -> str:
    """Name the commands that end the switch, as an alternative; empty if there is none."""
    return f", or {ways}" if (ways := name_ways(facts)) else ""


def explain_refusal(facts: SwitchFacts, refused: Refused) -> str:
    """Return the sentence of a refused command with what an operator may do instead: see to its cause, or end it."""
    if refused.code not in _BY_STAGE:
        return refused.sentence
    causes = _STANDSTILLS | (_BROKERS if refused.code is RejectCode.BROKERS_BEHIND else frozenset())
    way = next((hold.ends_with for kind, hold, _ in find_holds(facts) if kind.name in causes), name_ways(facts))
    return f"{refused.sentence}; to go on: {way}" if way else refused.sentence


def _format(milliseconds: int) -> str:
    return format_second(from_millis(milliseconds))


# --- the table

BOUNDS: Mapping[str, Callable[[SwitchFacts], int]] = {
    "none": lambda _: 0,
    "`ack_timeout`": lambda facts: facts.limits.ack_timeout_ms,
    # An inventory or an answer takes minutes at most, with the largest fleets that were measured.
    "10 min": lambda _: 600_000,
    "1 day": lambda _: DAY_MS,
    "1 day after `cleanup_from`": lambda facts: facts.switch.cleanup_from_ms - facts.switch.hold_ms + DAY_MS,
}
"""In milliseconds, by the words of the runbook."""
_STANDSTILLS = frozenset({"contested", "halted", "pause", "pause-between"})
_BROKERS = frozenset({"no_live_broker", "not_acked", "broker_astray", "broker_silent"})
_BY_STAGE = frozenset(
    {
        RejectCode.CONTESTED, RejectCode.BROKERS_BEHIND, RejectCode.SWITCH_IN_PROGRESS, RejectCode.WINDOW_EXPIRED,
        RejectCode.CLEANUP_STARTED, RejectCode.WINDOW_NOT_ELAPSED, RejectCode.INVALID_TRANSITION,
    }
)  # fmt: skip
"""The codes of commands that the stage does not allow, or something that holds the switch up."""
_FINDERS: Mapping[tuple[str, str], Callable[[SwitchFacts], Iterator[Hold]]] = {
    (kinds.CONTESTED, "contested"): _find_contested,
    (kinds.IMPOSTOR, "impostor"): _find_impostors,
    (kinds.HALTED, "halted"): _find_halted,
    (kinds.BLOCKED, "return"): _find_return,
    (kinds.BLOCKED, "blocked"): _find_blocked,
    (kinds.BLOCKED, "unread-ids"): _find_unread_ids,
    (kinds.DEGRADED, "client_init_failed"): _find_degraded,
    (kinds.UNATTENDED, "no_lease"): _find_no_lease,
    (kinds.AWAITED, "no_live_broker"): _find_no_broker,
    (kinds.AWAITED, "not_acked"): _find_not_acked,
    (kinds.ASTRAY, "broker_astray"): partial(_find_astray, is_reported=True),
    (kinds.ASTRAY, "broker_silent"): partial(_find_astray, is_reported=False),
    (kinds.IDS_BEHIND, "old_client"): _find_old_client,
    (kinds.IDS_BEHIND, "ids_behind"): _find_ids_behind,
    (kinds.NOT_TAKEN_BACK, "failures"): _find_not_reverted,
    (kinds.WAITING, "pause"): partial(_find_pause, is_between=False),
    (kinds.WAITING, "pause-between"): partial(_find_pause, is_between=True),
    (kinds.LEFT_BEHIND, "failures"): _find_left_behind,
    (kinds.WAITING, "inventory"): _find_inventory,
    (kinds.WAITING, "answers"): _find_answers,
    (kinds.WAITING, "brokers-left"): _find_brokers_left,
    (kinds.WAITING, "hold"): _find_in_hold,
    (kinds.UNPLANNED, "unplanned"): _find_unplanned,
}
