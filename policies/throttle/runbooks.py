"""Runbooks of the throttle policy's alerts."""

from policies.policy import Runbook
from policies.throttle import alerts as named
from policies.throttle import effect

RUNBOOKS = {
    named.BELOW_HARD: Runbook(
        "headgate explain {cluster}",
        "Free space on the volume, or add brokers or disks: shorten the retention of its largest topics "
        "(`kafka-configs.sh --alter --add-config retention.ms=…`), or move partitions away. Producers stay stopped "
        "until then, if an actuator is set. Do not pause with --release: it opens the gate of a full disk.",
        "The volume has the hard limit and `recovery_margin` free again.",
    ),
    named.BELOW_SOFT: Runbook(
        "headgate explain {cluster}",
        "Find what fills the volume, and shorten retention or move partitions before the hard limit stops producers.",
        "The volume has the soft limit and `recovery_margin` free again.",
    ),
    named.FILLS_SOON: Runbook(
        "headgate explain {cluster}",
        "Find the topic that grows, and its producer. The summary has the time that is left; act before the soft "
        "limit.",
        "The volume has a quarter more time than `time_to_full_alert`, or no longer fills.",
    ),
    named.UNREAD: Runbook(
        "headgate doctor --part collect-throttle",
        "Repair what the check names: the broker, its disk, the network, or Headgate's rights (Describe on the "
        "cluster). Until then the broker's last readings count for `validity`, and then `fallback_factor`.",
        "The broker's log dirs are read again.",
    ),
    named.LIMITS_CROSS: Runbook(
        "headgate check --effective",
        "Set the soft limit above the hard one for volumes of this size: the hard limit is in bytes and the soft one a "
        "ratio, or the other way round.",
        "The soft limit lies above the hard one on this volume.",
    ),
    named.FORGOTTEN: Runbook(
        "headgate explain {cluster}",
        "Find out where the broker or disk went. If it comes back, it counts again with its next reading.",
        "After another `departed_hold`, or when the volume is back.",
    ),
    effect.ESCAPED: Runbook(
        "headgate explain {cluster}",
        "Let Headgate scale those quotas, too (`quotas.cover: all`), or name them in `quotas.entities`; or delete the "
        "more specific quota (`kafka-configs.sh --alter --delete-config producer_byte_rate`).",
        "No client has a more specific quota that is not scaled.",
    ),
    effect.CONTESTED: Runbook(
        "headgate explain {cluster}",
        "Find who sets the quota: the summary has the value and how often it returns. Take the quota out of that "
        "operator's hands (Strimzi: docs/strimzi.md), or take the entity out of `quotas.entities`.",
        "The quota has stayed as Headgate set it.",
    ),
    effect.WITHOUT_EFFECT: Runbook(
        "headgate explain {cluster}",
        "The summary names the likely cause: a client that escapes, an excluded user, a reassignment, or a user of the "
        "disk that is not Kafka. Remove it, and free space meanwhile: the quotas do not stop the disk from filling.",
        "The volume grows no faster than the quotas let through.",
    ),
    effect.UNKNOWN_ORIGINAL: Runbook(
        "headgate explain {cluster}",
        "Decide what the quota should be and set it (`kafka-configs.sh --alter --add-config producer_byte_rate=…`), or "
        "delete it. Headgate does not touch it until then.",
        "The quota was set or deleted by an operator.",
    ),
}
