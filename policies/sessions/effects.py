"""What a step leaves behind in the state: what was published, the progress of each recovery, what is forgotten.

Nothing is decided here: facts and verdicts in, new state out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import is_

from msgspec.structs import replace as changed

from policies.sessions.decisions import OwnershipVerdict, SessionReason, SessionStatus, SessionVerdict
from policies.sessions.emit import Published, lapses_ms
from policies.sessions.facts import ClaimFacts, Facts, MemberFacts
from policies.sessions.judge import MemberVerdict, Verdicts
from policies.sessions.readings import registration_path
from policies.sessions.state import SESSIONS, Member, NodeRecord, SourceRecord

FORGET_MS = 3_600_000
"""A node that has been absent for so long is forgotten, and with it what is said of it."""


def remaining(facts: Facts, verdicts: Verdicts, published: Published) -> Facts:
    """The facts after a step: with what was published, without what is over."""
    after = {v.member.name: _after(v, published, facts.now_ms) for v in verdicts.members}
    sessions, down = sessions_of(facts.sources), verdicts.budget.down()
    members = {
        name: after[name]
        for name in facts.members
        if not is_forgotten(after[name].member, sessions, facts.validity_ms, is_down=name in down)
    }
    claimants = Counter(claim.claim.path for member in after.values() for claim in member.claims)
    members = {name: _without_what_is_over(member, claimants, facts) for name, member in members.items()}
    claimed = {claim.claim.path for member in members.values() for claim in member.claims}
    remembered = claimed | {registration_path(name) for name in members}
    nodes = {p: n for p, n in facts.nodes.items() if p in remembered or not is_long_absent(n)}
    sources = {
        name: s for name, s in facts.sources.items() if name == SESSIONS or facts.now_ms - s.tried_ms < FORGET_MS
    }
    fleet = facts.fleet.without(facts.members.keys() - members.keys())
    return replace(facts, members=members, fleet=fleet, nodes=nodes, sources=sources, budget=verdicts.budget)


def sessions_of(sources: Mapping[str, SourceRecord]) -> SourceRecord:
    """What is known of reading the cluster's sessions as a whole."""
    return sources.get(SESSIONS, SourceRecord(SESSIONS))


def is_forgotten(member: Member, sessions: SourceRecord, validity_ms: int, *, is_down: bool) -> bool:
    """Whether nobody lists a member any more, though the cluster's sessions are read.

    Args:
        member: who.
        sessions: the source of the cluster's sessions; what was not read while they were not tells nothing.
        validity_ms: how long a reading counts.
        is_down: whether it was told to go down and is not back.
    """
    # Who is without a session counts for the fleet: the others are not alone because one of them is unread.
    counts = is_down or (member.track is not None and member.track.is_lost)
    patience_ms = max(validity_ms, FORGET_MS) if counts else validity_ms
    return member.track is not None and sessions.read_ms - max(member.seen_ms, sessions.since_ms) > patience_ms


def is_long_absent(node: NodeRecord) -> bool:
    """Whether a node has been read as absent for so long that it is forgotten, unless somebody still claims it."""
    return not node.exists and node.read_ms - node.changed_ms >= FORGET_MS


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
    is_same = member is facts.member and all(map(is_, claims, facts.claims)) and len(claims) == len(facts.claims)
    return facts if is_same else replace(facts, member=member, claims=tuple(claims))


def _published_claim(facts: ClaimFacts, published: Published) -> ClaimFacts:
    ruling = published.rulings.get(facts.claim.key)
    return facts if ruling is None else replace(facts, claim=changed(facts.claim, last_published=ruling))


def _owns_any(claims: Iterable[ClaimFacts]) -> bool:
    return any(facts.claim.verdict is OwnershipVerdict.KEEP for facts in claims)


def _without_what_is_over(member: MemberFacts, claimants: Mapping[str, int], facts: Facts) -> MemberFacts:
    kept = tuple(c for c in member.claims if not _is_over(c, member, claimants[c.claim.path] > 1, facts))
    return member if len(kept) == len(member.claims) else replace(member, claims=kept)


def _is_over(claimed: ClaimFacts, member: MemberFacts, contested: bool, facts: Facts) -> bool:
    track, last, recovering = member.track, claimed.claim.last_published, member.member.recovering
    if track is None:
        return True
    if last is not None and last.verdict is OwnershipVerdict.UNLOAD:
        # Nobody reported that it is done: what is told is told, and it has lapsed once anything is read after that.
        # Not because nothing is read any more.
        lapsed_ms, node = lapses_ms(last.published_ms, facts), claimed.node
        return not recovering and node is not None and min(track.read_ms, node.read_ms) >= lapsed_ms
    return not contested and not recovering and track.status is SessionStatus.ESTABLISHED
