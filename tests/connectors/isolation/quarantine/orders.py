"""Decisions to quarantine, as the policy makes them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from policies.decisions import deterministic_id
from policies.isolation.decisions import QUARANTINE_GROUP, QUARANTINE_RACK, BookieQuarantine

CLUSTER = "messaging"
BOOKIE = "bk11:3181"
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def decision(bookie: str = BOOKIE, **fields: Any) -> BookieQuarantine:
    """Quarantine a bookie that registered ten seconds before noon, decided at noon and valid for five minutes."""
    given: dict[str, Any] = {
        "policy": "isolation",
        "cluster": CLUSTER,
        "subject": f"{CLUSTER}/{bookie}",
        "sequence": 1,
        "verdict": "quarantine",
        "reason": "unassigned",
        "explanation": "as the test wants it",
        "decided_at": NOON,
        "mode": "active",
        "settings_hash": "x",
        "bookie": bookie,
        "group": QUARANTINE_GROUP,
        "rack": QUARANTINE_RACK,
        "session": None,
        "czxid": None,
        "registered_at": NOON - timedelta(seconds=10),
        "valid_until": NOON + timedelta(minutes=5),
        **fields,
    }
    return BookieQuarantine(decision_id=deterministic_id(*given.values()), **given)
