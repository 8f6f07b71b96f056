"""The throttle policy on the status page: the factor, and the fullest volumes."""

from collections.abc import Iterator, Mapping
from heapq import nlargest

from pydantic import BaseModel, ConfigDict, Field

from connectors.loop_snapshot import PolicySnapshot
from connectors.policy_view import DetailKind, PolicyDetail
from connectors.throttle import view as metrics
from policies.throttle import ThrottleSettings
from policies.throttle.limits import Limit

SHOWN_VOLUMES = 4


class Volume(BaseModel):
    """A volume as last read."""

    model_config = ConfigDict(frozen=True)

    broker: str
    log_dir: str
    usable_bytes: float = Field(description="Free for the broker.")
    total_bytes: float
    used_ratio: float = Field(description="From 0 to 1.")
    soft_ratio: float | None = Field(description="The used ratio from which producers are slowed; null: no limit.")
    hard_ratio: float | None = Field(description="The used ratio from which they are stopped; null: no limit.")
    seconds_to_full: float | None = Field(description="At its present rate; null: not known to fill.")


class ThrottleDetail(PolicyDetail):
    """How much the cluster's producers should write, and why."""

    factor: float | None = Field(description="In force: the fallback while the decision is stale; null: none yet.")
    brokers: dict[str, int] = Field(description="By how they count: counted, stale, departed; empty while stale.")
    volume_count: int
    volumes: tuple[Volume, ...] = Field(description=f"The fullest, at most {SHOWN_VOLUMES}.")

    def charted(self) -> Mapping[str, float]:
        """The factor, and the fullest volume."""
        values = {} if self.factor is None else {"factor": self.factor}
        return {**values, **({"fullest volume": self.volumes[0].used_ratio} if self.volumes else {})}


def _detail(picture: PolicySnapshot) -> ThrottleDetail | None:
    volumes, factor = list(_volumes(picture)), picture.value(metrics.FACTOR)
    if factor is None and not volumes:
        return None
    fullest = nlargest(SHOWN_VOLUMES, volumes, key=lambda v: (v.used_ratio, v.broker, v.log_dir))
    brokers = {state: round(count) for (state,), count in picture.values(metrics.BROKERS).items()}
    return ThrottleDetail(factor=factor, brokers=brokers, volume_count=len(volumes), volumes=tuple(fullest))


def _volumes(picture: PolicySnapshot) -> Iterator[Volume]:
    settings, left = picture.settings, picture.values(metrics.SECONDS_TO_FULL)
    totals = picture.values(metrics.TOTAL)
    soft, hard = (settings.soft, settings.hard) if isinstance(settings, ThrottleSettings) else (None, None)
    for key, usable in picture.values(metrics.USABLE).items():
        total = totals[key]
        yield Volume(
            broker=key[0],
            log_dir=key[1],
            usable_bytes=usable,
            total_bytes=total,
            used_ratio=_used(usable, total),
            soft_ratio=_limit(soft, total),
            hard_ratio=_limit(hard, total),
            seconds_to_full=left.get(key),
        )


def _limit(limit: Limit | None, total_bytes: float) -> float | None:
    return None if limit is None else _used(limit.in_bytes(round(total_bytes)), total_bytes)


def _used(free: float, total: float) -> float:
    return min(1.0, max(0.0, 1 - free / total)) if total > 0 else 0.0


DETAIL = DetailKind(ThrottleDetail, _detail)
