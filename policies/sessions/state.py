"""The state of the sessions policy for one cluster. Everything is sorted, so equal states have equal bytes.

A frozen struct of plain values is in no cycle, so the garbage collector need not visit it (`gc=False`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from policies.confirmation import Doubt
from policies.sessions.decisions import (
    OwnershipReason,
    OwnershipVerdict,
    SessionEvent,
    SessionReason,
    SessionStatus,
    SessionVerdict,
)
from policies.sessions.readings import SessionState
from policies.sessions.settings import DEFAULT_TIMEOUT_MS, monitor_ms
from policies.units import InstantMs

NEVER = -1
SESSIONS = ""
"""The name of the source of all sessions of the cluster."""


class SessionTrack(Struct, array_like=True, frozen=True, gc=False):
    """The known state of one member's session.

    Here and below, `read_ms` (or `at_ms`) is the time of the last reading, and `before_ms` that of the one before it.
    """

    status: SessionStatus
    since_ms: InstantMs
    read_ms: InstantMs
    state: SessionState
    session: str | None = None
    past: tuple[str, ...] = ()
    """Its past sessions; readings of them are ignored."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    connected_ms: InstantMs | None = None
    lost_ms: InstantMs | None = None
    reestablished_ms: InstantMs | None = None
    """When it was established again after that; None until then."""
    losses: tuple[InstantMs, ...] = ()
    """The times of its losses within `settle` before the last one."""
    unsettled: bool = False
    """Whether it flaps: until its status has stayed the same for `settle`."""
    before_ms: InstantMs = NEVER
    interval_ms: int = 0
    """The time between its last two readings when it lost its session, at most T."""
    doubt: Doubt | None = None
    """About whether it is connected by its session, until readings have agreed for `settle`."""
    denied_ms: InstantMs = NEVER
    """When a past session was read as connected, since the last reading of the present one."""

    @property
    def is_lost(self) -> bool:
        """Whether the member is without a session now."""
        return self.status is SessionStatus.SESSION_LOST

    @property
    def moves_with_time(self) -> bool:
        """Whether time alone may change it."""
        return self.status is SessionStatus.CONNECTION_LOST or self.unsettled

    @property
    def lapse_ms(self) -> int | None:
        """When a disconnected session is lost if no reading comes; None for other sessions."""
        is_cut_off = self.status is SessionStatus.CONNECTION_LOST
        return self.since_ms + monitor_ms(self.timeout_ms) if is_cut_off else None

    def is_fresh(self, now_ms: int, validity_ms: int) -> bool:
        """Whether its last reading is valid."""
        return now_ms - self.read_ms <= validity_ms


class Health(Struct, array_like=True, frozen=True, gc=False):
    """The last answers of a member's health endpoint."""

    at_ms: InstantMs
    id: str
    outcome: str
    healthy: bool | None
    listed: bool | None
    down_ms: InstantMs = NEVER
    """When it last did not answer that it is healthy."""
    before_ms: InstantMs = NEVER
    answered_ms: InstantMs = NEVER
    """When it last did not refuse a connection. A process that does not answer in time is slow, not dead."""
    listed_ms: InstantMs = NEVER
    unlisted_ms: InstantMs = NEVER
    """Since when the cluster has not listed it; `NEVER` while it does, or that is not known."""
    started_ms: InstantMs = NEVER
    """When its process first answered after it had refused connections; `NEVER` if that was not seen."""
    recovered_ms: InstantMs = NEVER
    """When it first answered that it is healthy after a reading in which it did not."""
    doubt: Doubt | None = None
    """About whether it refuses connections, until readings have agreed for `settle`."""

    def has_refused_twice(self, since_ms: int = 0) -> bool:
        """Whether both of its last readings were taken since then and were refused a connection."""
        return self.before_ms > max(self.answered_ms, since_ms - 1)


class LastPublishedOrder(Struct, array_like=True, frozen=True, gc=False):
    """The last published order to a member."""

    verdict: SessionVerdict
    reason: SessionReason
    published_ms: InstantMs
    fingerprint: str = ""
    lost_ms: InstantMs | None = None
    is_shadow: bool = False


class Member(Struct, array_like=True, frozen=True, gc=False):
    """The known state of one member."""

    member: str
    role: str = "broker"
    track: SessionTrack | None = None
    """Its session; None while no reading of it has come."""
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    """The last attempt to read its session; `outcome` is the result."""
    tried_id: str = ""
    outcome: str = ""
    health: Health | None = None
    attempts: int = 0
    attempted: tuple[InstantMs, str] = (NEVER, "")
    """The time of its last report of one, and the id of that observation."""
    fleet_wide: bool = False
    recovering: bool = False
    """From its re-establishment until every bundle is settled."""
    awaited_ms: InstantMs | None = None
    """When its bundles were settled, so that its load data is due; None while it is not."""
    republished_ms: InstantMs = NEVER
    """When it last reported that it has published its load data."""
    events: tuple[SessionEvent, ...] = ()
    last_published: LastPublishedOrder | None = None
    seen_ms: InstantMs = NEVER
    died_ms: InstantMs = NEVER
    """When its process refused a second connection in a row, until its session shows a later sign of life, or a new one
    begins. Its process claims nothing any more."""

    @property
    def timeout_ms(self) -> int:
        """T of its session."""
        return DEFAULT_TIMEOUT_MS if self.track is None else self.track.timeout_ms

    @property
    def begun_ms(self) -> int:
        """Since when its present process has been without a session: since the loss, or since its start."""
        return max(self.lost_ms or 0, NEVER if self.health is None else self.health.started_ms)

    @property
    def lost_ms(self) -> int | None:
        """When it last lost its session; None if it never did."""
        return None if self.track is None else self.track.lost_ms

    @property
    def session(self) -> str | None:
        """Its present session; None if it has none, or that is not known."""
        track = self.track
        holds = track is not None and track.status in (SessionStatus.ESTABLISHED, SessionStatus.CONNECTION_LOST)
        return track.session if track is not None and holds else None


class NodeRecord(Struct, array_like=True, frozen=True, gc=False):
    """The last good reading of a node."""

    path: str
    read_ms: InstantMs
    read_id: str
    exists: bool = True
    ephemeral: bool = True
    owner: str | None = None
    session: str | None = None
    czxid: int | None = None
    version: int | None = None
    changed_ms: InstantMs = NEVER
    """The time of the first reading with the present owner, or of the absence."""
    prior: str | None = None
    unreadable_times: int = 0
    before_ms: InstantMs = NEVER
    doubt: Doubt | None = None
    """About whether it exists, or about a bundle's owner, until readings have agreed for `settle`."""

    @property
    def is_in_turn(self) -> bool:
        """Whether readings of it contradict each other again and again. Then nothing is concluded from it."""
        return self.doubt is not None and self.doubt.is_in_turn


class LastPublishedRuling(Struct, array_like=True, frozen=True, gc=False):
    """The last published ruling on a claim."""

    verdict: OwnershipVerdict
    reason: OwnershipReason
    published_ms: InstantMs
    fingerprint: str = ""


class Claim(Struct, array_like=True, frozen=True, gc=False):
    """A bundle that a member owned when it lost its session, or otherwise believes to own."""

    path: str
    member: str
    since_ms: InstantMs
    last_published: LastPublishedRuling | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Path and member identify a claim."""
        return (self.path, self.member)

    @property
    def verdict(self) -> OwnershipVerdict | None:
        """The last published verdict."""
        return None if self.last_published is None else self.last_published.verdict


class SourceRecord(Struct, array_like=True, frozen=True, gc=False):
    """The last reading of a tree, or of all sessions (`SESSIONS`), and the last attempt at one."""

    name: str
    read_ms: InstantMs = NEVER
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    tried_id: str = ""
    outcome: str = ""
    since_ms: InstantMs = NEVER
    """Since when there has been no gap longer than `validity` between readings, such as while Headgate was away."""
    failed_ms: InstantMs = NEVER
    """The last failed attempt to read it, or a part of it."""
    recovered_ms: InstantMs = NEVER
    """The first good reading after that attempt; older than `failed_ms` if there was none yet."""
    doubt: Doubt | None = None
    """About whether it can be read, until attempts have agreed for `settle`."""

    def was_unread(self, since_ms: int, lost_ms: int, validity_ms: int) -> bool:
        """Whether the source was unreadable at a loss, which happened between `since_ms` and `lost_ms`, or later.

        A gap of more than `validity` between readings of the sessions counts as well: nobody knows what happened to the
        fleet in it. Only the times of readings count, so the order in which collectors publish does not matter.
        """
        was_silent = self.name == SESSIONS and since_ms < self.since_ms <= lost_ms
        if was_silent or self.failed_ms > since_ms:
            return True
        if self.failed_ms == NEVER:
            return False
        ends_ms = self.recovered_ms
        if ends_ms < self.failed_ms:
            ends_ms = lost_ms if self.name == SESSIONS else self.failed_ms + validity_ms
        # Collectors read at different moments of one interval, so the source counts as unreadable at the loss only if
        # it was for half of the time in which the loss may have happened.
        return 2 * (min(ends_ms, lost_ms) - since_ms) >= lost_ms - since_ms


class SpentShutdown(Struct, array_like=True, frozen=True, gc=False):
    """A shutdown or restart that was decided."""

    at_ms: InstantMs
    member: str
    back_ms: InstantMs = NEVER
    """When the member was back, or gone for good; until then the decision keeps it down."""
    is_shadow: bool = False


HeldAlert = tuple[str, str, InstantMs]
"""An alert, its subject, and the time since when its condition holds."""


class SessionsState(Struct, array_like=True, frozen=True):
    """The policy's state of one cluster."""

    members: tuple[Member, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    claims: tuple[Claim, ...] = ()
    sources: tuple[SourceRecord, ...] = ()
    spent: tuple[SpentShutdown, ...] = ()
    held: tuple[HeldAlert, ...] = ()
    """The alerts whose condition holds, where less is needed to keep it; in order."""
    sequence: int = 0
    """The last sequence of all decisions but alerts; one counter for the cluster, so it grows for each subject."""


# Bundles are ranges of hashes: finds the bundles that a split or a merge has replaced.
#
# A split deletes the node of the parent and creates nodes of its children, which cover the same range. Nobody may own
# the parent again while a child has an owner: two brokers would serve the same topics.

_RANGE = re.compile(r"(.+)/0x([0-9a-fA-F]{1,8})_0x([0-9a-fA-F]{1,8})")

_Ranged = tuple[int, int, NodeRecord]
"""The lower bound, the upper bound, and the node of the bundle."""


def find_replaced(bundles: Iterable[NodeRecord]) -> dict[str, bool]:
    """Return the paths of the absent bundles that newer ones have replaced: whether these cover the whole range.

    A bundle is newer if its node exists, or was still there when the other one was absent already: if a broker splits a
    bundle and then loses its session, the children are absent, too, and only they can be owned again.
    """
    replaced: dict[str, bool] = {}
    for group in _group_overlapping(bundles):
        for low, high, node in group:
            if node.exists:
                continue
            newer = [
                (other_low, other_high)
                for other_low, other_high, other in group
                if other is not node and (other.exists or other.changed_ms > node.changed_ms)
                and other_low < high and low < other_high
            ]  # fmt: skip
            if newer:
                replaced[node.path] = _is_covered(low, high, newer)
    return replaced


@lru_cache(maxsize=200_000)
def parse_range(path: str) -> tuple[str, int, int] | None:
    """Return the namespace of a bundle's path and the bounds of its range; None if its name is no range."""
    found = _RANGE.fullmatch(path)
    return None if found is None else (found[1], int(found[2], 16), int(found[3], 16))


def _group_overlapping(bundles: Iterable[NodeRecord]) -> Iterator[list[_Ranged]]:
    """Yield groups of bundles of one namespace whose ranges overlap; only namespaces with an absent bundle."""
    known = list(bundles)
    absent = {found[0] for node in known if not node.exists and (found := parse_range(node.path)) is not None}
    if not absent:
        return
    ranged: dict[str, list[_Ranged]] = {namespace: [] for namespace in absent}
    for node in known:
        found = parse_range(node.path)
        if found is not None and found[0] in ranged:
            ranged[found[0]].append((found[1], found[2], node))
    for several in ranged.values():
        group: list[_Ranged] = []
        end = -1
        for each in sorted(several, key=lambda each: each[:2]):
            if each[0] >= end:
                yield group
                group = []
            group.append(each)
            end = max(end, each[1])
        yield group


def _is_covered(low: int, high: int, others: Sequence[tuple[int, int]]) -> bool:
    for other_low, other_high in sorted(others):
        if other_low > low:
            return False
        low = max(low, other_high)
    return low >= high
