"""The throttle policy on the status page: the factor, and the fullest volumes."""

from collections.abc import Iterator, Mapping
from heapq import nlargest
from pathlib import Path

from pydantic import Field

from connectors.throttle import view as metrics
from connectors.views.disk_detail import DiskDetail
from connectors.views.loop_snapshot import PolicySnapshot
from connectors.views.policy_view import DetailKind, PolicyDetail
from policies.throttle import ThrottleFactor, ThrottleSettings
from policies.throttle.decisions import FilledBy

SHOWN_VOLUMES = 4


class Volume(DiskDetail):
    """A volume as last read."""

    broker: str
    log_dir: str
    cordoned: bool = Field(description="Its broker places no new partitions on it.")


class ThrottleDetail(PolicyDetail):
    """The cluster's throttle factor, and the fullest volumes."""

    factor: float | None = Field(
        description="In force; by `expired_action` while the decision is stale; null before the first."
    )
    brokers: dict[str, int] = Field(
        description="Number of brokers by state: counted, stale, departed; empty while stale."
    )
    volume_count: int
    volumes: tuple[Volume, ...] = Field(description=f"The fullest volumes, at most {SHOWN_VOLUMES}.")

    filled_by: FilledBy | None = Field(
        description="The topics that fill the volume that decided, or the one that is full first; null if unknown."
    )

    def charted(self) -> Mapping[str, float]:
        """Return the factor, and the used ratio of the fullest volume."""
        values = {} if self.factor is None else {"factor": self.factor}
        return {**values, **({"fullest volume": self.volumes[0].used_ratio} if self.volumes else {})}


def _build_detail(snapshot: PolicySnapshot) -> ThrottleDetail | None:
    volumes, factor = list(_list_volumes(snapshot)), snapshot.value(metrics.FACTOR)
    if factor is None and not volumes:
        return None
    fullest = nlargest(SHOWN_VOLUMES, volumes, key=lambda v: (v.used_ratio, v.broker, v.log_dir))
    brokers = {state: round(count) for (state,), count in snapshot.values(metrics.BROKERS).items()}
    return ThrottleDetail(
        factor=factor,
        brokers=brokers,
        volume_count=len(volumes),
        volumes=tuple(fullest),
        filled_by=next((decision.filled_by for decision in snapshot.of_kind(ThrottleFactor)), None),
    )


def _list_volumes(snapshot: PolicySnapshot) -> Iterator[Volume]:
    settings, left = snapshot.settings, snapshot.values(metrics.SECONDS_TO_FULL)
    totals, cordoned = snapshot.values(metrics.TOTAL), snapshot.values(metrics.CORDONED)
    soft, hard = (settings.soft, settings.hard) if isinstance(settings, ThrottleSettings) else (None, None)
    for key, usable in snapshot.values(metrics.USABLE).items():
        own = {"broker": key[0], "log_dir": key[1], "cordoned": key in cordoned}
        yield Volume.measure(usable, totals[key], soft, hard, left.get(key), **own)


DETAIL = DetailKind(ThrottleDetail, _build_detail, Path(__file__).with_name("detail.html"))
