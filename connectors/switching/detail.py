"""The switching policy on the status page: the progress of a switch through its stages."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from connectors.views.loop_snapshot import PolicySnapshot
from connectors.views.policy_view import DetailKind, PolicyDetail
from policies.closed_enum import ClosedEnum
from policies.switching import SwitchRecord
from policies.switching.state import WAY, LedgerStage, SwitchStage
from policies.units import Instant

_BEFORE = frozenset({SwitchStage.NONE, SwitchStage.REGISTERED, SwitchStage.PRECHECKED})


class StagePlace(ClosedEnum):
    """A stage's place in the sequence of stages."""

    PAST = "past", "The switch has passed it."
    NOW = "now", "The switch is in it."
    AHEAD = "ahead", "The switch has not reached it."


class Stage(BaseModel):
    """One stage of the sequence."""

    model_config = ConfigDict(frozen=True)

    stage: SwitchStage
    place: StagePlace


class SwitchingDetail(PolicyDetail):
    """The cluster that brokers write to, and the state of the last switch."""

    active: str | None = Field(description="The cluster that brokers write to.")
    source: str | None = Field(description="The cluster that brokers leave; null if no switch has begun.")
    target: str | None = Field(description="The cluster that they move to; null if no switch has begun.")
    stage: SwitchStage
    way: tuple[Stage, ...] = Field(description="The stages of a successful switch; empty for another one.")
    ledgers: dict[LedgerStage, int] = Field(description="Number of ledgers by stage.")
    brokers_live: int | None = Field(description="Number of live brokers; null if unknown.")
    brokers_acked: int = Field(description="Number of brokers that follow the directive in force.")
    blocked: str = Field(description="The reason why it does not go live; empty if there is none.")
    halted: str = Field(description="The reason why no orders are given; empty if there is none.")
    paused: bool
    degraded: bool
    rollback_until: Instant | None = Field(description="End of the time for a rollback; null before it is live.")


def _build_detail(snapshot: PolicySnapshot) -> SwitchingDetail | None:
    records = snapshot.of_kind(SwitchRecord)
    if not records:
        return None
    record = max(records, key=lambda each: each.decided_at)
    return SwitchingDetail(
        **{name: getattr(record, name) for name in SwitchingDetail.model_fields.keys() & SwitchRecord.model_fields},
        stage=record.verdict,
        way=tuple(_list_stages(record.verdict)),
        brokers_live=record.brokers.live,
        brokers_acked=record.brokers.acked,
    )


def _list_stages(stage: SwitchStage) -> Iterator[Stage]:
    if stage not in WAY and stage not in _BEFORE:
        return
    reached = WAY.index(stage) if stage in WAY else -1
    for number, each in enumerate(WAY):
        place = StagePlace.PAST if number < reached else StagePlace.NOW if number == reached else StagePlace.AHEAD
        yield Stage(stage=each, place=place)


DETAIL = DetailKind(SwitchingDetail, _build_detail, Path(__file__).with_name("detail.html"))
