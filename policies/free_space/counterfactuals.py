"""The words of counterfactuals: the comparisons of the gate between factors, turned into free bytes of a volume."""

from collections.abc import Iterable

from policies.comparison import Comparison, Relation
from policies.decisions import Otherwise
from policies.free_space.gate import FactorVerdict, Gate, Key, earliest_rise_ms
from policies.free_space.limits import factor_line
from policies.free_space.settings import FreeSpaceSettings
from policies.free_space.verdicts import SpaceVerdict
from policies.units import format_instant, from_millis, human_bytes

NO_LIMIT = "a limit is set for the cluster: there is neither `hard` nor `soft`"
"""What lowers the factor of a cluster that is only observed."""


def list_otherwise(lower: Iterable[str], higher: Iterable[str]) -> tuple[Otherwise, ...]:
    """Name the conditions under which the factor falls, then those under which it rises."""
    falls = (Otherwise(FactorVerdict.LOWER.value, when) for when in lower)
    return (*falls, *(Otherwise(FactorVerdict.RAISE.value, when) for when in higher))


def describe_threshold(
    name: str,
    volume: SpaceVerdict[Key],
    relation: Relation,
    factor: float,
    settings: FreeSpaceSettings,
    *,
    stops: bool = False,
) -> str:
    """Write at which free space, at its present rate, a volume crosses a factor; one that `stops` has a margin, too."""
    usable, total = volume.state.usable_bytes, volume.state.total_bytes
    threshold = factor_line(total, settings.hard, settings.soft).usable_bytes(factor)
    if stops and settings.hard is not None:
        threshold = max(threshold, settings.hard.in_bytes(total, margin=settings.recovery_margin))
    free = Comparison(usable, relation, threshold + usable - volume.judged_bytes)
    return f"{name} has {free.describe(human_bytes)} free (now {human_bytes(free.value)})"


def describe_wait(gate: Gate[Key], settings: FreeSpaceSettings, now_ms: int) -> str:
    """Write until when `min_hold` allows no rise; empty if it allows one now."""
    rises_ms = earliest_rise_ms(gate, settings)
    return f", not before {format_instant(from_millis(rises_ms))}" if rises_ms > now_ms else ""
