"""Guards of transitions: each refuses one thing, and returns the reason; None: it lets the transition pass.

Each is a function of its own, so that a test can disable it and show the harm that it prevents. A condition on unknown
data does not hold. Rules: docs/design/switching.md, the guards of the table and the invariants.
"""

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, NamedTuple

from policies.switching.decisions import RejectCode
from policies.switching.facts import SwitchFacts, awaited, describe_brokers, deviations, moved_ms
from policies.switching.ledgers import (
    ANY_CLUSTER,
    Ledger,
    are_same_cluster,
    has_id,
    is_ours,
    remedy_beyond,
    same_ledger,
    why_not_a_name,
)
from policies.switching.state import DELETING, IN_TARGET, ClusterStatus, LedgerTask
from policies.units import counted_with, format_instant, from_millis, name_some

if TYPE_CHECKING:
    from policies.switching.transition import Transition

Refusal = str | None
"""The reason why a transition is refused; None if it is not."""
Asked = tuple[RejectCode, Refusal | bool]
"""A guard of a command: the code of its refusal, and the reason; a false one lets the command pass."""
Row = Generator[Asked | None, "Transition", None]
"""A command: it yields its guards in order, and then nothing; if it is carried out, it gets the step to write to."""


class Refused(NamedTuple):
    """The refusal of a command."""

    code: RejectCode
    sentence: str


# --- registering (rows 1, 2)


def refuse_taken_name(facts: SwitchFacts, name: str, instance_id: str, root: str) -> Refusal:
    """The name is valid, and not taken by a cluster of another identity."""
    if why := why_not_a_name(name):
        return f"'{name}' {why}"
    known = facts.state.entry(name)
    is_other = known is not None and (known.instance_id, known.root) != (instance_id, root)
    return f"{name} stands for {known.instance_id}{known.root}" if known is not None and is_other else None


def refuse_cluster_in_use(facts: SwitchFacts, name: str) -> Refusal:
    """The cluster is neither active, nor part of a live switch, nor named by a reference, nor used by a broker."""
    live = facts.state.live_switch()
    if name in (facts.state.active(), facts.state.committed()):
        return f"{name} is active"
    if live is not None and name in (live.source, live.target, live.home):
        return f"the switch from {live.source} to {live.target} is not over"
    return refuse_read_cluster(facts, name)


def refuse_used_by_broker(facts: SwitchFacts, name: str, since_ms: int) -> Refusal:
    """Every live broker just reported, not before an instant, that it neither reads nor writes a cluster.

    A report on an earlier directive proves nothing. Before the first directive no broker needs an agent; then a report
    that names the cluster still counts.
    """
    reports = {b.name: b for b in facts.state.brokers}
    for report in reports.values():
        if facts.is_recent(report.at_ms) and name in (*report.reads, *report.writes):
            return f"{report.name} {'reads' if name in report.reads else 'writes to'} it"
    if facts.state.directive is None:
        return None
    if not facts.live_brokers:
        return "it is not known which brokers are alive"
    heard = {
        b.name for b in reports.values()
        if facts.is_recent(b.at_ms) and b.at_ms >= since_ms
        and facts.is_since_directive(max(b.acked_epoch, b.failed_epoch))
    }  # fmt: skip
    silent = [b for b in facts.live_brokers if b not in heard]
    return f"{name_some(silent)} did not report just now that it does not read it" if silent else None


# --- starting (row 4)


def refuse_without_lease(facts: SwitchFacts) -> Refusal:
    """An orchestrator holds a valid lease."""
    lease = facts.state.lease
    if lease is None:
        return "no orchestrator holds the lease"
    return None if facts.now_ms < lease.valid_until_ms else f"the lease of {lease.holder} has run out"


def refuse_other_switch(facts: SwitchFacts) -> Refusal:
    """No switch is under way."""
    live = facts.state.live_switch()
    return f"the switch to {live.target} is at {live.stage.value}" if live else None


def refuse_active_target(facts: SwitchFacts, target: str) -> Refusal:
    """The target is not active in the registry. It may be deprecated: brokers may go back to such a cluster."""
    known, writes_to = facts.state.entry(target), facts.state.active()
    if known is None:
        return f"{target} is not registered"
    if known.status is not ClusterStatus.ACTIVE:
        return None
    if writes_to == target:
        return f"{target} is active"
    way = "`rollback --with-brokers` brings them back"
    if facts.state.switch is None:  # the switch was lost with the state, so it cannot be rolled back
        way = f"`start --target {writes_to}` takes their switch up again"
    return f"{target} is active; brokers write to {writes_to}: {way}"


def refuse_unready_precheck(facts: SwitchFacts, target: str) -> Refusal:
    """The last precheck of the target began at the active cluster, is fresh, and found it ready."""
    check = facts.state.check(target)
    if check is None:
        return f"{target} was never prechecked"
    if facts.now_ms >= check.expires_ms:
        return f"the precheck of {target} has expired"
    if check.source != facts.state.committed():
        return f"the precheck was made for {check.source}, which is not active"
    if check.bypassed and not facts.limits.skip_idgen_precheck:
        return f"the precheck of {target} was bypassed, which the settings do not allow"
    return None if check.ready else f"the precheck of {target} says: {', '.join(check.reasons)}"


def refuse_same_identity(facts: SwitchFacts, source: str, target: str) -> Refusal:
    """INV-4: both identities are known and differ, and both layouts can hold every id."""
    one, other = facts.state.cluster(source), facts.state.cluster(target)
    for name, seen in ((source, one), (target, other)):
        if seen is None or seen.instance_id is None or seen.root is None:
            return f"the identity of {name} is unknown"
        if seen.layout is None:
            return f"the layout of {name} is unknown"
    same = source == target or (one is not None and other is not None and are_same_cluster(one, other))
    return f"{source} and {target} are one cluster" if same else None


def refuse_taken_ids(facts: SwitchFacts, source: str, target: str) -> Refusal:
    """INV-2 (INV-5 with the roles exchanged): the target's next id lies beyond every id given, referenced or deleted.

    That includes the ids that the source may still give, and those of every other cluster that brokers may have
    written to.
    """
    one, other = facts.generator(source), facts.generator(target)
    if one is None or other is None:
        return "an id generator is unknown"
    floor = facts.floor_of_ids(one, target)
    if other.next_id <= floor:
        return f"{target} gives {other.next_id} next, up to {floor} is taken: {remedy_beyond(floor, target)}"
    return refuse_lower_ids(facts, target)


def refuse_lower_ids(facts: SwitchFacts, target: str) -> Refusal:
    """INV-2 over all switches: the target's next id lies beyond every id that brokers may have got elsewhere.

    It must also lie beyond the target's own ids: a generator that goes back, because its ZooKeeper was restored from a
    backup, gives the same ids again.
    """
    generator = facts.generator(target)
    if generator is None:
        return "an id generator is unknown"
    if (gave := facts.gave_beyond(target)) >= 0:
        return f"{target} gives {generator.next_id} next, and gave {gave} before: {remedy_beyond(gave, target)}"
    for mark in facts.written_elsewhere(target):
        if (taken := facts.may_have_given(mark)) >= generator.next_id:
            why = f"up to {taken} is taken by {mark.name}, which brokers were sent to: {remedy_beyond(taken, target)}"
            return f"{target} gives {generator.next_id} next, {why}"
    return None


def refuse_return(facts: SwitchFacts) -> Refusal:
    """INV-5: brokers may go back to greater ids only, whether or not one is known to have moved.

    A broker may have moved unreported, so the ids count that the cluster they were sent to gave or may give. They must
    have been read since ZooKeeper has the directive in force. An earlier reading of the cluster to return to is only
    stricter, because its next id grows.
    """
    home, away = facts.switch.home, facts.state.active() or facts.switch.target
    seen, back = facts.state.cluster(away), facts.state.cluster(home)
    is_read = seen is not None and seen.generator is not None and facts.is_since_directive(seen.epoch)
    if seen is None or not is_read or not facts.is_recent(seen.read_ms):
        return f"what {away} gave since brokers were directed there is not read yet"
    if back is None or facts.now_ms >= back.read_ms + 2 * facts.limits.ack_timeout_ms:
        return f"the id generator of {home} was not read just now"
    return refuse_taken_ids(facts, away, home)


# --- going live (rows 5, 6)


def refuse_missing_acks(facts: SwitchFacts) -> Refusal:
    """Every live broker follows the directive, also with its client; the list of live brokers is newer than it."""
    if not facts.live_brokers:
        return "it is not known which brokers are alive"
    return describe_brokers(awaited(facts)) or None


def refuse_writes_elsewhere(facts: SwitchFacts) -> Refusal:
    """No broker writes to another cluster than the target after its ack."""
    return describe_brokers([each for each in deviations(facts) if each.follows]) or None


def refuse_straying_brokers(facts: SwitchFacts) -> Refusal:
    """Every live broker follows the directive in force, and writes nowhere else."""
    if not facts.live_brokers:
        return "it is not known which brokers are alive"
    return describe_brokers(tuple(deviations(facts))) or None


def refuse_brokers_away(facts: SwitchFacts) -> Refusal:
    """Every live broker follows a directive to the cluster where it wrote before the switch."""
    directive, home = facts.state.directive, facts.switch.home
    is_directed = directive is not None and directive.target == home
    return refuse_straying_brokers(facts) if is_directed else f"brokers are not directed to {home} yet"


def refuse_early_readings(facts: SwitchFacts) -> Refusal:
    """The id generators were read after the last ack, so every id given before the brokers moved is known.

    The first report of an ack counts, or a later write elsewhere: a broker that reports all the time blocks nothing.
    """
    last_ms = max(map(moved_ms, facts.acked), default=facts.switch.started_ms)
    for name in dict.fromkeys((facts.switch.source, facts.switch.target, facts.switch.home)):
        seen = facts.state.cluster(name)
        if seen is None or seen.read_ms <= last_ms or not facts.is_since_directive(seen.epoch):
            return f"the id generator of {name} was not read since the last ack"
    return None


def refuse_broken_order(facts: SwitchFacts) -> Refusal:
    """INV-3: every id from the target is greater than all ids that a topic had before."""
    source, floor = facts.generator(facts.switch.source), facts.switch.target_floor
    if source is None:
        return "the source's id generator is unknown"
    behind = [m for m in facts.written_elsewhere(facts.switch.target) if m.given_to_us >= floor]
    if not behind:
        return None
    most = max(behind, key=lambda m: m.given)
    remedy = remedy_beyond(most.given, facts.switch.target)
    return f"{most.name} gave {most.given}, {facts.switch.target} began at {floor}: {remedy}"


# --- ledgers (rows 8 to 16)


def refuse_foreign_ledger(found: Ledger | None, source: str) -> Refusal:
    """INV-1: the id is absent in the target, or the ledger there is our own copy."""
    free = found is None or is_ours(found, source)
    return None if free else "the target has a foreign ledger of this id"


def refuse_deleted_id(facts: SwitchFacts, ledger_id: int) -> Refusal:
    """INV-6: the id was never deleted from the target."""
    gone = facts.state.deleted and has_id(facts.deleted_ids(facts.target_instance), ledger_id)
    return f"ledger {ledger_id} was deleted from the target" if gone else None


def refuse_unequal_copy(source: Ledger | None, target: Ledger | None) -> Refusal:
    """The copy has the same content as the source's ledger."""
    if source is None or target is None:
        return "what was copied is not known"
    return None if same_ledger(source, target) else "state, length, last entry, metadata or entries differ"


def refuse_wide_change(task: LedgerTask, changed: Iterable[str]) -> Refusal:
    """Only the attribution changed; where the copy has a new id, both attribution and id changed, never one alone."""
    allowed, found = {"attribution"}, set(changed)
    if task.target_id not in (None, task.ledger_id):
        allowed.add("ledger_id")
    if wide := found - allowed:
        return f"{', '.join(sorted(wide))} of {task.paths[0]} changed"
    left = allowed - found if found else set()
    return f"{', '.join(sorted(left))} of {task.paths[0]} did not change as well" if left else None


# --- back and on (rows 18 to 23)


def refuse_closed_window(facts: SwitchFacts) -> Refusal:
    """The rollback window is open; at its end it is closed."""
    return None if facts.now_ms < facts.switch.rollback_until_ms else "the rollback window is over"


def refuse_begun_deletion(facts: SwitchFacts) -> Refusal:
    """No ledger was deleted from the source or is being deleted; after a lost checkpoint, any may be."""
    if facts.switch.recovering_ms >= 0 and facts.switch.cleanup_ms >= 0:
        return "a clean-up had begun before the checkpoint was lost"
    gone = facts.plan.count(*DELETING)
    return f"{counted_with(gone, 'ledger', 'is', 'are')} deleted or about to be" if gone else None


def refuse_unknown_plan(facts: SwitchFacts) -> Refusal:
    """No checkpoint was lost, or an inventory has shown the plan since."""
    is_known = facts.switch.recovering_ms < 0
    return None if is_known else "its plan is read again after a lost checkpoint: wait for the inventory"


def refuse_missing_source(facts: SwitchFacts, task: LedgerTask) -> Refusal:
    """The source's ledger is there to go back to: it was not deleted for another kind of reference."""
    is_gone = any(each.stage in DELETING for each in facts.plan.tasks_of(task.ledger_id))
    return f"ledger {task.ledger_id} was deleted from {facts.switch.source}" if is_gone else None


def refuse_early_cleanup(facts: SwitchFacts) -> Refusal:
    """The time of `cleanup_from` has come."""
    from_ms = facts.switch.cleanup_from_ms
    return None if facts.now_ms >= from_ms else f"not before {from_millis(from_ms):%Y-%m-%d %H:%M:%S} UTC"


def refuse_referenced_ledger(facts: SwitchFacts, task: LedgerTask) -> Refusal:
    """By an inventory since the clean-up began, no reference names the ledger in the source."""
    inventory = facts.state.inventory
    if inventory is None or facts.inventory_is_old:
        return "no inventory since the clean-up began"
    still = has_id(inventory.old_ids, task.ledger_id)
    return f"ledger {task.ledger_id} is still attributed to {facts.switch.source}" if still else None


def refuse_shared_copy(facts: SwitchFacts, task: LedgerTask) -> Refusal:
    """No other kind of reference needs the copy that is to be deleted."""
    needing = (t for t in facts.plan.tasks_of(task.ledger_id) if t.remap == task.remap and t.stage in IN_TARGET)
    return next((f"{t.paths[0]} needs the copy of ledger {task.ledger_id}" for t in needing), None)


def refuse_unpromoted(task: LedgerTask) -> Refusal:
    """INV-7 for a ledger of the source: its promotion is on record, and was not taken back."""
    return None if task.promoted else f"ledger {task.ledger_id} was not promoted"


def refuse_read_cluster(facts: SwitchFacts, name: str) -> Refusal:
    """Since the last switch ended, every live broker reported that it does not use it, and no reference names it."""
    inventory, switch = facts.state.inventory, facts.state.switch
    since_ms = switch.ended_ms if switch is not None else -1
    if facts.state.active() == name:
        return f"{name} is active"
    if inventory is None or inventory.at_ms < since_ms:
        return "no inventory since the switch ended" if switch else "no complete inventory of the references is known"
    if not facts.is_since_directive(inventory.epoch):
        return "no inventory since brokers were last directed"
    if facts.now_ms >= inventory.at_ms + inventory.valid_ms:
        at = format_instant(from_millis(inventory.at_ms))
        return f"the last inventory is of {at}, which is too old: the next one counts"
    if left := facts.count_named(name):
        kinds = [f"{s.count} {s.kind.value}" for s in inventory.staying if s.cluster in (name, ANY_CLUSTER)]
        among = f" ({', '.join(kinds)} among them)" if kinds else ""
        return f"{counted_with(left, 'reference', 'is', 'are')} attributed to {name}{among}"
    return refuse_used_by_broker(facts, name, since_ms)
