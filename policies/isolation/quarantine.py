"""Which bookies are to be put into quarantine: verdicts on those that nobody assigned, and what ends them.

A verdict is about one registration: a bookie that joins again gets another. Guards hold against a mass mistake; they
are evaluated one bookie after the other, as if each before it had been carried out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from policies.decisions import Mode
from policies.isolation.decision import QUARANTINE_GROUP, QuarantineReason, QuarantineVerdict
from policies.isolation.knowledge import Bookie, Knowledge, Presence
from policies.isolation.placement import Affinity, Membership, place
from policies.isolation.settings import IsolationSettings, Quarantine, Rules, Unaffine
from policies.isolation.verdicts import Judged
from policies.units import millis_of, to_millis

_NO_AFFINITY = Affinity(frozenset(), frozenset())
_LAST = 2**63


class Order(Struct, array_like=True, frozen=True):
    """The verdict in force on one bookie."""

    bookie: str
    session: str | None
    czxid: int | None
    registered_ms: int
    verdict: QuarantineVerdict
    reason: QuarantineReason
    mode: Mode
    since_ms: int
    """When it was first decided."""
    said_ms: int
    """When it was last published."""
    carried_out: bool = False
    """Whether the bookie has been in the quarantine group since."""
    starved: str = ""
    """Who could not place data without it, where that is the reason."""

    @property
    def in_force(self) -> tuple[object, ...]:
        """What another decision must differ in to be news."""
        return (self.bookie, self.session, self.czxid, self.verdict, self.reason, self.mode)


@dataclass(frozen=True, slots=True)
class Scene:
    """What verdicts are read from."""

    knowledge: Knowledge
    membership: Membership
    judged: Sequence[Judged]
    settings: IsolationSettings
    now: datetime
    registrations_fresh: bool
    """Whether bookies and groups are known by valid readings."""
    all_fresh: bool
    """Whether the namespaces are, too: without them nobody can say what a quarantine would do."""

    @property
    def quarantined(self) -> frozenset[str]:
        """The bookies in the quarantine group, whatever else they are in."""
        return (self.membership.groups or {}).get(QUARANTINE_GROUP, frozenset())


def review_orders(orders: Sequence[Order], scene: Scene) -> tuple[tuple[Order, ...], tuple[Order, ...]]:
    """The orders in force after this step, by bookie, and those to publish: lifts first."""
    known = {b.bookie: b for b in scene.knowledge.bookies}
    lifted: list[Order] = []
    kept: dict[str, Order] = {}
    for order in orders:
        ended = _ended(known.get(order.bookie), scene)
        if ended is None:
            kept[order.bookie] = order
        else:
            lifted.append(_anew(order, QuarantineVerdict.LIFT, ended, scene))
    decided = [] if _is_off(scene) or not scene.all_fresh else [_next(kept, *w, scene) for w in _wanted(kept, scene)]
    said = [order for order in decided if order.said_ms == to_millis(scene.now)]
    news = [order for order in said if order != kept.get(order.bookie)]
    after = kept | {order.bookie: order for order in decided}
    return tuple(after[b] for b in sorted(after)), (*lifted, *news)


def is_pending(order: Order, scene: Scene) -> bool:
    """Whether an actuator has still to carry it out."""
    return order.verdict is QuarantineVerdict.QUARANTINE and order.bookie not in scene.quarantined


def renewal_ms(order: Order, settings: IsolationSettings) -> int:
    """When an order that nobody carried out is repeated: well before it runs out."""
    return order.said_ms + max(1, millis_of(settings.validity) // 2)


def _is_off(scene: Scene) -> bool:
    return scene.settings.quarantine is Quarantine.OFF


def _ended(bookie: Bookie | None, scene: Scene) -> QuarantineReason | None:
    """Why an order is lifted now, or null while it stands."""
    if _is_off(scene):
        return QuarantineReason.SWITCHED_OFF
    if not scene.registrations_fresh:
        return None
    if bookie is not None and bookie.assigned:
        return QuarantineReason.ASSIGNED
    return QuarantineReason.GONE if bookie is None or bookie.presence is Presence.OFFLINE else None


def _wanted(
    kept: Mapping[str, Order], scene: Scene
) -> Iterator[tuple[Bookie, QuarantineVerdict, QuarantineReason, str]]:
    """The verdict on every writable bookie that has been unassigned for the grace, as they registered.

    Those on their way into quarantine come first, so that a newcomer does not take their place.
    """
    on_the_way = {b for b, order in kept.items() if order.verdict is QuarantineVerdict.QUARANTINE}
    taken = scene.quarantined | {b.bookie for b in scene.knowledge.bookies if b.bookie in on_the_way and _is_idle(b)}
    ripe = [b for b in scene.knowledge.bookies if _is_ripe(b, kept, scene)]
    for bookie in sorted(ripe, key=lambda b: (b.bookie not in on_the_way, *_registration_order(b))):
        if bookie.bookie in scene.quarantined:
            if bookie.bookie in on_the_way:
                yield bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED, ""
            continue
        forbidden, starved = _forbidden(taken, bookie, scene)
        if forbidden is None:
            taken |= {bookie.bookie}
            yield bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED, ""
        else:
            yield bookie, QuarantineVerdict.WITHHOLD, forbidden, starved


def _is_idle(bookie: Bookie) -> bool:
    return bookie.presence is not Presence.WRITABLE or bookie.missing_ms is not None


def _is_ripe(bookie: Bookie, kept: Mapping[str, Order], scene: Scene) -> bool:
    if bookie.assigned is not False or _is_idle(bookie):
        return False
    return bookie.bookie in kept or to_millis(scene.now) >= bookie.since_ms + millis_of(scene.settings.grace)


def _registration_order(bookie: Bookie) -> tuple[int, int, str]:
    return (_LAST if bookie.czxid is None else bookie.czxid, bookie.registered_ms or bookie.since_ms, bookie.bookie)


def _forbidden(taken: frozenset[str], bookie: Bookie, scene: Scene) -> tuple[QuarantineReason | None, str]:
    """The guard that forbids it, or null; and who could not place data, where that is the reason."""
    if not scene.membership.groups:
        return QuarantineReason.NO_GROUPS, ""
    if len(taken) >= scene.settings.max_quarantined:
        return QuarantineReason.MAX_QUARANTINED, ""
    starved = _starved(taken | {bookie.bookie}, scene)
    return (None, "") if starved is None else (QuarantineReason.WOULD_BE_INFEASIBLE, starved)


def _starved(quarantined: frozenset[str], scene: Scene) -> str | None:
    """Who can place data now and could no longer, with these in quarantine; the first of them."""
    settings, groups = scene.settings, dict(scene.membership.groups or {})
    then = Membership(scene.membership.writable, groups | {QUARANTINE_GROUP: quarantined})

    def feasible(membership: Membership, rules: Rules, affinity: Affinity, size: int) -> bool:
        return place(rules, membership, affinity, size, settings.unaffine).feasible

    if settings.unaffine is Unaffine.UNGROUPED:
        unnamed = (settings.rules, _NO_AFFINITY, settings.ensemble_size)
        if feasible(scene.membership, *unnamed) and not feasible(then, *unnamed):
            return "namespaces without affinity"
    for judged in scene.judged:
        # Who keeps enough without the bookies in question is not asked: the rules never take others away.
        if (
            judged.placed.feasible
            and len(judged.placed.candidates - quarantined) < judged.ensemble_size
            and not feasible(then, judged.rules, judged.affinity, judged.ensemble_size)
        ):
            return judged.namespaces[0]
    return None


def _next(
    kept: Mapping[str, Order],
    bookie: Bookie,
    verdict: QuarantineVerdict,
    reason: QuarantineReason,
    starved: str,
    scene: Scene,
) -> Order:
    """The order on a bookie after this step; said now if it is news, or if it must not run out."""
    now_ms, before = to_millis(scene.now), kept.get(bookie.bookie)
    registered_ms = bookie.since_ms if bookie.registered_ms is None else bookie.registered_ms
    order = Order(
        bookie=bookie.bookie,
        session=bookie.session,
        czxid=bookie.czxid,
        registered_ms=registered_ms,
        verdict=verdict,
        reason=reason,
        mode=scene.settings.mode,
        since_ms=now_ms,
        said_ms=now_ms,
        starved=starved,
    )
    inside = bookie.bookie in scene.quarantined
    if before is None or before.in_force != order.in_force or (before.carried_out and not inside):
        return order
    if inside:
        return replace(before, carried_out=True)
    if is_pending(before, scene) and now_ms >= renewal_ms(before, scene.settings):
        return replace(before, said_ms=now_ms)
    return before


def _anew(order: Order, verdict: QuarantineVerdict, reason: QuarantineReason, scene: Scene) -> Order:
    now_ms = to_millis(scene.now)
    return replace(order, verdict=verdict, reason=reason, mode=scene.settings.mode, since_ms=now_ms, said_ms=now_ms)
