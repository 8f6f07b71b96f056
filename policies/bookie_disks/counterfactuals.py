"""The counterfactuals of a decision: for each direction, the condition under which the factor moves next.

They are worded from the comparisons of the gate between factors, turned into free bytes of the dir that decided, and
the instants at which a hold ends.
"""

from collections.abc import Iterator

from policies.bookie_disks.decisions import BookieThrottleReason
from policies.bookie_disks.judge.bookies import DirVerdict
from policies.bookie_disks.judge.groups import GroupVerdict
from policies.bookie_disks.messages import name_dir
from policies.comparison import Comparison, Relation
from policies.decisions import Otherwise
from policies.free_space.gate import FactorVerdict, earliest_rise_ms, lowering, raising
from policies.free_space.limits import factor_line
from policies.free_space.volumes import Freshness
from policies.units import counted, format_instant, from_millis, human_bytes, to_millis


def counterfactuals(verdict: GroupVerdict) -> tuple[Otherwise, ...]:
    """Name the conditions under which the factor falls, then those under which it rises."""
    lower = (Otherwise(FactorVerdict.LOWER.value, when) for when in _lower(verdict))
    higher = (Otherwise(FactorVerdict.RAISE.value, when) for when in _higher(verdict))
    return (*lower, *higher)


def _lower(verdict: GroupVerdict) -> Iterator[str]:
    factor, settings = verdict.move.gate.factor, verdict.settings
    if factor == 0.0:
        return
    if not settings.limited:
        yield "a limit is set for the cluster: there is neither `hard` nor `soft`"
        return
    decisive = verdict.decisive
    if decisive is not None and decisive.tightest is not None and decisive.tightest.freshness is Freshness.FRESH:
        threshold = lowering(factor, verdict.raw_factor, settings).threshold
        yield _describe(verdict, decisive.tightest, Relation.AT_MOST, threshold)
    spare = len(verdict.ranked.known) - verdict.group.ensemble + 1
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
    tightest, rises_ms = verdict.decisive.tightest, earliest_rise_ms(gate, settings)
    wait = f", not before {format_instant(from_millis(rises_ms))}" if rises_ms > to_millis(verdict.now) else ""
    if verdict.reason is BookieThrottleReason.READ_ONLY or tightest is None:
        yield f"{name_dir(verdict.decisive.name, '')} takes data again, or another bookie is added{wait}"
    elif tightest.freshness is Freshness.FRESH:
        threshold = raising(gate.factor, verdict.raw_factor, settings).threshold
        yield _describe(verdict, tightest, Relation.MORE, threshold) + wait
    else:
        yield f"{name_dir(*tightest.key)} is read again, and has more free than its limits{wait}"


def _describe(verdict: GroupVerdict, tightest: DirVerdict, relation: Relation, factor: float) -> str:
    """Turn the threshold of a comparison of factors into free bytes of the dir."""
    settings, total = verdict.settings, tightest.state.total_bytes
    threshold = factor_line(total, settings.hard, settings.soft).usable_bytes(factor)
    if relation is Relation.MORE and verdict.move.gate.stopped_by and settings.hard is not None:
        threshold = max(threshold, settings.hard.in_bytes(total, margin=settings.recovery_margin))
    threshold += tightest.state.usable_bytes - tightest.judged_bytes
    free = Comparison(tightest.state.usable_bytes, relation, threshold)
    return f"{name_dir(*tightest.key)} has {free.describe(human_bytes)} free (now {human_bytes(free.value)})"
