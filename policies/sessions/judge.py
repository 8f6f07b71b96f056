"""Judges facts: what each member must do, by rules in a fixed order. Pure; no state is written.

Members are judged in the order in which they lost their sessions. Only the shutdown budget passes from one to the next:
an order that brings a member down uses up a part of it.

Nothing irreversible is decided on unknown data. Once the reading of a member's session is stale, its last published
order remains in force. While ZooKeeper cannot be read, no member is shut down or restarted.
"""

import math
from dataclasses import replace

from msgspec import Struct
from msgspec.structs import replace as update

from policies.decisions import unique_ids
from policies.sessions.decisions import OwnershipVerdict, SessionEvent, SessionStatus
from policies.sessions.decisions import SessionReason as Reason
from policies.sessions.decisions import SessionVerdict as Verdict
from policies.sessions.facts import Facts, MemberFacts, has_restarted
from policies.sessions.fleet import Budget, Certainty, has_no_protection
from policies.sessions.readings import SessionState
from policies.sessions.rulings import RuledClaim, rule_claims
from policies.sessions.session_machine import FLAPPING_LOSSES, MOST_LOSSES
from policies.sessions.settings import SHORTEST_DELAY_MS, OnSessionLost, SessionsSettings, expiry_spread_ms, monitor_ms
from policies.sessions.state import SessionTrack
from policies.units import agreeing, counted, from_millis, human_seconds, millis_of, name_some


class MemberOrder(Struct, frozen=True, gc=False):
    """What a member must do, and why."""

    verdict: Verdict
    reason: Reason
    message: str
    """The rest of a sentence that begins with the member's name."""
    evidence: tuple[str, ...] = ()
    left_ms: int | None = None

    @property
    def brings_down(self) -> bool:
        """Whether it uses up a part of the shutdown budget."""
        return self.verdict in (Verdict.SHUTDOWN, Verdict.RESTART)


WAITING = frozenset({Reason.STALE_READING, Reason.CONFIRMING, Reason.SHUTDOWN_BUDGET})
"""With one of these reasons, a `hold` is a shutdown or restart that waits."""


def _bring_down(
    order: MemberOrder, certainty: Certainty, read_ms: int, facts: Facts, meanwhile: Verdict = Verdict.HOLD
) -> MemberOrder:
    """Return a shutdown or restart, or the order to give while the budget is spent or the readings are uncertain.

    Args:
        order: the shutdown or restart; its message names the cause only.
        certainty: how certain the readings behind it are, the oldest of which is of `read_ms`.
        meanwhile: the verdict while the budget is spent.
    """
    message = f"{order.message}: {'shut it down' if order.verdict is Verdict.SHUTDOWN else 'restart it'}"
    if not facts.budget.has_left(facts.now_ms):
        message = f"{message} as soon as the shutdown budget allows it ({_explain_budget(facts)})"
        return MemberOrder(meanwhile, Reason.SHUTDOWN_BUDGET, message, order.evidence)
    waiting = update(order, verdict=Verdict.HOLD)
    if certainty is Certainty.STALE:
        age = human_seconds((facts.now_ms - read_ms) / 1000)
        message = f"{message} as soon as a fresh reading confirms it (the last one is {age} old)"
        return update(waiting, reason=Reason.STALE_READING, message=message)
    if certainty is Certainty.ONCE:
        message = f"{message} as soon as a second reading in a row confirms it"
        return update(waiting, reason=Reason.CONFIRMING, message=message)
    return update(order, message=message)


def _explain_budget(facts: Facts) -> str:
    """Word the limit, and what ends the wait: members that come back, or the end of the window."""
    budget = facts.budget
    if budget.limit == 0:
        return "`shutdown_budget` is 0"
    down = sorted(budget.down())
    if len(down) >= budget.limit:
        ordered = {s.member: f"{s.member} since {from_millis(s.at_ms):%H:%M:%S}" for s in budget.spent}
        names = name_some([ordered[name] for name in down], 3)
        return f"{counted(budget.limit, 'member')} at a time; {names} {agreeing(len(down), 'is', 'are')} not back yet"
    window, free_ms = human_seconds(facts.settings.shutdown_window.total_seconds()), budget.free_ms(facts.now_ms)
    following = "" if free_ms is None else f"; the next may follow at {from_millis(free_ms):%H:%M:%S} UTC"
    return f"{budget.limit} in {window}{following}"


def _guard_fleet(member: MemberFacts, facts: Facts) -> tuple[str, tuple[str, ...]] | None:
    """Return why a member is not shut down for the loss of its session, with evidence; None if it may be."""
    read_id = member.member.read_id
    if facts.unread is not None:
        return f"but ZooKeeper cannot be read ({facts.unread.reason})", (read_id, *facts.unread.evidence)
    role = member.role
    if not member.member.fleet_wide and role.may_lose_another:
        return None
    others = [m.read_id for m in (*role.lost, *role.cut_off) if m.member != member.name]
    fresh = {each.member.read_id for each in facts.members.values() if each.is_fresh}
    together = "while others lost theirs or ZooKeeper was not read;" if role.may_lose_another else "and is not alone:"
    return f"{together} {_explain_losses(member)}", (read_id, *(id_ for id_ in others if id_ in fresh))


def _explain_losses(member: MemberFacts) -> str:
    """How many members of its role are without a session, and how many would be fleet-wide."""
    role, lost = member.role, member.role.losses
    ended = f", and {role.closed} more {agreeing(role.closed, 'has', 'have')} ended theirs" if role.closed else ""
    return (
        f"{lost} of {len(role.members)} {agreeing(lost, 'is', 'are')} without a session or cut off{ended}, "
        f"where {role.fewest_fleet_wide} would be fleet-wide"
    )


FINAL = frozenset({OwnershipVerdict.KEEP, OwnershipVerdict.UNLOAD})
"""With one of these verdicts, the bundle is the member's own again or given up."""


def _judge_settled(
    member: MemberFacts, track: SessionTrack, facts: Facts, rulings: tuple[RuledClaim, ...]
) -> MemberOrder | None:
    """Return what a member with a session must do; None if there is nothing to do."""
    events, evidence = member.member.events, (member.member.read_id,)
    if (order := _judge_unlisted(member, facts)) is not None:
        return order
    if member.member.recovering:
        return _judge_progress(member, track, facts, rulings)
    if SessionEvent.JOINED in events:
        what = "is back with a new session after an orderly shutdown"
        return MemberOrder(Verdict.RESUME, Reason.JOINED, what, evidence)
    if SessionEvent.RECONNECTED in events:
        what = "has reconnected in time: it kept its session, and caches filled before are to be invalidated"
        return MemberOrder(Verdict.RESUME, Reason.RECONNECTED, what, evidence)
    return _judge_load_data(member, facts)


def _judge_unlisted(member: MemberFacts, facts: Facts) -> MemberOrder | None:
    health, absence = member.member.health, member.liveness.unlisted
    if health is None or absence is None or absence.due_ms > facts.now_ms or facts.unread is not None:
        return None
    if not member.role.may_lose_another:
        return None
    since = human_seconds((facts.now_ms - absence.gone_ms) / 1000)
    what = f"has a session again and is registered, but the cluster has not listed it for {since}"
    order = MemberOrder(Verdict.SHUTDOWN, Reason.NOT_READY, what, unique_ids(health.id, *member.evidence))
    return _bring_down(order, absence.certainty, absence.read_ms, facts)


def _judge_progress(
    member: MemberFacts, track: SessionTrack, facts: Facts, rulings: tuple[RuledClaim, ...]
) -> MemberOrder:
    """Order the recovery plan until every bundle is the member's own again or given up."""
    lost_ms, last, evidence = track.lost_ms or 0, member.member.last_published, (member.member.read_id,)
    owned, bundles = member.owned, {each.claim.path: each.claim.verdict for each in member.claims}
    bundles |= {each.claim.path: ruling.verdict for each, ruling in rulings}
    has_begun = last is not None and last.verdict is Verdict.RECOVER and last.lost_ms == track.lost_ms
    if has_begun and all(verdict in FINAL for verdict in bundles.values()):
        kept = sum(bundles[claim.claim.path] is OwnershipVerdict.KEEP for claim in owned)
        what = f"has recovered {human_seconds((facts.now_ms - lost_ms) / 1000)} after it lost its session"
        if owned:
            what += f": it owns {kept} of {counted(len(owned), 'bundle')} again, and gives up {len(owned) - kept}"
        return MemberOrder(Verdict.RESUME, Reason.RECOVERED, what, evidence)
    away = human_seconds(((track.reestablished_ms or 0) - lost_ms) / 1000)
    plan = ", then ".join(facts.settings.recovery_order)
    bundles_owned = counted(len(owned), "bundle") if facts.has_ownership else "an unknown number of bundles"
    what = f"has a session again, {away} after it lost the one before: {plan}; it owned {bundles_owned}"
    return MemberOrder(Verdict.RECOVER, Reason.SESSION_REESTABLISHED, what, evidence)


def _judge_load_data(member: MemberFacts, facts: Facts) -> MemberOrder | None:
    """Order a member that owns its bundles again to publish its load data, unless it has, or has time left."""
    awaited_ms, last = member.member.awaited_ms, member.member.last_published
    if awaited_ms is None:
        return None
    if member.has_published:
        if last is not None and last.verdict is Verdict.REPUBLISH_LOAD_DATA:
            return MemberOrder(Verdict.RESUME, Reason.REGISTERED, "has published its load data", member.evidence)
        return None
    if facts.now_ms < awaited_ms + millis_of(facts.settings.load_data_after):
        return None
    waited = human_seconds((facts.now_ms - awaited_ms) / 1000)
    what = f"has recovered, but has published no load data for {waited}: publish it again"
    return MemberOrder(Verdict.REPUBLISH_LOAD_DATA, Reason.LOAD_DATA_MISSING, what, member.evidence)


def _judge_member(member: MemberFacts, facts: Facts, rulings: tuple[RuledClaim, ...]) -> MemberOrder | None:
    """Return what a member must do; None if there is nothing to do, or its last published order remains in force."""
    track, goes_down = member.track, _goes_down(member)
    if (order := _judge_zombie(member, facts, goes_down=goes_down)) is not None:
        return order
    if has_no_protection(member.member, member.registration):
        return _judge_by_health(member)
    if track is None or not member.is_fresh or goes_down:
        return None
    if track.unsettled:
        return _judge_flapping(member, track, facts)
    if (order := _judge_gone(member, track)) is not None:
        return order
    if track.status is SessionStatus.CONNECTION_LOST:
        left_ms = max(0, (track.lapse_ms or 0) - facts.now_ms)
        left, whole = human_seconds(left_ms / 1000), human_seconds(monitor_ms(track.timeout_ms) / 1000)
        what = f"is disconnected from ZooKeeper: it keeps serving, and has {left} of {whole} left to reconnect"
        return MemberOrder(Verdict.HOLD, Reason.CONNECTION_LOST, what, (member.member.read_id,), left_ms)
    return _judge_lost(member, track, facts) if track.is_lost else _judge_settled(member, track, facts, rulings)


def _goes_down(member: MemberFacts) -> bool:
    """Whether a shutdown or restart is in force; it is published once."""
    last, track = member.member.last_published, member.track
    if last is None or (track is not None and track.status is SessionStatus.CLOSED) or member.liveness.is_dead:
        return False
    if last.verdict is Verdict.RESTART:
        return not has_restarted(member.member, member.registration, last.published_ms)
    if last.verdict is not Verdict.SHUTDOWN or track is None or last.lost_ms != track.lost_ms:
        return False
    if member.member.begun_ms > last.published_ms:
        return False  # a new process has taken the place of the one that was ordered down
    if last.reason is Reason.NOT_READY:
        return not track.is_lost and not member.is_listed_since(last.published_ms)
    return track.is_lost


def _judge_zombie(member: MemberFacts, facts: Facts, *, goes_down: bool) -> MemberOrder | None:
    """Return what a zombie must do: it answers healthy, but has been unregistered for longer than a recovery takes."""
    absence, node, health = member.liveness.unregistered, member.registration, member.member.health
    if absence is None or absence.due_ms > facts.now_ms or node is None or health is None:
        return _withdraw(member)
    if goes_down:
        return None
    # Right after a fleet-wide loss, members may still come back by themselves; while it lasts, a restart does not help.
    lost_ms, window_ms = member.member.lost_ms, millis_of(facts.settings.fleet_window)
    is_lost_lately = member.member.fleet_wide and lost_ms is not None and facts.now_ms - lost_ms < window_ms
    if facts.unread is not None or is_lost_lately or not member.role.may_lose_another:
        return None
    reported = human_seconds((facts.now_ms - health.at_ms) / 1000)
    away = human_seconds((facts.now_ms - absence.gone_ms) / 1000)
    what = f"reported itself healthy {reported} ago, but has not been registered for {away}"
    order = MemberOrder(Verdict.RESTART, Reason.ZOMBIE, what, (health.id, node.read_id))
    return _bring_down(order, absence.certainty, absence.read_ms, facts)


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
    if track.status is SessionStatus.CLOSED:
        what = "has closed its session in an orderly shutdown: other members may take its bundles"
        return MemberOrder(Verdict.GONE, Reason.CLOSED, what, evidence)
    if member.liveness.is_dead and health is not None:
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
    if (guarded := _guard_fleet(member, facts)) is not None:
        why, guarded_by = guarded
        what = f"has lost its session, {why}: {in_time}"
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, what, guarded_by, left_ms)
    what = f"has lost its session ({how}); {_explain_losses(member)}"
    order = MemberOrder(Verdict.SHUTDOWN, Reason.SESSION_LOST, what, evidence)
    return _shut_down(order, f"has lost its session ({how})", member, track, facts)


def _shut_down(order: MemberOrder, what: str, member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    """Return a shutdown, or what to do until the sessions of others that were cut off with it would have expired.

    The message of `order` names the cause only; `what` is the cause while it waits for others.
    """
    evidence = (member.member.read_id,)
    confirm_ms = member.member.begun_ms + shutdown_delay_ms(member, track, facts.settings) - facts.now_ms
    if confirm_ms > 0:
        wait = human_seconds(confirm_ms / 1000)
        what = f"{what}: it shuts down in {wait} at the earliest, unless others lose theirs, too"
        return MemberOrder(Verdict.HOLD, Reason.CONFIRMING, what, evidence, confirm_ms)
    order = _bring_down(order, member.certainty, track.read_ms, facts, meanwhile=Verdict.RECONNECT)
    if order.brings_down and (unseen := _find_unseen(member, track, facts.settings)):
        again = f"{name_some(unseen, 3)} {agreeing(len(unseen), 'is', 'are')} read again"
        what = f"{what}: it shuts down once {again}, unless others lose theirs, too"
        return MemberOrder(Verdict.HOLD, Reason.CONFIRMING, what, evidence)
    return order


def shutdown_delay_ms(member: MemberFacts, track: SessionTrack, settings: SessionsSettings) -> int:
    """How long a shutdown waits after the loss, until every session that was cut off at the same time has expired."""
    if settings.shutdown_delay is not None:
        return millis_of(settings.shutdown_delay)
    longest_ms = max((m.timeout_ms for m in member.role.members), default=0)
    spread_ms = expiry_spread_ms(track.timeout_ms, longest_ms)
    return max(SHORTEST_DELAY_MS, spread_ms + track.interval_ms)


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
        and other.track.read_ms < member.member.begun_ms + expiry_spread_ms(track.timeout_ms, other.timeout_ms)
    ]  # fmt: skip


def _judge_exhausted(member: MemberFacts, track: SessionTrack, facts: Facts) -> MemberOrder:
    tried = human_seconds((facts.now_ms - member.member.begun_ms) / 1000)
    what, evidence = f"has not reconnected in {tried}{describe_attempts(member)}", (member.member.read_id,)
    if facts.unread is not None:
        what = f"{what}: it is not shut down while ZooKeeper cannot be read ({facts.unread.reason})"
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, what, evidence)
    if not member.role.may_lose_another:
        return MemberOrder(Verdict.RECONNECT, Reason.FLEET_WIDE, f"{what}; {_explain_losses(member)}", evidence)
    order = MemberOrder(Verdict.SHUTDOWN, Reason.RECONNECT_EXHAUSTED, what, evidence)
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


class MemberVerdict(Struct, frozen=True, gc=False):
    """The verdict on one member, with the rulings on its claims by path."""

    member: MemberFacts
    rulings: tuple[RuledClaim, ...]
    order: MemberOrder | None
    shutdowns_spent: int
    """How many shutdowns count against the budget, including this order."""


def judge(facts: Facts) -> tuple[tuple[MemberVerdict, ...], Budget]:
    """Return the verdicts on all members, sorted by the time of their losses, and the budget after all orders."""
    found: list[MemberVerdict] = []
    for member in sorted(facts.members.values(), key=lambda m: (m.member.lost_ms or math.inf, m.name)):
        rulings = rule_claims(member, facts)
        order = _judge_member(member, facts, rulings)
        if order is not None and order.brings_down:
            facts = replace(facts, budget=facts.budget.spend(member.name, facts.now_ms))
        found.append(MemberVerdict(member, rulings, order, len(facts.budget.left_over(facts.now_ms))))
    return tuple(found), facts.budget
