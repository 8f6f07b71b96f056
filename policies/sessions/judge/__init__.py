"""Pure verdicts from facts: what each member is to do, and what becomes of each bundle it claims. No state is written.

Members are judged in the order in which they lost their sessions. Only one thing passes from one to the next: an order
that brings a member down uses up one of the allowed shutdowns, and later members have what is left.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.fleet import Budget
from policies.sessions.judge import claims, members
from policies.sessions.judge.claims import RuledClaim
from policies.sessions.judge.orders import MemberOrder
from policies.sessions.judge.recovery import BundleVerdicts

_AFTER_ALL_LOSSES = 2**63


@dataclass(frozen=True, slots=True)
class MemberVerdict:
    """What is to be done about one member."""

    member: MemberFacts
    rulings: tuple[RuledClaim, ...]
    """About its claims, by path."""
    order: MemberOrder | None
    """None when nothing is to be said, or what was published last holds on."""
    shutdowns_spent: int
    """How many shutdowns count after it."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What is to be done about all members."""

    members: tuple[MemberVerdict, ...]
    """In the order of their losses."""
    budget: Budget
    """What is left of it."""


def judge(facts: Facts) -> Verdicts:
    """What is to be done now."""
    found: list[MemberVerdict] = []
    for member in _in_order_of_loss(facts.members.values()):
        rulings = claims.rule(member, facts)
        order = members.order_of(member, facts, _in_force(member, rulings))
        if order is not None and order.brings_down:
            facts = replace(facts, budget=facts.budget.spend(member.name, facts.now_ms))
        found.append(MemberVerdict(member, rulings, order, facts.budget.count(facts.now_ms)))
    return Verdicts(tuple(found), facts.budget)


def _in_force(member: MemberFacts, rulings: tuple[RuledClaim, ...]) -> BundleVerdicts:
    """What holds of each of a member's claims after this step: as ruled now, else as last published; None: nothing."""
    now = {r.claim.claim.path: r.ruling.verdict for r in rulings}
    return tuple(now.get(c.claim.path, c.claim.verdict) for c in member.claims)


def _in_order_of_loss(all_members: Iterable[MemberFacts]) -> list[MemberFacts]:
    """Who lost first comes first, and who lost at the same moment by name; last those that lost nothing."""
    return sorted(all_members, key=_by_loss)


def _by_loss(member: MemberFacts) -> tuple[int, str]:
    lost_ms = member.track.lost_ms if member.track else None
    return (_AFTER_ALL_LOSSES if lost_ms is None else lost_ms, member.name)
