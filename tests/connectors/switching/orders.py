"""Orders as the policy gives them."""

from datetime import UTC, datetime
from typing import Any

from policies.decisions import Mode
from policies.switching.decisions import (
    BrokerCounts,
    LedgerRef,
    SwitchDecision,
    SwitchReason,
    SwitchRecord,
    SwitchVerdict,
)
from policies.switching.references import LedgerKind
from policies.switching.state import LedgerStage, SwitchStage

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def order(verdict: SwitchVerdict, op: int = 1, ledger_id: int = 7, **more: Any) -> SwitchDecision:
    """An order about a ledger, under lease 3."""
    ledger = LedgerRef(
        ledger_id=ledger_id, target_id=None, kind=LedgerKind.CURSOR, paths=("/managed-ledgers/t/n/persistent/a/sub",),
        stage=LedgerStage.COPYING, remap=False, place=1, of=1,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "decision_id": f"d{op}",
        "policy": "switching",
        "cluster": "c1",
        "subject": f"c1/ledgers/{ledger_id}",
        "sequence": 100 + op,
        "verdict": verdict,
        "reason": SwitchReason.NEXT_IN_PLAN,
        "explanation": "",
        "decided_at": NOW,
        "mode": Mode.ACTIVE,
        "settings_hash": "",
        "stage": SwitchStage.BUILD,
        "epoch": 2,
        "lease_token": 3,
        "op": op,
        "source": "old",
        "target": "new",
        "ledger": ledger,
        "valid_until": None,
    }
    return SwitchDecision.model_validate(fields | more)


def record(**more: Any) -> SwitchRecord:
    """The switch that these orders belong to."""
    fields: dict[str, Any] = {
        "decision_id": "r", "policy": "switching", "cluster": "c1", "subject": "c1", "sequence": 150,
        "verdict": SwitchStage.BUILD, "reason": SwitchReason.NEXT_IN_PLAN, "explanation": "", "decided_at": NOW,
        "mode": Mode.ACTIVE, "settings_hash": "", "active": "new", "source": "old", "target": "new", "epoch": 2,
        "committed_epoch": 1, "attempt": 1, "ledgers": {}, "brokers": BrokerCounts(live=1, acked=1), "degraded": False,
        "blocked": "", "halted": "", "rollback_until": None, "cleanup_from": None, "prechecks": {}, "registry": {},
    }  # fmt: skip
    return SwitchRecord.model_validate(fields | more)
