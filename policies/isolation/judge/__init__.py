"""Judges facts: where each namespace's data may lie, and which unassigned bookies must be quarantined.

Pure: a verdict is a function of the facts and of the quarantine orders in force. Nothing is published here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.bookie_readings import BookieAffinity
from policies.isolation.decisions import QuarantineReason
from policies.isolation.facts import IsolationFacts, Picture
from policies.isolation.fold import collect_alike
from policies.isolation.judge.placements import PlacementJudgement, judge_placements
from policies.isolation.judge.quarantine import (
    QuarantineJudgement,
    collect_needs,
    find_starved,
    judge_ends,
    judge_quarantines,
    update_needs,
)
from policies.isolation.membership import BookieMembership
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.isolation.state import (
    NO_NEEDS,
    Cohort,
    GivenPromise,
    QuarantineNeeds,
    QuarantineOrder,
    split_broker_groups,
)

_WITHOUT_AFFINITY = Cohort((), (), strict=None, ensemble_size=None, namespaces=())
_PICTURES = 2
"""The pictures of a step: by the last readings, and for alerts."""


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
    needs: QuarantineNeeds
    """The bookies in no group that namespaces need, now and within the last `settle`."""


def find_starved_now(
    bookie: str, membership: BookieMembership, affinity: BookieAffinity, settings: IsolationSettings
) -> str | None:
    """Return the namespace that could not place data with one bookie in no group less; None if there is none.

    The cluster must have a group.
    """
    placements = _judge_namespaces(Picture(membership, collect_alike(affinity, ())), (), settings)
    left = len(membership.unassigned.members - {bookie})
    return find_starved(collect_needs(placements, has_groups=True), left)


def _judge_namespaces(
    picture: Picture, promises: Sequence[GivenPromise], settings: IsolationSettings
) -> tuple[PlacementJudgement, ...]:
    broker_groups, cohorts = split_broker_groups(picture.cohorts)
    given = {each.namespace: RuleSet(each.rules) for each in promises if each.rules}
    return judge_placements((_WITHOUT_AFFINITY, *cohorts), picture.membership, settings, given, broker_groups)


class IsolationJudge:
    """Judges one cluster.

    The verdicts on namespaces are a pure function of their affinities, the promises, the membership and the settings.
    Most readings change none of these, so the last verdicts are cached: a step that changes nothing then costs a tenth.
    """

    def __init__(self, settings: IsolationSettings) -> None:
        self._settings = settings
        self._recent: list[tuple[object, tuple[PlacementJudgement, ...]]] = []

    def judge(
        self, facts: IsolationFacts, orders: Sequence[QuarantineOrder], needs: QuarantineNeeds = NO_NEEDS
    ) -> IsolationJudgement:
        """Return the verdicts on one cluster.

        Args:
            orders: the quarantine orders in force before this step.
            needs: the needs before this step.
        """
        promised = facts.known.promises
        read = self._judge_namespaces(facts.read, promised)
        kept = read if facts.kept is facts.read else self._judge_namespaces(facts.kept, promised)
        ended = judge_ends(orders, facts)
        ended_bookies = {order.bookie for order, _ in ended}
        standing = {order.bookie: order for order in orders if order.bookie not in ended_bookies}
        needed = collect_needs(read, has_groups=facts.membership.has_groups)
        needs = update_needs(needs, needed, facts)
        quarantines = tuple(judge_quarantines(standing, facts, needed, needs))
        return IsolationJudgement(read[1:], kept[1:], read[0], ended, standing, quarantines, needs)

    def _judge_namespaces(self, picture: Picture, promises: tuple[GivenPromise, ...]) -> tuple[PlacementJudgement, ...]:
        """Return the verdict on namespaces without affinity, then those on all others."""
        judged = (picture.cohorts, promises, picture.membership)
        for last, placements in self._recent:
            if last == judged:
                return placements
        placements = _judge_namespaces(picture, promises, self._settings)
        self._recent = [(judged, placements), *self._recent[: _PICTURES - 1]]
        return placements
