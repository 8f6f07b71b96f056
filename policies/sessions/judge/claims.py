"""Verdicts on each bundle that a member claims."""

from dataclasses import dataclass

from policies.sessions.decisions import OwnershipVerdict
from policies.sessions.facts import ClaimFacts, Facts, MemberFacts
from policies.sessions.judge import ownership_table
from policies.sessions.judge.ownership_table import BundleRuling, Claimant, NodeNow
from policies.sessions.state import SessionTrack


@dataclass(frozen=True, slots=True)
class RuledClaim:
    """What is to be done about one claim."""

    claim: ClaimFacts
    ruling: BundleRuling


def rule(member: MemberFacts, facts: Facts) -> tuple[RuledClaim, ...]:
    """What is to be done about a member's claims; nothing is said of those about which too little is known."""
    track = member.track
    if track is None or track.unsettled or not member.is_fresh:
        return ()
    ruled = ((claim, _ruling(claim, member, track, facts)) for claim in member.claims)
    return tuple(RuledClaim(claim, ruling) for claim, ruling in ruled if ruling is not None)


def _ruling(claim: ClaimFacts, member: MemberFacts, track: SessionTrack, facts: Facts) -> BundleRuling | None:
    if claim.is_stale:
        return None
    given_up = claim.claim.verdict is OwnershipVerdict.UNLOAD
    if not (claim.rivals or member.member.recovering or given_up):
        return None
    claimant = Claimant(
        member.name, member.member.session, facts.now_ms - (track.reestablished_ms or facts.now_ms),
        facts.settings.wait_for_deletion_ms(track.timeout_ms),
    )  # fmt: skip
    ruling = ownership_table.rule(claimant, _node_now(claim, track), facts.settings.ownership_rules, claim.rivals)
    if given_up and ruling.verdict is not OwnershipVerdict.KEEP:
        return None  # what it has let go is free for others
    # Without a session nothing can be written: it can only be told to let go of what others own.
    if claimant.session is None and ruling.verdict is not OwnershipVerdict.UNLOAD:
        return None
    return ruling


def _node_now(claim: ClaimFacts, track: SessionTrack) -> NodeNow | None:
    """The node, where it was read since the new session began; one of that session cannot have been read before."""
    node, since_ms = claim.node, max(claim.claim.since_ms, track.reestablished_ms or 0)
    if node is None:
        return None
    if node.read_ms < since_ms and (node.session is None or node.session != track.session):
        return None
    return NodeNow(node.exists, node.ephemeral, node.owner, node.session, node.version, node.unreadable_times)
