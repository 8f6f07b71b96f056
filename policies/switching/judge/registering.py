"""The status with which a cluster is registered, where a person names one: row 1."""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import SwitchReason
from policies.switching.events import Register
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import Change, Update, UpdateSwitch, WriteRegistry, WriteStatus
from policies.switching.state import ClusterStatus, RegistryEntry, SwitchAction, SwitchStage, put

S = ClusterStatus


def usual_status(facts: SwitchFacts, name: str) -> ClusterStatus:
    """That of a cluster of which no status is named: the first one ever is active, what is known stays as it is."""
    known = facts.state.entry(name)
    return known.status if known else S.STANDBY if facts.state.entries else S.ACTIVE


def status_refusal(facts: SwitchFacts, asked: Register) -> str | None:
    """Why a cluster cannot be registered with the status that was named; None when it can."""
    usual, wanted = usual_status(facts, asked.name), asked.status
    if not facts.state.entries and wanted not in (None, S.ACTIVE):
        return "the first cluster is the one that brokers write to: it is registered as active"
    if wanted is None or wanted is usual or may_settle(facts, asked):
        return None
    if wanted is S.ACTIVE and _may_lead(facts, asked.name):
        return None
    if wanted is S.ACTIVE:
        return f"{facts.state.active() or 'none'} is active: `start --target {asked.name}` moves brokers"
    if wanted is S.DEPRECATED:
        return f"{asked.name} is {usual.value}: a clean-up deprecates the cluster that brokers left"
    live = facts.state.live()
    if usual is S.ACTIVE or facts.state.active() == asked.name:
        return f"{asked.name} is active: a switch away from it ends that"
    if live is not None and asked.name in (live.source, live.target):
        return f"the switch from {live.source} to {live.target} is not over"
    return None


def _may_lead(facts: SwitchFacts, name: str) -> bool:
    """Whether the registry has no active cluster, no switch is to make one, and brokers are directed nowhere else."""
    state = facts.state
    return state.committed() is None and state.live() is None and state.active() in (None, name)


def nobody_leads(facts: SwitchFacts) -> str:
    """What is to be done where the registry does not say from where a switch begins."""
    name = facts.state.active() or "the one that brokers write to"
    return f"no cluster is active in the registry: `register` {name} with `--status active`"


def may_settle(facts: SwitchFacts, asked: Register) -> bool:
    """Whether brokers write to it for good, and only the registry does not say so: its status could not be written."""
    switch = facts.state.switch
    return (
        asked.status is S.ACTIVE
        and switch is not None
        and switch.stage is SwitchStage.DONE_WITH_FAILURES
        and switch.status_failed
        and asked.name == switch.target == facts.state.active()
    )


def settle() -> Iterator[Change]:
    """Both statuses are written again, that of the old cluster first."""
    yield UpdateSwitch({"status_failed": False})
    yield WriteStatus(SwitchAction.STATUS_OLD)


def stays_contested(facts: SwitchFacts, entry: RegistryEntry) -> guards.Refusal:
    """Why an entry cannot be written; None where nothing contests the registry, or the entry resolves what does."""
    return None if _resolves(facts, entry) else guards.nothing_contests(facts)


def _resolves(facts: SwitchFacts, entry: RegistryEntry) -> bool:
    state = facts.state
    after = replace(state, entries=put(state.entries, entry))
    return state.contested == state.leaderless() and not after.leaderless()


def write_entry(facts: SwitchFacts, entry: RegistryEntry) -> Iterator[Change]:
    """A cluster comes into the registry, or in place of what was known of it."""
    state = facts.state
    yield Update(
        {
            "entries": put(state.entries, entry),
            "bootstrap": state.bootstrap or entry.name,
            "removed": tuple(name for name in state.removed if name != entry.name),
            "contested": "" if _resolves(facts, entry) else state.contested,
        }
    )
    yield WriteRegistry(entry, SwitchReason.COMMANDED)
