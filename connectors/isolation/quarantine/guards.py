"""The conditions that must hold at the moment a bookie is put into quarantine."""

from dataclasses import dataclass
from datetime import datetime

from connectors.actuation.reports import ActionResult, CommonOutcome
from connectors.isolation.quarantine.racks import RacksSnapshot, find_group
from policies.bookie_readings import BookieAffinity, BookieRegistration
from policies.isolation import IsolationSettings
from policies.isolation.decisions import BookieQuarantine
from policies.isolation.judge import find_starved_now
from policies.isolation.membership import BookieMembership
from policies.isolation.quarantine_events import QuarantineOutcome

_SESSION_SPACE = 1 << 64


@dataclass(frozen=True, slots=True)
class BookiePlacement:
    """The group in which a bookie was found, or the time and leak window of its quarantine."""

    found_group: str | None = None
    quarantined_at: datetime | None = None
    leak_window_seconds: float | None = None


QuarantineResult = ActionResult[BookiePlacement]


def find_refusal(
    decision: BookieQuarantine, snapshot: RacksSnapshot, affinity: BookieAffinity, settings: IsolationSettings
) -> QuarantineResult | None:
    """Return the reason not to carry the decision out on this snapshot; None if it may be carried out.

    The policy's guards are asked again: what it read may be many seconds older.
    """
    found_group = find_group(snapshot.groups, decision.bookie)
    if found_group is not None:
        return ActionResult(QuarantineOutcome.ALREADY_ASSIGNED, observed=BookiePlacement(found_group))
    if not snapshot.groups:
        return ActionResult(QuarantineOutcome.NO_GROUPS)
    if snapshot.registration is None:
        return ActionResult(QuarantineOutcome.NOT_REGISTERED, "it is not registered")
    if not _is_same_registration(decision, snapshot.registration):
        return ActionResult(QuarantineOutcome.NOT_REGISTERED, "it has registered anew since the decision")
    held = len(snapshot.groups.get(decision.group, ()))
    if held >= settings.max_quarantined:
        detail = f"{held} are in group {decision.group}, and max_quarantined is {settings.max_quarantined}"
        return ActionResult(QuarantineOutcome.TOO_MANY, detail)
    groups = {group: frozenset(members) for group, members in snapshot.groups.items()}
    starved = find_starved_now(decision.bookie, BookieMembership(snapshot.writable, groups), affinity, settings)
    return None if starved is None else ActionResult(QuarantineOutcome.NEEDED, f"{starved} needs it to place data")


def measure_quarantine(decision: BookieQuarantine, snapshot: RacksSnapshot, at: datetime) -> QuarantineResult:
    """Return the result of a quarantine that took effect at `at`, with its leak window.

    Both ends of the window are by ZooKeeper's clock where the store provides it.
    """
    known = snapshot.registration.registered_at if snapshot.registration else None
    seconds = (at - (known or decision.registered_at)).total_seconds()
    # Not negative: two clocks may disagree, and ZooKeeper's own goes back when another server leads.
    return ActionResult(
        CommonOutcome.DONE, observed=BookiePlacement(quarantined_at=at, leak_window_seconds=max(0.0, seconds))
    )


def _is_same_registration(decision: BookieQuarantine, found: BookieRegistration) -> bool:
    """Whether the registration is the one of the decision, as far as both identify it."""
    if None not in (decision.czxid, found.czxid) and decision.czxid != found.czxid:
        return False
    if decision.session is None or found.session is None:
        return True
    return _parse_session(decision.session) == _parse_session(found.session)


def _parse_session(session: str) -> int | str:
    """Sessions are 64 bits; some tools write them as negative numbers, others with leading zeros."""
    try:
        return int(session, 16) % _SESSION_SPACE
    except ValueError:
        return session
