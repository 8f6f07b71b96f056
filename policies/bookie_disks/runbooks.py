"""Runbooks of the bookie disks' alerts."""

from policies.bookie_disks import alerts as named
from policies.policy import Runbook

_FREE = "Delete backlog and shorten retention while the bookie still compacts (below 0.90 used), or add bookies."

RUNBOOKS = {
    named.BELOW_HARD: Runbook(
        "headgate explain {subject}",
        f"{_FREE} Beyond its thresholds a bookie frees only entry logs without live data.",
        "The dir has the hard limit and `recovery_margin` free again.",
    ),
    named.BELOW_SOFT: Runbook(
        "headgate explain {subject}", _FREE, "The dir has the soft limit and `recovery_margin` free again."
    ),
    named.FILLS_SOON: Runbook(
        "headgate explain {subject}",
        f"Find the namespace that grows. {_FREE}",
        "The dir has a quarter more time than `time_to_full_alert`, or no longer fills.",
    ),
    named.UNREAD: Runbook(
        "headgate doctor --part collect-bookie_disks",
        "Repair what the check names: the bookie's HTTP server (`httpServerEnabled=true`), the network, or the bookie.",
        "The bookie's disks are read again.",
    ),
    named.READ_ONLY: Runbook(
        "headgate explain {subject}",
        "Look at its disks: a bookie turns read-only when a dir is full. Add space, or add bookies.",
        "The bookie is writable, or gone.",
    ),
    named.SUSPENDED: Runbook(
        "headgate explain {subject}",
        "Deleting data frees only entry logs without live data now. Give the bookie more disk, or raise its compaction "
        "thresholds for the time of the clean-up and trigger a collection (`PUT /api/v1/bookie/gc`).",
        "The dir is below the share at which the bookie compacts.",
    ),
    named.WITHOUT_EFFECT: Runbook(
        "headgate explain {subject}",
        "See under `carried out` if the limits are set. These escape them: topics with publish rates of their own, "
        "the recovery of a lost bookie, another user of the disk, and many topics at the lowest rate "
        "(`publish.floor_bytes_per_second`).",
        "The dir no longer fills within `time_to_full_alert`, or publishing is no longer stopped.",
    ),
    named.AT_RISK: Runbook(
        "headgate explain {subject}",
        "Add bookies to the group, or free space on those that have the most. With fewer than a ledger needs, "
        "producers of the group fail.",
        "More bookies than a ledger needs have room above the soft limit.",
    ),
}
