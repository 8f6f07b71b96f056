"""The last decisions that changed anything, for the status page."""

from bisect import insort

from connectors.views.loop_snapshot import MAX_RECENT_DECISIONS
from policies.decisions import Decision


class RecentDecisions:
    """Keeps the last decisions, and of similar steps only the last: thousands of ledgers would displace all others."""

    def __init__(self) -> None:
        self._decisions: list[Decision] = []

    def add(self, decision: Decision) -> None:
        """Add a decision. History arrives out of order, because its topics are read one after the other."""
        if decision.is_step:
            similar = [each for each in self._decisions if each.is_step and _kind(each) == _kind(decision)]
            if any(each.decided_at > decision.decided_at for each in similar):
                return
            self._decisions = [each for each in self._decisions if not any(each is old for old in similar)]
        insort(self._decisions, decision, key=lambda each: each.decided_at)
        del self._decisions[:-MAX_RECENT_DECISIONS]

    def newest_first(self) -> list[Decision]:
        """Return them in the order of the page."""
        return self._decisions[::-1]


def _kind(step: Decision) -> tuple[str, str, str, str]:
    return step.policy, step.cluster, step.verdict, step.reason
