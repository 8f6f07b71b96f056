"""The bookie-disks policy: one factor for each placement group of bookies whose disks fill up.

Rules: docs/design/bookie-disks.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from policies.book import Step, Subject, Wanted
from policies.bookie_disks import NAME
from policies.bookie_disks.alerts import NAMES, find_conditions, find_effect_conditions, follow_dirs, is_at_risk
from policies.bookie_disks.emit import want, want_end
from policies.bookie_disks.fold import fold
from policies.bookie_disks.judge import BookieVerdict, GroupVerdict, judge_bookies, judge_group
from policies.bookie_disks.readings import BookieDir, BookieDisks, PublishState
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import (
    BookieDisksCluster,
    BookieDisksState,
    GroupState,
    PlacementGroup,
    keep_groups_within_bounds,
    list_groups,
)
from policies.bookie_readings import MAX_BOOKIES
from policies.free_space.alerts import SpaceAlertContext, follow_actuator
from policies.free_space.volumes import VolumeBounds, keep_within_bounds, update_forgotten
from policies.observations import Observation, Reading
from policies.units import millis_of, to_millis

BOUNDS = VolumeBounds(most_servers=MAX_BOOKIES, servers="bookies", volumes="ledger dirs")


class BookieDisksPolicy:
    """Decides the factors of one cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: BookieDisksSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._groups: tuple[PlacementGroup, ...] = ()
        self._grouped: tuple[object, object] | None = None
        """The groups and namespaces of which `_groups` was made."""

    def step(
        self, state: BookieDisksState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[BookieDisksState]:
        """Fold the observations, judge bookies and groups, and state their factors and the conditions that hold now."""
        before = state or BookieDisksState()
        registered = before.cluster.registrations
        members = frozenset((*registered.writable, *registered.read_only) if registered else ())
        kept, refused = keep_within_bounds(BOUNDS, before.cluster.bookies, members, observations, _find_dirs)
        known, too_many = keep_groups_within_bounds(before.cluster, fold(before.cluster, kept), kept)
        settings, now_ms, refused = self._settings, to_millis(now), refused | too_many
        effect, publishing = follow_actuator(before.effect, kept, PublishState, now_ms, millis_of(settings.validity))
        if known.begun_ms is None:  # only readings of other policies so far: nobody asks for this one's decisions
            return Step(replace(before, cluster=known, effect=effect), refused=refused)
        stopped_by = (key for group in before.groups for key in group.gate.stopped_by)
        bookies = judge_bookies(known, settings, now_ms, stopped_by)
        if any(bookie.kept is not bookie.state for bookie in bookies.values()):
            known = replace(known, bookies=tuple(bookie.kept for bookie in bookies.values() if bookie.kept))
        groups = {group.name: group for group in before.groups}
        verdicts = [
            judge_group(group, bookies, known, settings, now, groups.get(group.name))
            for group in self._list_groups(known)
        ]
        wanted: dict[Subject, Wanted] = {(f"{self._cluster}/{each.group.name}",): want(each) for each in verdicts}
        named = {each.group.name for each in verdicts}
        ended = (group for group in before.groups if group.name not in named)
        wanted |= {(f"{self._cluster}/{group.name}",): want_end(group, settings) for group in ended}
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

    def _list_groups(self, known: BookieDisksCluster) -> tuple[PlacementGroup, ...]:
        """Return the placement groups; thousands of namespaces are sorted into them only when a reading changed."""
        if self._grouped is None or self._grouped[0] is not known.groups or self._grouped[1] is not known.placed:
            self._groups, self._grouped = list_groups(known, self._settings), (known.groups, known.placed)
        return self._groups


def _find_dirs(reading: Reading) -> tuple[str, Sequence[BookieDir]] | None:
    return (reading.bookie, reading.dirs) if isinstance(reading, BookieDisks) and reading.bookie else None


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
