"""The example scenario of bookie disks: the third best of four bookies fills up."""

from collections.abc import Sequence
from datetime import datetime

from policies.bookie_disks.publish_plan import FoundLimit, PublishReason, WantedShare, plan_publish
from policies.bookie_disks.readings import BookieDir, BookieDisks, BookieThresholds, PublishApplication, PublishState
from policies.bookie_disks.settings import BookieDisksSettings
from policies.examples import ExampleReport, Examples, make_readings, minutes
from policies.observations import Outcome, Reading, ReportResult

_GIGABYTE = 10**9
_CLUSTER = "messaging"
_THRESHOLDS = BookieThresholds(read_only=0.95, major_compaction=0.90, minor_compaction=0.95)


def examples() -> Examples:
    """Make the examples of the references."""
    return Examples(
        settings=BookieDisksSettings(ensemble=3),
        batches=(make_readings("headgate/collector/bookie-http", *_readings()),),
        reports=(ExampleReport("publish-1", minutes(3), _applied()),),
        cluster={
            "publish": {"by": "namespace", "base": "20MB"},
            "bookie_disks": {"bookie_url": "http://bookie.example.org:8000"},
        },
        block={"clusters": {"dev-*": {"mode": "shadow"}}},
    )


def _readings() -> Sequence[tuple[str, datetime, Reading]]:
    """Four bookies; a dir of the third best fills by 1 GB a minute. The readings that the pages show come first."""
    filling = [(f"filling-{minute}", minutes(minute), _disks("bk7:3181", 19.0 - minute)) for minute in range(4)]
    publishing = PublishState(cluster=_CLUSTER, outcome=Outcome.OK, let_through_bytes_per_second=30_000_000)
    others = (("bk5:3181", 60.0), ("bk6:3181", 55.0), ("bk8:3181", 13.0))
    return (
        *reversed(filling),
        *((f"other-{bookie}", minutes(3), _disks(bookie, free)) for bookie, free in others),
        ("limits-3", minutes(3), publishing),
    )


def _applied() -> PublishApplication:
    """The rate of a namespace is set to the factor's share of 20 MB/s."""
    wanted = WantedShare(0.5, PublishReason.DECIDED)
    plan = plan_publish(wanted, None, FoundLimit(None, None), base=20_000_000, floor=65_536)
    return PublishApplication(
        cluster=_CLUSTER,
        target="acme/orders",
        by="namespace",
        factor=wanted.factor,
        verdict=plan.verdict,
        reason=plan.reason,
        rate_bytes_per_second=plan.rate,
        previous_bytes_per_second=plan.found.rate,
        outcome=ReportResult.APPLIED,
    ).explained(minutes(3))


def _disks(bookie: str, usable_gigabytes: float) -> BookieDisks:
    usable_bytes = round(usable_gigabytes * _GIGABYTE)
    ledgers = BookieDir(dir="/data/ledgers0", total_bytes=100 * _GIGABYTE, usable_bytes=usable_bytes)
    return BookieDisks(cluster=_CLUSTER, outcome=Outcome.OK, bookie=bookie, dirs=(ledgers,), thresholds=_THRESHOLDS)
