"""The ownership rules: what a member must do with a bundle that it owned. Rules: docs/design/sessions.md."""

from collections.abc import Mapping

from msgspec import Struct

from policies.sessions.decisions import OwnershipReason, OwnershipVerdict
from policies.sessions.facts import ClaimFacts, Facts, MemberFacts
from policies.sessions.fleet import ReadingPair
from policies.sessions.readings import UNCHANGED_TREE_INTERVAL
from policies.sessions.settings import OwnershipRules
from policies.sessions.state import NEVER, NodeRecord, SessionTrack
from policies.units import human_seconds, millis_of

FIRST_RETRY_MS = 100
LONGEST_RETRY_MS = 60_000
_UNCHANGED_TREE_MS = millis_of(UNCHANGED_TREE_INTERVAL)
_ACTIONS = {
    OwnershipVerdict.KEEP: "keep it",
    OwnershipVerdict.RE_OWN: "own it again",
    OwnershipVerdict.WAIT: "wait",
    OwnershipVerdict.UNLOAD: "unload it",
}


class BundleRuling(Struct, frozen=True, gc=False):
    """What a member must do with a bundle, and why."""

    verdict: OwnershipVerdict
    reason: OwnershipReason
    expected_version: int | None = None
    """The version at which the node of the old session is deleted first; None: there is nothing to delete."""
    retry_ms: int | None = None
    left_ms: int | None = None


RuledClaim = tuple[ClaimFacts, BundleRuling]


def rule(
    member: str,
    session: str | None,
    node: NodeRecord | None,
    rules: OwnershipRules,
    rivals: Mapping[str, str | None],
    left_ms: int,
) -> BundleRuling:
    """Return what a member must do with one bundle: `keep` only for an ephemeral node of its own session.

    Args:
        session: its present session; None if that is not known.
        node: the bundle's node; None if it has not been read since the session was lost.
        rivals: the other members that believe they own the bundle, each with its present session.
        left_ms: how much longer it waits for the node of its old session to be deleted.
    """
    if node is None:
        return BundleRuling(OwnershipVerdict.WAIT, OwnershipReason.UNREAD, retry_ms=FIRST_RETRY_MS)
    if not node.exists:
        return BundleRuling(OwnershipVerdict.RE_OWN, OwnershipReason.ABSENT)
    if not node.ephemeral:
        return BundleRuling(OwnershipVerdict.UNLOAD, OwnershipReason.NOT_EPHEMERAL)
    taken = OwnershipReason.DOUBLE_OWNERSHIP if rivals else OwnershipReason.OTHER_OWNER
    retry = BundleRuling(OwnershipVerdict.WAIT, OwnershipReason.UNREADABLE, retry_ms=retry_ms(node.unreadable_times))
    if node.owner is None or node.session is None or session is None:
        is_others = node.owner not in (None, member)
        return BundleRuling(OwnershipVerdict.UNLOAD, taken) if is_others else retry
    if node.session == session:
        # Of two claims, the one with the node's session wins, whatever the node's value is.
        if node.owner == member or node.owner in rivals:
            return BundleRuling(OwnershipVerdict.KEEP, OwnershipReason.OWN_SESSION)
        return BundleRuling(OwnershipVerdict.UNLOAD, OwnershipReason.OTHER_OWNER)
    if node.owner != member or node.session in rivals.values():
        return BundleRuling(OwnershipVerdict.UNLOAD, taken)
    if rules is OwnershipRules.CURRENT:
        # An unconditional deletion could hit a node that another member created since.
        replaced = BundleRuling(OwnershipVerdict.RE_OWN, OwnershipReason.OLD_SESSION, expected_version=node.version)
        return retry if node.version is None else replaced
    if left_ms <= 0:
        return BundleRuling(OwnershipVerdict.UNLOAD, OwnershipReason.OLD_SESSION_PERSISTS)
    return BundleRuling(OwnershipVerdict.WAIT, OwnershipReason.OLD_SESSION, left_ms=left_ms)


def retry_ms(failures: int) -> int:
    """The back-off after this many readings in a row without a value: 100 ms, doubling up to 60 s."""
    return min(FIRST_RETRY_MS << min(max(failures - 1, 0), 20), LONGEST_RETRY_MS)


def rule_claims(member: MemberFacts, facts: Facts) -> tuple[RuledClaim, ...]:
    """Rule on a member's claims; there is no ruling on a claim about which too little is known."""
    track = member.track
    if track is None or track.unsettled or not member.is_fresh:
        return ()
    ruled = ((claim, _rule_claim(claim, member, track, facts)) for claim in member.claims)
    return tuple((claim, ruling) for claim, ruling in ruled if ruling is not None)


def _rule_claim(claim: ClaimFacts, member: MemberFacts, track: SessionTrack, facts: Facts) -> BundleRuling | None:
    is_given_up = claim.claim.verdict is OwnershipVerdict.UNLOAD
    is_stale = claim.node is not None and not facts.is_valid(claim.node.read_ms)
    if is_stale or not (claim.rivals or member.member.recovering or is_given_up):
        return None
    session, since_ms, node = member.member.session, track.reestablished_ms or 0, claim.node
    # The node counts if it was read since the new session began. One of the new session cannot have been read earlier.
    is_early = node is not None and node.read_ms < max(claim.claim.since_ms, since_ms)
    if node is not None and is_early and (node.session is None or node.session != track.session):
        node = None
    left_ms = (track.reestablished_ms or facts.now_ms) + facts.settings.wait_for_deletion_ms(track.timeout_ms)
    left_ms -= facts.now_ms
    ruling = rule(member.name, session, node, facts.settings.ownership_rules, claim.rivals, left_ms)
    if ruling.verdict is OwnershipVerdict.KEEP:  # the one promise nothing may break
        assert node is not None, claim  # noqa: S101
        assert (node.exists, node.ephemeral, node.session) == (True, True, session or ""), claim  # noqa: S101
    # A bundle that the member was to unload is free for others: it may keep it, but not ask for it again.
    if is_given_up and ruling.verdict is not OwnershipVerdict.KEEP:
        return None
    # A member without a session cannot write to ZooKeeper, so it can only unload what others own.
    if session is None and ruling.verdict is not OwnershipVerdict.UNLOAD:
        return None
    # A reading shows the old session connected: the reading of the new one may be wrong, and the old node alive.
    if track.denied_ms != NEVER and ruling.verdict is not OwnershipVerdict.KEEP:
        return None
    # The next reading of the node decides. A `wait` is published only if that reading does not come in its time, and
    # not about a bundle that the member claims only since it has this session, because it has lost nothing.
    has_lost = claim.claim.since_ms == track.lost_ms
    if ruling.reason is OwnershipReason.UNREAD and not (has_lost and facts.now_ms >= unread_from_ms(claim, track)):
        return None
    return ruling


def unread_from_ms(claim: ClaimFacts, track: SessionTrack) -> int:
    """When the first reading of a bundle since the present session began is late, by the interval of its readings."""
    node, since_ms = claim.node, track.reestablished_ms or 0
    if node is None:
        return since_ms
    interval_ms = ReadingPair(node.read_ms, node.before_ms, since_ms, track.timeout_ms).interval_ms
    return since_ms + max(interval_ms, _UNCHANGED_TREE_MS)


def explain_ruling(bundle: str, ruled: RuledClaim, session: str | None) -> str:
    """The sentence of a decision about one bundle, from the values that decided."""
    (claim, ruling), node, member = ruled, ruled[0].node, ruled[0].claim.member
    found = (node.session if node is not None else None) or "unknown"
    owner = (node.owner if node is not None else None) or "an unknown member"
    left = "" if ruling.left_ms is None else f", {human_seconds(ruling.left_ms / 1000)} left"
    replaced = "" if ruling.expected_version is None else f" and is replaced at version {ruling.expected_version}"
    names = f"its node names {owner}, session {found}"
    rivals = ", ".join(sorted(claim.rivals))
    reasons = {
        OwnershipReason.ABSENT: "has no node",
        OwnershipReason.OWN_SESSION: f"has a node of its session {session}",
        OwnershipReason.OLD_SESSION: f"has a node of its old session {found} (it has {session} now){replaced}{left}",
        OwnershipReason.OLD_SESSION_PERSISTS: f"still has a node of its old session {found}: ZooKeeper has kept it",
        OwnershipReason.OTHER_OWNER: f"is owned by {owner}, session {found}",
        OwnershipReason.DOUBLE_OWNERSHIP: f"is claimed by {rivals} as well; {names}",
        OwnershipReason.NOT_EPHEMERAL: "has a node that is not ephemeral",
        OwnershipReason.UNREADABLE: f"has a node whose owner or session cannot be read: {names}",
        OwnershipReason.UNREAD: f"has not been read since the session {session} began",
    }
    retry = "" if ruling.retry_ms is None else f" and read it again after {ruling.retry_ms} ms"
    return f"{member} must {_ACTIONS[ruling.verdict]}{retry}: bundle {bundle} {reasons[ruling.reason]}."
