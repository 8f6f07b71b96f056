"""Judges each member by rules in a fixed order: the first rule that fits decides.

Nothing irreversible is decided on unknown data. Once the reading of a member's session is stale, its last published
order remains in force. While ZooKeeper cannot be read, no member is shut down or restarted.
"""

from policies.sessions.decisions import SessionReason as Reason
from policies.sessions.decisions import SessionStatus
from policies.sessions.decisions import SessionVerdict as Verdict
from policies.sessions.facts import Facts, MemberFacts, unique_ids
from policies.sessions.fold.session_machine import FLAPPING_LOSSES, MOST_LOSSES
from policies.sessions.judge.orders import WAITING, MemberOrder, Proof, bring_down, explain_losses, guard_fleet
from policies.sessions.judge.recovery import BundleVerdicts, judge_recovery
from policies.sessions.liveness import has_no_protection
from policies.sessions.readings import SessionState
from policies.sessions.settings import (
    SHORTEST_DELAY_MS,
    OnSessionLost,
    SessionsSettings,
    expiry_spread_ms,
    monitor_ms,
)
from policies.sessions.state import SessionTrack
from policies.units import agreeing, counted, from_millis, human_seconds, millis_of, name_some


def judge_member(member: MemberFacts, facts: Facts, bundles: BundleVerdicts) -> MemberOrder | None:
    """Return what a member must do; None if there is nothing to do, or its last published order remains in force.

    Args:
        facts: the cluster, with the budget that is left.
        bundles: the verdict on each bundle it claims.
    """
    track = member.track
    goes_down = track is not None and _goes_down(member, track)
    if (order := _judge_zombie(member, facts, goes_down=goes_down)) is not None:
        return order
    if has_no_protection(member.member, member.registration):
        return _judge_by_health(member)
    if track is None or not member.is_fresh or goes_down:
        return None
    if (order := _judge_gone(member, track)) is not None:
        return order
    if track.unsettled:
        return _judge_flapping(member, track, facts)
    match track.status:
        case SessionStatus.CONNECTION_LOST:
            return _judge_disconnected(member, track, facts)
        case SessionStatus.SESSION_LOST:
            return _judge_lost(member, track, facts)
    return judge_recovery(member, track, facts, bundles)


def _goes_down(member: MemberFacts, track: SessionTrack) -> bool:
    """Whether a shutdown or restart is in force; it is published once."""
    last = member.member.last_published
    if last is None or track.status is SessionStatus.CLOSED or member.liveness.is_dead:
        return False
    if last.verdict is Verdict.RESTART:
        is_registered = member.registration is not None and member.registration.exists
        return not is_registered and not member.has_restarted_since(last.published_ms)
    if last.verdict is not Verdict.SHUTDOWN or last.lost_ms != track.lost_ms:
        return False
    if member.begun_ms > last.published_ms:
        return False  # a new process has taken the place of the one that was ordered down
    if last.reason is Reason.NOT_READY:
        return not track.is_lost and not member.is_listed_since(last.published_ms)
    return track.is_lost


def _judge_zombie(member: MemberFacts, facts: Facts, *, goes_down: bool) -> MemberOrder | None:
    """Return what a zombie must do; None for other members, and while that is not certain.

    A zombie answers healthy, but has had no registration for longer than a recovery can take.
    """
    absence, node, health = member.liveness.unregistered, member.registration, member.member.health
    if absence is None or absence.due_ms > facts.now_ms or node is None or health is None:
        return _withdraw(member)
    last = member.member.last_published
    if last is not None and last.verdict is Verdict.RESTART and not member.has_restarted_since(last.published_ms):
        return None
    if last is not None and last.verdict is Verdict.SHUTDOWN and goes_down:
        return None
    # Right after a fleet-wide loss, members may still come back by themselves; while it lasts, a restart does not help.
    lost_ms = member.track.lost_ms if member.track and member.member.fleet_wide else None
    window_ms = millis_of(facts.settings.fleet_window)
    is_lost_lately = lost_ms is not None and facts.now_ms - lost_ms < window_ms
    if facts.unread is not None or is_lost_lately or not member.role.may_lose_another:
        return None
    reported = human_seconds((facts.now_ms - health.at_ms) / 1000)
    away = human_seconds((facts.now_ms - absence.gone_ms) / 1000)
    what = f"reported itself healthy {reported} ago, but has not been registered for {away}"
    order = MemberOrder(Verdict.RESTART, Reason.ZOMBIE, what, (health.id, node.read_id))
    return bring_down(order, Proof(absence.certainty, absence.read_ms), facts)


def _withdraw(member: MemberFacts) -> MemberOrder | None:
    """Return the order that ends a restart, or a waiting shutdown or restart, once the member is in its place."""
    last, track = member.member.last_published, member.track
    has_session = track is None or track.status is SessionStatus.ESTABLISHED
    if last is None or not has_session or member.member.recovering:
        return None
    if not member.liveness.is_registered:
        cause = _find_remedy(member)
        if cause is None or last.verdict is not Verdict.HOLD or last.reason not in WAITING:
            return None
        what = f"is not registered, but {cause}: the shutdown or restart that waited is withdrawn"
        return MemberOrder(Verdict.RESUME, Reason.WITHDRAWN, what, member.evidence)
    if last.verdict is Verdict.RESTART:
        return MemberOrder(Verdict.RESUME, Reason.REGISTERED, "has registered itself again", member.evidence)
    if last.reason is Reason.NOT_READY and member.is_listed_since(last.published_ms):
        return MemberOrder(Verdict.RESUME, Reason.REGISTERED, "is listed by the cluster again", member.evidence)
    if last.verdict is Verdict.HOLD and last.reason in WAITING and member.liveness.unlisted is None:
        what = "is registered and has a session: the shutdown or restart that waited is withdrawn"
        return MemberOrder(Verdict.RESUME, Reason.WITHDRAWN, what, member.evidence)
    return None


def _find_remedy(member: MemberFacts) -> str | None:
    """Why an unregistered member is not to be restarted now, if that is known."""
    absence = member.liveness.unregistered
    if absence is not None:
        return f"has time to register until {from_millis(absence.due_ms):%H:%M:%S} UTC"
    if member.liveness.is_unstable:
        return "its registration comes and goes"
    return "it no longer answers healthy" if member.liveness.is_no_zombie else None


def _judge_gone(member: MemberFacts, track: SessionTrack) -> MemberOrder | None:
    evidence, health = (member.member.read_id,), member.member.health
    if track.status is SessionStatus.CLOSED and not track.unsettled:
        what = "has closed its session in an orderly shutdown: other members may take its bundles"
        return MemberOrder(Verdict.GONE, Reason.CLOSED, what, evidence)
    # A process that dies and starts again and again is not given up each time.
    flaps_on = track.unsettled and len(track.losses) > 2 * FLAPPING_LOSSES
    if member.liveness.is_dead and health is not None and not flaps_on:
        what = "has lost its session, and its health endpoint has refused two connections in a row: its process is gone"
        return MemberOrder(Verdict.GONE, Reason.UNREACHABLE, what, (*evidence, health.id))
    return None


def _judge_by_health(member: MemberFacts) -> MemberOrder | None:
    """Return what follows from its health alone, for a member that no session protects."""
    last, health, node = member.member.last_published, member.member.health, member.registration
    if health is None or node is None:
        return None
    evidence = (health.id, node.read_id)
    if member.liveness.is_dead:
        what = "has refused two health checks in a row: its process is gone, but its registration is not ephemeral and "
        what += f"stays, so clients are sent to it until {node.path} is deleted"
        return MemberOrder(Verdict.GONE, Reason.UNREACHABLE, what, evidence)
    if health.healthy and last is not None and last.verdict is Verdict.GONE:
        return MemberOrder(Verdict.RESUME, Reason.JOINED, "answers its health check again", evidence)
    return None


def _judge_flapping(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    settle_ms = millis_of(facts.settings.settle)
    # Only a reading shows that the session was stable, so the time may be over before one comes.
    left_ms = max(0, track.since_ms + settle_ms - facts.now_ms)
    settle = human_seconds(settle_ms / 1000)
    then = f"a reading shows that its session has been stable for {settle}"
    if left_ms:
        then = f"its session has been stable for {settle}, in {human_seconds(left_ms / 1000)} at the earliest"
    what = f"{describe_flapping(track, settle)}: no bundle of it is cleaned up until {then}"
    return MemberOrder(Verdict.HOLD, Reason.UNSETTLED, what, (member.member.read_id,), left_ms)


def _judge_disconnected(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    left_ms = max(0, (track.lapse_ms or 0) - facts.now_ms)
    whole = human_seconds(monitor_ms(track.timeout_ms) / 1000)
    left = human_seconds(left_ms / 1000)
    what = f"is disconnected from ZooKeeper: it keeps serving, and has {left} of {whole} left to reconnect"
    return MemberOrder(Verdict.HOLD, Reason.CONNECTION_LOST, what, (member.member.read_id,), left_ms)


def _judge_lost(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    settings, evidence = facts.settings, (member.member.read_id,)
    if member.is_exhausted:
        return _judge_exhausted(member, track, facts)
    monitor = human_seconds(monitor_ms(track.timeout_ms) / 1000)
    how = "it expired" if track.state is SessionState.EXPIRED else f"it was disconnected for {monitor}"
    left_ms = member.deadline_ms - facts.now_ms
    in_time = f"it serves what is loaded, and has {human_seconds(left_ms / 1000)} left to reconnect"
    if settings.on_session_lost is OnSessionLost.RECONNECT:
        what = f"has lost its session ({how}): {in_time}"
        return MemberOrder(Verdict.RECONNECT, Reason.SESSION_LOST, what, evidence, left_ms)
    if (guarded := guard_fleet(member, facts)) is not None:
        why, guarded_by = guarded
        what = f"has lost its session, {why}: {in_time}"
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, what, guarded_by, left_ms)
    confirm_ms = member.begun_ms + shutdown_delay_ms(member, track, settings) - facts.now_ms
    if confirm_ms > 0:
        wait = human_seconds(confirm_ms / 1000)
        what = f"has lost its session ({how}): it shuts down in {wait} at the earliest, unless others lose theirs, too"
        return MemberOrder(Verdict.HOLD, Reason.CONFIRMING, what, evidence, confirm_ms)
    what = f"has lost its session ({how}); {explain_losses(member)}"
    order = MemberOrder(Verdict.SHUTDOWN, Reason.SESSION_LOST, what, member.loss_evidence)
    order = bring_down(order, Proof(member.certainty, track.read_ms), facts, meanwhile=Verdict.RECONNECT)
    if order.brings_down and (unseen := _find_unseen(member, track, settings)):
        again = f"{name_some(unseen, 3)} {agreeing(len(unseen), 'is', 'are')} read again"
        what = f"has lost its session ({how}): it shuts down once {again}, unless others lose theirs, too"
        return MemberOrder(Verdict.HOLD, Reason.CONFIRMING, what, evidence, awaits=Verdict.SHUTDOWN)
    return order


def shutdown_delay_ms(member: MemberFacts, track: SessionTrack, settings: SessionsSettings) -> int:
    """How long a shutdown waits after the loss, until every session that was cut off at the same time has expired."""
    if settings.shutdown_delay is not None:
        return millis_of(settings.shutdown_delay)
    spread_ms = expiry_spread_ms(track.timeout_ms, member.role.longest_timeout_ms)
    return max(SHORTEST_DELAY_MS, spread_ms + (track.interval_ms or track.timeout_ms))


def _find_unseen(member: MemberFacts, track: SessionTrack, settings: SessionsSettings) -> list[str]:
    """Return the members that may have lost their sessions at the same time, and were not read since that would show.

    A `shutdown_delay` in the settings replaces the wait for their readings.
    """
    if settings.shutdown_delay is not None:
        return []
    return [
        other.member
        for other in member.role.members
        if other.track is not None and other.track.status is SessionStatus.ESTABLISHED
        and other.track.read_ms < member.begun_ms + expiry_spread_ms(track.timeout_ms, other.timeout_ms)
    ]  # fmt: skip


def _judge_exhausted(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    tried = human_seconds((facts.now_ms - member.begun_ms) / 1000)
    what = f"has not reconnected in {tried}{describe_attempts(member)}"
    evidence = unique_ids(member.member.attempted[1] if member.has_reported else "", member.member.read_id)
    if facts.unread is not None:
        what = f"{what}: it is not shut down while ZooKeeper cannot be read ({facts.unread.reason})"
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, what, evidence)
    if not member.role.may_lose_another:
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, f"{what}; {explain_losses(member)}", evidence)
    order = MemberOrder(Verdict.SHUTDOWN, Reason.RECONNECT_EXHAUSTED, what, member.loss_evidence)
    return bring_down(order, Proof(member.certainty, track.read_ms), facts, meanwhile=Verdict.RECONNECT)


def describe_attempts(member: MemberFacts) -> str:
    """Word the failed attempts to reconnect that a member has reported, if any."""
    attempts = member.member.attempts
    return f" and {counted(attempts, 'failed attempt')}" if attempts else ""


def describe_flapping(track: SessionTrack, settle: str) -> str:
    """Word how often a member lost its session or its connection; `settle` is the time in words."""
    if track.reopened and len(track.reopened) >= max(len(track.losses), len(track.cuts)):
        times = counted(len(track.reopened), "time")
        return f"was connected {times} within {settle} after its session had ended, or collectors disagree about it"
    if len(track.losses) >= len(track.cuts):
        least = "at least " if len(track.losses) == MOST_LOSSES else ""
        return f"lost its session {least}{counted(len(track.losses), 'time')} within {settle}"
    least = "at least " if len(track.cuts) == MOST_LOSSES else ""
    times = counted(len(track.cuts), "time")
    return f"lost its connection {least}{times} within {settle}, or collectors disagree about it"
