"""Whether slowing publishing down has the expected effect: ledger dirs' growth, compared with what limits let through.

A bookie stores at most one copy of each entry, whatever the write quorum is, and a second one in a journal that may be
on the same disk. Compaction copies one entry log after the other, and then deletes it. So a bookie's only ledger dir
grows by at most twice what the limits let through, and by one entry log.
"""

from collections.abc import Iterable, Iterator, Sequence

from policies.alerts import Condition
from policies.bookie_disks.alert_kinds import WITHOUT_EFFECT
from policies.bookie_disks.judge.bookies import DirVerdict
from policies.bookie_disks.judge.groups import GroupVerdict
from policies.bookie_disks.messages import name_dir
from policies.bookie_disks.publish_state import PublishState
from policies.bookie_disks.state import DirKey, GroupState
from policies.decisions import Mode, Severity
from policies.free_space.effect import VolumeGrowth, follow_growth
from policies.free_space.wording import render_factor
from policies.units import human_rate

_TOLERATED = 3.0
"""The entry logs, a journal on the same disk, and as much again: for indexes, and because bookies flush in bursts."""
_WINDOW_SECONDS = 90.0
"""A bookie flushes each 60 s by default, so data from before a limit reaches the disk in its first window."""
_ENTRY_LOG_BYTES = 2**30
"""The default size of an entry log. Half of it in each of two windows would suffice."""


def follow_dirs(
    verdict: GroupVerdict, before: GroupState | None, publishing: PublishState | None
) -> tuple[VolumeGrowth[DirKey], ...]:
    """Return the growth of the dirs that limit a group while it is slowed down by an actuator."""
    settings = verdict.settings
    is_slowed = verdict.move.gate.factor < 1.0 and settings.has_actuator is True and settings.mode is Mode.ACTIVE
    limiting = _list_expected(verdict, publishing) if is_slowed else ()
    return follow_growth(before.growths if before else (), limiting, _WINDOW_SECONDS)


def find_effect_conditions(
    cluster: str,
    groups: Iterable[tuple[GroupVerdict, Sequence[VolumeGrowth[DirKey]]]],
    publishing: PublishState | None,
) -> Iterator[Condition]:
    """Find the groups of which a dir fills too fast although publishing is slowed; the sentence names the fastest."""
    let_through = None if publishing is None else publishing.let_through_bytes_per_second
    limits = "" if let_through is None else f", where the limits let through {human_rate(let_through)}"
    for verdict, growths in groups:
        growing = [growth for growth in growths if growth.is_unexpected]
        if not growing:
            continue
        fastest, name = max(growing, key=lambda each: each.bytes_per_second), verdict.group.name
        factor = verdict.move.gate.factor
        request = f"slowed to {render_factor(factor)}" if factor else "stopped"
        summary = (
            f"publishing to group {name} of {cluster} is {request}, and {name_dir(*fastest.volume)} still fills by "
            f"{human_rate(fastest.bytes_per_second)}{limits}"
        )
        labels = {"cluster": cluster, "group": name}
        evidence = tuple(b.facts.state.read_id for b in verdict.ranked.known if b.name == fastest.volume[0])
        yield Condition(WITHOUT_EFFECT, f"{cluster}/{name}", Severity.CRITICAL, "no_effect", summary, labels, evidence)


def find_effect_ends(
    cluster: str, groups: Iterable[tuple[GroupVerdict, Sequence[VolumeGrowth[DirKey]]]]
) -> dict[tuple[str, str], str]:
    """Return, by alert and subject, why alerts end though no reading shows that they are over."""
    why = "ends: the growth of its dirs is not compared any more"
    return {
        (WITHOUT_EFFECT, f"{cluster}/{verdict.group.name}"): why
        for verdict, growths in groups
        if not growths and verdict.move.gate.factor < 1.0
    }


def _list_expected(verdict: GroupVerdict, publishing: PublishState | None) -> Iterator[tuple[DirVerdict, float]]:
    """Yield the tightest dir of each bookie that limits the group, with the fastest growth that is expected of it.

    In a stop no dir should fill up soon, whether or not it is known what the limits let through.
    """
    soon_seconds = verdict.settings.time_to_full_alert.total_seconds()
    for bookie in verdict.ranked.known:
        each, bounds = bookie.tightest, list[float]()
        if each is None or bookie.factor == 1.0:
            continue
        if verdict.move.gate.factor == 0.0 and soon_seconds > 0.0:
            bounds.append(each.state.usable_bytes / soon_seconds)
        # The bytes of one of several dirs are exact only where their disks are of one size.
        if publishing and publishing.let_through_bytes_per_second is not None and len(bookie.facts.dirs) == 1:
            let_through = _TOLERATED * publishing.let_through_bytes_per_second
            bounds.append(let_through + _ENTRY_LOG_BYTES / _WINDOW_SECONDS)
        if bounds:
            yield each, min(bounds)
