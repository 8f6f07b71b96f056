"""What must hold before a transition: one named pure question each, answered by null or by why it does not hold.

They stand alone so that a test can take any one of them away and show what it prevents. Whatever is not known does
not hold. Rules: docs/design/switching.md, the guards of the table and the invariants.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from policies.switching.id_generators import hob_beyond, hob_name
from policies.switching.ledgers import CopyIntent, Ledger, is_ours, same_ledger
from policies.switching.precheck.snapshot import are_one, id_floor
from policies.switching.state import DELETING, BrokerReport, ClusterStatus, LedgerTask, Switch, SwitchingState

Refusal = str | None
"""Why not; null when it holds."""


# --- registering (rows 1, 2)


def identity_is_new(state: SwitchingState, name: str, instance_id: str, root: str) -> Refusal:
    """No other name stands for the same cluster."""
    same = (e.name for e in state.entries if (e.instance_id, e.root) == (instance_id, root) and e.name != name)
    twin = next(same, None)
    return f"{instance_id}{root} is already registered as {twin}" if twin else None


def name_is_free(state: SwitchingState, name: str, instance_id: str, root: str) -> Refusal:
    """The name is free, or stands for this very cluster."""
    known = state.entry(name)
    if known is None or (known.instance_id, known.root) == (instance_id, root):
        return None
    return f"{name} stands for {known.instance_id}{known.root}"


def is_unused(state: SwitchingState, name: str) -> Refusal:
    """Neither active, nor part of a switch that is not over, nor named by any reference."""
    live = state.live()
    if state.active() == name:
        return f"{name} is active"
    if live is not None and name in (live.source, live.target):
        return f"the switch from {live.source} to {live.target} is not over"
    if state.inventory is None:
        return "no complete inventory of the references is known"
    left = state.inventory.counts.get(name, 0)
    return f"{left} references are attributed to {name}" if left else None


# --- starting (row 4)


def holds_lease(state: SwitchingState, now_ms: int) -> Refusal:
    """An orchestrator holds the lease now."""
    if state.lease is None:
        return "no orchestrator holds the lease"
    return None if now_ms < state.lease.valid_until_ms else f"the lease of {state.lease.holder} has run out"


def no_other_switch(state: SwitchingState) -> Refusal:
    """No switch is under way."""
    live = state.live()
    return f"the switch to {live.target} is at {live.stage.value}" if live else None


def target_is_standby(state: SwitchingState, target: str) -> Refusal:
    """The target is registered, and not in use."""
    known = state.entry(target)
    if known is None:
        return f"{target} is not registered"
    return None if known.status is ClusterStatus.STANDBY else f"{target} is {known.status.value}, not standby"


def precheck_is_ready(state: SwitchingState, target: str, now_ms: int) -> Refusal:
    """There is a precheck from the active cluster to this one, it is fresh, and it says ready."""
    check = state.check(target)
    if check is None:
        return f"{target} was never prechecked"
    if now_ms >= check.expires_ms:
        return f"the precheck of {target} has expired"
    if check.source != state.committed():
        return f"the precheck was made for {check.source}, which is not active"
    return None if check.ready else f"the precheck of {target} says: {', '.join(check.reasons)}"


def digest_is_quoted(state: SwitchingState, target: str, digest: str | None) -> Refusal:
    """Whoever starts has read the report as it stands."""
    check = state.check(target)
    return None if check and check.digest == digest else "the digest quoted is not that of the last precheck"


def identities_differ(state: SwitchingState, source: str, target: str) -> Refusal:
    """INV-4: the two are known, are not one cluster under two names, and their layouts can hold the ids."""
    one, other = state.cluster(source), state.cluster(target)
    for name, seen in ((source, one), (target, other)):
        if seen is None or seen.instance_id is None or seen.root is None:
            return f"the identity of {name} is unknown"
        if seen.layout is None:
            return f"the layout of {name} is unknown"
    assert one is not None  # noqa: S101 - seen above
    assert other is not None  # noqa: S101
    return f"{source} and {target} are one cluster" if source == target or are_one(one, other) else None


def future_is_disjoint(state: SwitchingState, source: str, target: str) -> Refusal:
    """INV-2 (INV-5 with the roles exchanged): all the target will give lies beyond all the source has or will give."""
    one, other = state.cluster(source), state.cluster(target)
    if one is None or one.generator is None or other is None or other.generator is None:
        return "an id generator is unknown"
    floor = id_floor(one.generator, greatest_ids(state, target, other.instance_id))
    if other.generator.next_id > floor:
        return None
    return f"{target} gives {other.generator.next_id} next, up to {floor} is taken: advance to {_hob_for(floor)}"


# --- going live (rows 5, 6)


def epoch_is_current(switch: Switch, epoch: int) -> Refusal:
    """A broker speaks of the directive in force."""
    return None if epoch == switch.epoch else f"epoch {epoch} is not the current {switch.epoch}"


def all_brokers_acked(state: SwitchingState, switch: Switch) -> Refusal:
    """Every live broker follows the directive; who is alive was read since it was written."""
    if state.members is None or not state.members.brokers or state.members.at_ms <= switch.started_ms:
        return "it is not known which brokers are alive"
    waiting = [b for b in state.members.brokers if _acked(state, b) != switch.epoch]
    return f"not acked by {', '.join(waiting[:10])}" if waiting else None


def none_writes_to_old(state: SwitchingState, switch: Switch) -> Refusal:
    """No broker that acked writes to the source any more."""
    writing = [b.name for b in state.brokers if b.acked_epoch == switch.epoch and switch.source in b.writes]
    return f"{', '.join(writing)} wrote to {switch.source} after the ack" if writing else None


def read_since_acks(state: SwitchingState, switch: Switch) -> Refusal:
    """Both id generators were read after the last ack, so that nothing was given since that is not known."""
    last_ms = max((b.at_ms for b in state.brokers if b.acked_epoch == switch.epoch), default=switch.started_ms)
    for name in (switch.source, switch.target):
        seen = state.cluster(name)
        if seen is None or seen.read_ms <= last_ms:
            return f"the id generator of {name} was not read since the last ack"
    return None


def order_holds(state: SwitchingState, switch: Switch) -> Refusal:
    """INV-3: whatever a broker allocated on the target is greater than all its topic already had."""
    source = state.cluster(switch.source)
    if source is None or source.generator is None:
        return "the source's id generator is unknown"
    given = source.generator.next_id
    holds = switch.target_floor >= given
    return None if holds else f"the source gave {given - 1}, the target began at {switch.target_floor}"


# --- ledgers (rows 8 to 16)


def import_is_disjoint(found: Ledger | None, intent: CopyIntent | None, source: str, target: str) -> Refusal:
    """INV-1: the id is absent in the target, or the ledger there is ours."""
    free = found is None or is_ours(found, intent, source, target)
    return None if free else "the target has a foreign ledger of this id"


def id_was_not_deleted(state: SwitchingState, target: str | None, ledger_id: int) -> Refusal:
    """INV-6: a deleted id is never created again."""
    return f"ledger {ledger_id} was deleted from the target" if among(deleted_ids(state, target), ledger_id) else None


def copy_is_equal(source: Ledger | None, target: Ledger | None) -> Refusal:
    """The copy holds exactly what the source's ledger does."""
    if source is None or target is None:
        return "what was copied is not known"
    return None if same_ledger(source, target) else "state, length, last entry, metadata or entries differ"


def only_attribute_differs(task: LedgerTask, changed: Iterable[str]) -> Refusal:
    """Promoting changed the attribute and nothing else; where the id is another one there, both and never one alone."""
    allowed, found = {"attribution"}, set(changed)
    if task.target_id not in (None, task.ledger_id):
        allowed.add("ledger_id")
    if wide := found - allowed:
        return f"{', '.join(sorted(wide))} of {task.paths[0]} changed"
    left = allowed - found if found else set()
    return f"{', '.join(sorted(left))} of {task.paths[0]} did not change as well" if left else None


def has_tries_left(task: LedgerTask, retries: int) -> Refusal:
    """It failed fewer times than it may."""
    return None if task.tries < retries else f"{task.tries} tries failed"


# --- back and on (rows 18 to 23)


def before_rollback_end(switch: Switch, now_ms: int) -> Refusal:
    """The rollback window is open: up to its end, not at it."""
    return None if now_ms < switch.rollback_until_ms else "the rollback window is over"


def no_delete_intent(switch: Switch) -> Refusal:
    """Nothing was deleted from the source, nor is about to be."""
    gone = sum(u.stage in DELETING for u in switch.tasks)
    return f"{gone} ledgers are deleted or about to be" if gone else None


def window_elapsed(switch: Switch, now_ms: int) -> Refusal:
    """The time for cleaning up has come."""
    return None if now_ms >= switch.cleanup_from_ms else f"not before {switch.cleanup_from_ms} ms"


def is_unreferenced(state: SwitchingState, switch: Switch, task: LedgerTask) -> Refusal:
    """An inventory since the clean-up began shows that nothing names the ledger in the source."""
    if state.inventory is None or state.inventory.at_ms <= switch.cleanup_ms:
        return "no inventory since the clean-up began"
    still = among(state.inventory.old_ids, task.ledger_id)
    return f"ledger {task.ledger_id} is still attributed to {switch.source}" if still else None


def is_recorded(task: LedgerTask, intent: CopyIntent | None) -> Refusal:
    """INV-7, of our copy: the journal says that we made it in this target."""
    same = intent is not None and (intent.ledger_id, intent.remap) == (task.ledger_id, task.remap)
    return None if same else f"ledger {task.ledger_id} is not in the journal"


def was_promoted(task: LedgerTask) -> Refusal:
    """INV-7, of the source's ledger: its promotion is on record, and was not taken back."""
    return None if task.promoted_op > task.reverted_op else f"ledger {task.ledger_id} was not promoted"


def is_unread(state: SwitchingState, name: str, since_ms: int) -> Refusal:
    """No broker reads it and no reference names it, as said by all of them since the switch ended."""
    if state.active() == name:
        return f"{name} is active"
    if state.members is None or not state.members.brokers or state.members.at_ms < since_ms:
        return "it is not known which brokers are alive"
    if state.inventory is None or state.inventory.at_ms < since_ms:
        return "no inventory since the switch ended"
    if left := state.inventory.counts.get(name, 0):
        return f"{left} references are attributed to {name}"
    for broker in state.members.brokers:
        said = _broker(state, broker)
        if said is None or said.at_ms < since_ms or name in said.reads:
            return f"{broker} reads it, or has not said that it does not"
    return None


def lease_is_newer(state: SwitchingState, token: int) -> Refusal:
    """An orchestrator comes with a lease no older than the one in force."""
    return f"lease {token} is older than {state.lease.token}" if state.lease and token < state.lease.token else None


def deleted_ids(state: SwitchingState, instance: str | None) -> tuple[int, ...]:
    """What was deleted from a cluster."""
    return next((d.ids for d in state.deleted if d.instance == instance), ())


def among(ids: tuple[int, ...], ledger_id: int) -> bool:
    """Whether sorted ids hold one."""
    at = bisect_left(ids, ledger_id)
    return at < len(ids) and ids[at] == ledger_id


def greatest_ids(state: SwitchingState, target: str, instance: str | None) -> Iterator[int]:
    """The greatest ids that a target must lie beyond: referenced now, at its precheck, or deleted from it."""
    check = state.check(target)
    yield from (known.greatest_id for known in (state.inventory, check) if known)
    yield from deleted_ids(state, instance)[-1:]


def _hob_for(floor: int) -> str:
    return hob_name(hob_beyond(floor))


def _broker(state: SwitchingState, name: str) -> BrokerReport | None:
    return next((b for b in state.brokers if b.name == name), None)


def _acked(state: SwitchingState, name: str) -> int | None:
    said = _broker(state, name)
    return said.acked_epoch if said else None
