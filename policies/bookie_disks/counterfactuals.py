"""The counterfactuals of a decision: for each direction, the condition under which the factor moves next.

They are worded from the comparisons of the gate between factors, turned into free bytes of the dir that decided, and
the instants at which a hold ends.
"""

from collections.abc import Iterator

from policies.bookie_disks.decisions import BookieThrottleReason
from policies.bookie_disks.judge.bookies import BookieVerdict
from policies.bookie_disks.judge.groups import GroupVerdict
from policies.bookie_disks.messages import name_dir
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import DirKey
from policies.comparison import Relation
from policies.decisions import Otherwise
from policies.free_space.counterfactuals import NO_LIMIT, describe_threshold, describe_wait, list_otherwise
from policies.free_space.gate import Gate, is_publishable, lowering, raising
from policies.free_space.volumes import Freshness
from policies.units import counted, counted_with, format_instant, from_millis, to_millis


def counterfactuals(verdict: GroupVerdict) -> tuple[Otherwise, ...]:
    """Name the conditions under which the factor falls, then those under which it rises."""
    return list_otherwise(_lower(verdict), _higher(verdict))


def _lower(verdict: GroupVerdict) -> Iterator[str]:
    factor, settings = verdict.move.gate.factor, verdict.settings
    if factor == 0.0:
        return
    if not settings.limited:
        yield NO_LIMIT
        return
    known, tightest = verdict.ranked.known, verdict.decisive.tightest if verdict.decisive is not None else None
    fallen_count = sum(each.factor < factor and is_publishable(factor, each.factor, settings) for each in known)
    spare = len(known) - fallen_count - verdict.group.ensemble + 1
    # If there are more to spare, another bookie decides when this one falls.
    if tightest is not None and tightest.freshness is Freshness.FRESH and spare <= 1:
        threshold = lowering(factor, verdict.raw_factor, settings).threshold
        yield describe_threshold(name_dir(*tightest.key), tightest, Relation.AT_MOST, threshold, settings)
    if spare > 0:
        yield f"{counted(spare, 'bookie')} more cannot be used: a ledger needs {verdict.group.ensemble}"


def _higher(verdict: GroupVerdict) -> Iterator[str]:
    settings, gate = verdict.settings, verdict.move.gate
    if gate.factor == 1.0:
        return
    if verdict.move.rises_at_ms is not None:
        yield f"it is {format_instant(from_millis(verdict.move.rises_at_ms))}, if bookies still allow it"
        return
    if verdict.reason is BookieThrottleReason.TOO_FEW_BOOKIES or verdict.decisive is None:
        yield f"{counted(verdict.group.ensemble, 'bookie')} can be used"
        return
    tightest, wait = verdict.decisive.tightest, describe_wait(gate, settings, to_millis(verdict.now))
    others = verdict.group.ensemble - 1 - sum(_allows_more(each, gate, settings) for each in verdict.ranked.known)
    if others > 0:
        wait = f", and {counted_with(others, 'more bookie', 'allows', 'allow')} as much{wait}"
    if verdict.reason is BookieThrottleReason.READ_ONLY or tightest is None:
        yield f"{name_dir(verdict.decisive.name, '')} takes data again, or another bookie is added{wait}"
    elif tightest.freshness is Freshness.FRESH:
        name, threshold = name_dir(*tightest.key), raising(gate.factor, verdict.raw_factor, settings).threshold
        stops = bool(gate.stopped_by)
        yield describe_threshold(name, tightest, Relation.MORE, threshold, settings, stops=stops) + wait
    else:
        yield f"{name_dir(*tightest.key)} is read again, and has more free than its limits{wait}"


def _allows_more(bookie: BookieVerdict, gate: Gate[DirKey], settings: BookieDisksSettings) -> bool:
    """Whether the factor could rise as far as this bookie decides that."""
    is_more = bookie.factor > gate.factor and is_publishable(gate.factor, bookie.factor, settings)
    return is_more and (bookie.is_clear or not gate.stopped_by)
