"""The isolation policy on the status page: unassigned bookies, and the placement of namespaces."""

from collections import Counter
from collections.abc import Mapping

from pydantic import Field

from connectors.isolation import view as metrics
from connectors.loop_snapshot import PolicySnapshot
from connectors.policy_view import DetailKind, PolicyDetail
from policies.isolation.decisions import Placement

SHOWN_NAMES = 8


class IsolationDetail(PolicyDetail):
    """Who is registered, and where data may lie."""

    bookies: dict[str, int] = Field(description="By state: writable, read_only, offline.")
    unassigned_count: int = Field(description="Writable bookies that nobody put into a group.")
    unassigned: tuple[str, ...] = Field(description=f"The first {SHOWN_NAMES} of them.")
    namespaces: dict[str, int] = Field(description="Namespaces by the verdict on their placement.")
    leaking_count: int = Field(description="Namespaces that may use bookies which the promise forbids.")
    leaking: tuple[str, ...] = Field(description=f"The first {SHOWN_NAMES} of them.")

    def charted(self) -> Mapping[str, float]:
        """What should be nothing."""
        return {"unassigned bookies": self.unassigned_count, "leaking namespaces": self.leaking_count}


def _detail(picture: PolicySnapshot) -> IsolationDetail | None:
    bookies: Counter[str] = Counter()
    for (state, _), count in picture.values(metrics.BOOKIES).items():
        bookies[state] += round(count)
    placements = picture.of_kind(Placement)
    if not bookies and not placements:
        return None
    unassigned = sorted(bookie for (bookie,) in picture.values(metrics.UNASSIGNED))
    leaking = sorted(namespace for (namespace,), count in picture.values(metrics.LEAK).items() if count)
    return IsolationDetail(
        bookies=dict(bookies),
        unassigned_count=len(unassigned),
        unassigned=tuple(unassigned[:SHOWN_NAMES]),
        namespaces=dict(Counter(placement.verdict.value for placement in placements).most_common()),
        leaking_count=len(leaking),
        leaking=tuple(leaking[:SHOWN_NAMES]),
    )


DETAIL = DetailKind(IsolationDetail, _detail)
