"""The isolation policy on the status page: unassigned bookies, and the placement of namespaces."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from connectors.isolation import view as metrics
from connectors.views.loop_snapshot import PolicySnapshot
from connectors.views.policy_view import DetailKind, PolicyDetail
from policies.isolation.decisions import Placement

SHOWN_NAMES = 8


class IsolationDetail(PolicyDetail):
    """Registered bookies, and the placement of namespaces."""

    bookies: dict[str, int] = Field(description="Number of bookies by state: writable, read_only, offline.")
    unassigned_count: int = Field(description="Number of writable bookies without a group.")
    unassigned: tuple[str, ...] = Field(description=f"The first {SHOWN_NAMES} of them.")
    namespaces: dict[str, int] = Field(description="Number of namespaces by the verdict on their placement.")
    leaking_count: int = Field(description="Number of namespaces that may use bookies which the promise forbids.")
    leaking: tuple[str, ...] = Field(description=f"The first {SHOWN_NAMES} of them.")

    def charted(self) -> Mapping[str, float]:
        """Return the numbers that should be 0."""
        return {"unassigned bookies": self.unassigned_count, "leaking namespaces": self.leaking_count}


def _build_detail(snapshot: PolicySnapshot) -> IsolationDetail | None:
    bookies: Counter[str] = Counter()
    for (state, _), count in snapshot.values(metrics.BOOKIES).items():
        bookies[state] += round(count)
    placements = snapshot.of_kind(Placement)
    if not bookies and not placements:
        return None
    unassigned = sorted(bookie for (bookie,) in snapshot.values(metrics.UNASSIGNED))
    leaking = sorted(namespace for (namespace,), count in snapshot.values(metrics.LEAK).items() if count)
    return IsolationDetail(
        bookies=dict(bookies),
        unassigned_count=len(unassigned),
        unassigned=tuple(unassigned[:SHOWN_NAMES]),
        namespaces=dict(Counter(placement.verdict.value for placement in placements).most_common()),
        leaking_count=len(leaking),
        leaking=tuple(leaking[:SHOWN_NAMES]),
    )


DETAIL = DetailKind(IsolationDetail, _build_detail, Path(__file__).with_name("detail.html"))
