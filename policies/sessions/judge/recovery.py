"""Judges members with a session: a recovery goes bundle by bundle, and ends with the load data."""

from policies.sessions.decisions import OwnershipVerdict, SessionEvent
from policies.sessions.decisions import SessionReason as Reason
from policies.sessions.decisions import SessionVerdict as Verdict
from policies.sessions.facts import Facts, MemberFacts, unique_ids
from policies.sessions.judge.orders import MemberOrder, Proof, bring_down
from policies.sessions.state import SessionTrack
from policies.units import counted, human_seconds, millis_of

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
    return bring_down(order, Proof(absence.certainty, absence.read_ms), facts)


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
