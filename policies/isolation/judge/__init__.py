"""Judges facts: where each namespace's data may lie, and which unassigned bookies must be quarantined.

Pure: a verdict is a function of the facts and of the quarantine orders in force. Nothing is published here.
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
_MEMBERSHIPS = 2
"""The memberships of a step: the last reading's, and the one that alerts rest on."""


@dataclass(frozen=True, slots=True)
class IsolationJudgement:
    """All verdicts on one cluster."""

    placements: tuple[PlacementJudgement, ...]
    """The verdicts on namespaces with an affinity."""
    confirmed: tuple[PlacementJudgement, ...]
    """The same by `facts.confirmed`, for alerts."""
    without_affinity: PlacementJudgement
    ended: tuple[tuple[QuarantineOrder, QuarantineReason], ...]
    """The quarantine orders that end now, and why."""
    standing: dict[str, QuarantineOrder]
    """The orders that remain, by bookie; an order on many bookies has the empty name."""
    quarantines: tuple[QuarantineJudgement, ...]
    """The verdicts on unassigned bookies."""


class IsolationJudge:
    """Judges one cluster.

    The verdicts on namespaces are a pure function of their affinities, the promises, the membership and the settings.
    Most readings change none of these, so the last verdicts are cached: a step that changes nothing then costs a tenth.
    """

    def __init__(self, settings: IsolationSettings) -> None:
        self._settings = settings
        self._recent: list[tuple[object, tuple[PlacementJudgement, ...]]] = []

    def judge(self, facts: IsolationFacts, orders: Sequence[QuarantineOrder]) -> IsolationJudgement:
        """Return the verdicts on one cluster.

        Args:
            facts: the cluster as of now.
            orders: the quarantine orders in force before this step.
        """
        confirmed = self._judge_namespaces(facts.known, facts.confirmed)
        without_affinity, *placements = self._judge_namespaces(facts.known, facts.membership)
        ended = judge_ends(orders, facts)
        ended_bookies = {order.bookie for order, _ in ended}
        standing = {order.bookie: order for order in orders if order.bookie not in ended_bookies}
        quarantines = judge_quarantines(standing, facts, placements)
        return IsolationJudgement(tuple(placements), confirmed[1:], without_affinity, ended, standing, quarantines)

    def _judge_namespaces(
        self, known: BookieClusterState, membership: BookieMembership
    ) -> tuple[PlacementJudgement, ...]:
        """Return the verdict on namespaces without affinity, then those on all others."""
        judged = (known.cohorts, known.promises, membership)
        for last, placements in self._recent:
            if last == judged:
                return placements
        cohorts = (_WITHOUT_AFFINITY, *known.cohorts)
        placements = judge_placements(cohorts, membership, self._settings, known.promised())
        self._recent = [(judged, placements), *self._recent[: _MEMBERSHIPS - 1]]
        return placements
