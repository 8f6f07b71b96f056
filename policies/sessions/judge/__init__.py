"""Judges facts: what each member must do, and what becomes of each bundle it claims. Pure; no state is written.

Members are judged in the order in which they lost their sessions. Only the shutdown budget passes from one to the next:
an order that brings a member down uses up a part of it.
"""

from dataclasses import dataclass, replace

from msgspec import Struct

from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.facts import ClaimFacts, Facts, MemberFacts
from policies.sessions.fleet import Budget
from policies.sessions.judge import ownership_table
from policies.sessions.judge.members import judge_member
from policies.sessions.judge.orders import MemberOrder
from policies.sessions.judge.ownership_table import BundleRuling, Claimant, NodeNow
from policies.sessions.liveness import ReadingPair
from policies.sessions.readings import UNCHANGED_TREE_INTERVAL
from policies.sessions.state import NEVER, SessionTrack
from policies.units import millis_of

_AFTER_ALL_LOSSES = 2**63
_UNCHANGED_TREE_MS = millis_of(UNCHANGED_TREE_INTERVAL)


class RuledClaim(Struct, frozen=True, gc=False):
    """A claim and the ruling on it."""

    claim: ClaimFacts
    ruling: BundleRuling


class MemberVerdict(Struct, frozen=True, gc=False):
    """The verdict on one member."""

    member: MemberFacts
    rulings: tuple[RuledClaim, ...]
    """The rulings on its claims, by path."""
    order: MemberOrder | None
    """None if there is nothing to do, or its last published order remains in force."""
    shutdowns_spent: int
    """How many shutdowns count against the budget, including this order."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts on all members."""

    members: tuple[MemberVerdict, ...]
    """Sorted by the time of their losses."""
    budget: Budget
    """The shutdown budget after all orders."""


def judge(facts: Facts) -> Verdicts:
    """Return the verdicts on all members."""
    found: list[MemberVerdict] = []
    lost_ms = {m.name: (m.track.lost_ms if m.track else None) or _AFTER_ALL_LOSSES for m in facts.members.values()}
    for member in sorted(facts.members.values(), key=lambda m: (lost_ms[m.name], m.name)):
        rulings = _rule_claims(member, facts)
        ruled = {r.claim.claim.path: r.ruling.verdict for r in rulings}
        bundles = tuple(ruled.get(c.claim.path, c.claim.verdict) for c in member.claims)
        order = judge_member(member, facts, bundles)
        if order is not None and order.brings_down:
            facts = replace(facts, budget=facts.budget.spend(member.name, facts.now_ms))
        found.append(MemberVerdict(member, rulings, order, len(facts.budget.left_over(facts.now_ms))))
    return Verdicts(tuple(found), facts.budget)


def _rule_claims(member: MemberFacts, facts: Facts) -> tuple[RuledClaim, ...]:
    """Rule on a member's claims; there is no ruling on a claim about which too little is known."""
    track = member.track
    if track is None or track.unsettled or not member.is_fresh:
        return ()
    ruled = ((claim, _rule_claim(claim, member, track, facts)) for claim in member.claims)
    return tuple(RuledClaim(claim, ruling) for claim, ruling in ruled if ruling is not None)


def _rule_claim(claim: ClaimFacts, member: MemberFacts, track: SessionTrack, facts: Facts) -> BundleRuling | None:
    is_given_up = claim.claim.verdict is OwnershipVerdict.UNLOAD
    if claim.is_stale or not (claim.rivals or member.member.recovering or is_given_up):
        return None
    claimant = Claimant(
        member.name, member.member.session, facts.now_ms - (track.reestablished_ms or facts.now_ms),
        facts.settings.wait_for_deletion_ms(track.timeout_ms),
    )  # fmt: skip
    ruling = ownership_table.rule(claimant, _find_node(claim, track), facts.settings.ownership_rules, claim.rivals)
    # A bundle that the member was to unload is free for others: it may keep it, but not ask for it again.
    if is_given_up and ruling.verdict is not OwnershipVerdict.KEEP:
        return None
    # A member without a session cannot write to ZooKeeper, so it can only unload what others own.
    if claimant.session is None and ruling.verdict is not OwnershipVerdict.UNLOAD:
        return None
    # A reading shows the old session connected: the reading of the new one may be wrong, and the old node alive.
    if track.denied_ms != NEVER and ruling.verdict is not OwnershipVerdict.KEEP:
        return None
    # The next reading of the node decides. A `wait` is published only if that reading does not come in its time, and
    # not about a bundle that the member claims only since it has this session, because it has lost nothing.
    is_new = claim.claim.since_ms > (track.reestablished_ms or 0)
    if ruling.reason is OwnershipReason.UNREAD and (is_new or facts.now_ms < unread_from_ms(claim, track)):
        return None
    return ruling


def unread_from_ms(claim: ClaimFacts, track: SessionTrack) -> int:
    """When the first reading of a bundle since the present session began is late, by the interval of its readings."""
    node, since_ms = claim.node, track.reestablished_ms or 0
    if node is None:
        return since_ms
    interval_ms = ReadingPair(node.read_ms, node.before_ms, since_ms, track.timeout_ms).interval_ms
    return since_ms + max(interval_ms, _UNCHANGED_TREE_MS)


def _find_node(claim: ClaimFacts, track: SessionTrack) -> NodeNow | None:
    """Return the bundle's node if it was read since the new session began.

    A node that belongs to the new session counts in any case, because it cannot have been read earlier.
    """
    node, since_ms = claim.node, max(claim.claim.since_ms, track.reestablished_ms or 0)
    if node is None or (node.read_ms < since_ms and (node.session is None or node.session != track.session)):
        return None
    return NodeNow(node.exists, node.ephemeral, node.owner, node.session, node.version, node.unreadable_times)
