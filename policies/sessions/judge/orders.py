"""What a rule tells a member to do, and what must hold before a member is told to go down."""

from dataclasses import dataclass

from policies.sessions.decisions import SessionReason, SessionVerdict
from policies.sessions.facts import Facts
from policies.sessions.freshness import Certainty


@dataclass(frozen=True, slots=True)
class MemberOrder:
    """What a member is to do, and why."""

    verdict: SessionVerdict
    reason: SessionReason
    message: str
    """The sentence that says why; it goes on after the member's name."""
    evidence: tuple[str, ...] = ()
    left_ms: int | None = None
    """Until the wait it is about ends; None where nothing is waited for."""
    recovery_ms: int | None = None
    """From the loss until every bundle was settled, where that is what happened."""

    @property
    def brings_down(self) -> bool:
        """Whether it takes one from the budget of shutdowns."""
        return self.verdict in (SessionVerdict.SHUTDOWN, SessionVerdict.RESTART)


_WAITS = {
    Certainty.STALE: (SessionReason.STALE_READING, "what says so was not read just now"),
    Certainty.ONCE: (SessionReason.CONFIRMING, "no two readings in a row say so yet"),
}

WAITING = frozenset({SessionReason.STALE_READING, SessionReason.CONFIRMING, SessionReason.SHUTDOWN_BUDGET})
"""A `hold` for one of these is a shutdown or restart that waits."""


def bring_down(
    order: MemberOrder, certainty: Certainty, facts: Facts, *, meanwhile: SessionVerdict = SessionVerdict.HOLD
) -> MemberOrder:
    """A shutdown or restart, or what is done instead while the budget is spent or it is not certain.

    Args:
        order: the shutdown or restart, whose message ends before the colon and what is to be done.
        certainty: of the readings it rests on.
        facts: of the cluster, with what is left of the budget.
        meanwhile: what is done while the budget is spent.
    """
    told = f"{order.message}: it is to {'shut down' if order.verdict is SessionVerdict.SHUTDOWN else 'be restarted'}"
    if not facts.budget.has_left(facts.now_ms):
        message = f"{told} once that may be: {facts.budget_spent()}"
        return MemberOrder(meanwhile, SessionReason.SHUTDOWN_BUDGET, message, order.evidence)
    if certainty in _WAITS:
        reason, why = _WAITS[certainty]
        return MemberOrder(SessionVerdict.HOLD, reason, f"{told} once that is certain: {why}", order.evidence)
    return MemberOrder(order.verdict, order.reason, told, order.evidence)
