"""Verdicts from facts: where each namespace's data may lie, and which bookies are to be quarantined.

Pure: verdicts depend on nothing remembered, and nothing is published here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.isolation.decisions import QuarantineReason
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge.placements import PlacementJudgement, judge_placements
from policies.isolation.judge.quarantine import QuarantineJudgement, judge_ends, judge_quarantines
from policies.isolation.membership import BookieMembership
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import BookieClusterState, Cohort, QuarantineOrder

_WITHOUT_AFFINITY = Cohort((), (), strict=None, ensemble_size=None, namespaces=())


@dataclass(frozen=True, slots=True)
class IsolationJudgement:
    """All that is decided of one cluster, before it is put into words."""

    placements: tuple[PlacementJudgement, ...]
    """The verdicts on namespaces that say where their data may lie."""
    confirmed: tuple[PlacementJudgement, ...]
    """The same with the bookies that one reading alone has lacked: what alerts rest on."""
    without_affinity: PlacementJudgement
    """The verdict on those that say nothing."""
    ended: tuple[tuple[QuarantineOrder, QuarantineReason], ...]
    """Quarantine orders that no longer stand, and why."""
    standing: dict[str, QuarantineOrder]
    """Those that do, by bookie; the one about many under the empty name."""
    quarantines: tuple[QuarantineJudgement, ...]
    """The verdicts on unassigned bookies."""


class IsolationJudge:
    """Judges one cluster; its namespaces anew only when that changed which their verdicts are a function of.

    Most readings say what the one before them said. Without what is kept here, the same comes out.

    Args:
        settings: those in force for it.
    """

    def __init__(self, settings: IsolationSettings) -> None:
        self._seen, self._sure = _Placements(settings), _Placements(settings)

    def judge(self, facts: IsolationFacts, orders: Sequence[QuarantineOrder]) -> IsolationJudgement:
        """The verdict on one cluster.

        Args:
            facts: what is the case now.
            orders: the quarantine orders in force until now.
        """
        sure = self._sure.judge(facts.known, facts.confirmed)
        seen = sure if facts.membership is facts.confirmed else self._seen.judge(facts.known, facts.membership)
        without_affinity, *placements = seen
        ended = judge_ends(orders, facts)
        lifted = {order.bookie for order, _ in ended}
        standing = {order.bookie: order for order in orders if order.bookie not in lifted}
        quarantines = judge_quarantines(standing, facts, placements)
        return IsolationJudgement(tuple(placements), sure[1:], without_affinity, ended, standing, quarantines)


class _Placements:
    """The verdicts on all namespaces, of the last membership they were asked for."""

    def __init__(self, settings: IsolationSettings) -> None:
        self._settings = settings
        self._judged: tuple[object, ...] | None = None
        self._placements: tuple[PlacementJudgement, ...] = ()

    def judge(self, known: BookieClusterState, membership: BookieMembership) -> tuple[PlacementJudgement, ...]:
        judged = (known.cohorts, known.promises, membership)
        if judged != self._judged:
            self._judged = judged
            cohorts = (_WITHOUT_AFFINITY, *known.cohorts)
            self._placements = judge_placements(cohorts, membership, self._settings, known.promised())
        return self._placements
