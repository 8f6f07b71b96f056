"""Verdicts on each member: rules in a fixed order, of which the first that fits decides.

Nothing irreversible is decided on unknown data: once a member's session reading is past its validity, the last
published decision stands; while ZooKeeper cannot be read, nobody is shut down or restarted.
"""

from policies.sessions.decisions import SessionReason as Reason
from policies.sessions.decisions import SessionStatus
from policies.sessions.decisions import SessionVerdict as Verdict
from policies.sessions.facts import Facts, MemberFacts, ids
from policies.sessions.freshness import Paced
from policies.sessions.judge import recovery, zombies
from policies.sessions.judge.orders import MemberOrder, bring_down
from policies.sessions.judge.recovery import BundleVerdicts
from policies.sessions.readings import SessionState
from policies.sessions.settings import OnSessionLost, SessionsSettings, monitor_ms
from policies.sessions.state import SessionTrack
from policies.units import agreeing, counted, human_seconds, millis_of


def order_of(member: MemberFacts, facts: Facts, bundles: BundleVerdicts) -> MemberOrder | None:
    """What a member is to do; None when nothing is to be said, or what was published last holds on.

    Args:
        member: who.
        facts: of the cluster, with what is left of the budget.
        bundles: what holds of each bundle it claims.
    """
    track = member.track
    goes_down = track is not None and _goes_down(member, track)
    if (order := zombies.order_of(member, facts, goes_down=goes_down)) is not None:
        return order
    if track is None or not member.is_fresh or goes_down:
        return None
    if (order := _gone(member, track)) is not None:
        return order
    if track.unsettled:
        return _unsettled(member, track, facts)
    match track.status:
        case SessionStatus.CONNECTION_LOST:
            return _connection_lost(member, track, facts)
        case SessionStatus.SESSION_LOST:
            return _session_lost(member, track, facts)
    return recovery.order_of(member, track, facts, bundles)


def _goes_down(member: MemberFacts, track: SessionTrack) -> bool:
    """Whether a shutdown or restart was decided that still stands: it is said once."""
    last = member.member.last_published
    if last is None or track.status is SessionStatus.CLOSED:
        return False
    if last.verdict is Verdict.RESTART:
        registered = member.registration is not None and member.registration.exists
        return not registered and (track.reestablished_ms or 0) <= last.published_ms
    if last.verdict is not Verdict.SHUTDOWN or last.lost_ms != track.lost_ms or member.liveness.is_dead:
        return False
    if last.reason is Reason.NOT_READY:
        return not track.is_lost and not member.is_listed_since(last.published_ms)
    return track.is_lost


def _gone(member: MemberFacts, track: SessionTrack) -> MemberOrder | None:
    evidence, health = (member.member.read_id,), member.member.health
    if track.status is SessionStatus.CLOSED:
        what = "has closed its session in an orderly shutdown: its bundles are free for others"
        return MemberOrder(Verdict.GONE, Reason.CLOSED, what, evidence)
    if member.liveness.is_dead and health is not None:
        what = f"has lost its session, and its health endpoint refuses connections ({health.outcome}): it is gone"
        return MemberOrder(Verdict.GONE, Reason.UNREACHABLE, what, (*evidence, health.id))
    return None


def _unsettled(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    settle_ms = millis_of(facts.settings.settle)
    # That it was stable takes a reading, and none may have come since it was due.
    left_ms = max(0, track.since_ms + settle_ms - facts.now_ms)
    losses, settle = counted(len(track.losses), "time"), human_seconds(settle_ms / 1000)
    then = f"it has been stable for as long, {human_seconds(left_ms / 1000)} from now"
    then = then if left_ms else "a reading shows that it has been stable for as long"
    what = f"lost its session {losses} within {settle}: nothing of its is to be cleaned up before {then}"
    return MemberOrder(Verdict.HOLD, Reason.UNSETTLED, what, (member.member.read_id,), left_ms)


def _connection_lost(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    left_ms = max(0, (track.lapse_ms or 0) - facts.now_ms)
    whole = human_seconds(monitor_ms(track.timeout_ms) / 1000)
    what = f"is disconnected from ZooKeeper: it is to keep serving, {human_seconds(left_ms / 1000)} left of {whole}"
    return MemberOrder(Verdict.HOLD, Reason.CONNECTION_LOST, what, (member.member.read_id,), left_ms)


def _session_lost(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    settings, lost_ms, evidence = facts.settings, track.lost_ms or 0, (member.member.read_id,)
    if member.is_exhausted:
        return _exhausted(member, lost_ms, facts)
    how = "expired" if track.state is SessionState.EXPIRED else "lost"
    left_ms = lost_ms + millis_of(settings.reconnect_deadline) - facts.now_ms
    in_time = f"it is to keep serving what is loaded, and has {human_seconds(left_ms / 1000)} left to reconnect"
    if settings.on_session_lost is OnSessionLost.RECONNECT:
        what = f"has lost its session ({how}): {in_time}"
        return MemberOrder(Verdict.RECONNECT, Reason.SESSION_LOST, what, evidence, left_ms)
    if (guard := _guard(member, facts)) is not None:
        why, guarded_by = guard
        what = f"has lost its session, {why}: {in_time}"
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, what, guarded_by, left_ms)
    confirm_ms = lost_ms + shutdown_delay_ms(track, settings) - facts.now_ms
    if confirm_ms > 0:
        wait = human_seconds(confirm_ms / 1000)
        what = f"has lost its session ({how}): it is to shut down in {wait}, unless others lose theirs as well"
        return MemberOrder(Verdict.HOLD, Reason.CONFIRMING, what, evidence, confirm_ms)
    what = f"has lost its session ({how}); {_shares(member)}"
    order = MemberOrder(Verdict.SHUTDOWN, Reason.SESSION_LOST, what, member.loss_evidence)
    return bring_down(order, member.certainty, facts, meanwhile=Verdict.RECONNECT)


def shutdown_delay_ms(track: SessionTrack, settings: SessionsSettings) -> int:
    """How long a shutdown of who lost this session waits: by T, and by how often it is read."""
    readings = Paced(track.read_ms, track.before_ms, 0, track.timeout_ms)
    return settings.shutdown_delay_ms(track.timeout_ms, readings.interval_ms)


def _exhausted(member: MemberFacts, lost_ms: int, facts: Facts) -> MemberOrder:
    tried = human_seconds((facts.now_ms - lost_ms) / 1000)
    what = f"has not reconnected in {tried} and {counted(member.member.attempts, 'failed attempt')}"
    evidence = ids(member.member.attempted[1] if member.has_reported else "", member.member.read_id)
    if facts.unread is not None:
        what = f"{what}, but ZooKeeper cannot be read ({facts.unread.reason})"
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, what, evidence)
    if not member.role.may_lose_another:
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, f"{what}; {_shares(member)}", evidence)
    order = MemberOrder(Verdict.SHUTDOWN, Reason.RECONNECT_EXHAUSTED, what, member.loss_evidence)
    return bring_down(order, member.certainty, facts, meanwhile=Verdict.RECONNECT)


def _guard(member: MemberFacts, facts: Facts) -> tuple[str, tuple[str, ...]] | None:
    """Why a member is not shut down for the loss of its session, and what says so; None when it may be."""
    own = member.member.read_id
    if facts.unread is not None:
        return f"but ZooKeeper cannot be read ({facts.unread.reason})", (own, *facts.unread.evidence)
    role = member.role
    if not member.member.fleet_wide and role.may_lose_another:
        return None
    also = [m.read_id for m in (*role.lost, *role.cut_off) if m.member != member.name]
    fresh = {facts.members[name].member.read_id for name in facts.members if facts.members[name].is_fresh}
    together = "while the fault was ZooKeeper's;" if role.may_lose_another else "and so have others:"
    return f"{together} {_shares(member)}", (own, *(id_ for id_ in also if id_ in fresh))


def _shares(member: MemberFacts) -> str:
    count, closed = member.role.count, member.role.closed
    ended = f", and {closed} more {agreeing(closed, 'has', 'have')} ended theirs" if closed else ""
    return (
        f"{count.lost} of {count.members} {agreeing(count.lost, 'is', 'are')} without a session or cut off{ended}, "
        f"where {count.needed} would be fleet-wide"
    )
