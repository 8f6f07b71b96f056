"""Alert conditions of the bookie-disks policy, in addition to those of `policies.free_space.alerts`."""

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from policies.alerts import Condition
from policies.bookie_disks.decisions import BookieThrottleReason
from policies.bookie_disks.judge import BookieVerdict, GroupVerdict
from policies.bookie_disks.readings import PublishState
from policies.bookie_disks.state import BookieDisksCluster, DirKey, GroupState, ReadOnlyCause, explain_cause
from policies.decisions import EVIDENCE_LIMIT, Mode, Severity
from policies.free_space.alerts import (
    HALF,
    SpaceAlertContext,
    SpaceAlerts,
    VolumeGrowth,
    describe_fastest,
    describe_request,
    follow_growth,
    follow_growth_before,
)
from policies.free_space.limits import Limit
from policies.free_space.volumes import NEVER, ForgottenVolume, Freshness, VolumeVerdict, name_volume
from policies.policy import AlertKind
from policies.units import agreeing, counted, human_rate, millis_of

# The alerts of the bookie-disks policy, each with its runbook.

_EXPLAIN = "headgate explain {subject}"
_RETENTION = (
    "# of the namespace that grows; first the present one, to set it back later:",
    "pulsar-admin namespaces get-retention {namespace}",
    "pulsar-admin namespaces set-retention {namespace} --time 1h --size 1G",
)
_REST = "curl -X PUT http://{bookie_http}/api/v1/bookie"
_FREE = "Delete backlog and shorten retention while the bookie still compacts (below 0.90 used), or add bookies."

ALERTS = (
    AlertKind(
        BELOW_HARD := "bookie-disk-below-hard-limit",
        (Severity.CRITICAL,),
        "A ledger dir of a bookie is at or below its hard limit.",
        _EXPLAIN,
        f"{_FREE} Beyond its thresholds a bookie frees only entry logs without live data.",
        "The dir has the hard limit and `recovery_margin` free again.",
        _RETENTION,
        many="ledger dirs of {cluster} are at their hard limit",
    ),
    AlertKind(
        BELOW_SOFT := "bookie-disk-below-soft-limit",
        (Severity.WARNING,),
        "A ledger dir of a bookie is at or below its soft limit.",
        _EXPLAIN,
        _FREE,
        "The dir has the soft limit and `recovery_margin` free again.",
        _RETENTION,
        many="ledger dirs of {cluster} are at their soft limit",
    ),
    AlertKind(
        FILLS_SOON := "bookie-disk-fills-soon",
        (Severity.WARNING,),
        "At its present rate a ledger dir is full within `time_to_full_alert`.",
        _EXPLAIN,
        f"Find the namespace that grows. {_FREE}",
        "The dir has a quarter more time than `time_to_full_alert`, or no longer fills.",
        _RETENTION,
        many="ledger dirs of {cluster} are full soon",
    ),
    AlertKind(
        UNREAD := "bookie-disks-unread",
        (Severity.WARNING, Severity.CRITICAL),
        "A bookie's disks have not been read for `validity`; critical where nothing valid is known of the cluster.",
        "headgate doctor --part collect-bookie_disks",
        "Repair what the check names: the bookie's HTTP server (`httpServerEnabled=true`), the network, or the bookie.",
        "The bookie's disks are read again.",
        many="bookies or ledger dirs of {cluster} are unread",
    ),
    AlertKind(
        READ_ONLY := "bookie-read-only",
        (Severity.WARNING,),
        "A bookie is read-only: it takes no new data.",
        _EXPLAIN,
        "The alert names the cause. `full`: add space, or add bookies. `kept`: it has room again and did not return; "
        "set it writable by the command, or restart it. It returns by itself below `diskUsageLwmThreshold`. `by_hand`: "
        "ask who did it, then set it writable by the command, or remove `forceReadOnlyBookie`.",
        "The bookie is writable, or gone.",
        (f"{_REST}/state/readonly \\\n  -H 'Content-Type: application/json' -d '{{{{\"readOnly\":false}}}}'",),
        many="bookies of {cluster} are read-only and take no new data",
    ),
    AlertKind(
        THRESHOLDS := "bookie-thresholds-unknown",
        (Severity.WARNING,),
        "A bookie's read-only or compaction threshold is not known, so `compaction-suspended` cannot warn of it.",
        "headgate doctor --part collect-bookie_disks",
        "Write `diskUsageThreshold` and `diskUsageWarnThreshold` in bookkeeper.conf as shares from 0 to 1. The "
        "reading's `detail` names the value that could not be read.",
        "The thresholds are read.",
        many="bookies of {cluster} have been read, but not the used shares at which they turn read-only",
    ),
    AlertKind(
        SUSPENDED := "compaction-suspended",
        (Severity.CRITICAL,),
        "A ledger dir is so full that its bookie suspends compaction: deleting data may free no space.",
        _EXPLAIN,
        "Deleting data frees only entry logs without live data now. Give the bookie more disk, or raise its "
        "compaction thresholds for the time of the clean-up and trigger a collection by the command.",
        "The dir has the free share at which the bookie compacts, and `recovery_margin`.",
        (f"{_REST}/gc",),
        many="ledger dirs of {cluster} are so full that their bookies suspend compaction",
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
        many="groups of {cluster} fill although publishing to them is limited",
    ),
    AlertKind(
        FORGOTTEN := "departed-ledger-dir-forgotten",
        (Severity.WARNING,),
        "A bookie no longer reports a ledger dir that limited it, and `departed_hold` is over: it does not count.",
        _EXPLAIN,
        "Look at the bookie's `ledgerDirectories`. A dir that was taken out on purpose needs nothing more.",
        "`departed_hold` after the dir was forgotten, or when it is reported again.",
        many="ledger dirs of {cluster} left while they limited their bookies, and no longer count",
    ),
    AlertKind(
        AT_RISK := "ensemble-at-risk",
        (Severity.WARNING, Severity.CRITICAL),
        "No more bookies of a placement group than a ledger needs have room above the soft limit; critical if fewer.",
        _EXPLAIN,
        "Add bookies to the group, or free space on those that have the most. With fewer than a ledger needs, "
        "producers of the group fail.",
        "More bookies than a ledger needs have room above the soft limit, by `recovery_margin`.",
        many="groups of {cluster} have no more bookies with room than a ledger needs",
    ),
)


_WRITABLE = """`curl -X PUT -d '{"readOnly":false}' http://<bookie>/api/v1/bookie/state/readonly`"""
_REMEDIES = {
    ReadOnlyCause.FULL: "; give it space, or add bookies",
    ReadOnlyCause.KEPT: f"; {_WRITABLE} makes it writable, or the dirs must fall below its diskUsageLwmThreshold",
    ReadOnlyCause.BY_HAND: f"; {_WRITABLE} makes it writable, unless bookkeeper.conf has forceReadOnlyBookie=true",
}
NAMES = SpaceAlerts("bookie", "dir", "the disks", "has not read", BELOW_HARD, BELOW_SOFT, FILLS_SOON, UNREAD)


def find_conditions(
    context: SpaceAlertContext,
    cluster: BookieDisksCluster,
    bookies: Mapping[str, BookieVerdict],
    groups: Iterable[GroupVerdict],
    forgotten: Iterable[ForgottenVolume[DirKey]],
) -> Iterator[Condition]:
    """Find all alert conditions of a cluster."""
    for dir_ in forgotten:
        name = f"{name_volume('bookie', dir_.key)} of {context.cluster}"
        summary = f"{name} left while it limited its bookie, and no longer counts"
        yield context.make_condition(FORGOTTEN, Severity.WARNING, "departed_volume", dir_.key, summary)
    for bookie in bookies.values():
        yield from _find_bookie_conditions(context, bookie)
    for group in groups:
        yield from _find_group_conditions(context, group)
    awaited_ms = (cluster.begun_ms or context.now_ms) + millis_of(context.settings.validity)
    is_any_fresh = any(bookie.freshness is Freshness.FRESH for bookie in bookies.values())
    if not is_any_fresh and (context.now_ms >= awaited_ms or any(bookie.is_known for bookie in bookies.values())):
        why = f" ({cluster.failure[1]})" if cluster.failure is not None and not bookies else ""
        summary = f"nothing is known of the disks of {context.cluster}: no valid reading of any of its bookies{why}"
        labels = {"cluster": context.cluster}
        yield Condition(UNREAD, context.cluster, Severity.CRITICAL, "no_data", summary, labels)


def _find_bookie_conditions(context: SpaceAlertContext, bookie: BookieVerdict) -> Iterator[Condition]:
    state = bookie.state
    name = f"bookie {state.name} of {context.cluster}"
    # Rounded, because 1 - 0.9 is a little less than 0.1.
    free = None if state.compaction_at is None else round(1 - state.compaction_at, 9)
    suspension = None if free is None else Limit(available_ratio_below=free)
    for each in sorted(bookie.counting, key=lambda volume: volume.key):
        if each.freshness is not Freshness.NEVER_READ:
            yield from context.find_conditions(each)
            yield from _find_suspended(context, suspension, each)
    yield from context.find_unread(bookie)
    subject, labels = f"{context.cluster}/{state.name}", {"cluster": context.cluster, "bookie": state.name}
    evidence = (state.tried_id,) if state.tried_id else ()
    if state.is_read_only:
        cause = state.read_only_cause
        summary = f"{name} is read-only and takes no new data{explain_cause(cause)}{_REMEDIES[cause] if cause else ''}"
        reason = cause.value if cause else "read_only"
        yield Condition(READ_ONLY, subject, Severity.WARNING, reason, summary, labels, evidence)
    if state.read_ms != NEVER and None in (state.read_only_at, state.compaction_at):
        summary = f"{name} has been read, but not the used shares at which it turns read-only and suspends compaction"
        yield Condition(THRESHOLDS, subject, Severity.WARNING, "thresholds", summary, labels, evidence)


def _find_suspended(context: SpaceAlertContext, limit: Limit | None, each: VolumeVerdict) -> Iterator[Condition]:
    total_bytes = each.state.total_bytes
    if limit is not None and total_bytes > 0 and context.is_below(SUSPENDED, each, limit):
        used = 1 - each.state.usable_bytes / total_bytes
        summary = (
            f"{context.describe_free(each)}: {used:.0%} are used, and from {1 - limit.value:.0%} on the bookie "
            "suspends compaction, so deleting data may free no space"
        )
        yield context.make_condition(SUSPENDED, Severity.CRITICAL, "compaction", each.key, summary, each.read_id)


def _find_group_conditions(context: SpaceAlertContext, verdict: GroupVerdict) -> Iterator[Condition]:
    if not is_at_risk(verdict):
        return
    ensemble, writable, name = verdict.group.ensemble, verdict.writable_count, verdict.group.name
    subject, roomy = f"{context.cluster}/{name}", _count_roomy(verdict)
    has, is_short = agreeing(writable, "has", "have"), writable < ensemble
    effect = "publishing should be slowed or stopped" if is_short else "one more full bookie slows or stops publishing"
    if writable > ensemble:
        margin = f"{context.settings.recovery_margin:.0%}"
        effect = f"{roomy or 'none'} of them {agreeing(roomy, 'is', 'are')} above it by {margin}"
    summary = (
        f"of the bookies of group {name} of {context.cluster}, {writable or 'none'} {has} room above the soft limit, "
        f"and a ledger needs {counted(ensemble, 'bookie')}: {effect}"
    )
    severity = Severity.CRITICAL if is_short else Severity.WARNING
    labels = {"cluster": context.cluster, "group": name}
    evidence = tuple(each.state.read_id for each in verdict.known if each.state.read_id)
    yield Condition(AT_RISK, subject, severity, "ensemble", summary, labels, evidence[-EVIDENCE_LIMIT:])


def is_at_risk(verdict: GroupVerdict) -> bool:
    """Return whether no more bookies of a group than a ledger needs have room; the alert ends by a margin only."""
    is_unknown = not verdict.known and verdict.raw_reason is not BookieThrottleReason.TOO_FEW_BOOKIES
    return not is_unknown and _count_roomy(verdict) <= verdict.group.ensemble


def _count_roomy(verdict: GroupVerdict) -> int:
    if verdict.before is not None and verdict.before.is_at_risk:
        return sum(bookie.has_room for bookie in verdict.known)
    unread = (bookie.state for bookie in verdict.unread if not bookie.is_unread)  # their first reading may still come
    return verdict.writable_count + sum(each.tried_ms == NEVER and not each.is_read_only for each in unread)


# Whether slowing publishing down has the expected effect: ledger dirs' growth, compared with the growth before it and
# with what limits let through.
#
# A bookie stores at most one copy of each entry, whatever the write quorum is, and a second one in a journal that may
# be on the same disk. Compaction copies one entry log after the other, and then deletes it. So a bookie's only ledger
# dir grows by at most twice what the limits let through, and by one entry log.

_STORED = 2.0
"""The entry logs, and a journal on the same disk."""
_TOLERATED = 3.0
"""As much again: for indexes, and because bookies flush in bursts."""
_WINDOW_SECONDS = 90.0
"""A bookie flushes each 60 s by default, so data from before a limit reaches the disk in its first window."""
_ENTRY_LOG_BYTES = 2**30
"""The default size of an entry log. Half of it in each of two windows would suffice."""


def follow_dirs(
    verdict: GroupVerdict, publishing: PublishState | None
) -> tuple[tuple[VolumeGrowth[DirKey], ...], dict[DirKey, float]]:
    """Return the growth of the dirs that limit a group while an actuator slows it down, and that from before it."""
    settings, before = verdict.settings, verdict.before
    limiting = [(bookie, each) for bookie in verdict.known if (each := bookie.tightest) and bookie.factor < 1.0]
    was_slowed = before is not None and before.gate.factor < 1.0
    known = before.growths_before if before else {}
    growths_before = follow_growth_before(known, (each for _, each in limiting), is_slowed=was_slowed)
    if verdict.move.gate.factor == 1.0 or settings.has_actuator is not True or settings.mode is not Mode.ACTIVE:
        return (), growths_before
    bounds = (
        (each, _expect(verdict, bookie, each, growths_before.get(each.key), publishing)) for bookie, each in limiting
    )
    expected = ((each, bound) for each, bound in bounds if bound < inf)
    return follow_growth(before.growths if before else (), expected, _WINDOW_SECONDS), growths_before


def _expect(
    verdict: GroupVerdict,
    bookie: BookieVerdict,
    each: VolumeVerdict,
    usual: float | None,
    publishing: PublishState | None,
) -> float:
    """Return the fastest growth that is expected of a bookie's tightest dir; infinite if unknown.

    In a stop no dir should fill up soon, whether or not it is known what the limits let through.
    """
    factor, soon_seconds = verdict.move.gate.factor, verdict.settings.time_to_full_alert.total_seconds()
    let_through = None if publishing is None else publishing.let_through_bytes_per_second
    bound = each.state.usable_bytes / soon_seconds if factor == 0.0 and soon_seconds > 0.0 else inf
    # The bytes of one of several dirs are exact only where their disks are of one size.
    if let_through is not None and len(bookie.volumes) == 1:
        bound = min(bound, _TOLERATED * let_through + _ENTRY_LOG_BYTES / _WINDOW_SECONDS)
    if usual is not None and factor < HALF:
        least = let_through or (publishing.topics_bytes_per_second if publishing else None) or 0
        bound = min(bound, max(_STORED * least, HALF * usual))
    return bound


def find_effect_conditions(
    cluster: str, groups: Iterable[tuple[GroupVerdict, GroupState]], publishing: PublishState | None, now_ms: int
) -> Iterator[Condition]:
    """Find the groups of which a dir fills too fast although publishing is slowed; the sentence names the fastest."""
    let_through = None if publishing is None else publishing.let_through_bytes_per_second
    limits = "" if let_through is None else f", where the limits let through {human_rate(let_through)}"
    for verdict, state in groups:
        if (found := describe_fastest(state.growths, state.growths_before, now_ms)) is None:
            continue
        (fastest, fills), name = found, verdict.group.name
        request, where = describe_request(verdict.move.gate.factor), name_volume("bookie", fastest.volume)
        summary = f"publishing to group {name} of {cluster} is {request}, but {where} {fills}{limits}"
        labels = {"cluster": cluster, "group": name}
        evidence = tuple(b.state.read_id for b in verdict.known if b.name == fastest.volume[0])
        yield Condition(WITHOUT_EFFECT, f"{cluster}/{name}", Severity.CRITICAL, "no_effect", summary, labels, evidence)
