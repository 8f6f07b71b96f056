"""Commands about clusters, and to start a switch: rows 1 to 4, 23 and 24 of the table."""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import CloseClient, Command, Precheck, Register, Start, Unregister
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Advance,
    Begin,
    Change,
    DecisionDraft,
    DirectBrokers,
    PutTask,
    Reject,
    RemoveRegistry,
    TakeInventory,
    Update,
    UpdateSwitch,
)
from policies.switching.judge.open_orders import order_again
from policies.switching.judge.registering import (
    may_settle,
    nobody_leads,
    settle,
    status_refusal,
    stays_contested,
    usual_status,
    write_entry,
)
from policies.switching.precheck.findings import FindingReason
from policies.switching.state import (
    DELETING,
    FAILED,
    ClusterStatus,
    LedgerStage,
    LedgerTask,
    RegistryEntry,
    Switch,
    SwitchAction,
    SwitchStage,
)
from policies.units import counted

_COLLISIONS = frozenset({FindingReason.FOREIGN_ID, FindingReason.DELETED_ID})
_COMMANDED = SwitchReason.COMMANDED


def reject(asked: Command, code: RejectCode, sentence: str) -> Reject:
    """A command is refused."""
    return Reject(code, sentence, f"commands/{asked.key}")


def _names_none(asked: Command) -> Reject:
    return reject(asked, RejectCode.NOT_FOUND, "the command does not say which cluster it is about")


def register(facts: SwitchFacts, asked: Register) -> Iterator[Change]:
    """Row 1. The first cluster ever registered is the active one, and the one that legacy references belong to."""
    if not asked.name or not asked.uri:
        yield _names_none(asked)
        return
    if asked.instance_id is None or asked.root is None:
        yield reject(asked, RejectCode.NOT_FOUND, f"no BookKeeper cluster could be read at {asked.uri}")
        return
    state, identity = facts.state, (asked.instance_id, asked.root.rstrip("/"))
    if why := guards.name_is_free(facts, asked.name, *identity):
        yield reject(asked, RejectCode.NAME_CONFLICT, why)
        return
    if why := guards.identity_is_new(facts, asked.name, *identity):
        yield reject(asked, RejectCode.URI_DUPLICATE, why)
        return
    if why := status_refusal(facts, asked):
        yield reject(asked, RejectCode.INVALID_TRANSITION, why)
        return
    known, status = state.entry(asked.name), asked.status or usual_status(facts, asked.name)
    entry = RegistryEntry(asked.name, asked.uri, *identity, status, known.version if known else None)
    if why := stays_contested(facts, entry):
        yield reject(asked, RejectCode.CONTESTED, why)
    elif may_settle(facts, asked):
        yield from settle()
    else:
        yield from write_entry(facts, entry)


def unregister(facts: SwitchFacts, asked: Unregister) -> Iterator[Change]:
    """Row 2."""
    state, name = facts.state, asked.name
    known = state.entry(name)
    if not name:
        yield _names_none(asked)
    elif known is None:
        yield reject(asked, RejectCode.NOT_FOUND, f"{name} is not registered")
    elif why := guards.nothing_contests(facts):
        yield reject(asked, RejectCode.CONTESTED, why)
    elif why := guards.is_unused(facts, name):
        yield reject(asked, RejectCode.IN_USE, f"{name} cannot be removed: {why}")
    else:
        yield Update(
            {
                "entries": tuple(e for e in state.entries if e.name != name),
                "checks": tuple(c for c in state.checks if c.target != name),
                "removed": tuple(sorted({*state.removed, name})),
            }
        )
        yield RemoveRegistry(name, known.version, _COMMANDED)


def precheck(facts: SwitchFacts, asked: Precheck) -> Iterator[Change]:
    """Row 3, its request; also when it was checked before, or its last switch is over."""
    target, source = asked.target, facts.state.committed()
    stage = facts.stage(target)
    if not target:
        yield _names_none(asked)
    elif stage is SwitchStage.NONE:
        yield reject(asked, RejectCode.NOT_FOUND, f"{target} is not registered")
    elif source is None:
        yield reject(asked, RejectCode.NOT_FOUND, nobody_leads(facts))
    elif stage not in (SwitchStage.REGISTERED, SwitchStage.PRECHECKED):
        yield reject(asked, RejectCode.INVALID_TRANSITION, f"the switch to {target} is at {stage.value}")
    else:
        sentence = f"check whether brokers can move from {source} to {target}"
        details = {"source": source, "target": target}
        yield DecisionDraft(
            SwitchVerdict.RUN_PRECHECK, _COMMANDED, sentence, subject=f"prechecks/{target}", details=details
        )


def start(facts: SwitchFacts, asked: Start) -> Iterator[Change]:
    """Rows 4 and 24; the same target again drives its switch on."""
    live, source, target = facts.state.live(), facts.state.committed(), asked.target
    if not target:
        yield _names_none(asked)
        return
    if live is not None and live.target == target:
        why = guards.nothing_contests(facts)
        yield from (reject(asked, RejectCode.CONTESTED, why),) if why else _drive_on(facts, live)
        return
    refusal = _refusal_to_start(facts, asked, source)
    if refusal is not None or source is None:
        code, why = refusal or (RejectCode.NOT_FOUND, "no cluster is active")
        yield reject(asked, code, f"the switch to {target} does not start: {why}")
        return
    epoch, bypassed = facts.state.epoch + 1, check_is_bypassed(facts, target)
    yield Begin(
        Switch(
            source=source, target=target, stage=SwitchStage.TRIGGERED, epoch=epoch, bypassed=bypassed,
            started_ms=facts.now_ms, target_floor=facts.next_id(target), brokers_from=facts.state.active() or source,
        )
    )  # fmt: skip
    marked = ", on a precheck that was bypassed: ids may collide" if bypassed else ""
    if bypassed:
        yield Update({"bypassed": True})
    sentence = f"the switch from {source} to {target} begins, epoch {epoch}{marked}"
    yield DecisionDraft(SwitchVerdict.ADVANCE, _COMMANDED, sentence)
    yield DirectBrokers(target, _COMMANDED)


def _refusal_to_start(facts: SwitchFacts, asked: Start, source: str | None) -> tuple[RejectCode, str] | None:
    """The first guard of row 4 that does not hold."""
    state, target = facts.state, asked.target
    if why := guards.no_other_switch(facts):
        return RejectCode.SWITCH_IN_PROGRESS, why
    if state.entry(target) is None:
        return RejectCode.NOT_FOUND, f"{target} is not registered"
    if source is None:
        return RejectCode.NOT_FOUND, nobody_leads(facts)
    if why := guards.nothing_contests(facts):
        return RejectCode.CONTESTED, why
    if why := guards.target_is_not_active(facts, target):
        return RejectCode.ALREADY_ACTIVE, why
    if why := guards.precheck_is_ready(facts, target):
        check = state.check(target)
        fresh = check is not None and facts.now_ms < check.expires_ms
        collides = check is not None and fresh and bool(_COLLISIONS.intersection(check.reasons))
        return RejectCode.COLLISION if collides else RejectCode.PRECHECK_FAILED, why
    whys = (
        guards.digest_is_quoted(facts, target, asked.digest),
        guards.identities_differ(facts, source, target),
        None if check_is_bypassed(facts, target) else guards.future_is_disjoint(facts, source, target),
    )
    if why := next((w for w in whys if w), None):
        return RejectCode.PRECHECK_FAILED, why
    if why := guards.holds_lease(facts):
        return RejectCode.INVALID_TRANSITION, why
    return None


def check_is_bypassed(facts: SwitchFacts, target: str) -> bool:
    """Whether a target is ready only because a lab's settings say so."""
    check = facts.state.check(target)
    return check is not None and check.bypassed


def _drive_on(facts: SwitchFacts, live: Switch) -> Iterator[Change]:
    yield UpdateSwitch(lifted(facts))
    if live.stage is not SwitchStage.DONE_WITH_FAILURES:
        sentence = f"the switch to {live.target} is driven on at {live.stage.value}"
        yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.REDRIVEN, sentence)
        yield from order_again(facts, SwitchReason.REDRIVEN)
        return
    left = [t for t in facts.plan if t.stage in FAILED or t.awaiting is SwitchAction.GIVEN_UP]
    for task in left:
        yield _taken_up(task)
    sentence = f"the switch to {live.target} is driven on for {counted(len(left), 'ledger')}"
    afresh = {"attempt": live.attempt + 1, "status_failed": False, "awaiting": SwitchAction.NONE, "ended_ms": -1}
    afresh |= {"unplanned": (), "unplanned_count": 0}
    yield Advance(SwitchStage.BUILD, SwitchReason.REDRIVEN, sentence, afresh)
    yield TakeInventory()


def lifted(facts: SwitchFacts) -> dict[str, object]:
    """What holds a switch no longer does, once a person goes on.

    Where the target was advanced beyond all that was ever given, order counts from there on: what the switch began at
    would keep it for good.
    """
    fields: dict[str, object] = {"halted": "", "paused": False}
    target, begun = facts.generator(facts.switch.target), facts.switch.target_floor
    if target is not None and target.next_id > begun and not guards.ids_only_grow(facts, facts.switch.target):
        fields["target_floor"] = target.next_id
    return fields if guards.order_holds(facts) else {k: v for k, v in fields.items() if k != "target_floor"}


def _taken_up(task: LedgerTask) -> PutTask:
    """What stayed behind is looked at afresh; what was being deleted is only tried again."""
    if task.stage in DELETING or task.stage is LedgerStage.PROMOTED:
        return PutTask(replace(task, awaiting=SwitchAction.NONE, tries=0))
    afresh = replace(task, stage=LedgerStage.PENDING, awaiting=SwitchAction.INVENTORY, tries=0, reason="")
    return PutTask(afresh, numbered=True)


def _no_switch_left(facts: SwitchFacts, name: str) -> guards.Refusal:
    """Why no switch has ended by which a cluster was left; None when one has.

    One that was left by an earlier switch is deprecated, also when the last switch came to nothing.
    """
    switch, known = facts.state.switch, facts.state.entry(name)
    if switch is not None and switch.stage in (SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES):
        return None
    if facts.state.live() is not None:
        return f"the switch to {facts.switch.target} is not over"
    was_left = switch is not None and known is not None and known.status is ClusterStatus.DEPRECATED
    return None if was_left else f"no switch from {name} is done"


def close_client(facts: SwitchFacts, asked: CloseClient) -> Iterator[Change]:
    """Row 23."""
    name = asked.name
    if not name:
        yield _names_none(asked)
    elif why := _no_switch_left(facts, name):
        yield reject(asked, RejectCode.INVALID_TRANSITION, why)
    elif facts.state.entry(name) is None:
        yield reject(asked, RejectCode.NOT_FOUND, f"{name} is not registered")
    elif why := guards.nothing_contests(facts):
        yield reject(asked, RejectCode.CONTESTED, why)
    elif why := guards.is_unread(facts, name):
        yield reject(asked, RejectCode.CLIENT_IN_USE, why)
    else:
        sentence = f"nothing needs {name} any more: brokers may close their client"
        yield DecisionDraft(
            SwitchVerdict.CLOSE_CLIENT, _COMMANDED, sentence, subject=f"clients/{name}", details={"name": name}
        )
