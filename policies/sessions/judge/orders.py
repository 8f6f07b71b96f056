"""What a member is to do, as the rules say it."""

from dataclasses import dataclass

from policies.sessions.decisions import SessionReason, SessionVerdict


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
