"""What must hold at the moment a bookie is put into quarantine."""

from dataclasses import dataclass
from datetime import datetime

from connectors.actuation.reports import Ending, Finding
from connectors.quarantine.racks import group_of
from connectors.quarantine.store import Registration, Sight
from policies.isolation.decisions import BookieQuarantine
from policies.isolation.quarantine_events import QuarantineOutcome

_SESSION_SPACE = 1 << 64


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a bookie is, or was put."""

    found_group: str | None = None
    quarantined_at: datetime | None = None
    leak_window_seconds: float | None = None


QuarantineFinding = Finding[Placement]


def refusal(decision: BookieQuarantine, sight: Sight, max_quarantined: int) -> QuarantineFinding | None:
    """Why it must not be done to what was found; None when it may be."""
    found_group = group_of(sight.groups, decision.bookie)
    if found_group is not None:
        return Finding(QuarantineOutcome.ALREADY_ASSIGNED, seen=Placement(found_group))
    if not sight.groups:
        return Finding(QuarantineOutcome.NO_GROUPS)
    if sight.registration is None:
        return Finding(QuarantineOutcome.NOT_REGISTERED, "it is not registered")
    if not _is_meant(decision, sight.registration):
        return Finding(QuarantineOutcome.NOT_REGISTERED, "it has registered anew since the decision")
    held = len(sight.groups.get(decision.group, ()))
    if held >= max_quarantined:
        detail = f"{held} are in group {decision.group}, and max_quarantined is {max_quarantined}"
        return Finding(QuarantineOutcome.TOO_MANY, detail)
    return None


def done(decision: BookieQuarantine, sight: Sight, at: datetime) -> QuarantineFinding:
    """It is in quarantine since an instant; both ends of the leak window by one clock where the store knows it."""
    known = sight.registration.registered_at if sight.registration else None
    seconds = (at - (known or decision.registered_at)).total_seconds()
    # Two clocks may disagree, and ZooKeeper's own goes back when another server leads.
    return Finding(Ending.DONE, seen=Placement(quarantined_at=at, leak_window_seconds=max(0.0, seconds)))


def _is_meant(decision: BookieQuarantine, found: Registration) -> bool:
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
