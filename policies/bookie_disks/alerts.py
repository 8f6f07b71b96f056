"""Alert conditions of the bookie-disks policy.

Like the gate, a condition ends by a margin only, so a saw-tooth around a limit is one alert and not one per poll.
Silence does not end it, either: a dir that is no longer read stays below its limit.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from policies.alerts import Condition
from policies.bookie_disks.alert_kinds import (
    AT_RISK,
    BELOW_HARD,
    BELOW_SOFT,
    FILLS_SOON,
    FORGOTTEN,
    READ_ONLY,
    SUSPENDED,
    UNREAD,
)
from policies.bookie_disks.decisions import BookieThrottleReason
from policies.bookie_disks.judge.bookies import BookieVerdict, DirVerdict
from policies.bookie_disks.judge.groups import GroupVerdict
from policies.bookie_disks.messages import name_dir
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksCluster, DirKey, ForgottenDir
from policies.decisions import EVIDENCE_LIMIT, Severity
from policies.free_space.limits import Limit
from policies.free_space.repeats import is_full_soon
from policies.free_space.volumes import Freshness, seconds_left
from policies.units import agreeing, counted, format_duration, human_bytes, human_seconds

AlertKey = tuple[str, str]
"""(name, subject)"""


@dataclass(frozen=True, slots=True)
class DiskAlertContext:
    """The inputs of all conditions of one step."""

    cluster: str
    now_ms: int
    settings: BookieDisksSettings
    firing: Container[AlertKey]
    """The alerts whose condition held at the last step. Such a condition ends by a margin only."""

    def is_firing(self, alert: str, each: DirVerdict) -> bool:
        """Return whether the condition of this alert held at the last step."""
        return (alert, self.name_subject(each.key)) in self.firing

    def name_subject(self, key: DirKey) -> str:
        """``<cluster>/<bookie>/<dir>``."""
        bookie, dir_ = key
        return f"{self.cluster}/{bookie}/{dir_.lstrip('/')}"

    def describe_free(self, each: DirVerdict) -> str:
        """Name the dir and its free space."""
        return f"{name_dir(*each.key)} of {self.cluster} has {human_bytes(each.state.usable_bytes)} free"

    def make_condition(
        self, alert: str, severity: Severity, reason: str, bookie: BookieVerdict, summary: str, each: DirVerdict | None
    ) -> Condition:
        """Make the condition of an alert about a dir, or about a bookie."""
        state = bookie.facts.state
        subject, labels = f"{self.cluster}/{state.bookie}", {"cluster": self.cluster, "bookie": state.bookie}
        if each is not None:
            subject, labels["dir"] = self.name_subject(each.key), each.key[1]
        evidence = tuple(i for i in (state.tried_id if each is None else state.read_id,) if i)
        return Condition(alert, subject, severity, reason, summary, labels, evidence)


def find_conditions(
    context: DiskAlertContext,
    cluster: BookieDisksCluster,
    bookies: Mapping[str, BookieVerdict],
    groups: Iterable[GroupVerdict],
    forgotten: Iterable[ForgottenDir],
) -> Iterator[Condition]:
    """Find all alert conditions of a cluster."""
    for dir_ in forgotten:
        (bookie_name, path), cluster_name = dir_.key, context.cluster
        labels = {"cluster": cluster_name, "bookie": bookie_name, "dir": path}
        summary = f"{name_dir(*dir_.key)} of {cluster_name} left while it limited its bookie, and no longer counts"
        subject = context.name_subject(dir_.key)
        yield Condition(FORGOTTEN, subject, Severity.WARNING, "departed_volume", summary, labels)
    for bookie in bookies.values():
        if not bookie.is_calm:
            yield from _find_bookie_conditions(context, bookie)
    for group in groups:
        yield from _find_group_conditions(context, group)
    if not any(bookie.facts.freshness is Freshness.FRESH for bookie in bookies.values()):
        yield from _find_nothing_known(context, cluster, bookies)


def _find_bookie_conditions(context: DiskAlertContext, bookie: BookieVerdict) -> Iterator[Condition]:
    state = bookie.facts.state
    name = f"bookie {state.bookie} of {context.cluster}"
    for each in bookie.dirs:
        if each.is_unreadable(bookie.facts):
            unread_for = format_duration(context.settings.validity)
            summary = f"{name} answers, but has not read {each.key[1]} for {unread_for}"
            yield context.make_condition(UNREAD, Severity.WARNING, "unreadable", bookie, summary, each)
        if each.freshness is Freshness.NEVER_READ:
            continue
        yield from _find_limits_reached(context, bookie, each)
        yield from _find_full_soon(context, bookie, each)
        yield from _find_suspended(context, bookie, each)
    if state.is_read_only:
        summary = f"{name} is read-only and takes no new data"
        yield context.make_condition(READ_ONLY, Severity.WARNING, "read_only", bookie, summary, None)
    if bookie.facts.is_unread:
        why = state.outcome if state.outcome not in ("", "ok") else "silence"
        summary = f"the disks of {name} are unread for {format_duration(context.settings.validity)} ({why})"
        yield context.make_condition(UNREAD, Severity.WARNING, why, bookie, summary, None)


def _find_limits_reached(context: DiskAlertContext, bookie: BookieVerdict, each: DirVerdict) -> Iterator[Condition]:
    hard, soft, total = context.settings.hard, context.settings.soft, each.state.total_bytes
    free = context.describe_free(each)
    if hard and _is_below(context, BELOW_HARD, each, hard):
        summary = f"{free}, hard limit {human_bytes(hard.in_bytes(total))}"
        yield context.make_condition(BELOW_HARD, Severity.CRITICAL, "hard_limit", bookie, summary, each)
    if soft and _is_below(context, BELOW_SOFT, each, soft):
        summary = f"{free}, soft limit {human_bytes(soft.in_bytes(total))}"
        yield context.make_condition(BELOW_SOFT, Severity.WARNING, "soft_limit", bookie, summary, each)


def _is_below(context: DiskAlertContext, alert: str, each: DirVerdict, limit: Limit) -> bool:
    usable, total = each.state.usable_bytes, each.state.total_bytes
    if not limit.reached(usable, total, margin=context.settings.recovery_margin):
        return False
    begins = each.freshness is Freshness.FRESH and limit.reached(usable, total)
    return begins or context.is_firing(alert, each)


def _find_full_soon(context: DiskAlertContext, bookie: BookieVerdict, each: DirVerdict) -> Iterator[Condition]:
    seconds = None if each.full_ms is None else seconds_left(each.state, context.now_ms)
    if seconds is None:
        return
    if is_full_soon(seconds, context.settings, is_firing=context.is_firing(FILLS_SOON, each)):
        summary = f"{context.describe_free(each)} and is full in {human_seconds(seconds)} at its present rate"
        yield context.make_condition(FILLS_SOON, Severity.WARNING, "trend", bookie, summary, each)


def _find_suspended(context: DiskAlertContext, bookie: BookieVerdict, each: DirVerdict) -> Iterator[Condition]:
    thresholds = bookie.facts.state.thresholds
    share = None if thresholds is None else thresholds.first_suspended
    used = 1 - each.state.usable_bytes / max(each.state.total_bytes, 1)
    if share is None or used < share or each.state.total_bytes <= 0:
        return
    if each.freshness is Freshness.FRESH or context.is_firing(SUSPENDED, each):
        summary = (
            f"{context.describe_free(each)}: {used:.0%} are used, and from {share:.0%} on the bookie suspends "
            "compaction, so deleting data may free no space"
        )
        yield context.make_condition(SUSPENDED, Severity.CRITICAL, "compaction", bookie, summary, each)


def _find_group_conditions(context: DiskAlertContext, verdict: GroupVerdict) -> Iterator[Condition]:
    ensemble, writable, name = verdict.group.ensemble, verdict.writable_count, verdict.group.name
    is_unknown = not verdict.ranked.known and verdict.raw_reason is not BookieThrottleReason.TOO_FEW_BOOKIES
    if is_unknown or writable > ensemble:
        return
    has = agreeing(writable, "has", "have")
    summary = (
        f"of the bookies of group {name} of {context.cluster}, {writable or 'none'} {has} room above the soft limit, "
        f"and a ledger needs {counted(ensemble, 'bookie')}: one more full bookie slows or stops publishing"
    )
    severity = Severity.CRITICAL if writable < ensemble else Severity.WARNING
    labels = {"cluster": context.cluster, "group": name}
    evidence = tuple(each.facts.state.read_id for each in verdict.ranked.known if each.facts.state.read_id)
    yield Condition(
        AT_RISK, f"{context.cluster}/{name}", severity, "ensemble", summary, labels, evidence[-EVIDENCE_LIMIT:]
    )


def _find_nothing_known(
    context: DiskAlertContext, cluster: BookieDisksCluster, bookies: Mapping[str, BookieVerdict]
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
