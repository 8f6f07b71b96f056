"""When something may change without an observation."""

from collections.abc import Iterator
from datetime import datetime

from policies.sessions import member as machine
from policies.sessions import zombie
from policies.sessions.alerts import load_data_alert_ms, orphan_ms
from policies.sessions.decision import OwnershipVerdict, SessionVerdict, Status
from policies.sessions.member import Patience, Track
from policies.sessions.nodes import FORGET_MS
from policies.sessions.publish import is_renewed
from policies.sessions.recovery import is_final
from policies.sessions.scene import Scene
from policies.sessions.state import Claim, Member
from policies.units import millis_of, to_millis


def due_ms(scene: Scene, review_at: datetime | None) -> Iterator[int]:
    """When (milliseconds) a step may have something to say; some may have passed."""
    if review_at is not None:
        yield to_millis(review_at)
    validity_ms = millis_of(scene.settings.validity)
    yield from (s.tried_ms + validity_ms + 1 for s in scene.known.sources.values() if s.tried_ms >= 0)
    yield from (s.read_ms + validity_ms + 1 for s in scene.known.sources.values() if s.read_ms >= 0)
    free_ms = scene.budget.free_ms(scene.now_ms)
    if free_ms is not None:
        yield free_ms
    for member in scene.known.members.values():
        yield from _of_member(member, scene)
    for claim in scene.known.claims.values():
        yield from _of_claim(claim, scene)
    for node in scene.known.nodes.bundles():
        if not node.exists:
            yield node.changed_ms + FORGET_MS
            orphan = orphan_ms(node, scene)
            if orphan is not None:
                yield orphan


def _of_member(member: Member, scene: Scene) -> Iterator[int]:
    settings = scene.settings
    validity_ms = millis_of(settings.validity)
    yield member.tried_ms + validity_ms + 1
    zombie_ms = zombie.zombie_ms(member, scene.node(member), scene.now_ms, settings)
    if zombie_ms is not None:
        yield zombie_ms
    if member.said is not None and is_renewed(member.said):
        yield member.said.said_ms + validity_ms
    if member.awaited_ms is not None:
        yield member.awaited_ms + millis_of(settings.load_data_after)
    load_data_ms = load_data_alert_ms(member, scene)
    if load_data_ms is not None:
        yield load_data_ms
    if member.track is not None:
        yield from machine.due_ms(member.track, Patience(millis_of(settings.settle), validity_ms))
        yield from _of_loss(member.track, member, scene)


def _of_loss(track: Track, member: Member, scene: Scene) -> Iterator[int]:
    settings, lost_ms = scene.settings, track.lost_ms
    if lost_ms is None:
        return
    yield lost_ms + millis_of(settings.fleet_window)
    if track.status is Status.SESSION_LOST:
        yield lost_ms + millis_of(settings.shutdown_delay)
        yield lost_ms + millis_of(settings.reconnect_deadline)
    said = member.said
    begun = said is not None and said.verdict is SessionVerdict.RECOVER and said.said_ms == scene.now_ms
    if begun and all(is_final(c) for c in scene.claims(member)):
        yield scene.now_ms + 1  # the plan that was said in this step is already carried out


def _of_claim(claim: Claim, scene: Scene) -> Iterator[int]:
    if claim.said is not None:
        yield claim.said.said_ms + millis_of(scene.settings.validity)
    member = scene.known.members.get(claim.member)
    track = member.track if member is not None else None
    if track is not None and track.reestablished_ms is not None and claim.said_verdict is OwnershipVerdict.WAIT:
        yield track.reestablished_ms + scene.settings.wait_for_deletion_ms(track.timeout_ms)
