"""From what was ruled to what is published: only what is news, with everything that decided in it."""

from dataclasses import dataclass

from msgspec.structs import replace

from policies.decisions import EVIDENCE_LIMIT, deterministic_id
from policies.sessions.alerts import bundle_of
from policies.sessions.decision import (
    OwnershipDecision,
    OwnershipVerdict,
    SessionDecision,
    SessionReason,
    SessionVerdict,
)
from policies.sessions.recovery import Ruled, session_of
from policies.sessions.scene import Order, Scene, ids
from policies.sessions.state import BundleSaid, Claim, Member, SessionSaid
from policies.sessions.words import ruling_sentence
from policies.sessions.zombie import timeout_ms
from policies.succession import ends_at, next_sequence
from policies.units import from_millis, millis_of

NAME = "sessions"
NAMED_BUNDLES = 100

_RENEWED = frozenset({SessionVerdict.HOLD, SessionVerdict.RECONNECT, SessionVerdict.RECOVER})
_RENEWED_BUNDLES = frozenset({OwnershipVerdict.WAIT, OwnershipVerdict.RE_OWN})


@dataclass(slots=True)
class Press:
    """Turns orders and rulings into decisions, and numbers them."""

    cluster: str
    settings_hash: str
    scene: Scene
    sequence: int

    def session(self, member: Member, order: Order) -> tuple[Member, SessionDecision | None]:
        """What is now said about a member, and the decision if that is news."""
        scene, track = self.scene, member.track
        mark = _mark(member, order, scene)
        said = member.said
        if said is not None and said.fingerprint == mark and not _lapsed(said, order, scene):
            return member, None
        lost_ms = track.lost_ms if track else None
        now_said = SessionSaid(order.verdict, order.reason, scene.now_ms, mark, lost_ms)
        self.sequence = next_sequence(self.sequence, scene.now_ms, is_first=said is None)
        claims = scene.claims(member)
        recover = order.verdict is SessionVerdict.RECOVER
        subject = f"{self.cluster}/{member.member}"
        left = order.left_ms
        decision = SessionDecision(
            decision_id=deterministic_id(NAME, self.cluster, "session", subject, self.sequence),
            policy=NAME,
            cluster=self.cluster,
            subject=subject,
            sequence=self.sequence,
            verdict=order.verdict,
            reason=order.reason,
            explanation=f"{member.role.capitalize()} {member.member} {order.what}.",
            decided_at=from_millis(scene.now_ms),
            mode=scene.settings.mode,
            settings_hash=self.settings_hash,
            evidence=ids(*order.evidence)[:EVIDENCE_LIMIT],
            numbers={"fleet_wide": member.fleet_wide, "shutdowns_spent": scene.budget.count(scene.now_ms)},
            member=member.member,
            role=member.role,
            status=track.status if track else None,
            events=member.events,
            session=track.session if track else None,
            timeout_ms=timeout_ms(member),
            seconds_left=None if left is None else max(0, left) / 1000,
            plan=scene.settings.recovery_order if recover else (),
            bundles=tuple(c.path for c in claims[:NAMED_BUNDLES]) if recover else (),
            bundle_count=len(claims),
            losses=len(track.losses) if track else 0,
            attempts=member.attempts,
            recovery_seconds=None if order.recovery_ms is None else order.recovery_ms / 1000,
            valid_until=ends_at(from_millis(scene.now_ms), scene.settings.validity),
        )
        return replace(member, said=now_said, events=()), decision

    def bundle(self, ruled: Ruled) -> tuple[Claim, OwnershipDecision | None]:
        """What is now said about a claim, and the decision if that is news."""
        scene, claim, ruling, node = self.scene, ruled.claim, ruled.ruling, ruled.node
        session = session_of(ruled.member)
        retry = (ruling.retry_ms, ruling.expected_version, ruling.delete_first)
        mark = "|".join(map(str, (ruling.verdict, ruling.reason, *retry, session, claim.since_ms, scene.settings.mode)))
        said = claim.said
        if said is not None and said.fingerprint == mark:
            lapsed = scene.now_ms >= said.said_ms + millis_of(scene.settings.validity)
            if not (lapsed and ruling.verdict in _RENEWED_BUNDLES):
                return claim, None
        self.sequence = next_sequence(self.sequence, scene.now_ms, is_first=said is None)
        bundle = bundle_of(claim.path)
        subject = f"{self.cluster}/{claim.member}/{bundle}"
        decision = OwnershipDecision(
            decision_id=deterministic_id(NAME, self.cluster, "ownership", subject, self.sequence),
            policy=NAME,
            cluster=self.cluster,
            subject=subject,
            sequence=self.sequence,
            verdict=ruling.verdict,
            reason=ruling.reason,
            explanation=ruling_sentence(bundle, ruled, session),
            decided_at=from_millis(scene.now_ms),
            mode=scene.settings.mode,
            settings_hash=self.settings_hash,
            evidence=ids(node.read_id if node else "", ruled.member.read_id),
            numbers={"rivals": sorted(ruled.rivals), "czxid": node.czxid if node else None},
            member=claim.member,
            bundle=bundle,
            path=claim.path,
            rules=scene.settings.ownership_rules,
            owner=node.owner if node and node.exists else None,
            node_session=node.session if node and node.exists else None,
            session=session,
            expected_version=ruling.expected_version,
            delete_first=ruling.delete_first,
            preload=ruling.verdict is OwnershipVerdict.RE_OWN,
            close_first=ruling.verdict is OwnershipVerdict.UNLOAD,
            retry_ms=ruling.retry_ms,
            seconds_left=None if ruling.left_ms is None else ruling.left_ms / 1000,
            valid_until=ends_at(from_millis(scene.now_ms), scene.settings.validity),
        )
        now_said = BundleSaid(ruling.verdict, ruling.reason, scene.now_ms, mark)
        return Claim(claim.path, claim.member, claim.since_ms, now_said), decision


def is_renewed(said: SessionSaid) -> bool:
    """Whether it is said again when it lapses and still holds; a shutdown is said once."""
    return said.verdict in _RENEWED


def _lapsed(said: SessionSaid, order: Order, scene: Scene) -> bool:
    return order.verdict in _RENEWED and scene.now_ms >= said.said_ms + millis_of(scene.settings.validity)


def _mark(member: Member, order: Order, scene: Scene) -> str:
    """What must differ for a decision to be news; while a member flaps, only that it does."""
    parts: list[object] = [order.verdict, order.reason, scene.settings.mode]
    track = member.track
    if track is not None and order.reason is not SessionReason.UNSETTLED:
        parts += [track.status, track.session, track.lost_ms]
        if order.reason in (SessionReason.CONNECTION_LOST, SessionReason.RECONNECTED):
            parts.append(track.since_ms)
    return "|".join(map(str, parts))
