"""The registry of BookKeeper clusters: rows 1, 2 and 23, entries that are missing in it, and impostors."""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.fold.registry import Impostor, RegistryChecked
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Change,
    DecisionDraft,
    Reject,
    RemoveRegistry,
    Update,
    UpdateSwitch,
    WriteRegistry,
    WriteStatus,
    reject,
)
from policies.switching.judge.observed import repeat_orders
from policies.switching.readings import SwitchCommand
from policies.switching.state import ClusterStatus, RegistryEntry, SwitchAction, SwitchStage, put

NO_NAME = "the command does not say which cluster it is about"
_ENDED = (SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES)


# --- register (row 1)


def register(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 1: the first cluster ever registered becomes active, and references without attribution belong to it."""
    state, args = facts.state, command.args
    if not args.name or not args.uri:
        yield reject(command, RejectCode.NOT_FOUND, NO_NAME)
        return
    if args.instance_id is None or args.root is None:
        yield reject(command, RejectCode.NOT_FOUND, f"no BookKeeper cluster could be read at {args.uri}")
        return
    known, root = state.entry(args.name), args.root.rstrip("/")
    # A cluster keeps the status that it has. The first one ever is active, every other new one a standby.
    usual = known.status if known else ClusterStatus.STANDBY if state.entries else ClusterStatus.ACTIVE
    status, version = args.status or usual, known.version if known else None
    entry = RegistryEntry(args.name, args.uri, args.instance_id, root, status, version)
    after = replace(state, entries=put(state.entries, entry))
    resolves = state.contested == state.leaderless() and not after.leaderless()
    if why := guards.name_is_free(facts, entry.name, entry.instance_id, root):
        yield reject(command, RejectCode.NAME_CONFLICT, why)
    elif why := guards.identity_is_new(facts, entry.name, entry.instance_id, root):
        yield reject(command, RejectCode.URI_DUPLICATE, why)
    elif not resolves and (why := guards.nothing_contests(facts)):
        yield reject(command, RejectCode.CONTESTED, why)
    elif why := _refuse_status(facts, entry.name, args.status, usual):
        yield reject(command, RejectCode.INVALID_TRANSITION, why)
    elif _lacks_status_only(facts, entry.name, args.status):
        yield UpdateSwitch({"status_failed": False})
        yield WriteStatus(SwitchAction.STATUS_NEW)
    else:
        yield Update(
            {
                "entries": after.entries,
                "bootstrap": state.bootstrap or entry.name,
                "removed": tuple(name for name in state.removed if name != entry.name),
                "contested": "" if resolves else state.contested,
            }
        )
        yield WriteRegistry(entry, SwitchReason.COMMANDED)


def _refuse_status(facts: SwitchFacts, name: str, wanted: ClusterStatus | None, usual: ClusterStatus) -> guards.Refusal:
    """Return why a cluster cannot be registered with the status that the command names; None if it can."""
    state, live = facts.state, facts.state.live_switch()
    if not state.entries and wanted not in (None, ClusterStatus.ACTIVE):
        return "the first cluster is the one that brokers write to: it is registered as active"
    if wanted is None or wanted is usual or _lacks_status_only(facts, name, wanted):
        return None
    if wanted is ClusterStatus.ACTIVE:
        # Any cluster may become active if none is, no switch will make one active, and brokers write nowhere else.
        is_vacant = state.committed() is None and live is None and state.active() in (None, name)
        way = f"`start --target {name}`" if state.entry(name) else "`register` without `--status`, and then a switch,"
        sentence = f"{state.active() or 'none'} is active: {way} moves brokers"
        return None if is_vacant else guards.no_other_switch(facts) or sentence
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


def unregister(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 2: remove a cluster that is not in use."""
    state, name = facts.state, command.args.name
    known = state.entry(name) if name else None
    if not name:
        yield reject(command, RejectCode.NOT_FOUND, NO_NAME)
    elif known is None:
        yield reject(command, RejectCode.NOT_FOUND, f"{name} is not registered")
    elif why := guards.nothing_contests(facts):
        yield reject(command, RejectCode.CONTESTED, why)
    elif why := guards.is_unused(facts, name):
        yield reject(command, RejectCode.IN_USE, f"{name} cannot be removed: {why}")
    else:
        yield Update(
            {
                "entries": tuple(e for e in state.entries if e.name != name),
                "checks": tuple(c for c in state.checks if c.target != name),
                "removed": tuple(sorted({*state.removed, name})),
                "clusters": tuple(c for c in state.clusters if c.name != name),
                "impostors": tuple(n for n in state.impostors if n != name),
            }
        )
        yield RemoveRegistry(name, known.version, SwitchReason.COMMANDED)


def close_client(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 23: let brokers close their client of a cluster that a switch has left."""
    name = command.args.name
    if not name:
        yield reject(command, RejectCode.NOT_FOUND, NO_NAME)
    elif why := _refuse_close(facts, name):
        yield reject(command, RejectCode.INVALID_TRANSITION, why)
    elif facts.state.entry(name) is None:
        yield reject(command, RejectCode.NOT_FOUND, f"{name} is not registered")
    elif why := guards.nothing_contests(facts):
        yield reject(command, RejectCode.CONTESTED, why)
    elif why := guards.is_unread(facts, name):
        yield reject(command, RejectCode.CLIENT_IN_USE, why)
    else:
        sentence = f"nothing needs {name} any more: brokers may close their client"
        yield DecisionDraft(
            SwitchVerdict.CLOSE_CLIENT, SwitchReason.COMMANDED, sentence, subject=f"clients/{name}",
            details={"name": name},
        )  # fmt: skip


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


def judge_registry(facts: SwitchFacts, seen: RegistryChecked) -> Iterator[Change]:
    """Order again what the registry lacks, and what it should no longer have: no executor answers these orders."""
    if facts.state.contested or guards.holds_lease(facts):
        return
    if seen.resolved and facts.state.switch is not None:
        yield from repeat_orders(facts, SwitchReason.NOT_SEEN)
    for entry in facts.state.entries:
        if entry.name not in seen.versions:
            yield WriteRegistry(entry, SwitchReason.NOT_SEEN)
    for name in facts.state.removed:
        yield RemoveRegistry(name, seen.versions[name], SwitchReason.NOT_SEEN)


def judge_impostor(_facts: SwitchFacts, seen: Impostor) -> Iterator[Change]:
    """Reject readings from an address at which another cluster answers than was registered."""
    sentence = f"another cluster answers at the address of {seen.name}"
    yield Reject(RejectCode.NAME_CONFLICT, sentence, f"registry/{seen.name}")
