"""The bookie-disks policy: one factor for each placement group of bookies whose disks fill up.

Here are the step, and the decision about a group with its sentence. Rules: docs/design/bookie-disks.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from policies.book import Step, Subject, Wanted
from policies.bookie_disks import NAME
from policies.bookie_disks.alerts import NAMES, find_conditions, find_effect_conditions, follow_dirs, is_at_risk
from policies.bookie_disks.decisions import BookieCounts, BookieThrottle, BookieThrottleReason, LimitingDir, PlacedHere
from policies.bookie_disks.fold import fold
from policies.bookie_disks.judge import BookieVerdict, GroupVerdict, find_key, judge_bookies, judge_group
from policies.bookie_disks.readings import BookieDisks, PublishState
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import (
    BookieDisksState,
    GroupState,
    explain_cause,
    keep_groups_within_bounds,
    list_groups,
)
from policies.decisions import EVIDENCE_LIMIT, unique_ids
from policies.free_space.alerts import (
    SpaceAlertContext,
    describe_ahead,
    describe_limit,
    describe_rate,
    describe_space,
    explain_factor,
    explain_hold,
    explain_unread,
    follow_actuator,
    render_factor,
)
from policies.free_space.gate import FactorVerdict, repeat_schedule, want_factor
from policies.free_space.limits import LimitHit, as_settings
from policies.free_space.volumes import (
    NEVER,
    Freshness,
    keep_within_bounds,
    name_volume,
    update_forgotten,
)
from policies.observations import Observation
from policies.units import agreeing, counted, format_instant, from_millis, human_seconds, millis_of, to_millis


class BookieDisksPolicy:
    """Decides the factors of one cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: BookieDisksSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    def step(
        self, state: BookieDisksState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[BookieDisksState]:
        """Fold the observations, judge bookies and groups, and state their factors and the conditions that hold now."""
        before = state or BookieDisksState()
        kept, refused = keep_within_bounds(before.cluster.bookies, observations, BookieDisks, "bookie", "dirs")
        known, too_many = keep_groups_within_bounds(before.cluster, fold(before.cluster, kept), kept)
        settings, now_ms, refused = self._settings, to_millis(now), refused | too_many
        effect, publishing = follow_actuator(before.effect, kept, PublishState, now_ms, millis_of(settings.validity))
        if known.begun_ms is None:  # only readings of other policies so far: nobody asks for this one's decisions
            return Step(replace(before, cluster=known, effect=effect), refused=refused)
        stopped_by = {key for group in before.groups for key in group.gate.stopped_by}
        bookies = judge_bookies(known, settings, now_ms, stopped_by)
        known = replace(known, bookies=tuple(bookie.kept for bookie in bookies.values() if bookie.kept))
        groups = {group.name: group for group in before.groups}
        verdicts = [
            judge_group(group, bookies, known, settings, now_ms, groups.get(group.name))
            for group in list_groups(known.placement, settings)
        ]
        wanted: dict[Subject, Wanted] = {(f"{self._cluster}/{each.group.name}",): want(each) for each in verdicts}
        named = {each.group.name for each in verdicts}
        ended = (group for group in before.groups if group.name not in named)
        for group in ended:  # it has no namespaces any more: its last decision slows nobody down
            last = Wanted("", repeat_schedule(settings), partial(_make_end, group), is_last=True)
            wanted[(f"{self._cluster}/{group.name}",)] = last
        context = SpaceAlertContext(NAMES, self._cluster, now_ms, settings, frozenset(before.held))
        forgotten_now = [each for bookie in bookies.values() for each in bookie.ended]
        forgotten = update_forgotten(before.forgotten, forgotten_now, bookies, settings, now_ms)
        states = tuple(
            GroupState(
                v.group.name, v.move.gate, v.reason.value, v.limiting, is_at_risk(v), *follow_dirs(v, publishing)
            )
            for v in verdicts
        )
        grown = list(zip(verdicts, states, strict=True))
        of_effect = find_effect_conditions(self._cluster, grown, publishing, now_ms)
        conditions = (*find_conditions(context, known, bookies, verdicts, forgotten), *of_effect)
        after = BookieDisksState(known, states, tuple(sorted(context.held)), forgotten, effect)
        return Step(after, wanted, conditions, _due_ms(after, verdicts, bookies, settings), refused)


def _due_ms(
    after: BookieDisksState,
    verdicts: Sequence[GroupVerdict],
    bookies: Mapping[str, BookieVerdict],
    settings: BookieDisksSettings,
) -> Iterator[int]:
    """When time alone may change something (milliseconds since the epoch); some may be past."""
    yield (after.cluster.begun_ms or 0) + millis_of(settings.validity)
    yield from (dir_.forgotten_ms + millis_of(settings.departed_hold) for dir_ in after.forgotten)
    yield from (v.move.rises_at_ms for v in verdicts if v.move.rises_at_ms is not None)
    yield from (bookie.next_ms for bookie in bookies.values() if bookie.next_ms is not None)


# The explanation of a decision about a placement group, from the values that decided.

_ORDINALS = ("", "second ", "third ", "fourth ", "fifth ", "sixth ", "seventh ", "eighth ", "ninth ", "tenth ")

_WITHOUT_DIR = frozenset({BookieThrottleReason.MIN_HOLD, BookieThrottleReason.UNLIMITED})
"""Reasons whose sentence names no dir."""


def explain(verdict: GroupVerdict, cluster: str) -> str:
    """Write one plain sentence: what producers should do, and why. The actuator explains its own operations."""
    where = f"Publishing to group {verdict.group.name} of {cluster}"
    factor, why = verdict.move.gate.factor, _explain_reason(verdict) + _explain_full(verdict)
    return explain_factor(verdict.settings, factor, where, why, freely="may go on freely")


def _explain_full(verdict: GroupVerdict) -> str:
    """Write when the first dir of the bookie that decides is full, and its name unless the sentence is about it."""
    full, seconds = verdict.decisive.soonest_full if verdict.decisive is not None else None, verdict.seconds_to_full
    if seconds is None or verdict.decisive is None or full is None:
        return ""
    is_named = verdict.reason not in _WITHOUT_DIR
    which = "" if is_named and full.key == find_key(verdict.decisive) else f"{name_volume('bookie', full.key)} is "
    return f"; {which}full in {human_seconds(seconds)} at the {describe_rate(full.state, verdict.now_ms)}"


def _explain_reason(verdict: GroupVerdict) -> str:
    settings, known, factor = verdict.settings, len(verdict.known), verdict.move.gate.factor
    match verdict.reason:
        case BookieThrottleReason.INITIAL:
            return f"too few bookies have been read yet, so the starting factor {render_factor(factor)} applies"
        case BookieThrottleReason.NO_DATA:
            return f"no bookie has ever been read, so the fallback factor {render_factor(settings.fallback)} applies"
        case BookieThrottleReason.TOO_FEW_BOOKIES:
            usable = sum(not each.state.is_read_only for each in verdict.known)
            return f"a ledger needs {counted(verdict.group.ensemble, 'bookie')}, and {usable or 'none'} can be used"
        case BookieThrottleReason.MIN_HOLD:
            return explain_hold("bookies", verdict.raw_factor, settings)
        case BookieThrottleReason.UNLIMITED:
            return "no limit is set"
        case BookieThrottleReason.STALE_VOLUME if verdict.decisive is None:
            bookies = counted(known + len(verdict.unread), "bookie")
            have = f"{known} of {bookies} {agreeing(known, 'has', 'have')}"
            return f"{have} been read, and the others count as {render_factor(settings.fallback)} at most until then"
        case BookieThrottleReason.STALE_VOLUME if factor == 1.0:
            return f"no bookie has a valid reading; what is known allows {render_factor(verdict.raw_factor)}"
    if verdict.decisive is None:
        return "too few bookies are known"
    decides = _explain_rank(verdict)
    if verdict.reason is BookieThrottleReason.ABOVE_LIMITS:
        free = _describe_free(verdict.decisive, verdict.now_ms)
        return f"enough bookies are above their limits; {free}, and {decides}"
    return f"{_explain_decisive(verdict, verdict.decisive)}, and {decides}"


def _explain_rank(verdict: GroupVerdict) -> str:
    ensemble, known = verdict.group.ensemble, len(verdict.known)
    if known < ensemble:
        have = f"{known} {agreeing(known, 'has', 'have')}"
        return f"a ledger needs it: it takes {counted(ensemble, 'bookie')}, and {have} been read"
    ordinal = _ORDINALS[ensemble - 1] if ensemble <= len(_ORDINALS) else f"{ensemble}th "
    return f"with ensembles of {ensemble} the {ordinal}best of {counted(known, 'bookie')} decides"


def _describe_free(bookie: BookieVerdict, now_ms: int) -> str:
    tightest = bookie.tightest
    if tightest is None or tightest.freshness is Freshness.NEVER_READ:
        return f"bookie {bookie.name}"
    return describe_space("bookie", tightest) + describe_ahead(tightest, now_ms)


def _explain_decisive(verdict: GroupVerdict, decisive: BookieVerdict) -> str:
    tightest = decisive.tightest
    if verdict.reason is BookieThrottleReason.READ_ONLY or tightest is None:
        return f"bookie {decisive.name} is read-only{explain_cause(decisive.state.read_only_cause)}"
    free = _describe_free(decisive, verdict.now_ms)
    if verdict.reason is BookieThrottleReason.RECOVERY_MARGIN:
        margin = f"{verdict.settings.recovery_margin:.0%}"
        return f"{free}, and must be clear of the hard limit by {margin} before publishing goes on"
    name = name_volume("bookie", tightest.key)
    return explain_unread(name, tightest, verdict.now_ms, f"{name} is no longer reported", verdict.settings) or free


def want(verdict: GroupVerdict) -> Wanted:
    """Want the factor of a group."""
    decided = (verdict.move, verdict.reason.value, verdict.limiting, verdict.seconds_to_full)
    return want_factor(*decided, verdict.now_ms, verdict.settings, partial(_make_decision, verdict))


def _make_end(group: GroupState, header: Mapping[str, Any]) -> BookieThrottle:
    return BookieThrottle(
        **header,
        verdict=FactorVerdict.RAISE if group.gate.factor < 1.0 else FactorVerdict.NO_CHANGE,
        reason=BookieThrottleReason.GROUP_ENDED,
        explanation=f"Publishing to group {group.name} of {header['cluster']} is no longer decided on: no namespace is "
        "placed there any more.",
        group=group.name,
        factor=1.0,
        previous_factor=group.gate.factor,
        raw_factor=1.0,
        ensemble=0,
        limiting=None,
        bookies=BookieCounts(counted=0, stale=0, unread=0, read_only=0),
        namespaces=PlacedHere(count=0, first=()),
        seconds_to_full=None,
    )


def _make_decision(verdict: GroupVerdict, header: Mapping[str, Any]) -> BookieThrottle:
    group, known, decisive, limiting = verdict.group, verdict.known, verdict.decisive, None
    # The readings that decided: that of the bookie that decides, then those of the ones around it.
    ids = (each.state.read_id for each in (*([decisive] if decisive else []), *sorted(known, key=lambda b: b.factor)))
    if decisive is not None and verdict.limiting is not None:
        tightest = decisive.tightest
        is_hard = tightest is None or tightest.hit is LimitHit.HARD or decisive.state.is_read_only
        if (limit := describe_limit(verdict.settings, tightest, is_hard=is_hard)) is not None:
            limiting = LimitingDir(bookie=decisive.name, dir=tightest.state.log_dir if tightest else "", **limit)
    return BookieThrottle(
        **header,
        verdict=verdict.move.verdict,
        reason=verdict.reason,
        explanation=explain(verdict, header["cluster"]),
        evidence=unique_ids(*ids)[:EVIDENCE_LIMIT],
        numbers=_collect_numbers(verdict),
        group=group.name,
        factor=verdict.move.gate.factor,
        previous_factor=None if verdict.before is None else verdict.before.gate.factor,
        raw_factor=verdict.raw_factor,
        ensemble=group.ensemble,
        limiting=limiting,
        bookies=BookieCounts(
            counted=sum(each.freshness is Freshness.FRESH for each in known),
            stale=sum(each.freshness is not Freshness.FRESH for each in known),
            unread=len(verdict.unread),
            read_only=sum(each.state.is_read_only for each in known),
        ),
        namespaces=PlacedHere(count=group.count, first=group.first),
        seconds_to_full=verdict.seconds_to_full,
    )


def _collect_numbers(verdict: GroupVerdict) -> dict[str, object]:
    """Collect the limits, and the bookies around the one that decides, for the audit topic."""
    settings, first = verdict.settings, max(0, verdict.group.ensemble - 1 - EVIDENCE_LIMIT // 2)
    bookies = []
    for bookie in verdict.known[first : first + EVIDENCE_LIMIT]:
        read_at = None if bookie.state.read_ms == NEVER else format_instant(from_millis(bookie.state.read_ms))
        bookies.append({**describe_bookie(bookie), "read_at": read_at})
    limits = {"hard": as_settings(settings.hard), "soft": as_settings(settings.soft)}
    return {"raw_factor": verdict.raw_factor, **limits, "bookies": bookies}


def describe_bookie(bookie: BookieVerdict) -> dict[str, object]:
    """Describe a bookie by the dir that decided its factor."""
    tightest = bookie.tightest.state if bookie.tightest else None
    return {
        "bookie": bookie.name,
        "factor": bookie.factor,
        "read_only": bookie.state.is_read_only,
        "dir": tightest.log_dir if tightest else None,
        "usable_bytes": tightest.usable_bytes if tightest else None,
        "total_bytes": tightest.total_bytes if tightest else None,
    }
