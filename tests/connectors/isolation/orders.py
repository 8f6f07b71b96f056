"""Decisions to quarantine, as the policy makes them."""

from datetime import datetime, timedelta
from typing import Any

from policies.bookie_readings import BookieRegistration
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


def registered(
    session: str | None = None, czxid: int | None = None, registered_at: datetime | None = None
) -> BookieRegistration:
    """The registration of the bookie, with what a store shows of it."""
    return BookieRegistration(bookie=BOOKIE, session=session, czxid=czxid, registered_at=registered_at)
