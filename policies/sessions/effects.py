"""Applies a step to the facts: its publications, the progress of each recovery, and the end of members and nodes.

Nothing is decided here. The result is the input of alerts and timers, and the next state.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from operator import is_

from msgspec.structs import replace as update

from policies.sessions.decisions import OwnershipVerdict, SessionReason, SessionStatus, SessionVerdict
from policies.sessions.emit import Published
from policies.sessions.facts import ClaimFacts, Facts, MemberFacts
from policies.sessions.judge import MemberVerdict, Verdicts
from policies.sessions.readings import registration_path
from policies.sessions.state import NEVER, SESSIONS, Member, NodeRecord, SourceRecord

FORGET_MS = 3_600_000
"""A node that has been absent for this long is forgotten, with the alerts about it."""


def apply_step(facts: Facts, verdicts: Verdicts, published: Published) -> Facts:
    """Return the facts after a step: with its publications, without members, nodes and claims that are over."""
    after = {v.member.name: _apply_verdict(v, published, facts.now_ms) for v in verdicts.members}
    sessions, known = facts.sources.get(SESSIONS, SourceRecord(SESSIONS)), (m.member for m in after.values())
    forgotten = find_forgotten(known, sessions, facts.validity_ms, verdicts.budget.down())
    members = {name: after[name] for name in facts.members if name not in forgotten}
    claimants = Counter(claim.claim.path for member in after.values() for claim in member.claims)
    members = {name: _drop_claims(member, claimants, facts) for name, member in members.items()}
    claimed = {claim.claim.path for member in members.values() for claim in member.claims}
    needed = claimed | {registration_path(name) for name in members}
    absent = [node for node in facts.nodes.values() if not node.exists]
    gone = {node.path for node in absent if is_long_absent(node)} - needed
    nodes = {p: n for p, n in facts.nodes.items() if p not in gone} if gone else facts.nodes
    sources = {
        name: s for name, s in facts.sources.items() if name == SESSIONS or facts.now_ms - s.tried_ms < FORGET_MS
    }
    roles = facts.roles
    if len(members) < len(facts.members):
        kept = {name: tuple(m for m in role.members if m.member in members) for name, role in roles.items()}
        roles = {name: replace(role, members=kept[name]) for name, role in roles.items()}
    bundles = [n for n in facts.bundles if n.path not in gone] if gone else facts.bundles
    return replace(
        facts, members=members, roles=roles, nodes=nodes, bundles=bundles, sources=sources, budget=verdicts.budget
    )


def find_forgotten(
    members: Iterable[Member], sessions: SourceRecord, validity_ms: int, down: Container[str] = ()
) -> frozenset[str]:
    """Return the members that no reading names any more, though the cluster's sessions are read.

    A member whose session was never read is forgotten if others were asked for their health since, and it was not.

    Args:
        sessions: the source of the cluster's sessions. A gap in which they were not read proves no absence.
        down: the members that were ordered down and are not back.
    """
    known = tuple(members)
    asked_ms = max((m.health.before_ms for m in known if m.health is not None), default=NEVER)
    patience_ms = max(validity_ms, FORGET_MS)

    def is_forgotten(member: Member) -> bool:
        if member.track is None:
            return asked_ms - member.seen_ms > patience_ms
        # A member without a session counts in the fleet for longer: if it is unread, the others are not more alone.
        is_kept = member.member in down or member.track.is_lost
        unseen_ms = sessions.read_ms - max(member.seen_ms, sessions.since_ms)
        return unseen_ms > (patience_ms if is_kept else validity_ms)

    return frozenset(m.member for m in known if is_forgotten(m))


def is_long_absent(node: NodeRecord) -> bool:
    """Whether a node has been absent for so long that it is forgotten, unless a member still claims it."""
    return not node.exists and node.read_ms - node.changed_ms >= FORGET_MS


def _apply_verdict(verdict: MemberVerdict, published: Published, now_ms: int) -> MemberFacts:
    facts, member, order = verdict.member, verdict.member.member, verdict.order
    claims = []
    for claim in facts.claims:
        ruling = published.rulings.get(claim.claim.key)
        claims.append(claim if ruling is None else update(claim, claim=update(claim.claim, last_published=ruling)))
    if member.member in published.orders:
        member = update(member, last_published=published.orders[member.member], events=())
    if order is not None and order.verdict is SessionVerdict.GONE:
        member = update(member, recovering=False, awaited_ms=None)
    elif order is not None and order.reason is SessionReason.RECOVERED:
        member = update(member, recovering=False, awaited_ms=now_ms)
    elif facts.has_published and member.awaited_ms is not None:
        member = update(member, awaited_ms=None)
    is_same = member is facts.member and all(map(is_, claims, facts.claims)) and len(claims) == len(facts.claims)
    return facts if is_same else update(facts, member=member, claims=tuple(claims))


def _drop_claims(member: MemberFacts, claimants: Mapping[str, int], facts: Facts) -> MemberFacts:
    kept = tuple(c for c in member.claims if not _is_over(c, member, claimants[c.claim.path] > 1, facts))
    return member if len(kept) == len(member.claims) else update(member, claims=kept)


def _is_over(claimed: ClaimFacts, member: MemberFacts, is_contested: bool, facts: Facts) -> bool:
    track, last, recovering = member.track, claimed.claim.last_published, member.member.recovering
    if track is None:
        return True
    if last is not None and last.verdict is OwnershipVerdict.UNLOAD:
        # Without a report that the bundle is unloaded, the claim ends when the ruling expires. Member and node must
        # have been read since then, because silence does not end a claim.
        lapsed_ms, node = facts.schedule.due_ms(last.published_ms), claimed.node
        return not recovering and node is not None and min(track.read_ms, node.read_ms) >= lapsed_ms
    return not is_contested and not recovering and track.status is SessionStatus.ESTABLISHED
