"""Judges facts: what each member must do, and what becomes of each bundle it claims. Pure; no state is written.

Members are judged in the order in which they lost their sessions. Only the shutdown budget passes from one to the next:
an order that brings a member down uses up a part of it.
"""

from dataclasses import dataclass, replace

from msgspec import Struct

from policies.decisions import unique_ids
from policies.sessions import ownership_table
from policies.sessions.decisions import OwnershipReason, OwnershipVerdict, SessionStatus
from policies.sessions.decisions import SessionReason as Reason
from policies.sessions.decisions import SessionVerdict as Verdict
from policies.sessions.facts import ClaimFacts, Facts, MemberFacts
from policies.sessions.fleet import Budget, ReadingPair, has_no_protection
from policies.sessions.orders import (
    WAITING,
    BundleVerdicts,
    MemberOrder,
    bring_down,
    explain_losses,
    guard_fleet,
    judge_recovery,
)
from policies.sessions.ownership_table import BundleRuling, Claimant, NodeNow
from policies.sessions.readings import UNCHANGED_TREE_INTERVAL, SessionState
from policies.sessions.session_machine import FLAPPING_LOSSES, MOST_LOSSES
from policies.sessions.settings import (
    SHORTEST_DELAY_MS,
    OnSessionLost,
    SessionsSettings,
    expiry_spread_ms,
    monitor_ms,
)
from policies.sessions.state import NEVER, SessionTrack
from policies.units import agreeing, counted, from_millis, human_seconds, millis_of, name_some

# Judges each member by rules in a fixed order: the first rule that fits decides.
#
# Nothing irreversible is decided on unknown data. Once the reading of a member's session is stale, its last published
# order remains in force. While ZooKeeper cannot be read, no member is shut down or restarted.


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
    return bring_down(order, absence.certainty, absence.read_ms, facts)


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
    what = f"has lost its session ({how}); {explain_losses(member)}"
    order = MemberOrder(Verdict.SHUTDOWN, Reason.SESSION_LOST, what, member.loss_evidence)
    return _shut_down(order, f"has lost its session ({how})", member, track, facts)


def _shut_down(order: MemberOrder, what: str, member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    """Return a shutdown, or what to do until the sessions of others that were cut off with it would have expired.

    Args:
        order: the shutdown; its message names the cause only.
        what: the cause, while it waits for others.
    """
    evidence = (member.member.read_id,)
    confirm_ms = member.begun_ms + shutdown_delay_ms(member, track, facts.settings) - facts.now_ms
    if confirm_ms > 0:
        wait = human_seconds(confirm_ms / 1000)
        what = f"{what}: it shuts down in {wait} at the earliest, unless others lose theirs, too"
        return MemberOrder(Verdict.HOLD, Reason.CONFIRMING, what, evidence, confirm_ms)
    order = bring_down(order, member.certainty, track.read_ms, facts, meanwhile=Verdict.RECONNECT)
    if order.brings_down and (unseen := _find_unseen(member, track, facts.settings)):
        again = f"{name_some(unseen, 3)} {agreeing(len(unseen), 'is', 'are')} read again"
        what = f"{what}: it shuts down once {again}, unless others lose theirs, too"
        return MemberOrder(Verdict.HOLD, Reason.CONFIRMING, what, evidence)
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
    return _shut_down(order, what, member, track, facts)


def describe_attempts(member: MemberFacts) -> str:
    """Word the failed attempts to reconnect that a member has reported, if any."""
    attempts = member.member.attempts
    return f" and {counted(attempts, 'failed attempt')}" if attempts else ""


def describe_flapping(track: SessionTrack, settle: str) -> str:
    """Word how often a member lost its session, or since when it comes and goes; `settle` is the time in words."""
    if len(track.losses) > FLAPPING_LOSSES or track.doubt is None:
        least = "at least " if len(track.losses) == MOST_LOSSES else ""
        return f"lost its session {least}{counted(len(track.losses), 'time')} within {settle}"
    since = from_millis(track.doubt.since_ms)
    return f"is connected and not connected in turn since {since:%H:%M:%S} UTC, or collectors contradict each other"


_AFTER_ALL_LOSSES = 2**63
_UNCHANGED_TREE_MS = millis_of(UNCHANGED_TREE_INTERVAL)


class RuledClaim(Struct, frozen=True, gc=False):
    """A claim and the ruling on it."""

    claim: ClaimFacts
    ruling: BundleRuling


class MemberVerdict(Struct, frozen=True, gc=False):
    """The verdict on one member."""

    member: MemberFacts
    rulings: tuple[RuledClaim, ...]
    """The rulings on its claims, by path."""
    order: MemberOrder | None
    """None if there is nothing to do, or its last published order remains in force."""
    shutdowns_spent: int
    """How many shutdowns count against the budget, including this order."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts on all members."""

    members: tuple[MemberVerdict, ...]
    """Sorted by the time of their losses."""
    budget: Budget
    """The shutdown budget after all orders."""


def judge(facts: Facts) -> Verdicts:
    """Return the verdicts on all members."""
    found: list[MemberVerdict] = []
    lost_ms = {m.name: (m.track.lost_ms if m.track else None) or _AFTER_ALL_LOSSES for m in facts.members.values()}
    for member in sorted(facts.members.values(), key=lambda m: (lost_ms[m.name], m.name)):
        rulings = _rule_claims(member, facts)
        ruled = {r.claim.claim.path: r.ruling.verdict for r in rulings}
        bundles = tuple(ruled.get(c.claim.path, c.claim.verdict) for c in member.claims)
        order = judge_member(member, facts, bundles)
        if order is not None and order.brings_down:
            facts = replace(facts, budget=facts.budget.spend(member.name, facts.now_ms))
        found.append(MemberVerdict(member, rulings, order, len(facts.budget.left_over(facts.now_ms))))
    return Verdicts(tuple(found), facts.budget)


def _rule_claims(member: MemberFacts, facts: Facts) -> tuple[RuledClaim, ...]:
    """Rule on a member's claims; there is no ruling on a claim about which too little is known."""
    track = member.track
    if track is None or track.unsettled or not member.is_fresh:
        return ()
    ruled = ((claim, _rule_claim(claim, member, track, facts)) for claim in member.claims)
    return tuple(RuledClaim(claim, ruling) for claim, ruling in ruled if ruling is not None)


def _rule_claim(claim: ClaimFacts, member: MemberFacts, track: SessionTrack, facts: Facts) -> BundleRuling | None:
    is_given_up = claim.claim.verdict is OwnershipVerdict.UNLOAD
    if claim.is_stale or not (claim.rivals or member.member.recovering or is_given_up):
        return None
    claimant = Claimant(
        member.name, member.member.session, facts.now_ms - (track.reestablished_ms or facts.now_ms),
        facts.settings.wait_for_deletion_ms(track.timeout_ms),
    )  # fmt: skip
    ruling = ownership_table.rule(claimant, _find_node(claim, track), facts.settings.ownership_rules, claim.rivals)
    # A bundle that the member was to unload is free for others: it may keep it, but not ask for it again.
    if is_given_up and ruling.verdict is not OwnershipVerdict.KEEP:
        return None
    # A member without a session cannot write to ZooKeeper, so it can only unload what others own.
    if claimant.session is None and ruling.verdict is not OwnershipVerdict.UNLOAD:
        return None
    # A reading shows the old session connected: the reading of the new one may be wrong, and the old node alive.
    if track.denied_ms != NEVER and ruling.verdict is not OwnershipVerdict.KEEP:
        return None
    # The next reading of the node decides. A `wait` is published only if that reading does not come in its time, and
    # not about a bundle that the member claims only since it has this session, because it has lost nothing.
    is_new = claim.claim.since_ms > (track.reestablished_ms or 0)
    if ruling.reason is OwnershipReason.UNREAD and (is_new or facts.now_ms < unread_from_ms(claim, track)):
        return None
    return ruling


def unread_from_ms(claim: ClaimFacts, track: SessionTrack) -> int:
    """When the first reading of a bundle since the present session began is late, by the interval of its readings."""
    node, since_ms = claim.node, track.reestablished_ms or 0
    if node is None:
        return since_ms
    interval_ms = ReadingPair(node.read_ms, node.before_ms, since_ms, track.timeout_ms).interval_ms
    return since_ms + max(interval_ms, _UNCHANGED_TREE_MS)


def _find_node(claim: ClaimFacts, track: SessionTrack) -> NodeNow | None:
    """Return the bundle's node if it was read since the new session began.

    A node that belongs to the new session counts in any case, because it cannot have been read earlier.
    """
    node, since_ms = claim.node, max(claim.claim.since_ms, track.reestablished_ms or 0)
    if node is None or (node.read_ms < since_ms and (node.session is None or node.session != track.session)):
        return None
    return NodeNow(node.exists, node.ephemeral, node.owner, node.session, node.version, node.unreadable_times)
