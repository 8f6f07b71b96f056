"""Detects zombies: members that claim to be healthy but lack a registration for longer than recovery can take."""

from policies.sessions.decisions import SessionReason as Reason
from policies.sessions.decisions import SessionStatus
from policies.sessions.decisions import SessionVerdict as Verdict
from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.judge.orders import WAITING, MemberOrder, bring_down
from policies.units import human_seconds, millis_of


def order_of(member: MemberFacts, facts: Facts, *, goes_down: bool) -> MemberOrder | None:
    """What a zombie is to do; None for others, and while that is not certain.

    Args:
        member: who.
        facts: of the cluster.
        goes_down: whether it was told to go down and has not come back since.
    """
    absence, node, health = member.liveness.unregistered, member.registration, member.member.health
    if absence is None or absence.due_ms > facts.now_ms or node is None or health is None:
        return _withdrawn(member)
    last = member.member.last_published
    if last is not None and last.verdict is Verdict.RESTART and health.down_ms <= last.published_ms:
        return None
    if last is not None and last.verdict is Verdict.SHUTDOWN and goes_down:
        return None
    # Right after a loss of the fleet nobody knows yet who comes back without help; while it lasts, a restart is none.
    if facts.unread is not None or _lost_lately(member, facts) or not member.role.may_lose_another:
        return None
    since = human_seconds((facts.now_ms - absence.gone_ms) / 1000)
    what = (
        f"says it is healthy, but has had no registration for {since}, longer than any took that was seen to come back"
    )
    order = MemberOrder(Verdict.RESTART, Reason.ZOMBIE, what, (health.id, node.read_id))
    return bring_down(order, absence.certainty, facts)


def _withdrawn(member: MemberFacts) -> MemberOrder | None:
    """What ends a restart, or a shutdown or restart that waits, of who is back in its place."""
    last, track = member.member.last_published, member.track
    has_session = track is None or track.status is SessionStatus.ESTABLISHED
    if last is None or not member.liveness.is_registered or not has_session or member.member.recovering:
        return None
    if last.verdict is Verdict.RESTART:
        return MemberOrder(Verdict.RESUME, Reason.REGISTERED, "has registered itself again", member.evidence)
    if last.reason is Reason.NOT_READY and member.is_listed_since(last.published_ms):
        return MemberOrder(Verdict.RESUME, Reason.REGISTERED, "is listed by the cluster again", member.evidence)
    if last.verdict is Verdict.HOLD and last.reason in WAITING and member.liveness.unlisted is None:
        what = "is back in its place: it is no longer to be shut down or restarted"
        return MemberOrder(Verdict.RESUME, Reason.WITHDRAWN, what, member.evidence)
    return None


def _lost_lately(member: MemberFacts, facts: Facts) -> bool:
    lost_ms = member.track.lost_ms if member.track else None
    window_ms = millis_of(facts.settings.fleet_window)
    return member.member.fleet_wide and lost_ms is not None and facts.now_ms - lost_ms < window_ms
