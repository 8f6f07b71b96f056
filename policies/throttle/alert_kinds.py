"""The alerts of the throttle policy, each with its runbook."""

from policies.decisions import Severity
from policies.policy import AlertKind

_EXPLAIN = "headgate explain {cluster}"

ALERTS = (
    AlertKind(
        BELOW_HARD := "volume-below-hard-limit",
        (Severity.CRITICAL,),
        "A volume is at or below its hard limit: producers should stop.",
        _EXPLAIN,
        "Free space on the volume, or add brokers or disks: shorten the retention of its largest topics "
        "(`kafka-configs.sh --alter --add-config retention.ms=…`), or move partitions away. Producers stay stopped "
        "until then, if an actuator is set. If the log dir or its broker is gone for good, `headgate forget --cluster "
        "… --broker … --log-dir …` ends the hold. Do not pause with --release: it opens the gate of a full disk.",
        "The volume has the hard limit and `recovery_margin` free again.",
    ),
    AlertKind(
        BELOW_SOFT := "volume-below-soft-limit",
        (Severity.WARNING,),
        "A volume is at or below its soft limit: producers should be slowed.",
        _EXPLAIN,
        "Find what fills the volume, and shorten retention or move partitions before the hard limit stops producers.",
        "The volume has the soft limit and `recovery_margin` free again.",
    ),
    AlertKind(
        FILLS_SOON := "volume-fills-soon",
        (Severity.WARNING,),
        "At its present rate a volume is full within `time_to_full_alert`.",
        _EXPLAIN,
        "Find the topic that grows, and its producer. The summary has the time that is left; act before the soft "
        "limit.",
        "The volume has a quarter more time than `time_to_full_alert`, or no longer fills.",
    ),
    AlertKind(
        UNREAD := "log-dirs-unread",
        (Severity.WARNING, Severity.CRITICAL),
        "A broker's log dirs have not been read for `validity`, or never; critical where nothing valid is known of "
        "the cluster.",
        "headgate doctor --part collect-throttle",
        "Repair what the check names: the broker, its disk, the network, or Headgate's rights (Describe on the "
        "cluster). Until then the broker's last readings count for `validity`, and then the lesser of their factor and "
        "`fallback_factor`.",
        "The broker's log dirs are read again.",
    ),
    AlertKind(
        OFFLINE := "log-dir-offline",
        (Severity.CRITICAL,),
        "A broker reports one of its log dirs as failed, with Kafka's own error.",
        _EXPLAIN,
        "Repair or replace the disk and restart the broker; or take the dir out of its `log.dirs`. The last free space "
        "counts for `validity`, then the lesser of its factor and `fallback_factor`; once the dir is taken out, for "
        "`departed_hold` if it limited the cluster. `headgate forget --cluster … --broker … --log-dir …` ends that at "
        "once.",
        "The broker reads the log dir again, or no longer lists it.",
    ),
    AlertKind(
        REPLACED := "cluster-replaced",
        (Severity.CRITICAL,),
        "Another Kafka cluster, with an id of its own, answers at the address of a watched one.",
        "headgate doctor --part collect-throttle",
        "If the cluster was replaced on purpose, run `headgate adopt --cluster …`: its state begins empty. Else mend "
        "the address (`clusters.<name>.kafka.bootstrap_servers`, or what it resolves to). Until then the readings of "
        "the cluster before count as silence does, and nothing is set on the new one.",
        "The cluster before answers again, or the new one is adopted.",
    ),
    AlertKind(
        LIMITS_CROSS := "limits-cross",
        (Severity.WARNING,),
        "On a volume the soft limit is not above the hard one: producers would be stopped without being slowed first.",
        "headgate check --effective",
        "Set the soft limit above the hard one for volumes of this size: the hard limit is in bytes and the soft one "
        "a ratio, or the other way round.",
        "The soft limit lies above the hard one on this volume.",
    ),
    AlertKind(
        FORGOTTEN := "departed-volume-forgotten",
        (Severity.WARNING,),
        "A volume that limited the cluster left it, and its `departed_hold` is over: it no longer counts.",
        _EXPLAIN,
        "Find out where the broker or disk went. If it comes back, it counts again with its next reading.",
        "After another `departed_hold`, or when the volume is back.",
    ),
    AlertKind(
        NOT_CARRIED_OUT := "throttle-not-carried-out",
        (Severity.CRITICAL,),
        "Producers should be slowed down, and the quota actuator has set no quota at all.",
        "headgate doctor",
        "The summary has the reason of each entity: repair it, and free space meanwhile, because nothing slows the "
        "producers down.",
        "A quota is set, or producers need not be slowed down any more.",
    ),
    AlertKind(
        ESCAPED := "quota-escaped",
        (Severity.WARNING, Severity.CRITICAL),
        "Quotas that are more specific than the configured entities are not scaled, so their clients escape (critical "
        "while the factor is 0); or clients without a client id may escape, to which Kafka applies no client id's "
        "quota.",
        _EXPLAIN,
        "Let Headgate scale those quotas, too (`quotas.cover: all`), or name them in `quotas.entities`; or delete "
        "the more specific quota (`kafka-configs.sh --alter --delete-config producer_byte_rate`). Clients without an "
        "id: set `client.id` in them, or name `{user: default}` in `quotas.entities`, which all clients of a user "
        "share. A stop with `cover: all` reaches them anyway.",
        "No client has a more specific quota that is not scaled, and none lacks one.",
    ),
    AlertKind(
        CONTESTED := "quota-contested",
        (Severity.WARNING,),
        "Somebody else, such as an operator that reconciles it, puts a quota of Headgate's back again and again.",
        _EXPLAIN,
        "Find who sets the quota: the summary has the value and how often it returns. Take the quota out of that "
        "operator's hands (Strimzi: docs/strimzi.md), or take the entity out of `quotas.entities`.",
        "The quota has stayed as Headgate set it.",
    ),
    AlertKind(
        WITHOUT_EFFECT := "throttle-without-effect",
        (Severity.CRITICAL,),
        "All quotas fell to below half, and the growth of a limiting volume did not, or what grows is not Kafka's, for "
        "two quota windows.",
        _EXPLAIN,
        "The summary names the likely cause: a client that escapes, an excluded user, a reassignment, or a user of "
        "the disk that is not Kafka. Remove it, and free space meanwhile: the quotas do not stop the disk from "
        "filling.",
        "The volume has room, and grows by less than half of the growth before the throttle.",
    ),
    AlertKind(
        UNKNOWN_ORIGINAL := "quota-original-unknown",
        (Severity.WARNING,),
        "Headgate may have set a quota of which no record tells the original: an operator must decide.",
        _EXPLAIN,
        "Decide what the quota should be and set it (`kafka-configs.sh --alter --add-config producer_byte_rate=…`), "
        "or delete it. Headgate does not touch it until then.",
        "The quota was set or deleted by an operator.",
    ),
)
