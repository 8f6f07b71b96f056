"""The way back after a session is re-established: the plan in its order, bundle by bundle, then the load data."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from policies.sessions import bundles
from policies.sessions.bundles import Claimant, NodeNow, Ruling
from policies.sessions.decision import OwnershipVerdict, Status
from policies.sessions.decision import SessionReason as R
from policies.sessions.decision import SessionVerdict as V
from policies.sessions.member import Track
from policies.sessions.scene import Order, Scene
from policies.sessions.state import Claim, Member, Node
from policies.units import counted, human_seconds, millis_of

_HAS_A_SESSION = frozenset({Status.ESTABLISHED, Status.CONNECTION_LOST})


@dataclass(frozen=True, slots=True)
class Ruled:
    """What is to be done about one claim."""

    claim: Claim
    member: Member
    node: Node | None
    ruling: Ruling
    rivals: Mapping[str, str | None]


def rule_all(scene: Scene) -> Iterator[Ruled]:
    """What is to be done about each claim; nothing is said of those about which too little is known."""
    by_path = claims_by_path(scene.known.claims.values())
    for claim in sorted(scene.known.claims.values(), key=lambda c: (c.path, c.member)):
        member = scene.known.members.get(claim.member)
        if member is None or member.track is None or member.track.unsettled or not scene.is_fresh(member):
            continue
        rivals = {
            c.member: session_of(scene.known.members.get(c.member))
            for c in by_path[claim.path]
            if c.member != claim.member
        }
        if (ruled := _ruled(claim, member, member.track, rivals, scene)) is not None:
            yield ruled


def claims_by_path(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """The claims on each bundle."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.path, []).append(claim)
    return found


def session_of(member: Member | None) -> str | None:
    """The session a member has; null when it has none, or it is not known."""
    if member is None or member.track is None or member.track.status not in _HAS_A_SESSION:
        return None
    return member.track.session


def _ruled(claim: Claim, member: Member, track: Track, rivals: Mapping[str, str | None], scene: Scene) -> Ruled | None:
    node = scene.known.nodes.get(claim.path)
    if node is not None and scene.now_ms - node.read_ms > millis_of(scene.settings.validity):
        return None
    given_up = claim.said_verdict is OwnershipVerdict.UNLOAD
    if not (rivals or member.recovering or given_up):
        return None
    claimant = Claimant(
        claim.member, session_of(member), scene.now_ms - (track.reestablished_ms or scene.now_ms),
        scene.settings.wait_for_deletion_ms(track.timeout_ms),
    )  # fmt: skip
    ruling = bundles.rule(claimant, _node_now(node, claim, track), scene.settings.ownership_rules, rivals)
    if given_up and ruling.verdict is not OwnershipVerdict.KEEP:
        return None  # what it has let go is free for others
    # Without a session nothing can be written: it can only be told to let go of what others own.
    if claimant.session is None and ruling.verdict is not OwnershipVerdict.UNLOAD:
        return None
    return Ruled(claim, member, node, ruling, rivals)


def _node_now(node: Node | None, claim: Claim, track: Track) -> NodeNow | None:
    """The node, where it was read after the loss; one of the new session cannot have been read before."""
    if node is None or (node.read_ms < claim.since_ms and (node.session is None or node.session != track.session)):
        return None
    return NodeNow(node.exists, node.ephemeral, node.owner, node.session, node.version, node.unreadable_times)


def progress(member: Member, track: Track, scene: Scene) -> Order:
    """The plan, until every bundle is the member's own again or given up."""
    claims, lost_ms = scene.claims(member), track.lost_ms or 0
    said = member.said
    begun = said is not None and said.verdict is V.RECOVER and said.lost_ms == track.lost_ms
    if begun and claims and all(is_final(c) for c in claims):
        kept = sum(1 for c in claims if c.said is not None and c.said.verdict is OwnershipVerdict.KEEP)
        recovery_ms = scene.now_ms - lost_ms
        what = (
            f"has recovered {human_seconds(recovery_ms / 1000)} after it lost its session: of "
            f"{counted(len(claims), 'bundle')} it owns {kept} again and has given up {len(claims) - kept}"
        )
        return Order(V.RESUME, R.RECOVERED, what, (member.read_id,), recovery_ms=recovery_ms)
    away = human_seconds(((track.reestablished_ms or 0) - lost_ms) / 1000)
    order = ", then ".join(scene.settings.recovery_order)
    what = (
        f"has a session again, {away} after it lost the one before: {order}; it owned {counted(len(claims), 'bundle')}"
    )
    return Order(V.RECOVER, R.SESSION_REESTABLISHED, what, (member.read_id,))


def is_final(claim: Claim) -> bool:
    """Whether the bundle is either the member's own again or given up."""
    final = (OwnershipVerdict.KEEP, OwnershipVerdict.UNLOAD)
    return claim.said is not None and claim.said.verdict in final


def load_data(member: Member, track: Track, scene: Scene) -> Order | None:
    """A member that owns its bundles again is to publish its load data; null while it has, or has time left."""
    if member.awaited_ms is None:
        return None
    node, after_ms = scene.node(member), millis_of(scene.settings.load_data_after)
    if has_published(member, track, node):
        if member.said is not None and member.said.verdict is V.REPUBLISH_LOAD_DATA:
            return Order(V.RESUME, R.REGISTERED, "has published its load data", scene.evidence(member))
        return None
    if scene.now_ms < member.awaited_ms + after_ms:
        return None
    waited = human_seconds((scene.now_ms - member.awaited_ms) / 1000)
    what = f"has recovered its bundles, but published no load data for {waited}"
    return Order(V.REPUBLISH_LOAD_DATA, R.LOAD_DATA_MISSING, what, scene.evidence(member))


def has_published(member: Member, track: Track, node: Node | None) -> bool:
    """Whether its load data is published since its session was established again."""
    if member.republished_ms >= (track.reestablished_ms or 0):
        return True
    return node is not None and node.exists and node.session is not None and node.session == track.session
