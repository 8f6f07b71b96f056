"""What each member is to do now: the rules in their order, the first that fits decides.

Nothing that cannot be taken back is decided on what is not known: while a member's session is past its validity, what
was published last holds on; while ZooKeeper cannot be read, nobody is shut down or restarted.
"""

from policies.sessions.decisions import SessionReason as Reason
from policies.sessions.decisions import SessionStatus
from policies.sessions.decisions import SessionVerdict as Verdict
from policies.sessions.facts import Facts, MemberFacts, ids
from policies.sessions.judge import recovery, zombies
from policies.sessions.judge.orders import MemberOrder
from policies.sessions.judge.recovery import BundleVerdicts
from policies.sessions.readings import SessionState
from policies.sessions.settings import OnSessionLost, monitor_ms
from policies.sessions.state import SessionTrack
from policies.units import human_seconds, millis_of


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
    return track.is_lost != (last.reason is Reason.NOT_READY)


def _gone(member: MemberFacts, track: SessionTrack) -> MemberOrder | None:
    evidence, health = (member.member.read_id,), member.member.health
    if track.status is SessionStatus.CLOSED:
        what = "has closed its session in an orderly shutdown: its bundles are free for others"
        return MemberOrder(Verdict.GONE, Reason.CLOSED, what, evidence)
    if member.liveness.is_dead and health is not None:
        what = f"has lost its session, and its health endpoint does not answer ({health.outcome}): it is gone"
        return MemberOrder(Verdict.GONE, Reason.UNREACHABLE, what, (*evidence, health.id))
    return None


def _unsettled(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    settle_ms = millis_of(facts.settings.settle)
    left_ms = track.since_ms + settle_ms - facts.now_ms
    what = (
        f"lost its session {len(track.losses)} times within {human_seconds(settle_ms / 1000)}: nothing of its is "
        f"cleaned up before it has been stable for as long, {human_seconds(left_ms / 1000)} from now"
    )
    return MemberOrder(Verdict.HOLD, Reason.UNSETTLED, what, (member.member.read_id,), left_ms)


def _connection_lost(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    left_ms = max(0, (track.lapse_ms or 0) - facts.now_ms)
    whole = human_seconds(monitor_ms(track.timeout_ms) / 1000)
    what = f"is disconnected from ZooKeeper: it keeps serving, {human_seconds(left_ms / 1000)} left of {whole}"
    return MemberOrder(Verdict.HOLD, Reason.CONNECTION_LOST, what, (member.member.read_id,), left_ms)


def _session_lost(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    settings, lost_ms, evidence = facts.settings, track.lost_ms or 0, (member.member.read_id,)
    if member.is_exhausted:
        return _exhausted(member, lost_ms, facts)
    how = "expired" if track.state is SessionState.EXPIRED else "lost"
    left_ms = lost_ms + millis_of(settings.reconnect_deadline) - facts.now_ms
    in_time = f"it keeps serving what is loaded, and has {human_seconds(left_ms / 1000)} left to reconnect"
    if settings.on_session_lost is OnSessionLost.RECONNECT:
        what = f"has lost its session ({how}): {in_time}"
        return MemberOrder(Verdict.RECONNECT, Reason.SESSION_LOST, what, evidence, left_ms)
    if (guard := _guard(member, facts)) is not None:
        why, guarded_by = guard
        what = f"has lost its session, {why}: {in_time}"
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, what, guarded_by, left_ms)
    confirm_ms = lost_ms + millis_of(settings.shutdown_delay) - facts.now_ms
    if confirm_ms > 0:
        wait = human_seconds(confirm_ms / 1000)
        what = f"has lost its session ({how}): it is shut down in {wait}, unless others lose theirs as well"
        return MemberOrder(Verdict.HOLD, Reason.CONFIRMING, what, evidence, confirm_ms)
    if facts.budget.has_left(facts.now_ms):
        what = f"has lost its session ({how}), {_shares(member, facts)}: it is to shut down"
        return MemberOrder(Verdict.SHUTDOWN, Reason.SESSION_LOST, what, evidence)
    what = f"has lost its session ({how}) and should shut down, but {facts.budget_spent()}: {in_time}"
    return MemberOrder(Verdict.RECONNECT, Reason.SHUTDOWN_BUDGET, what, evidence, left_ms)


def _exhausted(member: MemberFacts, lost_ms: int, facts: Facts) -> MemberOrder:
    tried = human_seconds((facts.now_ms - lost_ms) / 1000)
    what = f"has not reconnected in {tried} and {member.member.attempts} failed attempts"
    evidence = ids(member.member.attempted[1] if member.has_reported else "", member.member.read_id)
    lost = member.role.lost_now()
    if facts.unread is not None:
        what = f"{what}, but ZooKeeper cannot be read ({facts.unread.reason})"
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, what, evidence)
    if member.member.fleet_wide and lost.is_fleet_wide:
        what = f"{what}, nor have {lost.lost} of {lost.members} in all"
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, what, evidence)
    if facts.budget.has_left(facts.now_ms):
        return MemberOrder(Verdict.SHUTDOWN, Reason.RECONNECT_EXHAUSTED, f"{what}: it is to shut down", evidence)
    what = f"{what} and should shut down, but {facts.budget_spent()}"
    return MemberOrder(Verdict.RECONNECT, Reason.SHUTDOWN_BUDGET, what, evidence)


def _guard(member: MemberFacts, facts: Facts) -> tuple[str, tuple[str, ...]] | None:
    """Why a member is not shut down for the loss of its session, and what says so; None when it may be."""
    own = member.member.read_id
    if facts.unread is not None:
        return f"but ZooKeeper cannot be read ({facts.unread.reason})", (own, *facts.unread.evidence)
    if not member.member.fleet_wide:
        return None
    also = [m.read_id for m in member.role.lost if m.member != member.name and facts.members[m.member].is_fresh]
    return f"and so have others: {_shares(member, facts)}", (own, *also)


def _shares(member: MemberFacts, facts: Facts) -> str:
    lost = member.role.lost_together(member.member)
    window = human_seconds(facts.settings.fleet_window.total_seconds())
    return f"{lost.lost} of {lost.members} within {window}, where {lost.needed} would be fleet-wide"
