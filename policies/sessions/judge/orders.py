"""Orders to members, and the guards that must let a shutdown or restart pass: fleet, budget and certainty."""

from msgspec import Struct
from msgspec.structs import replace

from policies.sessions.decisions import SessionReason, SessionVerdict
from policies.sessions.facts import Facts, MemberFacts
from policies.sessions.liveness import Certainty
from policies.units import agreeing, counted, from_millis, human_seconds, name_some


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
    awaits: SessionVerdict | None = None
    """The shutdown or restart that waits; None if none does."""

    @property
    def brings_down(self) -> bool:
        """Whether it uses up a part of the shutdown budget."""
        return self.verdict in (SessionVerdict.SHUTDOWN, SessionVerdict.RESTART)


class Proof(Struct, frozen=True, gc=False):
    """The readings behind a shutdown or restart."""

    certainty: Certainty
    read_ms: int
    """The time of the oldest of the last readings."""


WAITING = frozenset({SessionReason.STALE_READING, SessionReason.CONFIRMING, SessionReason.SHUTDOWN_BUDGET})
"""With one of these reasons, a `hold` is a shutdown or restart that waits."""


def bring_down(
    order: MemberOrder, proof: Proof, facts: Facts, *, meanwhile: SessionVerdict = SessionVerdict.HOLD
) -> MemberOrder:
    """Return a shutdown or restart, or the order to give while the budget is spent or the readings are uncertain.

    Args:
        order: the shutdown or restart; its message names the cause only.
        proof: the readings behind it.
        facts: the cluster, with the budget that is left.
        meanwhile: the verdict while the budget is spent.
    """
    message = f"{order.message}: {'shut it down' if order.verdict is SessionVerdict.SHUTDOWN else 'restart it'}"
    if not facts.budget.has_left(facts.now_ms):
        message = f"{message} as soon as the shutdown budget allows it ({_explain_budget(facts)})"
        return MemberOrder(meanwhile, SessionReason.SHUTDOWN_BUDGET, message, order.evidence, awaits=order.verdict)
    waiting = replace(order, verdict=SessionVerdict.HOLD, awaits=order.verdict)
    if proof.certainty is Certainty.STALE:
        age = human_seconds((facts.now_ms - proof.read_ms) / 1000)
        message = f"{message} as soon as a fresh reading confirms it (the last one is {age} old)"
        return replace(waiting, reason=SessionReason.STALE_READING, message=message)
    if proof.certainty is Certainty.ONCE:
        message = f"{message} as soon as a second reading in a row confirms it"
        return replace(waiting, reason=SessionReason.CONFIRMING, message=message)
    return replace(order, message=message)


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
    lost = len(role.lost) + len(role.cut_off)
    ended = f", and {role.closed} more {agreeing(role.closed, 'has', 'have')} ended theirs" if role.closed else ""
    return (
        f"{lost} of {len(role.members)} {agreeing(lost, 'is', 'are')} without a session or cut off{ended}, "
        f"where {role.losses.threshold} would be fleet-wide"
    )
