"""The bookie-disks policy on the status page: the factors of placement groups, and the fullest ledger dirs."""

from collections.abc import Iterator, Mapping
from heapq import nlargest
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from connectors.bookie_disks import view as metrics
from connectors.views.disk_detail import DiskDetail
from connectors.views.loop_snapshot import PolicySnapshot
from connectors.views.policy_view import DetailKind, PolicyDetail
from policies.bookie_disks.decisions import BookieThrottle
from policies.bookie_disks.settings import BookieDisksSettings

SHOWN_GROUPS = 8
SHOWN_DIRS = 4
_LONGEST_SENTENCE = 1000


class GroupFactor(BaseModel):
    """A placement group, and the bookie that limits it."""

    model_config = ConfigDict(frozen=True)

    group: str
    factor: float = Field(description="In force; by `expired_action` while the decision is stale.")
    limiting: str | None = Field(description="The bookie that limits it now; null if none does.")


class LedgerDir(DiskDetail):
    """A ledger dir of a bookie as last read."""

    bookie: str
    ledger_dir: str


class BookieDisksDetail(PolicyDetail):
    """The factors of placement groups, and the fullest ledger dirs."""

    group_count: int
    groups: tuple[GroupFactor, ...] = Field(description=f"The slowest {SHOWN_GROUPS}, the slowest first.")
    sentence: str | None = Field(description="Why the slowest group has its factor; null while no group has one.")
    read_only: tuple[str, ...] = Field(description="The bookies that take no new data.")
    dir_count: int
    dirs: tuple[LedgerDir, ...] = Field(description=f"The fullest ledger dirs, at most {SHOWN_DIRS}.")

    def charted(self) -> Mapping[str, float]:
        """Return the least factor, and the used ratio of the fullest ledger dir."""
        values = {"least factor": self.groups[0].factor} if self.groups else {}
        return {**values, **({"fullest ledger dir": self.dirs[0].used_ratio} if self.dirs else {})}


def _build_detail(snapshot: PolicySnapshot) -> BookieDisksDetail | None:
    factors, dirs = snapshot.values(metrics.FACTOR), list(_list_dirs(snapshot))
    if not factors and not dirs:
        return None
    limiting = {group: bookie for group, bookie, *_ in snapshot.values(metrics.LIMITING)}
    slowest = sorted((factor, group) for (group,), factor in factors.items())[:SHOWN_GROUPS]
    return BookieDisksDetail(
        group_count=len(factors),
        groups=tuple(GroupFactor(group=g, factor=f, limiting=limiting.get(g)) for f, g in slowest),
        sentence=_explain_slowest(snapshot),
        read_only=tuple(sorted(bookie for (bookie,), is_set in snapshot.values(metrics.READ_ONLY).items() if is_set)),
        dir_count=len(dirs),
        dirs=tuple(nlargest(SHOWN_DIRS, dirs, key=lambda d: (d.used_ratio, d.bookie, d.ledger_dir))),
    )


def _explain_slowest(snapshot: PolicySnapshot) -> str | None:
    slowest = min(snapshot.of_kind(BookieThrottle), key=lambda each: (each.factor, each.group), default=None)
    return None if slowest is None else slowest.explanation[:_LONGEST_SENTENCE]


def _list_dirs(snapshot: PolicySnapshot) -> Iterator[LedgerDir]:
    settings, left = snapshot.settings, snapshot.values(metrics.SECONDS_TO_FULL)
    soft, hard = (settings.soft, settings.hard) if isinstance(settings, BookieDisksSettings) else (None, None)
    totals = snapshot.values(metrics.TOTAL)
    for key, usable in snapshot.values(metrics.USABLE).items():
        yield LedgerDir.measure(usable, totals[key], soft, hard, left.get(key), bookie=key[0], ledger_dir=key[1])


DETAIL = DetailKind(BookieDisksDetail, _build_detail, Path(__file__).with_name("detail.html"))
