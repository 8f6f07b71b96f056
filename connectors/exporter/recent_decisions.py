"""The last decisions that changed anything, for the status page."""

from bisect import insort

from connectors.loop_snapshot import MAX_RECENT_DECISIONS
from policies.decisions import Decision


class News:
    """Keeps the last of them. Of like steps it is the last one: thousands of ledgers would push out everything else."""

    def __init__(self) -> None:
        self._told: list[Decision] = []

    def tell(self, decision: Decision) -> None:
        """Take one in; of history, topics are read one after the other, so they do not come in order."""
        if decision.is_step:
            alike = [each for each in self._told if each.is_step and _kind(each) == _kind(decision)]
            if any(each.decided_at > decision.decided_at for each in alike):
                return
            self._told = [each for each in self._told if not any(each is old for old in alike)]
        insort(self._told, decision, key=lambda each: each.decided_at)
        del self._told[:-MAX_RECENT_DECISIONS]

    def newest_first(self) -> list[Decision]:
        """As they are shown."""
        return self._told[::-1]


def _kind(step: Decision) -> tuple[str, str, str, str]:
    return step.policy, step.cluster, step.verdict, step.reason
