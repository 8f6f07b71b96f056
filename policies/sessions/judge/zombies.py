"""Members that say they are healthy and have no registration: only a restart cures them."""

from policies.sessions.decisions import SessionReason as Reason
from policies.sessions.decisions import SessionVerdict as Verdict
from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.judge.orders import MemberOrder
from policies.units import human_seconds, millis_of


def order_of(member: MemberFacts, facts: Facts, *, goes_down: bool) -> MemberOrder | None:
    """What a zombie is to do; None for others, and while that is not certain.

    Args:
        member: who.
        facts: of the cluster.
        goes_down: whether it was told to go down and has not come back since.
    """
    node, health, last = member.registration, member.member.health, member.member.last_published
    if member.liveness.zombie_ms is None or member.liveness.zombie_ms > facts.now_ms or node is None or health is None:
        return None
    if last is not None and last.verdict is Verdict.RESTART and health.down_ms <= last.published_ms:
        return None
    if last is not None and last.verdict is Verdict.SHUTDOWN and goes_down:
        return None
    # Right after a loss of the fleet nobody knows yet who comes back without help.
    if facts.unread is not None or _lost_lately(member, facts):
        return None
    since = human_seconds((facts.now_ms - node.changed_ms) / 1000)
    what = f"says it is healthy, but has had no registration for {since}"
    evidence = (health.id, node.read_id)
    if facts.budget.has_left(facts.now_ms):
        return MemberOrder(Verdict.RESTART, Reason.ZOMBIE, f"{what}: only a restart cures it", evidence)
    return MemberOrder(Verdict.HOLD, Reason.SHUTDOWN_BUDGET, f"{what}; {facts.budget_spent()}", evidence)


def _lost_lately(member: MemberFacts, facts: Facts) -> bool:
    lost_ms = member.track.lost_ms if member.track else None
    window_ms = millis_of(facts.settings.fleet_window)
    return member.member.fleet_wide and lost_ms is not None and facts.now_ms - lost_ms < window_ms
