"""The sessions policy on the status page: the states of members' sessions and of bundles."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from connectors.sessions import view as metrics
from connectors.views.loop_snapshot import PolicySnapshot
from connectors.views.policy_view import DetailKind, PolicyDetail
from policies.sessions.decisions import SessionStatus

SHOWN_MEMBERS = 8


class LapsingMember(BaseModel):
    """A member without a connection."""

    model_config = ConfigDict(frozen=True)

    member: str
    seconds_to_expiry: float = Field(description="Time until its session counts as lost; 0 once it does.")


class SessionsDetail(PolicyDetail):
    """Members and bundles, as last read."""

    roles: dict[str, dict[str, int]] = Field(description="Number of members by role and session status.")
    lapsing_count: int = Field(description="Number of members that are disconnected, or whose session is lost.")
    lapsing: tuple[LapsingMember, ...] = Field(description=f"The {SHOWN_MEMBERS} with the least time left.")
    bundles: dict[str, int] = Field(description="Number of bundles by the state of their node.")

    def charted(self) -> Mapping[str, float]:
        """Return the number that should be 0."""
        settled = (SessionStatus.ESTABLISHED.value, SessionStatus.CLOSED.value)
        amiss = (count for counts in self.roles.values() for status, count in counts.items() if status not in settled)
        return {"sessions amiss": sum(amiss)}


def _build_detail(snapshot: PolicySnapshot) -> SessionsDetail | None:
    roles: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (role, status), count in snapshot.values(metrics.SESSIONS).items():
        if count:
            roles[role][status] = round(count)
    bundles = {state: round(count) for (state,), count in snapshot.values(metrics.BUNDLES).items() if count}
    if not roles and not bundles:
        return None
    left = sorted((seconds, member) for (member,), seconds in snapshot.values(metrics.SECONDS_TO_EXPIRY).items())
    return SessionsDetail(
        roles=dict(roles),
        lapsing_count=len(left),
        lapsing=tuple(LapsingMember(member=m, seconds_to_expiry=max(0.0, s)) for s, m in left[:SHOWN_MEMBERS]),
        bundles=bundles,
    )


DETAIL = DetailKind(SessionsDetail, _build_detail, Path(__file__).with_name("detail.html"))
