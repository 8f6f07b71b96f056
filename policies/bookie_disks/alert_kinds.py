"""The alerts of the bookie-disks policy, each with its runbook."""

from policies.decisions import Severity
from policies.policy import AlertKind

_EXPLAIN = "headgate explain {subject}"
_FREE = "Delete backlog and shorten retention while the bookie still compacts (below 0.90 used), or add bookies."

ALERTS = (
    AlertKind(
        BELOW_HARD := "bookie-disk-below-hard-limit",
        (Severity.CRITICAL,),
        "A ledger dir of a bookie is at or below its hard limit.",
        _EXPLAIN,
        f"{_FREE} Beyond its thresholds a bookie frees only entry logs without live data.",
        "The dir has the hard limit and `recovery_margin` free again.",
    ),
    AlertKind(
        BELOW_SOFT := "bookie-disk-below-soft-limit",
        (Severity.WARNING,),
        "A ledger dir of a bookie is at or below its soft limit.",
        _EXPLAIN,
        _FREE,
        "The dir has the soft limit and `recovery_margin` free again.",
    ),
    AlertKind(
        FILLS_SOON := "bookie-disk-fills-soon",
        (Severity.WARNING,),
        "At its present rate a ledger dir is full within `time_to_full_alert`.",
        _EXPLAIN,
        f"Find the namespace that grows. {_FREE}",
        "The dir has a quarter more time than `time_to_full_alert`, or no longer fills.",
    ),
    AlertKind(
        UNREAD := "bookie-disks-unread",
        (Severity.WARNING, Severity.CRITICAL),
        "A bookie's disks have not been read for `validity`; critical where nothing valid is known of the cluster.",
        "headgate doctor --part collect-bookie_disks",
        "Repair what the check names: the bookie's HTTP server (`httpServerEnabled=true`), the network, or the bookie.",
        "The bookie's disks are read again.",
    ),
    AlertKind(
        READ_ONLY := "bookie-read-only",
        (Severity.WARNING,),
        "A bookie is read-only: it takes no new data.",
        _EXPLAIN,
        "The alert names the cause. `full`: add space, or add bookies. `kept`: it has room again and did not return; "
        "set it writable by its REST state, or restart it. It returns by itself below `diskUsageLwmThreshold`. "
        "`by_hand`: "
        "ask who did it, then set it writable by its REST state, or remove `forceReadOnlyBookie`.",
        "The bookie is writable, or gone.",
    ),
    AlertKind(
        THRESHOLDS := "bookie-thresholds-unknown",
        (Severity.WARNING,),
        "A bookie's read-only or compaction threshold is not known, so `compaction-suspended` cannot warn of it.",
        "headgate doctor --part collect-bookie_disks",
        "Write `diskUsageThreshold` and `diskUsageWarnThreshold` in bookkeeper.conf as shares from 0 to 1. The "
        "reading's `detail` names the value that could not be read.",
        "The thresholds are read.",
    ),
    AlertKind(
        SUSPENDED := "compaction-suspended",
        (Severity.CRITICAL,),
        "A ledger dir is so full that its bookie suspends compaction: deleting data may free no space.",
        _EXPLAIN,
        "Deleting data frees only entry logs without live data now. Give the bookie more disk, or raise its "
        "compaction thresholds for the time of the clean-up and trigger a collection (`PUT /api/v1/bookie/gc`).",
        "The dir has the free share at which the bookie compacts, and `recovery_margin`.",
    ),
    AlertKind(
        WITHOUT_EFFECT := "publish-without-effect",
        (Severity.CRITICAL,),
        "Publishing to a placement group is stopped or slowed, and a ledger dir fills faster than the limits explain.",
        _EXPLAIN,
        "See under `carried out` if the limits are set. These escape them: topics with publish rates of their own, "
        "the recovery of a lost bookie, another user of the disk, namespaces of other groups on the same bookies, "
        "and many topics at the lowest rate (`publish.floor_bytes_per_second`).",
        "The dir fills as slowly as the limits explain for a minute and a half, or publishing is no longer slowed.",
    ),
    AlertKind(
        FORGOTTEN := "departed-ledger-dir-forgotten",
        (Severity.WARNING,),
        "A bookie no longer reports a ledger dir that limited it, and `departed_hold` is over: it does not count.",
        _EXPLAIN,
        "Look at the bookie's `ledgerDirectories`. A dir that was taken out on purpose needs nothing more.",
        "`departed_hold` after the dir was forgotten, or when it is reported again.",
    ),
    AlertKind(
        AT_RISK := "ensemble-at-risk",
        (Severity.WARNING, Severity.CRITICAL),
        "No more bookies of a placement group than a ledger needs have room above the soft limit; critical if fewer.",
        _EXPLAIN,
        "Add bookies to the group, or free space on those that have the most. With fewer than a ledger needs, "
        "producers of the group fail.",
        "More bookies than a ledger needs have room above the soft limit, by `recovery_margin`.",
    ),
)
