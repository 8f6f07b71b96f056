"""What the facts mean: where each namespace's data may lie, and which bookies are to be put into quarantine.

Pure verdicts: nothing is remembered that they depend on, and nothing published.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.isolation.decisions import QuarantineReason
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge.placements import PlacementJudgement, judge_placements
from policies.isolation.judge.quarantine import QuarantineJudgement, judge_ends, judge_quarantines
from policies.isolation.membership import BookieMembership
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import Cohort, QuarantineOrder

_WITHOUT_AFFINITY = Cohort((), (), strict=None, ensemble_size=None, namespaces=())


@dataclass(frozen=True, slots=True)
class IsolationJudgement:
    """All that is decided of one cluster, before it is put into words."""

    placements: tuple[PlacementJudgement, ...]
    """The verdicts on namespaces that say where their data may lie."""
    without_affinity: PlacementJudgement
    """The verdict on those that say nothing."""
    ended: tuple[tuple[QuarantineOrder, QuarantineReason], ...]
    """Quarantine orders that no longer stand, and why."""
    standing: dict[str, QuarantineOrder]
    """Those that do, by bookie."""
    quarantines: tuple[QuarantineJudgement, ...]
    """The verdicts on unassigned bookies."""


class IsolationJudge:
    """Judges one cluster; its namespaces anew only when that changed which their verdicts are a function of.

    Most readings say what the one before them said. Without what is kept here, the same comes out.

    Args:
        settings: those in force for it.
    """

    def __init__(self, settings: IsolationSettings) -> None:
        self._settings = settings
        self._judged: tuple[tuple[Cohort, ...], BookieMembership] | None = None
        self._placements: tuple[PlacementJudgement, ...] = ()

    def judge(self, facts: IsolationFacts, orders: Sequence[QuarantineOrder]) -> IsolationJudgement:
        """The verdict on one cluster.

        Args:
            facts: what is the case now.
            orders: the quarantine orders in force until now.
        """
        without_affinity, *placements = self._judge_placements(facts)
        ended = judge_ends(orders, facts)
        lifted = {order.bookie for order, _ in ended}
        standing = {order.bookie: order for order in orders if order.bookie not in lifted}
        quarantines = judge_quarantines(standing, facts, placements)
        return IsolationJudgement(tuple(placements), without_affinity, ended, standing, quarantines)

    def _judge_placements(self, facts: IsolationFacts) -> tuple[PlacementJudgement, ...]:
        judged = (facts.known.cohorts, facts.membership)
        if judged != self._judged:
            self._judged = judged
            self._placements = judge_placements(
                (_WITHOUT_AFFINITY, *facts.known.cohorts), facts.membership, self._settings
            )
        return self._placements
