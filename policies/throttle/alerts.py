"""Alert conditions of the throttle policy, in addition to those of `policies.free_space.alerts`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from shlex import join
from typing import TYPE_CHECKING

from policies.alerts import Condition
from policies.decisions import EVIDENCE_LIMIT, Severity
from policies.free_space.alerts import (
    HALF,
    HeldAlert,
    SpaceAlertContext,
    SpaceAlerts,
    VolumeGrowth,
    describe_fastest,
    describe_request,
    follow_growth,
)
from policies.free_space.limits import LimitHit
from policies.free_space.volumes import Freshness, VolumeVerdict, name_volume
from policies.policy import AlertKind
from policies.throttle.quotas import NamedQuota, QuotaState
from policies.throttle.settings import forget_command
from policies.throttle.state import (
    MeasuredUsage,
    VolumeKey,
    describe_departure,
    describe_filling,
    describe_growth,
    explains,
)
from policies.units import counted, format_second, human_bytes, human_rate, human_seconds, millis_of, name_some

if TYPE_CHECKING:  # commands that list the alerts judge nothing
    from policies.throttle.judge import BrokerVerdict, BrokerVerdicts, ClusterVerdict
    from policies.throttle.state import ThrottleState

# The alerts of the throttle policy, each with its runbook.

_EXPLAIN = "headgate explain {cluster}"
_CONFIGS = "kafka-configs.sh --bootstrap-server {servers} \\\n  "
_SHORTEN = (
    "# its retention now, to set it back later:",
    f"{_CONFIGS}--describe --entity-type topics --entity-name {{topic}}",
    "# keep one hour of it:",
    f"{_CONFIGS}--alter --entity-type topics --entity-name {{topic}} \\\n  --add-config retention.ms=3600000",
    "# within five minutes its size falls, then the free space, and the alert ends:",
    "kafka-log-dirs.sh --bootstrap-server {servers} --describe \\\n  --broker-list {broker} --topic-list {topic}",
    "headgate status --cluster {cluster}",
)
_SHORTENED = (
    "The commands shorten the retention of the largest topic on the volume that decides the factor; where the brokers "
    "want a login, add `--command-config FILE`. Kafka deletes whole segments, and looks for old ones every five "
    "minutes (`log.retention.check.interval.ms`). Once there is room, set the retention back, or delete it "
    "(`--delete-config retention.ms`) if the topic had none of its own."
)
_OF_CLIENT = " \\\n  --entity-type clients --entity-name {client_id}"
_FORGET = "headgate forget --cluster {cluster} --broker {broker} --log-dir {log_dir}"

ALERTS = (
    AlertKind(
        BELOW_HARD := "volume-below-hard-limit",
        (Severity.CRITICAL,),
        "A volume is at or below its hard limit: producers should stop.",
        _EXPLAIN,
        f"Free space on the volume, or add brokers or disks. {_SHORTENED} Producers stay stopped until then, if an "
        "actuator is set. If the log dir or its broker is gone for good, the last command ends the hold. Do not pause "
        "with --release: it opens the gate of a full disk.",
        "The volume has the hard limit and `recovery_margin` free again.",
        (*_SHORTEN, "# only if the log dir is gone for good:", _FORGET),
        many="volumes of {cluster} are at their hard limit",
    ),
    AlertKind(
        BELOW_SOFT := "volume-below-soft-limit",
        (Severity.WARNING,),
        "A volume is at or below its soft limit: producers should be slowed.",
        _EXPLAIN,
        f"Find what fills the volume, and make room before the hard limit stops producers. {_SHORTENED}",
        "The volume has the soft limit and `recovery_margin` free again.",
        _SHORTEN,
        many="volumes of {cluster} are at their soft limit",
    ),
    AlertKind(
        FILLS_SOON := "volume-fills-soon",
        (Severity.WARNING,),
        "At its present rate a volume is full within `time_to_full_alert`.",
        _EXPLAIN,
        "Find the topic that grows, and its producer. The summary has the time that is left; act before the soft "
        f"limit. {_SHORTENED}",
        "The volume has a quarter more time than `time_to_full_alert`, or no longer fills.",
        _SHORTEN,
        many="volumes of {cluster} are full soon",
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
        many="brokers or log dirs of {cluster} are unread",
    ),
    AlertKind(
        OFFLINE := "log-dir-offline",
        (Severity.CRITICAL,),
        "A broker reports one of its log dirs as failed, with Kafka's own error.",
        _EXPLAIN,
        "Repair or replace the disk and restart the broker; or take the dir out of its `log.dirs`. The last free space "
        "counts for `validity`, then the lesser of its factor and `fallback_factor`; once the dir is taken out, for "
        "`departed_hold` if it limited the cluster. Then the command ends that at once.",
        "The broker reads the log dir again, or no longer lists it.",
        (_FORGET,),
        many="log dirs of {cluster} are reported as failed",
    ),
    AlertKind(
        REPLACED := "cluster-replaced",
        (Severity.CRITICAL,),
        "Another Kafka cluster, with an id of its own, answers at the address of a watched one.",
        "headgate doctor --part collect-throttle",
        "If the cluster was replaced on purpose, adopt it by the command: its state begins empty. Else mend "
        "the address (`clusters.<name>.kafka.bootstrap_servers`, or what it resolves to). Until then the readings of "
        "the cluster before count as silence does, and nothing is set on the new one.",
        "The cluster before answers again, or the new one is adopted.",
        ("headgate adopt --cluster {cluster}",),
    ),
    AlertKind(
        LIMITS_CROSS := "limits-cross",
        (Severity.WARNING,),
        "On a volume the soft limit is not above the hard one: producers would be stopped without being slowed first.",
        "headgate check --effective",
        "Set the soft limit above the hard one for volumes of this size: the hard limit is in bytes and the soft one "
        "a ratio, or the other way round.",
        "The soft limit lies above the hard one on this volume.",
        many="volumes of {cluster} have a soft limit that is not above their hard limit",
    ),
    AlertKind(
        FORGOTTEN := "departed-volume-forgotten",
        (Severity.WARNING,),
        "A volume that limited the cluster left it, and its `departed_hold` is over: it no longer counts.",
        _EXPLAIN,
        "Find out where the broker or disk went. If it comes back, it counts again with its next reading.",
        "After another `departed_hold`, or when the volume is back.",
        many="volumes of {cluster} left while they limited, and no longer count",
    ),
    AlertKind(
        NOT_CARRIED_OUT := "throttle-not-carried-out",
        (Severity.CRITICAL,),
        "Producers should be slowed down, and the quota actuator has set no quota at all.",
        "headgate doctor --part act",
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
        "the more specific quota by the command: the summary names user and client id (`--entity-type users` for a "
        "user, both for a pair). Clients without an id: set `client.id` in them, or name `{user: default}` in "
        "`quotas.entities`, which all clients of a user share. A stop with `cover: all` reaches them anyway.",
        "No client has a more specific quota that is not scaled, and none lacks one.",
        (f"{_CONFIGS}--alter --delete-config producer_byte_rate{_OF_CLIENT}",),
    ),
    AlertKind(
        CONTESTED := "quota-contested",
        (Severity.WARNING,),
        "Somebody else, such as an operator that reconciles it, puts a quota of Headgate's back again and again.",
        _EXPLAIN,
        "Find who sets the quota: the summary has the value and how often it returns. Take the quota out of that "
        "operator's hands (Strimzi: docs/strimzi.md), or take the entity out of `quotas.entities`.",
        "The quota has stayed as Headgate set it.",
        many="quotas of {cluster} are set by somebody else, too",
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
        "Decide what the quota should be and set it, as the command does for a client id (`--entity-type users` "
        "for a user, both for a pair); or keep it by the command of the summary. Headgate does not touch it until "
        "then.",
        "The quota was set or deleted by an operator.",
        (f"{_CONFIGS}--alter --add-config producer_byte_rate={{bytes_per_second}}{_OF_CLIENT}",),
        many="quotas of {cluster} may be Headgate's, and no record tells the originals",
    ),
)


_NAMES = SpaceAlerts("broker", "log_dir", "log dirs", "cannot read", BELOW_HARD, BELOW_SOFT, FILLS_SOON, UNREAD)


def find_conditions(
    cluster: str, verdict: "ClusterVerdict", held: Collection[HeldAlert[VolumeKey]]
) -> tuple[list[Condition], tuple[HeldAlert[VolumeKey], ...]]:
    """Find the alert conditions of a cluster's brokers and volumes, and the alerts about volumes that hold now.

    A condition that held at the last step ends by a margin only.
    """
    brokers = verdict.brokers
    context = SpaceAlertContext(_NAMES, cluster, brokers.now_ms, brokers.settings, frozenset(held))
    has_held = {key[0] for _, key in held}
    found = [*_find_cluster_conditions(context, verdict)]
    for number, broker in brokers.brokers.items():
        if broker.is_notable or number in has_held:
            found += _find_broker_conditions(context, broker)
    return found, tuple(sorted(context.held))


def _find_broker_conditions(context: SpaceAlertContext, broker: "BrokerVerdict") -> Iterator[Condition]:
    """Find the alert conditions of one broker and its volumes.

    With the preset `strimzi`, volumes that no longer count are watched, too.
    """
    state, validity_ms = broker.state, millis_of(context.settings.validity)
    hard, soft = context.settings.hard, context.settings.soft
    for volume in broker.counting:
        if volume.freshness is not Freshness.NEVER_READ:
            growth = partial(describe_filling, state, volume.state, context.now_ms, validity_ms)
            yield from context.find_conditions(volume, growth)
            begins = volume.freshness is Freshness.FRESH and volume.hit is not LimitHit.NONE
            is_known = begins or (LIMITS_CROSS, volume.key) in context.before
            total = volume.state.total_bytes
            if is_known and hard and soft and soft.in_bytes(total) <= hard.in_bytes(total):
                where, severity = name_volume("broker", volume.key), Severity.WARNING
                summary = (
                    f"the soft limit is not above the hard limit on {where} of {context.cluster}: "
                    "producers would be stopped there without being slowed first"
                )
                key, read_id = volume.key, volume.read_id
                yield context.make_condition(LIMITS_CROSS, severity, "limits_cross", key, summary, read_id)
    volumes = {volume.key: volume for volume in broker.volumes if volume.departed_ms is None}
    for log_dir, error in state.errors if state.left_ms is None else ():
        key = (state.name, log_dir)
        summary = f"broker {state.name} of {context.cluster} reports its log dir {log_dir} as failed ({error})"
        if (known := volumes.get(key)) is not None and known.read_at is not None:
            free, read_at = human_bytes(known.state.usable_bytes), format_second(known.read_at)
            summary += f"; it had {free} free when it was last read, at {read_at}"
        yield context.make_condition(OFFLINE, Severity.CRITICAL, "offline", key, summary, state.read_id)
    yield from context.find_unread(broker, dict(state.errors))


def _find_cluster_conditions(context: SpaceAlertContext, verdict: "ClusterVerdict") -> Iterator[Condition]:
    """Find the alert conditions of the cluster as a whole."""
    known, cluster = verdict.brokers.known, context.cluster
    if known.other_id is not None:
        summary = (
            f"another Kafka cluster answers for {cluster}: its id is {known.other_id}, before it was "
            f"{known.cluster_id}; its readings do not count, and nothing is set on it until somebody runs "
            f"{join(['headgate', 'adopt', '--cluster', cluster])}"
        )
        labels = {"cluster": cluster, "cluster_id": known.other_id}
        yield Condition(REPLACED, cluster, Severity.CRITICAL, "replaced", summary, labels)
    for volume in verdict.forgotten:
        how = describe_departure(volume.key, was_taken_out=volume.was_taken_out)
        summary = f"{cluster}: {how}, and no longer counts"
        yield context.make_condition(FORGOTTEN, Severity.WARNING, "departed_volume", volume.key, summary)
    brokers = verdict.brokers
    is_silent = brokers.has(Freshness.STALE) or any(True for _ in brokers.unread())
    if verdict.raw_reason.value == "no_data" or (is_silent and not brokers.has(Freshness.FRESH)):
        summary = f"nothing is known of the log dirs of {cluster}: no valid reading of any of its brokers"
        evidence = tuple(b.tried_id for b in verdict.brokers.unread() if b.tried_id)[:EVIDENCE_LIMIT]
        yield Condition(UNREAD, cluster, Severity.CRITICAL, "no_data", summary, {"cluster": cluster}, evidence)


# Whether a throttle has the expected effect: the limiting volumes' growth, compared with the growth before it.
#
# Kafka does not report how many clients share an entity, so what the quotas let through is no upper bound. But where
# all quotas fell to below half, a growth that did not fall to below half is not slowed down. So is a growth that the
# replica sizes ascribe to files that are not Kafka's. What one client of each entity may write is expected in any
# case. Two quota windows one after the other are an alert.

_TOLERATED = 2.0
"""Growth up to this multiple of what the quotas let through is expected: indexes, and requests under way."""


def follow_volumes(
    before: Collection[VolumeGrowth[VolumeKey]],
    usual: Mapping[VolumeKey, float],
    quotas: QuotaState | None,
    limiting: Iterable[VolumeVerdict],
    brokers: "BrokerVerdicts",
) -> tuple[VolumeGrowth[VolumeKey], ...]:
    """Return the growth of the limiting volumes while all quotas of a throttle are in force."""
    if quotas is None or not is_in_force(quotas) or (quotas.factor or 0.0) >= HALF:
        return ()
    known = {growth.volume: growth for growth in before}
    # In a stop all entities have about the same quota, the floor. Clients of one of them may fill the volume.
    entities = quotas.set_count if quotas.factor == 0.0 else 1
    least = _TOLERATED * quotas.let_through_bytes_per_second / entities

    def expect(volume: VolumeVerdict) -> float:
        growth, usage, most = known.get(volume.key), brokers.find_usage(volume.key), HALF * usual.get(volume.key, inf)
        if growth is not None and growth.is_unexpected and growth.most_bytes_per_second < most:
            return least  # it was foreign: usage that is not known any more is no recovery
        rate = growth.bytes_per_second if growth is not None else 0.0
        return least if usage is not None and _is_foreign(usage) and explains(usage.of, rate) else max(least, most)

    return follow_growth(before, ((volume, expect(volume)) for volume in limiting), quotas.window_seconds)


def is_in_force(quotas: QuotaState | None) -> bool:
    """Whether all quotas of a throttle are in force."""
    is_throttled = quotas is not None and quotas.factor is not None and quotas.factor < 1.0
    return quotas is not None and is_throttled and quotas.is_settled and quotas.set_count > 0


def find_effect_conditions(
    cluster: str, after: "ThrottleState", quotas: QuotaState | None, brokers: "BrokerVerdicts"
) -> Iterator[Condition]:
    """Find the alert conditions of a cluster's quotas, from the actuator's last reading and the limiting volumes."""
    if quotas is None:
        return
    labels, evidence, now_ms = {"cluster": cluster}, (after.effect.id,), brokers.now_ms
    if quotas.factor is not None and quotas.factor < 1.0 and not quotas.set_count:
        why = quotas.not_set or "the quota actuator has set no quota"
        request = f"{cluster} should be {describe_request(quotas.factor)}"
        summary = f"{request}, which is not carried out: nobody is slowed down: {why}"
        yield Condition(NOT_CARRIED_OUT, cluster, Severity.CRITICAL, "not_set", summary, labels, evidence)
    if quotas.escaping_count or quotas.clients_without_id_escape:
        severity = Severity.CRITICAL if quotas.factor == 0.0 and quotas.escaping_count else Severity.WARNING
        summary = "; ".join(_describe_escapes(cluster, quotas))
        yield Condition(ESCAPED, cluster, severity, "escaped", summary, labels, evidence, quotas.escaping_count)
    for each in quotas.contested:
        period = "again and again" if each.period_seconds is None else f"every {human_seconds(each.period_seconds)}"
        summary = f"somebody else sets the quota {each.entity} of {cluster} to {_render(each)} {period}: "
        summary += "take it out of the hands of that operator"
        subject = f"{cluster}/{each.entity}"
        yield Condition(CONTESTED, subject, Severity.WARNING, "contested", summary, labels, evidence)
    for each in quotas.unknown:
        summary = f"the quota {each.entity} of {cluster} is {_render(each)}, which Headgate may have set, "
        summary += f"and no record tells the original: set it, or keep it with {forget_command(each.entity)}"
        subject = f"{cluster}/{each.entity}"
        yield Condition(UNKNOWN_ORIGINAL, subject, Severity.WARNING, "unknown_original", summary, labels, evidence)
    if (found := describe_fastest(after.growths, after.growths_before, now_ms)) is not None:
        (fastest, fills), where = found, name_volume("broker", found[0].volume)
        summary = (
            f"{cluster} is {describe_request(quotas.factor)}, but {where} {fills} where its quotas "
            f"let through {human_rate(quotas.let_through_bytes_per_second)}: "
            f"{_find_cause(quotas, brokers.find_usage(fastest.volume), now_ms, fastest.bytes_per_second)}"
        )
        yield Condition(WITHOUT_EFFECT, cluster, Severity.CRITICAL, "no_effect", summary, labels)


def _describe_escapes(cluster: str, quotas: QuotaState) -> Iterator[str]:
    if quotas.escaping_count:
        decide, unscaled = ("decides", "is") if quotas.escaping_count == 1 else ("decide", "are")
        yield (
            f"{counted(quotas.escaping_count, 'quota')} of {cluster} {decide} in place of the configured entities and "
            f"{unscaled} not scaled, so these clients escape: {_list(quotas.escaping)}"
        )
    if quotas.clients_without_id_escape:
        stop = "" if quotas.factor == 0.0 else ", and only a stop with `cover: all` reaches them"
        yield f"clients of {cluster} without a client id may escape: no quota of a client id applies to them{stop}"


def _find_cause(quotas: QuotaState, usage: MeasuredUsage | None, now_ms: int, bytes_per_second: float) -> str:
    """Name the likely cause of a growth."""
    if usage is not None and not explains(usage.of, bytes_per_second):
        usage = None
    if quotas.escaping:
        return f"clients escape by {_list(quotas.escaping)}"
    if quotas.callback_brokers:
        listed = name_some([str(each) for each in quotas.callback_brokers])
        which = f"broker {listed} ignores" if len(quotas.callback_brokers) == 1 else f"brokers {listed} ignore"
        return f"{which} quotas because of a client.quota.callback.class"
    if usage is not None and _is_foreign(usage):
        return f"a user of the disk that is not Kafka ({describe_growth(usage, now_ms)})"
    growing = [each for each in usage.of.topics if (each.share or 0.0) >= 0.5] if usage is not None else []
    if growing and growing[0].topic.startswith("__"):
        return f"the internal topic {growing[0].topic}"
    if growing and growing[0].is_moved:
        return describe_growth(usage, now_ms)
    excluded = f"excluded users ({name_some(quotas.excluded_users)}), " if quotas.excluded_users else ""
    excluded += "a user of the disk that is not Kafka, " if usage is None else ""
    known = f" ({growth})" if (growth := describe_growth(usage, now_ms)) else ""
    excluded += "clients without a client id, " if quotas.clients_without_id_escape else ""
    return f"{excluded}a partition that is being moved here, or many clients that write less than their quotas{known}"


def _is_foreign(usage: MeasuredUsage) -> bool:
    """Whether files that are not Kafka's are at least half of what grows."""
    return (usage.of.other_share or 0.0) >= HALF


def _list(named: Sequence[NamedQuota]) -> str:
    return name_some([f"{each.entity} ({_render(each)})" for each in named])


def _render(quota: NamedQuota) -> str:
    return "no quota" if quota.bytes_per_second is None else f"{human_bytes(quota.bytes_per_second)}/s"
