"""What follows from a step for what is remembered: what was published, how far each recovery is, what is forgotten.

Nothing here is decided any more: facts and verdicts in, the facts that remain out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec.structs import replace as changed

from policies.sessions.decisions import OwnershipVerdict, SessionReason, SessionStatus, SessionVerdict
from policies.sessions.emit import Published
from policies.sessions.facts import ClaimFacts, Facts, MemberFacts
from policies.sessions.judge import MemberVerdict, Verdicts
from policies.sessions.state import NEVER, SESSIONS, Claim, Member, NodeRecord, SourceRecord

FORGET_MS = 3_600_000
"""A node that has been absent for so long is forgotten, and with it what is said of it."""


def remaining(facts: Facts, verdicts: Verdicts, published: Published) -> Facts:
    """The facts after a step: with what was published, without what is over."""
    after = {v.member.name: _after(v, published, facts.now_ms) for v in verdicts.members}
    read_ms = sessions_read_ms(facts.sources)
    members = {
        name: after[name] for name in facts.members if not is_forgotten(after[name].member, read_ms, facts.validity_ms)
    }
    claimants = Counter(claim.claim.path for member in after.values() for claim in member.claims)
    members = {name: _without_what_is_over(member, claimants, facts) for name, member in members.items()}
    claimed = {claim.claim.path for member in members.values() for claim in member.claims}
    nodes = {p: n for p, n in facts.nodes.items() if p in claimed or not is_long_absent(n, facts.now_ms)}
    fleet = facts.fleet.without(facts.members.keys() - members.keys())
    return replace(facts, members=members, fleet=fleet, nodes=nodes, budget=verdicts.budget)


def sessions_read_ms(sources: Mapping[str, SourceRecord]) -> int:
    """When any session of the cluster was last read."""
    return sources[SESSIONS].read_ms if SESSIONS in sources else NEVER


def is_forgotten(member: Member, sessions_read_ms: int, validity_ms: int) -> bool:
    """Whether nobody lists a member any more, though the cluster's sessions are read."""
    # Who was lost with the fleet still counts for it: the others are not alone because one of them is unread.
    of_fleet = member.fleet_wide and member.track is not None and member.track.is_lost
    patience_ms = max(validity_ms, FORGET_MS) if of_fleet else validity_ms
    return member.track is not None and sessions_read_ms - member.seen_ms > patience_ms


def is_long_absent(node: NodeRecord, now_ms: int) -> bool:
    """Whether a node has been absent for so long that it is forgotten, unless somebody still claims it."""
    return not node.exists and now_ms - node.changed_ms >= FORGET_MS


def _after(verdict: MemberVerdict, published: Published, now_ms: int) -> MemberFacts:
    facts = verdict.member
    claims = [_published_claim(claim, published) for claim in facts.claims]
    member = facts.member
    if member.member in published.orders:
        member = changed(member, last_published=published.orders[member.member], events=())
    order = verdict.order
    if order is not None and order.verdict is SessionVerdict.GONE:
        claims = []  # its bundles are free for others
        member = changed(member, recovering=False, awaited_ms=None)
    elif order is not None and order.verdict is SessionVerdict.RECOVER and not claims:
        member = changed(member, recovering=False)
    elif order is not None and order.reason is SessionReason.RECOVERED:
        member = changed(member, recovering=False, awaited_ms=now_ms if _owns_any(claims) else None)
    elif facts.has_published and member.awaited_ms is not None:
        member = changed(member, awaited_ms=None)  # its load data is no longer awaited once it is there
    return replace(facts, member=member, claims=tuple(claims))


def _published_claim(facts: ClaimFacts, published: Published) -> ClaimFacts:
    ruling = published.rulings.get(facts.claim.key)
    return facts if ruling is None else replace(facts, claim=changed(facts.claim, last_published=ruling))


def _owns_any(claims: Iterable[ClaimFacts]) -> bool:
    return any(facts.claim.verdict is OwnershipVerdict.KEEP for facts in claims)


def _without_what_is_over(member: MemberFacts, claimants: Mapping[str, int], facts: Facts) -> MemberFacts:
    kept = tuple(c for c in member.claims if not _is_over(c.claim, member.member, claimants[c.claim.path] > 1, facts))
    node = member.registration
    if node is not None and is_long_absent(node, facts.now_ms):
        return replace(member, claims=kept, registration=None, liveness=replace(member.liveness, zombie_ms=None))
    return member if len(kept) == len(member.claims) else replace(member, claims=kept)


def _is_over(claim: Claim, member: Member, contested: bool, facts: Facts) -> bool:
    if member.track is None:
        return True
    last = claim.last_published
    if last is not None and last.verdict is OwnershipVerdict.UNLOAD:
        # Nobody reported that it is done: what is told is told, and by then it has lapsed.
        return not member.recovering and facts.now_ms >= last.published_ms + facts.validity_ms
    return not contested and not member.recovering and member.track.status is SessionStatus.ESTABLISHED
