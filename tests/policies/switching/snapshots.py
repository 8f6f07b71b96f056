"""Two clusters as a precheck sees them: everything well, unless a test says otherwise."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs

from policies.switching.ledgers import (
    EMPTY_LONG,
    ClusterSnapshot,
    IdGenerator,
    Layout,
    Ledger,
    LedgerKind,
    LedgerState,
    Reference,
    TargetPolicy,
)
from policies.switching.precheck import PrecheckSnapshot, TargetLedgers
from policies.switching.settings import SwitchingSettings

NOW_MS = 1_000_000_000
VALIDITY_MS = 600_000
DEDICATED = SwitchingSettings(target_policy=TargetPolicy.DEDICATED)
SHARED = SwitchingSettings(target_policy=TargetPolicy.SHARED)

OLD = ClusterSnapshot(
    name="old", instance_id="id-of-old", root="/ledgers", layout=Layout.HIERARCHICAL,
    generator=IdGenerator(None, 200, 0), read_ms=NOW_MS - 1000,
)  # fmt: skip
NEW = structs.replace(OLD, name="new", instance_id="id-of-new", generator=EMPTY_LONG)


def cursor(ledger_id: int, attribution: str | None = None) -> Reference:
    return Reference(LedgerKind.CURSOR, f"/managed-ledgers/t/n/persistent/topic/{ledger_id}", ledger_id, attribution)


def schema(ledger_id: int, attribution: str | None = None, position: str = "info") -> Reference:
    return Reference(LedgerKind.SCHEMA, f"/schemas/t/n/{ledger_id}", ledger_id, attribution, position)


def ledger(ledger_id: int, **more: Any) -> Ledger:
    """A closed ledger of one entry."""
    facts: dict[str, Any] = {
        "state": LedgerState.CLOSED,
        "last_entry_id": 0,
        "length_bytes": 42,
        "custom_metadata": {"application": "cHVsc2Fy"},
        "entries_digest": f"entries-of-{ledger_id}",
        "created_ms": NOW_MS - 5000,
    }
    return Ledger(ledger_id=ledger_id, **(facts | more))


def copied(ledger_id: int, **more: Any) -> Ledger:
    """Headgate's copy of that ledger."""
    return ledger(ledger_id, **({"provenance": "id-of-old"} | more))


def found(*ledgers: Ledger, listed: bool = True, looked_up: Iterable[int] = ()) -> TargetLedgers:
    return TargetLedgers(
        ids=frozenset(one.ledger_id for one in ledgers),
        read_ms=NOW_MS - 1000,
        listed=listed,
        looked_up=frozenset(looked_up),
        facts={one.ledger_id: one for one in ledgers},
    )


GOOD = PrecheckSnapshot(
    source=OLD,
    target=NEW,
    references=(cursor(5), schema(7), schema(7, position="index/0"), schema(9, "old"), cursor(-1)),
    references_complete=True,
    references_ms=NOW_MS - 1000,
    bootstrap="old",
    existing=found(),
)


def snapshot(**changes: Any) -> PrecheckSnapshot:
    return replace(GOOD, **changes)
