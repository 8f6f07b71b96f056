"""The alert conditions that all free-space policies have: a volume at a limit, or full soon.

Like the gate, a condition ends by a margin only, so a saw-tooth around a limit is one alert and not one per poll.
Silence does not end it, either: a volume that is no longer read stays below its limit.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from policies.alerts import Condition
from policies.decisions import Mode, Severity
from policies.free_space.gate import Key
from policies.free_space.limits import FreeSpaceSettings, Limit, LimitHit
from policies.free_space.volumes import NEVER, Freshness, ServerVerdict, VolumeState, VolumeVerdict, name_volume
from policies.observations import Observation, Outcome, Reading, name_failure
from policies.units import (
    InstantMs,
    counted,
    format_duration,
    format_second,
    from_millis,
    human_bytes,
    human_rate,
    human_seconds,
)

# The words that the decisions of all free-space policies share.


def explain_factor(settings: FreeSpaceSettings, factor: float, writers: str, why: str, *, freely: str) -> str:
    """Write one plain sentence: what writers should do (`freely` at 1.0), why, and why nothing is carried out."""
    if factor == 1.0:
        return f"{writers} {freely}: {why}."
    inaction = ""
    if settings.frozen_until is not None:
        inaction = "; the policy is paused, what is set stays as it is"
    elif settings.mode is Mode.SHADOW:
        inaction = "; this is shadow mode, nothing is carried out"
    elif settings.has_actuator is False:
        inaction = "; no actuator is set for this cluster"
    return f"{writers} should be {describe_request(factor)}: {why}{inaction}."


def describe_request(factor: float | None) -> str:
    """Write what writers should be below factor 1.0: ``slowed to 0.50``, or ``stopped``."""
    return f"slowed to {render_factor(factor)}" if factor else "stopped"


def explain_hold(things: str, raw_factor: float, settings: FreeSpaceSettings) -> str:
    """Write why a factor does not rise yet, although `things` would allow more."""
    allowed, held = render_factor(raw_factor), format_duration(settings.min_hold)
    return f"{things} would allow {allowed}, but a factor that changed is held for {held}"


def explain_unread(name: str, volume: VolumeVerdict, now_ms: int, left: str, settings: FreeSpaceSettings) -> str | None:
    """Write how a volume counts without a valid reading; `left` is how it departed. None if its reading is valid."""
    counts, age = render_factor(volume.factor), human_seconds((now_ms - volume.state.read_ms) / 1000)
    match volume.freshness:
        case Freshness.FRESH:
            return None
        case Freshness.DEPARTED:
            ends = format_second(from_millis(volume.departed_ms or 0) + settings.departed_hold)
            return f"{left}, and goes on counting as {counts} until {ends}"
        case Freshness.NEVER_READ:
            return f"{name} was never readable, and counts as {counts} until it is read"
        case Freshness.STALE:
            return f"{name}, last read {age} ago, counts as {counts} until it is read"


def describe_limit(
    settings: FreeSpaceSettings, volume: VolumeVerdict | None, *, is_hard: bool
) -> dict[str, Any] | None:
    """Describe a volume and the limit that decided as fields of a decision; None if no limit is set.

    A limit that is not set gives way to the other. Without a volume, those of its server are not known.
    """
    hit = LimitHit.HARD if is_hard or settings.soft is None else LimitHit.SOFT
    limit = (settings.hard or settings.soft) if hit is LimitHit.HARD else settings.soft
    if limit is None:
        return None
    usable_bytes, total_bytes = (volume.state.usable_bytes, volume.state.total_bytes) if volume else (0, 0)
    return {
        "usable_bytes": usable_bytes,
        "total_bytes": total_bytes,
        "limit": hit,
        "limit_kind": limit.kind,
        "limit_value": limit.value,
        "limit_bytes": round(limit.in_bytes(max(total_bytes, 0))),
        "read_at": volume.read_at if volume else None,
    }


def render_factor(factor: float) -> str:
    """Write a factor in two digits; one that is neither 0 nor 1 does not look like either."""
    digits = f"{factor:.2f}"
    if digits == "0.00" and factor > 0.0:
        return "less than 0.01"
    return "more than 0.99" if digits == "1.00" and factor < 1.0 else digits


def describe_rate(volume: VolumeState, now_ms: int) -> str:
    """Write ``present rate``, or ``rate of 4 min ago`` if the last reading is older than two polls."""
    age_ms = now_ms - volume.read_ms
    is_old = volume.interval_ms is not None and age_ms > 2 * volume.interval_ms
    return f"rate of {human_seconds(age_ms / 1000)} ago" if is_old else "present rate"


def describe_measured(at_ms: int, now_ms: int) -> str:
    """End the words about a rate: ``, as measured 40 s ago``; empty if it was measured just now."""
    age_seconds = (now_ms - at_ms) / 1000
    return f", as measured {human_seconds(age_seconds)} ago" if age_seconds >= 1 else ""


def describe_space(server: str, volume: VolumeVerdict) -> str:
    """Write ``broker 3 /data/a has 4.0 GB free of 100 GB``."""
    free, total = human_bytes(volume.state.usable_bytes), human_bytes(volume.state.total_bytes)
    return f"{name_volume(server, volume.key)} has {free} free of {total}"


def describe_ahead(volume: VolumeVerdict, now_ms: int) -> str:
    """Write the free space by which a volume was judged, if that is not what it has."""
    ahead, rate = volume.ahead, describe_rate(volume.state, now_ms)
    if ahead is None:
        return ""
    old = "" if rate == "present rate" else f", at the {rate}"
    return f" ({human_bytes(ahead.usable_bytes)} when a change takes effect, in {human_seconds(ahead.seconds)}{old})"


HeldAlert: TypeAlias = tuple[str, Key]
"""(name, volume) of an alert whose condition holds."""

_STILL_SOON = 1.25
"""The alert of a volume that is full soon ends when it has a quarter more time than the setting."""


class SpaceAlerts(NamedTuple):
    """The names of a policy's alerts, and its words for servers and volumes."""

    server: str
    """The word before the server's name in sentences; also a label."""
    volume_label: str
    contents: str
    """The volumes of a server in a sentence."""
    does_not_read: str
    """What a server does that answers without the free space of a volume."""
    below_hard: str
    below_soft: str
    fills_soon: str
    unread: str


@dataclass(frozen=True, slots=True)
class SpaceAlertContext:
    """The inputs of all conditions of one step."""

    names: SpaceAlerts
    cluster: str
    now_ms: int
    settings: FreeSpaceSettings
    before: Container[HeldAlert[Any]]
    """The alerts about volumes whose condition held at the last step. Such a condition ends by a margin only."""
    held: set[HeldAlert[Any]] = field(default_factory=set)
    """The alerts about volumes whose condition holds in this step."""

    def describe_free(self, volume: VolumeVerdict) -> str:
        """Name the volume and its free space."""
        name, free = name_volume(self.names.server, volume.key), human_bytes(volume.state.usable_bytes)
        return f"{name} of {self.cluster} {'has' if volume.departed_ms is None else 'had'} {free} free"

    def make_condition(
        self, alert: str, severity: Severity, reason: str, key: tuple[Any, str], summary: str, read_id: str = ""
    ) -> Condition:
        """Make the condition of an alert about a volume."""
        self.held.add((alert, key))
        labels = {"cluster": self.cluster, self.names.server: str(key[0]), self.names.volume_label: key[1]}
        subject, evidence = f"{self.cluster}/{key[0]}/{key[1].lstrip('/')}", (read_id,) if read_id else ()
        return Condition(alert, subject, severity, reason, summary, labels, evidence)

    def find_unread(self, server: ServerVerdict[Any], failed: Container[str] = ()) -> Iterator[Condition]:
        """Find the alerts about a server and its volumes that are unread for `validity`, without the failed volumes."""
        state, unread_for = server.state, format_duration(self.settings.validity)
        name = f"{self.names.server} {state.name} of {self.cluster}"
        for volume in server.volumes if server.freshness is Freshness.FRESH else ():
            path = volume.key[1]
            if volume.departed_ms is None and volume.is_overdue(self.now_ms) and path not in failed:
                summary = f"{name} answers, but {self.names.does_not_read} {path} for {unread_for}"
                read_id = volume.read_id
                yield self.make_condition(
                    self.names.unread, Severity.WARNING, "unreadable", volume.key, summary, read_id
                )
        if server.is_unread:
            why, subject = name_failure(state.outcome), f"{self.cluster}/{state.name}"
            summary = f"{self.names.contents} of {name} are unread for {unread_for} ({why})"
            labels = {"cluster": self.cluster, self.names.server: str(state.name)}
            evidence = (state.tried_id,) if state.tried_id else ()
            yield Condition(self.names.unread, subject, Severity.WARNING, why, summary, labels, evidence)

    def find_conditions(self, volume: VolumeVerdict, describe_growth: Callable[[], str] = str) -> Iterator[Condition]:
        """Find the limits that a volume has reached, and whether it is full soon; `describe_growth` ends sentences."""
        for alert, severity, hit, limit in (
            (self.names.below_hard, Severity.CRITICAL, LimitHit.HARD, self.settings.hard),
            (self.names.below_soft, Severity.WARNING, LimitHit.SOFT, self.settings.soft),
        ):
            if limit and self.is_below(alert, volume, limit):
                level = f", {hit.value} limit {human_bytes(limit.in_bytes(volume.state.total_bytes))}"
                yield self._make_full(alert, severity, f"{hit.value}_limit", volume, level, describe_growth())
        if (trend := self.describe_trend(volume)) is not None:
            name = self.names.fills_soon
            yield self._make_full(name, Severity.WARNING, "trend", volume, f" and {trend}", describe_growth())

    def _make_full(
        self, alert: str, severity: Severity, reason: str, volume: VolumeVerdict, why: str, growth: str
    ) -> Condition:
        summary = f"{self.describe_free(volume)}{why}{f'; {growth}' if growth else ''}"
        return self.make_condition(alert, severity, reason, volume.key, summary, volume.read_id)

    def describe_trend(self, volume: VolumeVerdict) -> str | None:
        """Return in how long a volume is full; None if that is not soon, or if a silent one did not fill before."""
        has_held = (self.names.fills_soon, volume.key) in self.before
        if volume.full_ms is None:  # it is silent or has failed, or else it does not fill
            is_unknown = volume.freshness is not Freshness.FRESH or volume.state.filling is not None
            return "was filling when it was last read" if has_held and is_unknown else None
        seconds = max(0.0, volume.full_ms - self.now_ms) / 1000
        soon = self.settings.time_to_full_alert.total_seconds() * (_STILL_SOON if has_held else 1.0)
        rate = describe_rate(volume.state, self.now_ms)
        return f"is full in {human_seconds(seconds)} at its {rate}" if seconds < soon else None

    def is_below(self, alert: str, volume: VolumeVerdict, limit: Limit) -> bool:
        """Return whether a fresh reading is at the limit, or an alert about it has not ended by the margin."""
        usable, total = volume.state.usable_bytes, volume.state.total_bytes
        if not limit.reached(usable, total, margin=self.settings.recovery_margin):
            return False
        begins = volume.freshness is Freshness.FRESH and limit.reached(usable, total)
        return begins or (alert, volume.key) in self.before


# Whether slowing writers down has the expected effect: the growth of volumes, compared with their growth before it.
#
# Where limits fell to below half, a growth that did not fall to below half is not slowed down, except for the least
# that the limits let through in any case. Two such windows, one after the other, show that something escapes them.

ReadingT = TypeVar("ReadingT", bound=Reading)

HALF = 0.5
"""Both the factor below which growth is compared with that before, and the share of it that is too much."""
_WINDOWS = 2
_MOST_FOLLOWED = 20
"""The most limiting volumes whose growth is followed: the tightest."""


class EffectState(Struct, array_like=True, frozen=True):
    """The actuator's last good reading."""

    at_ms: InstantMs = NEVER
    id: str = ""
    reading: str = ""


class VolumeGrowth(Struct, Generic[Key], array_like=True, frozen=True):
    """The growth of a limiting volume since the limits of a throttle are in force."""

    volume: Key
    from_ms: InstantMs
    from_bytes: int
    """Free bytes at the beginning of the present window."""
    exceeded: int = 0
    """The number of windows, one after the other, in which the volume grew too fast."""
    bytes_per_second: float = 0.0
    """Its growth in the last of them."""
    most_bytes_per_second: float = 0.0
    """The fastest growth that was expected at any time of the present window: limits may change within it."""

    is_full: bool = False
    """Whether the volume has no longer room for a window of that growth: that it grows less is no recovery."""

    @property
    def is_unexpected(self) -> bool:
        """Whether the volume has grown too fast for long enough."""
        return self.exceeded >= _WINDOWS


def follow_actuator(
    state: EffectState, observations: Sequence[Observation], kind: type[ReadingT], now_ms: int, validity_ms: int
) -> tuple[EffectState, ReadingT | None]:
    """Return the next state, and the actuator's last good reading if it is valid at `now_ms`."""
    for seen in observations:
        is_good = isinstance(seen.reading, kind) and seen.reading.outcome is Outcome.OK
        if is_good and (seen.at_ms, seen.id) > (state.at_ms, state.id):
            state = EffectState(seen.at_ms, seen.id, seen.reading.model_dump_json())
    if state.at_ms == NEVER or now_ms >= state.at_ms + validity_ms:
        return EffectState(), None
    return state, kind.model_validate_json(state.reading)


def follow_growth_before(
    known: Mapping[Key, float], limiting: Iterable[VolumeVerdict], *, is_slowed: bool
) -> dict[Key, float]:
    """Return the fastest growth (bytes per second) of each limiting volume from before limits were in force."""
    rates = dict[Key, float]()
    for volume in sorted(limiting, key=lambda volume: volume.key):
        line, rate = volume.state.trend.line, known.get(volume.key)
        if line is not None and not is_slowed:
            rate = max(rate or 0.0, -1000 * line.slope)
        if rate is not None:
            rates[volume.key] = rate
    return rates


def describe_fastest(
    growths: Iterable[VolumeGrowth[Key]], growths_before: Mapping[Key, float], now_ms: int
) -> tuple[VolumeGrowth[Key], str] | None:
    """Return the volume that grows fastest against expectation, with its growth in words; None if there is none."""
    growing = [growth for growth in growths if growth.is_unexpected]
    if not growing:
        return None
    fastest = max(growing, key=lambda growth: growth.bytes_per_second)
    rate = human_rate(fastest.bytes_per_second)
    measured = describe_measured(fastest.from_ms, now_ms)
    fills = f"filled by {rate} until it was full" if fastest.is_full else f"fills by {rate}{measured}"
    usual = growths_before.get(fastest.volume)
    before = "" if usual is None else f" (before: {human_rate(usual)})"
    more = f" (and {counted(len(growing) - 1, 'more volume')})" if len(growing) > 1 else ""
    return fastest, f"{fills}{before}{more}"


def follow_growth(
    before: Iterable[VolumeGrowth[Key]], limiting: Iterable[tuple[VolumeVerdict, float]], window_seconds: float
) -> tuple[VolumeGrowth[Key], ...]:
    """Return the growth of limiting volumes, each with its fastest expected growth, while limits are in force.

    Only fresh readings show growth, over at least a window. Unexpected growth of a volume that is no longer read stays
    known.
    """
    known = {growth.volume: growth for growth in before}
    unexpected = {key for key, growth in known.items() if growth.is_unexpected}
    shown = (
        (volume, expected)
        for volume, expected in limiting
        if volume.freshness is Freshness.FRESH or (volume.freshness is Freshness.STALE and volume.key in unexpected)
    )
    followed = nsmallest(_MOST_FOLLOWED, shown, key=lambda pair: pair[0].tightness)
    ordered = sorted(followed, key=lambda pair: pair[0].key)
    return tuple(_measure_growth(known.get(v.key), v, expected, window_seconds) for v, expected in ordered)


def _measure_growth(
    before: VolumeGrowth[Key] | None, volume: VolumeVerdict, expected: float, window_seconds: float
) -> VolumeGrowth[Key]:
    read_ms, free = volume.state.read_ms, volume.state.usable_bytes
    start = VolumeGrowth(volume.key, read_ms, free, most_bytes_per_second=expected)
    if before is None or read_ms < before.from_ms:
        return start
    if volume.freshness is Freshness.STALE:
        return before
    if before.is_unexpected and free < before.bytes_per_second * window_seconds:
        return replace(before, is_full=True)
    most, seconds = max(before.most_bytes_per_second, expected), (read_ms - before.from_ms) / 1000
    if seconds < window_seconds:
        fits = before.bytes_per_second <= expected  # the limits have been raised since
        return replace(before, most_bytes_per_second=most, exceeded=0 if fits else before.exceeded, is_full=False)
    rate = (before.from_bytes - free) / seconds
    return replace(start, exceeded=0 if rate <= most else min(before.exceeded + 1, _WINDOWS), bytes_per_second=rate)
