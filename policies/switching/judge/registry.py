"""The registry of BookKeeper clusters: its commands (rows 1, 2 and 23), and readings of it and of the clusters."""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.fold import Impostor, RegistryChecked
from policies.switching.judge import guards
from policies.switching.judge.guards import Asked
from policies.switching.judge.observations import repeat_orders
from policies.switching.readings import CommandArgs, SwitchCommand
from policies.switching.state import ClusterStatus, RegistryEntry, SwitchingState, SwitchStage, put
from policies.switching.transition import Transition

NO_NAME = "the command does not say which cluster it is about"
_ENDED = (SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES)


# --- register (row 1)


def ask_register(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Asked]:
    """The name and the identity are free or its own, and the status is one that it may have."""
    state, args = facts.state, command.args
    yield RejectCode.NOT_FOUND, not (args.name and args.uri) and NO_NAME
    is_unread = args.instance_id is None or args.root is None
    yield RejectCode.NOT_FOUND, is_unread and f"no BookKeeper cluster could be read at {args.uri}"
    entry = _make_entry(state, args)
    yield RejectCode.NAME_CONFLICT, guards.refuse_taken_name(facts, entry.name, entry.instance_id, entry.root)
    yield RejectCode.URI_DUPLICATE, guards.refuse_known_identity(facts, entry.name, entry.instance_id, entry.root)
    yield RejectCode.CONTESTED, not _resolves_contest(state, entry) and guards.refuse_contested(facts)
    yield RejectCode.INVALID_TRANSITION, _refuse_status(facts, entry.name, args.status)


def register(facts: SwitchFacts, command: SwitchCommand, step: Transition) -> None:
    """Row 1: the first cluster ever registered becomes active, and references without attribution belong to it."""
    state, entry = facts.state, _make_entry(facts.state, command.args)
    if _lacks_status_only(facts, entry.name, command.args.status):
        step.update_switch(status_failed=False)
        step.write_status()
        return
    step.update(
        entries=put(state.entries, entry),
        bootstrap=state.bootstrap or entry.name,
        removed=tuple(name for name in state.removed if name != entry.name),
        contested="" if _resolves_contest(state, entry) else state.contested,
    )
    step.write_registry(entry, SwitchReason.COMMANDED)


def _make_entry(state: SwitchingState, args: CommandArgs) -> RegistryEntry:
    name, known = args.name or "", state.entry(args.name or "")
    version, root = known.version if known else None, (args.root or "").rstrip("/")
    status = args.status or _find_usual_status(state, name)
    return RegistryEntry(name, args.uri or "", args.instance_id or "", root, status, version)


def _find_usual_status(state: SwitchingState, name: str) -> ClusterStatus:
    """A cluster keeps the status that it has. The first one ever is active, every other new one a standby."""
    known = state.entry(name)
    return known.status if known else ClusterStatus.STANDBY if state.entries else ClusterStatus.ACTIVE


def _resolves_contest(state: SwitchingState, entry: RegistryEntry) -> bool:
    after = replace(state, entries=put(state.entries, entry))
    return state.contested == state.leaderless() and not after.leaderless()


def _refuse_status(facts: SwitchFacts, name: str, wanted: ClusterStatus | None) -> guards.Refusal:
    """Return why a cluster cannot be registered with the status that the command names; None if it can."""
    state, live, usual = facts.state, facts.state.live_switch(), _find_usual_status(facts.state, name)
    if not state.entries and wanted not in (None, ClusterStatus.ACTIVE):
        return "the first cluster is the one that brokers write to: it is registered as active"
    if wanted is None or wanted is usual or _lacks_status_only(facts, name, wanted):
        return None
    if wanted is ClusterStatus.ACTIVE:
        # Any cluster may become active if none is, no switch will make one active, and brokers write nowhere else.
        is_vacant = state.committed() is None and live is None and state.active() in (None, name)
        way = f"`start --target {name}`" if state.entry(name) else "`register` without `--status`, and then a switch,"
        sentence = f"{state.active() or 'none'} is active: {way} moves brokers"
        return None if is_vacant else guards.refuse_other_switch(facts) or sentence
    if wanted is ClusterStatus.DEPRECATED:
        return f"{name} is {usual.value}: a clean-up deprecates the cluster that brokers left"
    if usual is ClusterStatus.ACTIVE or state.active() == name:
        return f"{name} is active: a switch away from it ends that"
    if live is not None and name in (live.source, live.target):
        return f"the switch from {live.source} to {live.target} is not over"
    return None


def _lacks_status_only(facts: SwitchFacts, name: str, wanted: ClusterStatus | None) -> bool:
    """Whether brokers moved to the cluster for good, and only its status could not be written to the registry."""
    switch = facts.state.switch
    return (
        wanted is ClusterStatus.ACTIVE
        and switch is not None
        and switch.stage is SwitchStage.DONE_WITH_FAILURES
        and switch.status_failed
        and name == switch.target == facts.state.active()
    )


# --- unregister (row 2), close the client (row 23)


def ask_unregister(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Asked]:
    """A registered cluster that is not in use."""
    name = command.args.name or ""
    yield RejectCode.NOT_FOUND, not name and NO_NAME
    yield RejectCode.NOT_FOUND, facts.state.entry(name) is None and f"{name} is not registered"
    yield RejectCode.CONTESTED, guards.refuse_contested(facts)
    why = guards.refuse_cluster_in_use(facts, name)
    yield RejectCode.IN_USE, why and f"{name} cannot be removed: {why}"


def unregister(facts: SwitchFacts, command: SwitchCommand, step: Transition) -> None:
    """Row 2: remove a cluster that is not in use."""
    state, name = facts.state, command.args.name or ""
    known = state.entry(name)
    step.update(
        entries=tuple(e for e in state.entries if e.name != name),
        checks=tuple(c for c in state.checks if c.target != name),
        removed=tuple(sorted({*state.removed, name})),
        clusters=tuple(c for c in state.clusters if c.name != name),
        impostors=tuple(n for n in state.impostors if n != name),
    )
    step.remove_registry(name, known.version if known else None, SwitchReason.COMMANDED)


def ask_close_client(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Asked]:
    """A cluster that a completed switch has left, and that nothing needs."""
    name = command.args.name or ""
    yield RejectCode.NOT_FOUND, not name and NO_NAME
    yield RejectCode.INVALID_TRANSITION, _refuse_close(facts, name)
    yield RejectCode.NOT_FOUND, facts.state.entry(name) is None and f"{name} is not registered"
    yield RejectCode.CONTESTED, guards.refuse_contested(facts)
    yield RejectCode.CLIENT_IN_USE, guards.refuse_read_cluster(facts, name)


def close_client(_facts: SwitchFacts, command: SwitchCommand, step: Transition) -> None:
    """Row 23: let brokers close their client of a cluster that a switch has left."""
    name = command.args.name
    sentence = f"nothing needs {name} any more: brokers may close their client"
    step.publish(
        SwitchVerdict.CLOSE_CLIENT, SwitchReason.COMMANDED, sentence, subject=f"clients/{name}", details={"name": name}
    )


def _refuse_close(facts: SwitchFacts, name: str) -> guards.Refusal:
    """Return why no completed switch has left a cluster; None if one has.

    A cluster that an earlier switch left is deprecated, even if the last switch was undone.
    """
    switch, known = facts.state.switch, facts.state.entry(name)
    if switch is not None and switch.stage in _ENDED:
        return None
    if facts.state.live_switch() is not None:
        return f"the switch to {facts.switch.target} is not over"
    was_left = switch is not None and known is not None and known.status is ClusterStatus.DEPRECATED
    return None if was_left else f"no switch from {name} is done"


# --- readings of the registry and of clusters


def judge_registry(facts: SwitchFacts, seen: RegistryChecked, step: Transition) -> None:
    """Order again what the registry lacks, and what it should no longer have: no executor answers these orders."""
    if facts.state.contested or guards.refuse_without_lease(facts):
        return
    if seen.resolved and facts.state.switch is not None:
        repeat_orders(facts, SwitchReason.NOT_SEEN, step)
    for entry in facts.state.entries:
        if entry.name not in seen.versions:
            step.write_registry(entry, SwitchReason.NOT_SEEN)
    for name in facts.state.removed:
        step.remove_registry(name, seen.versions[name], SwitchReason.NOT_SEEN)


def judge_impostor(_facts: SwitchFacts, seen: Impostor, step: Transition) -> None:
    """Reject readings from an address at which another cluster answers than was registered."""
    sentence = f"another cluster answers at the address of {seen.name}"
    step.reject(RejectCode.NAME_CONFLICT, sentence, f"registry/{seen.name}")
