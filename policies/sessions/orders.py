"""Judges members with a session: a recovery goes bundle by bundle, and ends with the load data."""

import msgspec
from msgspec import Struct

from policies.decisions import unique_ids
from policies.sessions.decisions import OwnershipVerdict, SessionEvent, SessionReason, SessionVerdict
from policies.sessions.decisions import SessionReason as Reason
from policies.sessions.decisions import SessionVerdict as Verdict
from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.fleet import Certainty
from policies.sessions.state import SessionTrack
from policies.units import agreeing, counted, from_millis, human_seconds, millis_of, name_some

# Orders to members, and the guards that must let a shutdown or restart pass: fleet, budget and certainty.


class MemberOrder(Struct, frozen=True, gc=False):
    """What a member must do, and why."""

    verdict: SessionVerdict
    reason: SessionReason
    message: str
    """The rest of a sentence that begins with the member's name."""
    evidence: tuple[str, ...] = ()
    left_ms: int | None = None
    """The time until a wait ends; None if there is no wait."""
    recovery_ms: int | None = None
    """The time from the loss until every bundle was settled, for an order that reports a recovery."""

    @property
    def brings_down(self) -> bool:
        """Whether it uses up a part of the shutdown budget."""
        return self.verdict in (SessionVerdict.SHUTDOWN, SessionVerdict.RESTART)


WAITING = frozenset({SessionReason.STALE_READING, SessionReason.CONFIRMING, SessionReason.SHUTDOWN_BUDGET})
"""With one of these reasons, a `hold` is a shutdown or restart that waits."""


def bring_down(
    order: MemberOrder,
    certainty: Certainty,
    read_ms: int,
    facts: Facts,
    meanwhile: SessionVerdict = SessionVerdict.HOLD,
) -> MemberOrder:
    """Return a shutdown or restart, or the order to give while the budget is spent or the readings are uncertain.

    Args:
        order: the shutdown or restart; its message names the cause only.
        certainty: how certain the readings behind it are, the oldest of which is of `read_ms`.
        facts: the cluster, with the budget that is left.
        meanwhile: the verdict while the budget is spent.
    """
    message = f"{order.message}: {'shut it down' if order.verdict is SessionVerdict.SHUTDOWN else 'restart it'}"
    if not facts.budget.has_left(facts.now_ms):
        message = f"{message} as soon as the shutdown budget allows it ({_explain_budget(facts)})"
        return MemberOrder(meanwhile, SessionReason.SHUTDOWN_BUDGET, message, order.evidence)
    waiting = msgspec.structs.replace(order, verdict=SessionVerdict.HOLD)
    if certainty is Certainty.STALE:
        age = human_seconds((facts.now_ms - read_ms) / 1000)
        message = f"{message} as soon as a fresh reading confirms it (the last one is {age} old)"
        return msgspec.structs.replace(waiting, reason=SessionReason.STALE_READING, message=message)
    if certainty is Certainty.ONCE:
        message = f"{message} as soon as a second reading in a row confirms it"
        return msgspec.structs.replace(waiting, reason=SessionReason.CONFIRMING, message=message)
    return msgspec.structs.replace(order, message=message)


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


def guard_fleet(member: MemberFacts, facts: Facts) -> tuple[str, tuple[str, ...]] | None:
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
    return f"{together} {explain_losses(member)}", (read_id, *(id_ for id_ in others if id_ in fresh))


def explain_losses(member: MemberFacts) -> str:
    """How many members of its role are without a session, and how many would be fleet-wide."""
    role = member.role
    lost = role.losses
    ended = f", and {role.closed} more {agreeing(role.closed, 'has', 'have')} ended theirs" if role.closed else ""
    return (
        f"{lost} of {len(role.members)} {agreeing(lost, 'is', 'are')} without a session or cut off{ended}, "
        f"where {role.fewest_fleet_wide} would be fleet-wide"
    )


FINAL = frozenset({OwnershipVerdict.KEEP, OwnershipVerdict.UNLOAD})
"""With one of these verdicts, the bundle is the member's own again or given up."""

BundleVerdicts = tuple[OwnershipVerdict | None, ...]
"""The verdict on each bundle that a member claims: this step's, else the last published one; None without any."""


def judge_recovery(
    member: MemberFacts, track: SessionTrack, facts: Facts, bundles: BundleVerdicts
) -> MemberOrder | None:
    """Return what a member with a session must do; None if there is nothing to do.

    Args:
        bundles: the verdict on each bundle it claims.
    """
    last, events = member.member.last_published, member.member.events
    if (order := _judge_unlisted(member, facts)) is not None:
        return order
    if member.member.recovering:
        return _judge_progress(member, track, facts, bundles)
    if SessionEvent.JOINED in events:
        what = "is back with a new session after an orderly shutdown"
        return MemberOrder(Verdict.RESUME, Reason.JOINED, what, (member.member.read_id,))
    if SessionEvent.RECONNECTED in events or (last is not None and last.reason is Reason.CONNECTION_LOST):
        what = "has reconnected in time: it kept its session, and caches filled before are to be invalidated"
        return MemberOrder(Verdict.RESUME, Reason.RECONNECTED, what, (member.member.read_id,))
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
    return bring_down(order, absence.certainty, absence.read_ms, facts)


def _judge_progress(member: MemberFacts, track: SessionTrack, facts: Facts, bundles: BundleVerdicts) -> MemberOrder:
    """Order the recovery plan until every bundle is the member's own again or given up."""
    lost_ms, last, evidence = track.lost_ms or 0, member.member.last_published, (member.member.read_id,)
    owned = member.owned
    has_begun = last is not None and last.verdict is Verdict.RECOVER and last.lost_ms == track.lost_ms
    if has_begun and all(verdict in FINAL for verdict in bundles):
        rulings = dict(zip((claim.claim.path for claim in member.claims), bundles, strict=True))
        kept = sum(rulings[claim.claim.path] is OwnershipVerdict.KEEP for claim in owned)
        recovery_ms = facts.now_ms - lost_ms
        what = f"has recovered {human_seconds(recovery_ms / 1000)} after it lost its session"
        if owned:
            what += f": it owns {kept} of {counted(len(owned), 'bundle')} again, and gives up {len(owned) - kept}"
        return MemberOrder(Verdict.RESUME, Reason.RECOVERED, what, evidence, recovery_ms=recovery_ms)
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
