"""Alert conditions of the bookie-disks policy, in addition to those of `policies.free_space.alerts`."""

from collections.abc import Iterable, Iterator, Mapping

from policies.alerts import Condition
from policies.bookie_disks.alert_kinds import (
    AT_RISK,
    BELOW_HARD,
    BELOW_SOFT,
    FILLS_SOON,
    FORGOTTEN,
    READ_ONLY,
    SUSPENDED,
    THRESHOLDS,
    UNREAD,
)
from policies.bookie_disks.decisions import BookieThrottleReason
from policies.bookie_disks.judge.bookies import BookieVerdict, DirVerdict
from policies.bookie_disks.judge.groups import GroupVerdict
from policies.bookie_disks.messages import explain_cause, name_dir
from policies.bookie_disks.state import BookieDisksCluster, ForgottenDir, ReadOnlyCause
from policies.decisions import EVIDENCE_LIMIT, Severity
from policies.free_space.alerts import SpaceAlertContext, SpaceAlerts
from policies.free_space.volumes import NEVER, Freshness
from policies.units import agreeing, counted, format_duration

_WRITABLE = """`curl -X PUT -d '{"readOnly":false}' http://<bookie>/api/v1/bookie/state/readonly`"""
_REMEDIES = {
    ReadOnlyCause.FULL: "; give it space, or add bookies",
    ReadOnlyCause.KEPT: f"; {_WRITABLE} makes it writable, or the dirs must fall below its diskUsageLwmThreshold",
    ReadOnlyCause.BY_HAND: f"; {_WRITABLE} makes it writable, unless bookkeeper.conf has forceReadOnlyBookie=true",
}
NAMES = SpaceAlerts("bookie", "dir", BELOW_HARD, BELOW_SOFT, FILLS_SOON)


def find_conditions(
    context: SpaceAlertContext,
    cluster: BookieDisksCluster,
    bookies: Mapping[str, BookieVerdict],
    groups: Iterable[GroupVerdict],
    forgotten: Iterable[ForgottenDir],
) -> Iterator[Condition]:
    """Find all alert conditions of a cluster."""
    for dir_ in forgotten:
        name = f"{name_dir(*dir_.key)} of {context.cluster}"
        summary = f"{name} left while it limited its bookie, and no longer counts"
        yield NAMES.make_condition(context.cluster, FORGOTTEN, Severity.WARNING, "departed_volume", dir_.key, summary)
    for bookie in bookies.values():
        if not bookie.is_calm:
            yield from _find_bookie_conditions(context, bookie)
    for group in groups:
        yield from _find_group_conditions(context, group)
    if not any(bookie.facts.freshness is Freshness.FRESH for bookie in bookies.values()):
        yield from _find_nothing_known(context, cluster, bookies)


def _find_bookie_conditions(context: SpaceAlertContext, bookie: BookieVerdict) -> Iterator[Condition]:
    state = bookie.facts.state
    name = f"bookie {state.bookie} of {context.cluster}"
    for each in bookie.dirs:
        if each.is_unreadable(bookie.facts):
            unread_for = format_duration(context.settings.validity)
            summary = f"{name} answers, but has not read {each.key[1]} for {unread_for}"
            yield context.make_condition(UNREAD, Severity.WARNING, "unreadable", each, summary)
        if each.freshness is Freshness.NEVER_READ:
            continue
        yield from context.find_conditions(each)
        yield from _find_suspended(context, bookie, each)
    subject, labels = f"{context.cluster}/{state.bookie}", {"cluster": context.cluster, "bookie": state.bookie}
    evidence = (state.tried_id,) if state.tried_id else ()
    if state.is_read_only:
        cause = state.read_only_cause
        summary = f"{name} is read-only and takes no new data{explain_cause(cause)}{_REMEDIES[cause] if cause else ''}"
        yield Condition(
            READ_ONLY, subject, Severity.WARNING, cause.value if cause else "read_only", summary, labels, evidence
        )
    if state.read_ms != NEVER and not state.has_thresholds:
        summary = f"{name} has been read, but not the used shares at which it turns read-only and suspends compaction"
        yield Condition(THRESHOLDS, subject, Severity.WARNING, "thresholds", summary, labels, evidence)
    if bookie.facts.is_unread:
        why = state.outcome if state.outcome not in ("", "ok") else "silence"
        summary = f"the disks of {name} are unread for {format_duration(context.settings.validity)} ({why})"
        yield Condition(UNREAD, subject, Severity.WARNING, why, summary, labels, evidence)


def _find_suspended(context: SpaceAlertContext, bookie: BookieVerdict, each: DirVerdict) -> Iterator[Condition]:
    thresholds, total_bytes = bookie.facts.state.thresholds, each.state.total_bytes
    limit = None if thresholds is None else thresholds.suspension
    if limit is not None and total_bytes > 0 and context.is_below(SUSPENDED, each, limit):
        used = 1 - each.state.usable_bytes / total_bytes
        summary = (
            f"{context.describe_free(each)}: {used:.0%} are used, and from {1 - limit.value:.0%} on the bookie "
            "suspends compaction, so deleting data may free no space"
        )
        yield context.make_condition(SUSPENDED, Severity.CRITICAL, "compaction", each, summary)


def _find_group_conditions(context: SpaceAlertContext, verdict: GroupVerdict) -> Iterator[Condition]:
    ensemble, writable, name = verdict.group.ensemble, verdict.writable_count, verdict.group.name
    is_unknown = not verdict.ranked.known and verdict.raw_reason is not BookieThrottleReason.TOO_FEW_BOOKIES
    subject = f"{context.cluster}/{name}"
    if (AT_RISK, subject) in context.firing:
        roomy = sum(bookie.has_room for bookie in verdict.ranked.known)
    else:
        roomy = writable + verdict.awaited_count
    if is_unknown or roomy > ensemble:
        return
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
    evidence = tuple(each.facts.state.read_id for each in verdict.ranked.known if each.facts.state.read_id)
    yield Condition(AT_RISK, subject, severity, "ensemble", summary, labels, evidence[-EVIDENCE_LIMIT:])


def _find_nothing_known(
    context: SpaceAlertContext, cluster: BookieDisksCluster, bookies: Mapping[str, BookieVerdict]
) -> Iterator[Condition]:
    """Find the condition of a cluster of which no bookie has a valid reading, although there should be one."""
    validity_ms = round(context.settings.validity.total_seconds() * 1000)
    is_early = cluster.begun_ms is None or context.now_ms < cluster.begun_ms + validity_ms
    if is_early and not any(bookie.is_known for bookie in bookies.values()):
        return
    why = f" ({cluster.failure[1]})" if cluster.failure is not None and not bookies else ""
    yield Condition(
        alert=UNREAD,
        subject=context.cluster,
        severity=Severity.CRITICAL,
        reason="no_data",
        summary=f"nothing is known of the disks of {context.cluster}: no valid reading of any of its bookies{why}",
        labels={"cluster": context.cluster},
    )
