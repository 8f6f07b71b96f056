"""The switching policy: hosts the machine for one broker cluster and puts what it says into decisions.

Rules: docs/design/switching.md.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from policies.alerts import Sender, review
from policies.decisions import Decision, deterministic_id
from policies.observations import Observation, in_order
from policies.policy import Step
from policies.succession import next_sequence
from policies.switching import alerts
from policies.switching.decisions import (
    ORDERS,
    BrokerCounts,
    LedgerRef,
    SwitchDecision,
    SwitchReason,
    SwitchRecord,
    SwitchVerdict,
)
from policies.switching.drafts import DecisionDraft
from policies.switching.events import Event, Tick
from policies.switching.machine import apply
from policies.switching.settings import SwitchingSettings
from policies.switching.state import LedgerStage, LedgerTask, RegistryEntry, Switch, SwitchingState, SwitchStage
from policies.switching.translation import assemble, event_of
from policies.units import from_millis, to_millis

NAME = "switching"


class SwitchingPolicy:
    """Decides about the switch of one broker cluster.

    Args:
        cluster: its name.
        settings: those in force for it.
    """

    name = NAME

    def __init__(self, cluster: str, settings: SwitchingSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.of(NAME, cluster, settings)

    def step(
        self, state: SwitchingState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[SwitchingState]:
        """Take what was observed, let time pass, and say what follows."""
        before, now_ms = state or SwitchingState(), to_millis(now)
        assembled, events, ids = _events(before, observations)
        after, said = apply(assembled, (*events, Tick()), self._settings.limits, now_ms)
        places = {u.ledger_id: place for place, u in enumerate(after.switch.tasks if after.switch else (), 1)}
        decisions: list[Decision] = []
        for one in said:
            after = replace(after, sequence=_next_sequence(after, now_ms))
            evidence = ids[one.cause : one.cause + 1]
            decisions.append(self._decision(after, one, places, evidence, now))
        after, record = self._record(before, after, said, now)
        book, raised, review_at = review(
            after.alerts, alerts.conditions(self._cluster, after, now_ms), now, self._sender
        )
        after = replace(after, alerts=book)
        due = [ms for ms in _due_ms(after) if ms > now_ms] + ([to_millis(review_at)] if review_at else [])
        return Step(after, (*decisions, *record, *raised), from_millis(min(due)) if due else None)

    def _decision(
        self,
        state: SwitchingState,
        said: DecisionDraft,
        places: dict[int, int],
        evidence: tuple[str, ...],
        now: datetime,
    ) -> SwitchDecision:
        subject = f"{self._cluster}/{said.subject or 'switch'}"
        switch, lease = state.switch, state.lease
        return SwitchDecision(
            decision_id=deterministic_id(NAME, self._cluster, subject, state.sequence),
            policy=NAME,
            cluster=self._cluster,
            subject=subject,
            sequence=state.sequence,
            verdict=said.verdict,
            reason=said.reason,
            explanation=said.sentence,
            decided_at=now,
            mode=self._settings.mode,
            settings_hash=self._sender.issuer.settings_hash,
            evidence=evidence,
            code=said.code,
            stage=switch.stage if switch else SwitchStage.NONE,
            epoch=state.epoch,
            lease_token=lease.token if lease else 0,
            op=said.op,
            source=switch.source if switch else None,
            target=switch.target if switch else None,
            ledger=_ledger_ref(said.task, places) if said.task else None,
            expects=_expectations(state, said),
            args=_plain(said.details),
            valid_until=from_millis(lease.valid_until_ms) if lease and said.verdict in ORDERS else None,
        )

    def _record(
        self, before: SwitchingState, after: SwitchingState, said: Sequence[DecisionDraft], now: datetime
    ) -> tuple[SwitchingState, tuple[SwitchRecord, ...]]:
        """The record of the state, when it says something else than the last one."""
        if after == before:
            return after, ()
        content, stage = _content(after), after.switch.stage if after.switch else SwitchStage.NONE
        digest = hashlib.sha256(repr((stage, sorted(content.items()))).encode()).hexdigest()[:16]
        if digest == before.record:
            return after, ()
        after = replace(after, sequence=_next_sequence(after, to_millis(now)), record=digest)
        advances = [s for s in said if s.verdict is SwitchVerdict.ADVANCE]
        why = advances[-1].reason if advances else said[-1].reason if said else SwitchReason.COMMANDED
        record = SwitchRecord(
            decision_id=deterministic_id(NAME, self._cluster, "record", after.sequence),
            policy=NAME,
            cluster=self._cluster,
            subject=self._cluster,
            sequence=after.sequence,
            verdict=stage,
            reason=why,
            explanation=_sentence(self._cluster, after),
            decided_at=now,
            mode=self._settings.mode,
            settings_hash=self._sender.issuer.settings_hash,
            **content,
        )
        return after, (record,)


def _next_sequence(state: SwitchingState, now_ms: int) -> int:
    return next_sequence(state.sequence, now_ms, is_first=state.sequence == 0)


def _events(
    state: SwitchingState, observations: Sequence[Observation]
) -> tuple[SwitchingState, list[Event], tuple[str, ...]]:
    """The state with what it keeps of inventories, the events in their order, and the ids of their observations."""
    events: list[Event] = []
    ids: list[str] = []
    assembly = state.assembly
    for seen in in_order(tuple(observations)):
        assembly, inventory = assemble(assembly, seen)
        event = inventory or event_of(seen)
        if event is not None:
            events.append(event)
            ids.append(seen.id)
    return replace(state, assembly=assembly), events, tuple(ids)


def _due_ms(state: SwitchingState) -> Iterator[int]:
    """When something may change without an observation."""
    switch = state.switch
    if switch is None:
        return
    yield from (switch.rollback_until_ms, switch.cleanup_from_ms)
    if state.lease is not None:
        yield state.lease.valid_until_ms


def _ledger_ref(task: LedgerTask, places: dict[int, int]) -> LedgerRef:
    return LedgerRef(
        ledger_id=task.ledger_id,
        target_id=task.target_id,
        kind=task.kind,
        paths=task.paths,
        stage=task.stage,
        remap=task.remap,
        place=places.get(task.ledger_id, 1),
        of=max(1, len(places)),
    )


def _expectations(state: SwitchingState, said: DecisionDraft) -> dict[str, str | int | None]:
    """What an executor must find, by verdict."""
    switch, details = state.switch, said.details
    if said.verdict is SwitchVerdict.WRITE_DIRECTIVE:
        return {"epoch_below": state.epoch}
    if said.verdict is SwitchVerdict.WRITE_STATUS:
        version = details.get("expected_version")
        return {"version": version if isinstance(version, int) else None}
    if said.task is None or switch is None:
        return {}
    task = said.task
    moved = switch.target if said.verdict is SwitchVerdict.REVERT else switch.source
    # A revert finds references that were never promoted, too: without an attribute they are the bootstrap cluster's.
    owners = (switch.source, switch.target) if said.verdict is SwitchVerdict.REVERT else (moved,)
    legacy = "or_none" if state.bootstrap in owners else "only"
    expects: dict[SwitchVerdict, dict[str, str | int | None]] = {
        SwitchVerdict.START_COPY: {"target_ledger": "absent"},
        SwitchVerdict.DELETE_OWN_COPY: {"journalled": task.ledger_id, "referenced_in": None},
        SwitchVerdict.PROMOTE: {"attribution": moved, "legacy": legacy, "ledger_id": task.ledger_id},
        SwitchVerdict.REQUEST_ROLLOVER: {"attribution": moved, "legacy": legacy, "ledger_id": task.ledger_id},
        SwitchVerdict.REVERT: {"attribution": moved, "legacy": legacy, "ledger_id": _id_in_target(task)},
        SwitchVerdict.DELETE_OLD: {"attribution": switch.target, "legacy": "only", "ledger_id": _id_in_target(task)},
    }
    return expects.get(said.verdict, {})


def _id_in_target(task: LedgerTask) -> int:
    return task.ledger_id if task.target_id is None else task.target_id


def _plain(details: dict[str, object]) -> dict[str, str | int | bool | None]:
    """Details as the wire has them; a registry entry is spread out."""
    plain: dict[str, str | int | bool | None] = {}
    for name, value in details.items():
        if isinstance(value, RegistryEntry):
            plain |= {"name": value.name, "uri": value.uri, "instance_id": value.instance_id, "root": value.root}
            plain |= {"status": value.status.value, "version": value.version}
        elif value is None or isinstance(value, str | int):
            plain[name] = value
    return plain


def _content(state: SwitchingState) -> dict[str, object]:
    switch = state.switch
    counts = _counts(switch) if switch else Counter[LedgerStage]()
    live = switch is not None and switch.live_ms >= 0
    epoch = switch.epoch if switch else state.epoch
    return {
        "active": state.active(),
        "source": switch.source if switch else None,
        "target": switch.target if switch else None,
        "epoch": state.epoch,
        "committed_epoch": state.committed_epoch,
        "attempt": switch.attempt if switch else 0,
        "ledgers": {stage: counts[stage] for stage in LedgerStage if counts[stage]},
        "brokers": BrokerCounts(
            live=len(state.members.brokers) if state.members else None,
            acked=sum(b.acked_epoch == epoch for b in state.brokers),
        ),
        "degraded": bool(switch and switch.degraded),
        "blocked": switch.blocked if switch else "",
        "halted": switch.halted if switch else "",
        "rollback_until": from_millis(switch.rollback_until_ms) if switch and live else None,
        "cleanup_from": from_millis(switch.cleanup_from_ms) if switch and live else None,
        "prechecks": {c.target: c.digest for c in state.checks},
        "registry": {e.name: e.status.value for e in state.entries},
    }


def _counts(switch: Switch) -> Counter[LedgerStage]:
    """How many ledgers stand where; of a switch that is done nothing else is known."""
    return Counter(switch.settled) if switch.settled else Counter(u.stage for u in switch.tasks)


def _sentence(cluster: str, state: SwitchingState) -> str:
    switch = state.switch
    if switch is None:
        return f"Brokers of {cluster} write to {state.active() or 'a cluster that is not registered'}; no switch began"
    counts = _counts(switch)
    moved = sum(counts[s] for s in (LedgerStage.PROMOTED, LedgerStage.PROMOTED_VIA_ROLLOVER, LedgerStage.CLEANED))
    return (
        f"The switch of {cluster} from {switch.source} to {switch.target} is at {switch.stage.value}: "
        f"{moved} of {counts.total()} ledgers moved, brokers write to {state.active()}"
    )
