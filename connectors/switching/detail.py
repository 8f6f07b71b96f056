"""The switching policy on the status page: the progress of a switch through its stages."""

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, Field

from connectors.loop_snapshot import PolicySnapshot
from connectors.policy_view import DetailKind, PolicyDetail
from policies.closed_enum import ClosedEnum
from policies.switching import SwitchRecord
from policies.switching.state import WAY, LedgerStage, SwitchStage
from policies.units import Instant

_BEFORE = frozenset({SwitchStage.NONE, SwitchStage.REGISTERED, SwitchStage.PRECHECKED})


class StagePlace(ClosedEnum):
    """Where a stage stands on the way."""

    PAST = "past", "The switch has been there."
    NOW = "now", "The switch is there."
    AHEAD = "ahead", "The switch is yet to come there."


class Stage(BaseModel):
    """One stage of the way."""

    model_config = ConfigDict(frozen=True)

    stage: SwitchStage
    place: StagePlace


class SwitchingDetail(PolicyDetail):
    """Where brokers write, and where the last switch stands."""

    active: str | None = Field(description="The one cluster brokers write to.")
    source: str | None = Field(description="The cluster that brokers leave; null: no switch began.")
    target: str | None = Field(description="The cluster that they move to; null: no switch began.")
    stage: SwitchStage
    way: tuple[Stage, ...] = Field(description="The stages of a switch that goes well; empty off that way.")
    ledgers: dict[LedgerStage, int] = Field(description="How many ledgers stand where.")
    brokers_live: int | None = Field(description="Null: not known.")
    brokers_acked: int = Field(description="Those that follow the directive in force.")
    blocked: str = Field(description="Why it does not go live; empty when nothing is in the way.")
    halted: str = Field(description="Why nothing is ordered; empty when it goes on.")
    paused: bool
    degraded: bool
    rollback_until: Instant | None = Field(description="Until when it can be taken back; null: it is not live yet.")


def _detail(picture: PolicySnapshot) -> SwitchingDetail | None:
    records = picture.of_kind(SwitchRecord)
    if not records:
        return None
    record = max(records, key=lambda each: each.decided_at)
    return SwitchingDetail(
        active=record.active,
        source=record.source,
        target=record.target,
        stage=record.verdict,
        way=tuple(_way(record.verdict)),
        ledgers=record.ledgers,
        brokers_live=record.brokers.live,
        brokers_acked=record.brokers.acked,
        blocked=record.blocked,
        halted=record.halted,
        paused=record.paused,
        degraded=record.degraded,
        rollback_until=record.rollback_until,
    )


def _way(stage: SwitchStage) -> Iterator[Stage]:
    if stage not in WAY and stage not in _BEFORE:
        return
    reached = WAY.index(stage) if stage in WAY else -1
    for number, each in enumerate(WAY):
        place = StagePlace.PAST if number < reached else StagePlace.NOW if number == reached else StagePlace.AHEAD
        yield Stage(stage=each, place=place)


DETAIL = DetailKind(SwitchingDetail, _detail)
