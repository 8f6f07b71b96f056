"""What must hold at the moment a bookie is put into quarantine."""

from dataclasses import dataclass
from datetime import datetime

from connectors.actuation.reports import ActionResult, CommonOutcome
from connectors.isolation.quarantine.racks import group_of
from connectors.isolation.quarantine.store import RacksSnapshot, StoredRegistration
from policies.isolation.decisions import BookieQuarantine
from policies.isolation.quarantine_events import QuarantineOutcome

_SESSION_SPACE = 1 << 64


@dataclass(frozen=True, slots=True)
class BookiePlacement:
    """Where a bookie is, or was put."""

    found_group: str | None = None
    quarantined_at: datetime | None = None
    leak_window_seconds: float | None = None


QuarantineResult = ActionResult[BookiePlacement]


def refusal(decision: BookieQuarantine, snapshot: RacksSnapshot, max_quarantined: int) -> QuarantineResult | None:
    """Why it must not be done to what was found; None when it may be."""
    found_group = group_of(snapshot.groups, decision.bookie)
    if found_group is not None:
        return ActionResult(QuarantineOutcome.ALREADY_ASSIGNED, observed=BookiePlacement(found_group))
    if not snapshot.groups:
        return ActionResult(QuarantineOutcome.NO_GROUPS)
    if snapshot.registration is None:
        return ActionResult(QuarantineOutcome.NOT_REGISTERED, "it is not registered")
    if not _is_meant(decision, snapshot.registration):
        return ActionResult(QuarantineOutcome.NOT_REGISTERED, "it has registered anew since the decision")
    held = len(snapshot.groups.get(decision.group, ()))
    if held >= max_quarantined:
        detail = f"{held} are in group {decision.group}, and max_quarantined is {max_quarantined}"
        return ActionResult(QuarantineOutcome.TOO_MANY, detail)
    return None


def done(decision: BookieQuarantine, snapshot: RacksSnapshot, at: datetime) -> QuarantineResult:
    """It is in quarantine since an instant; both ends of the leak window by one clock where the store knows it."""
    known = snapshot.registration.registered_at if snapshot.registration else None
    seconds = (at - (known or decision.registered_at)).total_seconds()
    # Two clocks may disagree, and ZooKeeper's own goes back when another server leads.
    return ActionResult(
        CommonOutcome.DONE, observed=BookiePlacement(quarantined_at=at, leak_window_seconds=max(0.0, seconds))
    )


def _is_meant(decision: BookieQuarantine, found: StoredRegistration) -> bool:
    """Whether the registration is the one the decision is about, as far as both can tell."""
    if None not in (decision.czxid, found.czxid) and decision.czxid != found.czxid:
        return False
    return decision.session is None or found.session is None or _number(decision.session) == _number(found.session)


def _number(session: str) -> int | str:
    """Sessions are 64 bits, which some write as a negative number, and some with leading zeros."""
    try:
        return int(session, 16) % _SESSION_SPACE
    except ValueError:
        return session
