"""Makes the decision about a group, and publishes it if that is due."""

from datetime import datetime
from functools import partial

from policies.bookie_disks.counterfactuals import counterfactuals
from policies.bookie_disks.decisions import (
    BookieCounts,
    BookieThrottle,
    BookieThrottleReason,
    LimitingDir,
    PlacedHere,
)
from policies.bookie_disks.judge.bookies import BookieVerdict
from policies.bookie_disks.judge.groups import GroupVerdict
from policies.bookie_disks.messages import explain, explain_end
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import DirKey, GroupState
from policies.decisions import EVIDENCE_LIMIT, Issuer
from policies.free_space.gate import FactorVerdict
from policies.free_space.limits import LimitHit, as_settings
from policies.free_space.repeats import Emitted, FactorContent, LastPublished, emit_factor, repeat_schedule
from policies.free_space.volumes import NEVER, Freshness
from policies.printable import printable_line
from policies.publication import Publication
from policies.units import format_instant, from_millis, to_millis


def emit(verdict: GroupVerdict, before: GroupState | None, issuer: Issuer) -> Emitted[DirKey, BookieThrottle]:
    """Compare the verdict with the decision in force."""
    last = before.last if before else None
    content = FactorContent(verdict.move, verdict.reason.value, verdict.limiting, verdict.seconds_to_full)
    make = partial(_make_decision, verdict, last, issuer)
    return emit_factor(content, last, to_millis(verdict.now), verdict.settings, issuer, make)


def emit_end(group: GroupState, now: datetime, issuer: Issuer) -> BookieThrottle:
    """Make the last decision about a group that has no namespaces any more: it slows nobody down."""
    publication = Publication(to_millis(now), group.last.sequence)
    return BookieThrottle(
        **issuer.header(f"{issuer.cluster}/{group.name}", publication.next(is_first=False), now),
        verdict=FactorVerdict.RAISE if group.last.factor < 1.0 else FactorVerdict.NO_CHANGE,
        reason=BookieThrottleReason.GROUP_ENDED,
        explanation=explain_end(issuer.cluster, group.name),
        group=group.name,
        factor=1.0,
        previous_factor=group.last.factor,
        raw_factor=1.0,
        ensemble=0,
        limiting=None,
        bookies=BookieCounts(counted=0, stale=0, unread=0, read_only=0),
        namespaces=PlacedHere(count=0, first=()),
        seconds_to_full=None,
        valid_until=None,
    )


def _make_decision(
    verdict: GroupVerdict, last: LastPublished[DirKey] | None, issuer: Issuer, sequence: int, *marks: str
) -> BookieThrottle:
    group, ranked, settings = verdict.group, verdict.ranked, verdict.settings
    bare = BookieThrottle(
        **issuer.header(f"{issuer.cluster}/{group.name}", sequence, verdict.now, marks=marks),
        verdict=verdict.move.verdict,
        reason=verdict.reason,
        explanation="",
        evidence=_collect_evidence(verdict),
        numbers=_collect_numbers(verdict),
        group=group.name,
        factor=verdict.move.gate.factor,
        previous_factor=last.factor if last else None,
        raw_factor=verdict.raw_factor,
        ensemble=group.ensemble,
        limiting=describe_limiting(verdict.decisive, settings) if verdict.decisive and verdict.limits else None,
        bookies=BookieCounts(
            counted=sum(each.facts.freshness is Freshness.FRESH for each in ranked.known),
            stale=sum(each.facts.freshness is not Freshness.FRESH for each in ranked.known),
            unread=len(ranked.unread),
            read_only=sum(each.facts.state.is_read_only for each in ranked.known),
        ),
        namespaces=PlacedHere(count=group.count, first=group.first),
        seconds_to_full=verdict.seconds_to_full,
        valid_until=repeat_schedule(settings).ends_at(verdict.now),
        otherwise=counterfactuals(verdict),
    )
    return bare.model_copy(update={"explanation": printable_line(explain(bare, verdict))})


def _collect_evidence(verdict: GroupVerdict) -> tuple[str, ...]:
    """Name the readings that decided: that of the bookie that decides, then those of the ones around it."""
    first = [verdict.decisive] if verdict.decisive else []
    others = sorted(verdict.ranked.known, key=lambda each: each.factor)
    ids = (each.facts.state.read_id for each in (*first, *others))
    return tuple(dict.fromkeys(i for i in ids if i))[:EVIDENCE_LIMIT]


def describe_limiting(decisive: BookieVerdict, settings: BookieDisksSettings) -> LimitingDir | None:
    """Describe the dir for which a bookie limits its group; None if no limit is set."""
    tightest = decisive.tightest
    is_hard = tightest is None or tightest.hit is LimitHit.HARD or decisive.facts.state.is_read_only
    hit = LimitHit.HARD if is_hard or settings.soft is None else LimitHit.SOFT
    limit = (settings.hard or settings.soft) if hit is LimitHit.HARD else settings.soft
    if limit is None:
        return None
    total = tightest.state.total_bytes if tightest else 0
    return LimitingDir(
        bookie=decisive.name,
        dir=tightest.state.log_dir if tightest else "",
        usable_bytes=tightest.state.usable_bytes if tightest else 0,
        total_bytes=total,
        limit=hit,
        limit_kind=limit.kind,
        limit_value=limit.value,
        limit_bytes=round(limit.in_bytes(max(total, 0))),
        read_at=from_millis(tightest.state.read_ms) if tightest and tightest.state.read_ms != NEVER else None,
    )


def _collect_numbers(verdict: GroupVerdict) -> dict[str, object]:
    """Collect the limits, and the bookies around the one that decides, for the audit topic."""
    settings, first = verdict.settings, max(0, verdict.group.ensemble - 1 - EVIDENCE_LIMIT // 2)
    bookies = []
    for bookie in verdict.ranked.known[first : first + EVIDENCE_LIMIT]:
        read_ms = bookie.facts.state.read_ms
        read_at = None if read_ms == NEVER else format_instant(from_millis(read_ms))
        bookies.append({**describe_bookie(bookie), "read_at": read_at})
    return {
        "raw_factor": verdict.raw_factor,
        "hard": as_settings(settings.hard),
        "soft": as_settings(settings.soft),
        "bookies": bookies,
    }


def describe_bookie(bookie: BookieVerdict) -> dict[str, object]:
    """Describe a bookie by the dir that decided its factor."""
    tightest = bookie.tightest.state if bookie.tightest else None
    return {
        "bookie": bookie.name,
        "factor": bookie.factor,
        "read_only": bookie.facts.state.is_read_only,
        "dir": tightest.log_dir if tightest else None,
        "usable_bytes": tightest.usable_bytes if tightest else None,
        "total_bytes": tightest.total_bytes if tightest else None,
    }
