"""What a test lets happen, in few words, and the readings that would be published for it."""

from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Self

from policies.observations import Observation, Outcome, Reading
from policies.switching.fold import InventorySeen
from policies.switching.ledgers import ClusterSnapshot
from policies.switching.readings import (
    CommandArgs,
    CommandName,
    LedgerOutcome,
    LowerCounter,
    StatusAction,
    SwitchCluster,
    SwitchCommand,
    SwitchInventoryPart,
    SwitchLedger,
    SwitchStatus,
)
from policies.units import from_millis

CLUSTER = "pulsar-1"
OK: dict[str, Any] = {"cluster": CLUSTER, "outcome": Outcome.OK}
_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Made:
    """A reading with the time when it was made; it may arrive later."""

    reading: Any
    at_ms: int

    def but(self, at_ms: int | None = None, **fields: Any) -> Self:
        """It with other fields."""
        return type(self)(self.reading.model_copy(update=fields), self.at_ms if at_ms is None else at_ms)


Event = Reading | Made | ClusterSnapshot | InventorySeen | None
"""A reading without a time was made when it arrives. None: only time passes."""


def command(
    which: str,
    key: str,
    *,
    dry_run: bool = False,
    expected_epoch: int | None = None,
    digest: str | None = None,
    **args: Any,
) -> SwitchCommand:
    """A command; an empty name or URI is left out, since no operator can send one."""
    return SwitchCommand(
        cluster=CLUSTER,
        command=CommandName(which),
        args=CommandArgs(**{k: None if v == "" else v for k, v in args.items()}),
        actor="a test",
        idempotency_key=key,
        dry_run=dry_run,
        expected_epoch=expected_epoch,
        precheck_digest=digest,
    )


def answer(outcome: LedgerOutcome, ledger_id: int = -1, op: int = 0, **more: Any) -> SwitchLedger:
    """An executor's answer to an order about a ledger."""
    return SwitchLedger(**OK, ledger_id=ledger_id, op=op, result=outcome, **more)


def status(op: int, *, ok: bool) -> SwitchStatus:
    """An executor's answer to the order to write the statuses."""
    return SwitchStatus(**OK, action=StatusAction.STATUS_NEW, op=op, written=ok)


def observations_of(event: Event, now_ms: int) -> list[Observation | None]:
    """The observations of an event, each dated by when it was made."""
    at_ms = now_ms
    if isinstance(event, Made | InventorySeen):
        at_ms = event.at_ms
    elif isinstance(event, ClusterSnapshot):
        at_ms = event.read_ms
    readings = readings_of(event, at_ms)
    return [Observation(f"o{next(_NUMBERS):09d}", from_millis(at_ms), reading) for reading in readings] or [None]


def readings_of(event: Event, now_ms: int) -> list[Reading]:
    """The readings that a collector, an executor or an operator would publish for an event."""
    if isinstance(event, InventorySeen):
        return inventory_readings(event, now_ms)
    if isinstance(event, Made):
        return [event.reading]
    if event is None or isinstance(event, Reading):
        return [] if event is None else [event]
    counters = range(event.lower_counters)
    lower = tuple(LowerCounter(hob=n or None, given=0 if n else event.lower_given) for n in counters)
    return [
        SwitchCluster(
            **OK, name=event.name, instance_id=event.instance_id, root=event.root, layout=event.layout,
            generator=event.generator, took_ms=now_ms - event.read_ms, epoch=_shown(event.epoch), lower=lower,
        )
    ]  # fmt: skip


def _shown(epoch: int) -> int | None:
    return None if epoch < 0 else epoch


def listed(event: InventorySeen, **fields: Any) -> InventorySeen:
    """An inventory whose manifest has other fields."""
    return replace(event, manifest=event.manifest.model_copy(update=fields))


def inventory_readings(event: InventorySeen, now_ms: int) -> list[Reading]:
    """Parts of two references, and the manifest."""
    name = f"inventory-{event.at_ms}-{event.manifest.target}-{len(event.existing)}"
    parts = [event.references[i : i + 2] for i in range(0, len(event.references), 2)]
    readings: list[Reading] = [
        SwitchInventoryPart(
            **OK, inventory=name, part=number,
            references=part,
            existing=tuple(found for r in part if (found := event.existing.get(r.ledger_id)) is not None),
        )
        for number, part in enumerate(parts)
    ]  # fmt: skip
    counts = {"parts": len(parts), "references": len(event.references), "took_ms": now_ms - event.at_ms}
    return [*readings, event.manifest.model_copy(update={"inventory": name, **counts})]
