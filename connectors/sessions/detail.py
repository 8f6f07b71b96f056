"""The sessions policy on the status page: the state of members' sessions, and who owns the bundles."""

from collections import defaultdict
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from connectors.loop_snapshot import PolicySnapshot
from connectors.policy_view import DetailKind, PolicyDetail
from connectors.sessions import view as metrics
from policies.sessions.decisions import SessionStatus

SHOWN_MEMBERS = 8


class LapsingMember(BaseModel):
    """A member without a connection."""

    model_config = ConfigDict(frozen=True)

    member: str
    seconds_to_expiry: float = Field(description="Until its session counts as lost; 0 once it does.")


class SessionsDetail(PolicyDetail):
    """Members and bundles, as last read."""

    roles: dict[str, dict[str, int]] = Field(description="Members by role and by how their session stands.")
    lapsing_count: int = Field(description="Members that are disconnected, or whose session is lost.")
    lapsing: tuple[LapsingMember, ...] = Field(description=f"The {SHOWN_MEMBERS} with the least time left.")
    bundles: dict[str, int] = Field(description="Bundles by the last reading of their node.")

    def charted(self) -> Mapping[str, float]:
        """What should be nothing."""
        settled = (SessionStatus.ESTABLISHED.value, SessionStatus.CLOSED.value)
        amiss = (count for counts in self.roles.values() for status, count in counts.items() if status not in settled)
        return {"sessions amiss": sum(amiss)}


def _detail(picture: PolicySnapshot) -> SessionsDetail | None:
    roles: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (role, status), count in picture.values(metrics.SESSIONS).items():
        if count:
            roles[role][status] = round(count)
    bundles = {state: round(count) for (state,), count in picture.values(metrics.BUNDLES).items() if count}
    if not roles and not bundles:
        return None
    left = sorted((seconds, member) for (member,), seconds in picture.values(metrics.SECONDS_TO_EXPIRY).items())
    return SessionsDetail(
        roles=dict(roles),
        lapsing_count=len(left),
        lapsing=tuple(LapsingMember(member=m, seconds_to_expiry=max(0.0, s)) for s, m in left[:SHOWN_MEMBERS]),
        bundles=bundles,
    )


DETAIL = DetailKind(SessionsDetail, _detail)
