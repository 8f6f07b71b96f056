"""Decisions to quarantine, as the policy makes them."""

from datetime import timedelta
from typing import Any

from policies.isolation.decisions import QUARANTINE_GROUP, QUARANTINE_RACK, BookieQuarantine
from tests.decisions import NOON as NOON
from tests.decisions import decided

CLUSTER = "messaging"
BOOKIE = "bk11:3181"


def decision(bookie: str = BOOKIE, **fields: Any) -> BookieQuarantine:
    """Quarantine a bookie that registered ten seconds before noon."""
    usual = {
        "policy": "isolation", "cluster": CLUSTER, "subject": f"{CLUSTER}/{bookie}", "verdict": "quarantine",
        "reason": "unassigned", "bookie": bookie, "group": QUARANTINE_GROUP, "rack": QUARANTINE_RACK,
        "registered_at": NOON - timedelta(seconds=10),
    }  # fmt: skip
    return decided(BookieQuarantine, **(usual | fields))
