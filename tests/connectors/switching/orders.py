"""Orders as the policy gives them."""

from datetime import UTC, datetime
from typing import Any

from connectors.switching.registry import Registry
from policies.switching.decisions import (
    BrokerCounts,
    LedgerRef,
    SwitchDecision,
    SwitchReason,
    SwitchRecord,
    SwitchVerdict,
)
from policies.switching.ledgers import LedgerKind
from policies.switching.state import ClusterStatus, LedgerStage, RegistryEntry, SwitchStage
from tests.decisions import decided

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def order(verdict: SwitchVerdict, op: int = 1, ledger_id: int = 7, **more: Any) -> SwitchDecision:
    """An order about a ledger, under lease 3."""
    ledger = LedgerRef(
        ledger_id=ledger_id, target_id=None, kind=LedgerKind.CURSOR, paths=("/managed-ledgers/t/n/persistent/a/sub",),
        stage=LedgerStage.COPYING, remap=False, place=1, of=1,
    )  # fmt: skip
    usual = {
        "decision_id": f"d{op}", "policy": "switching", "cluster": "c1", "subject": f"c1/ledgers/{ledger_id}",
        "sequence": 100 + op, "verdict": verdict, "reason": SwitchReason.NEXT_IN_PLAN, "decided_at": NOW,
        "stage": SwitchStage.BUILD, "epoch": 2, "lease_token": 3, "op": op, "source": "old", "target": "new",
        "ledger": ledger, "valid_until": None,
    }  # fmt: skip
    return decided(SwitchDecision, **(usual | more))


def record(**more: Any) -> SwitchRecord:
    """The switch that these orders belong to."""
    usual = {
        "decision_id": "r", "policy": "switching", "cluster": "c1", "subject": "c1", "sequence": 150,
        "verdict": SwitchStage.BUILD, "reason": SwitchReason.NEXT_IN_PLAN, "decided_at": NOW, "active": "new",
        "source": "old", "target": "new", "epoch": 2, "committed_epoch": 1, "attempt": 1,
        "brokers": BrokerCounts(live=1, acked=1),
    }  # fmt: skip
    return decided(SwitchRecord, **(usual | more))


def register_two(registry: Registry) -> None:
    """Make `old` active and let `new` stand by."""
    for name, status in (("old", ClusterStatus.ACTIVE), ("new", ClusterStatus.STANDBY)):
        registry.write_cluster(RegistryEntry(name, f"zk://{name}", f"i-{name}", "/ledgers", status), "old")
