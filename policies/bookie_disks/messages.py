"""The explanation of a decision about a placement group, from the values that decided."""

from policies.bookie_disks.decisions import BookieThrottle, BookieThrottleReason
from policies.bookie_disks.judge.bookies import BookieVerdict
from policies.bookie_disks.judge.groups import GroupVerdict, find_key
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import ReadOnlyCause
from policies.free_space.volumes import Freshness
from policies.free_space.wording import describe_ahead, explain_factor, render_factor
from policies.units import agreeing, counted, format_duration, human_bytes, human_seconds

_ORDINALS = ("", "second ", "third ", "fourth ", "fifth ", "sixth ", "seventh ", "eighth ", "ninth ", "tenth ")

_WITHOUT_DIR = frozenset({BookieThrottleReason.MIN_HOLD, BookieThrottleReason.UNLIMITED})
"""Reasons whose sentence names no dir."""


def explain(decision: BookieThrottle, verdict: GroupVerdict) -> str:
    """Write one plain sentence: what producers should do, and why. The actuator explains its own operations."""
    where = f"Publishing to group {decision.group} of {decision.cluster}"
    why = _explain_reason(decision, verdict) + _explain_full(decision, verdict)
    has_actuator = verdict.settings.has_actuator
    return explain_factor(decision, decision.factor, where, why, freely="may go on freely", has_actuator=has_actuator)


def explain_end(cluster: str, group: str) -> str:
    """Write the sentence of a group's last decision."""
    return f"Publishing to group {group} of {cluster} is no longer decided on: no namespace is placed there any more."


def name_dir(bookie: str, dir_: str) -> str:
    """Name a dir in a sentence: ``bookie bk7:3181 /data/ledgers0``."""
    return f"bookie {bookie} {dir_}" if dir_ else f"bookie {bookie}"


def explain_cause(cause: ReadOnlyCause | None) -> str:
    """End a sentence about a read-only bookie."""
    return "" if cause is None else f": {cause.meaning.rstrip('.')}"


def _explain_full(decision: BookieThrottle, verdict: GroupVerdict) -> str:
    """Write when the first dir of the bookie that decides is full, and its name unless the sentence is about it."""
    full = verdict.decisive.soonest_full if verdict.decisive is not None else None
    if decision.seconds_to_full is None or verdict.decisive is None or full is None:
        return ""
    is_free = decision.factor == 1.0 and decision.reason is BookieThrottleReason.STALE_VOLUME
    is_named = not is_free and decision.reason not in _WITHOUT_DIR
    which = "" if is_named and full.key == find_key(verdict.decisive) else f"{name_dir(*full.key)} is "
    return f"; {which}full in {human_seconds(decision.seconds_to_full)} at the present rate"


def _explain_reason(decision: BookieThrottle, verdict: GroupVerdict) -> str:
    settings, known = verdict.settings, len(verdict.ranked.known)
    match decision.reason:
        case BookieThrottleReason.INITIAL:
            return (
                f"too few bookies have been read yet, so the starting factor {render_factor(decision.factor)} applies"
            )
        case BookieThrottleReason.NO_DATA:
            return f"no bookie has ever been read, so the fallback factor {render_factor(settings.fallback)} applies"
        case BookieThrottleReason.TOO_FEW_BOOKIES:
            usable = known - decision.bookies.read_only
            return f"a ledger needs {counted(decision.ensemble, 'bookie')}, and {usable or 'none'} can be used"
        case BookieThrottleReason.MIN_HOLD:
            allowed, held = render_factor(decision.raw_factor), format_duration(settings.min_hold)
            return f"bookies would allow {allowed}, but a factor that changed is held for {held}"
        case BookieThrottleReason.UNLIMITED:
            return "no limit is set"
        case BookieThrottleReason.STALE_VOLUME if verdict.decisive is None:
            bookies = counted(known + len(verdict.ranked.unread), "bookie")
            have = f"{known} of {bookies} {agreeing(known, 'has', 'have')}"
            return f"{have} been read, and the others count as {render_factor(settings.fallback)} at most until then"
        case BookieThrottleReason.STALE_VOLUME if decision.factor == 1.0:
            return f"no bookie has a valid reading; what is known allows {render_factor(decision.raw_factor)}"
    if verdict.decisive is None:
        return "too few bookies are known"
    decides = _explain_rank(verdict)
    if decision.reason is BookieThrottleReason.ABOVE_LIMITS:
        return f"enough bookies are above their limits; {_describe_free(verdict.decisive)}, and {decides}"
    return f"{_explain_decisive(decision, verdict.decisive, settings)}, and {decides}"


def _explain_rank(verdict: GroupVerdict) -> str:
    ensemble, known = verdict.group.ensemble, len(verdict.ranked.known)
    if known < ensemble:
        have = f"{known} {agreeing(known, 'has', 'have')}"
        return f"a ledger needs it: it takes {counted(ensemble, 'bookie')}, and {have} been read"
    ordinal = _ORDINALS[ensemble - 1] if ensemble <= len(_ORDINALS) else f"{ensemble}th "
    return f"with ensembles of {ensemble} the {ordinal}best of {counted(known, 'bookie')} decides"


def _describe_free(bookie: BookieVerdict) -> str:
    tightest = bookie.tightest
    if tightest is None or tightest.freshness is Freshness.NEVER_READ:
        return name_dir(bookie.name, "")
    free, total = human_bytes(tightest.state.usable_bytes), human_bytes(tightest.state.total_bytes)
    return f"{name_dir(*tightest.key)} has {free} free of {total}{describe_ahead(tightest.ahead)}"


def _explain_decisive(decision: BookieThrottle, decisive: BookieVerdict, settings: BookieDisksSettings) -> str:
    tightest = decisive.tightest
    if decision.reason is BookieThrottleReason.READ_ONLY or tightest is None:
        return f"{name_dir(decisive.name, '')} is read-only{explain_cause(decisive.facts.state.read_only_cause)}"
    if decision.reason is BookieThrottleReason.RECOVERY_MARGIN:
        margin = f"{settings.recovery_margin:.0%}"
        return f"{_describe_free(decisive)}, and must be clear of the hard limit by {margin} before publishing goes on"
    counts = render_factor(tightest.factor)
    if tightest.freshness is Freshness.NEVER_READ:
        return f"{name_dir(*tightest.key)}, which was never readable, counts as {counts} until it is read"
    if tightest.freshness is Freshness.STALE:
        age_seconds = decision.decided_at.timestamp() - tightest.state.read_ms / 1000
        last = f"last read {human_seconds(age_seconds)} ago"
        return f"{name_dir(*tightest.key)}, {last}, counts as {counts} until it is read"
    if tightest.freshness is Freshness.DEPARTED:
        return f"{name_dir(*tightest.key)} is no longer reported, and goes on counting as {counts} for a while"
    return _describe_free(decisive)
