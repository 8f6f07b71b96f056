"""Orders to members, and the guards that must let a shutdown or restart pass: fleet, budget and certainty."""

from dataclasses import dataclass

from policies.sessions.decisions import SessionReason, SessionVerdict
from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.liveness import Certainty
from policies.units import agreeing, counted_with, human_seconds


@dataclass(frozen=True, slots=True)
class MemberOrder:
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


_WAITS = {
    Certainty.STALE: (SessionReason.STALE_READING, "what says so was not read just now"),
    Certainty.ONCE: (SessionReason.CONFIRMING, "no two readings in a row say so yet"),
}

WAITING = frozenset({SessionReason.STALE_READING, SessionReason.CONFIRMING, SessionReason.SHUTDOWN_BUDGET})
"""With one of these reasons, a `hold` is a shutdown or restart that waits."""


def bring_down(
    order: MemberOrder, certainty: Certainty, facts: Facts, *, meanwhile: SessionVerdict = SessionVerdict.HOLD
) -> MemberOrder:
    """Return a shutdown or restart, or the order to give while the budget is spent or the readings are uncertain.

    Args:
        order: the shutdown or restart; its message names the cause only.
        certainty: how certain the readings behind it are.
        facts: the cluster, with the budget that is left.
        meanwhile: the verdict while the budget is spent.
    """
    message = f"{order.message}: it is to {'shut down' if order.verdict is SessionVerdict.SHUTDOWN else 'be restarted'}"
    if not facts.budget.has_left(facts.now_ms):
        message = f"{message} once that may be: {_explain_budget(facts)}"
        return MemberOrder(meanwhile, SessionReason.SHUTDOWN_BUDGET, message, order.evidence)
    if certainty in _WAITS:
        reason, why = _WAITS[certainty]
        return MemberOrder(SessionVerdict.HOLD, reason, f"{message} once that is certain: {why}", order.evidence)
    return MemberOrder(order.verdict, order.reason, message, order.evidence)


def _explain_budget(facts: Facts) -> str:
    budget = facts.budget
    if budget.limit == 0:
        return "`shutdown_budget` is 0"
    window, down = human_seconds(facts.settings.shutdown_window.total_seconds()), sorted(budget.down())
    names, are = f"{', '.join(down[:3])}{' and more' if len(down) > 3 else ''}", agreeing(len(down), "is", "are")
    waits = f", and {names} {are} not back yet" if down else ""
    ordered = counted_with(len(budget.left_over(facts.now_ms)), "shutdown", "was", "were")
    return f"{ordered} ordered in {window}, where {budget.limit} may be{waits}"


def guard_fleet(member: MemberFacts, facts: Facts) -> tuple[str, tuple[str, ...]] | None:
    """Return why a member is not shut down for the loss of its session, with evidence; None if it may be."""
    own = member.member.read_id
    if facts.unread is not None:
        return f"but ZooKeeper cannot be read ({facts.unread.reason})", (own, *facts.unread.evidence)
    role = member.role
    if not member.member.fleet_wide and role.may_lose_another:
        return None
    others = [m.read_id for m in (*role.lost, *role.cut_off) if m.member != member.name]
    fresh = {each.member.read_id for each in facts.members.values() if each.is_fresh}
    together = "while the fault was ZooKeeper's;" if role.may_lose_another else "and so have others:"
    return f"{together} {explain_losses(member)}", (own, *(id_ for id_ in others if id_ in fresh))


def explain_losses(member: MemberFacts) -> str:
    """How many members of its role are without a session, and how many would be fleet-wide."""
    role = member.role
    lost = len(role.lost) + len(role.cut_off)
    ended = f", and {role.closed} more {agreeing(role.closed, 'has', 'have')} ended theirs" if role.closed else ""
    return (
        f"{lost} of {len(role.members)} {agreeing(lost, 'is', 'are')} without a session or cut off{ended}, "
        f"where {role.losses.threshold} would be fleet-wide"
    )
