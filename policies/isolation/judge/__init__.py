"""Judges facts: where each namespace's data may lie, and which unassigned bookies must be quarantined.

Pure: a verdict is a function of the facts and of the quarantine orders in force. Nothing is published here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.isolation.decisions import QuarantineReason
from policies.isolation.facts import IsolationFacts, Picture
from policies.isolation.judge.placements import PlacementJudgement, judge_placements
from policies.isolation.judge.quarantine import QuarantineJudgement, judge_ends, judge_quarantines
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.isolation.state import Cohort, GivenPromise, QuarantineOrder, split_broker_groups

_WITHOUT_AFFINITY = Cohort((), (), strict=None, ensemble_size=None, namespaces=())
_PICTURES = 3
"""The pictures of a step: by the last readings, for alerts, and for orders."""


@dataclass(frozen=True, slots=True)
class IsolationJudgement:
    """All verdicts on one cluster."""

    placements: tuple[PlacementJudgement, ...]
    """The verdicts on namespaces with an affinity."""
    kept: tuple[PlacementJudgement, ...]
    """The same by `facts.kept`, for alerts."""
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
            orders: the quarantine orders in force before this step.
        """
        promised = facts.known.promises
        read = self._judge_namespaces(facts.read, promised)
        kept, confirmed = (
            read if picture is facts.read else self._judge_namespaces(picture, promised)
            for picture in (facts.kept, facts.confirmed)
        )
        ended = judge_ends(orders, facts)
        ended_bookies = {order.bookie for order, _ in ended}
        standing = {order.bookie: order for order in orders if order.bookie not in ended_bookies}
        quarantines = tuple(judge_quarantines(standing, facts, (read, confirmed)))
        return IsolationJudgement(read[1:], kept[1:], read[0], ended, standing, quarantines)

    def _judge_namespaces(self, picture: Picture, promises: tuple[GivenPromise, ...]) -> tuple[PlacementJudgement, ...]:
        """Return the verdict on namespaces without affinity, then those on all others."""
        judged = (picture.cohorts, promises, picture.membership)
        for last, placements in self._recent:
            if last == judged:
                return placements
        broker_groups, cohorts = split_broker_groups(picture.cohorts)
        cohorts = (_WITHOUT_AFFINITY, *cohorts)
        given = {each.namespace: RuleSet(each.rules) for each in promises if each.rules}
        placements = judge_placements(cohorts, picture.membership, self._settings, given, broker_groups)
        self._recent = [(judged, placements), *self._recent[: _PICTURES - 1]]
        return placements
