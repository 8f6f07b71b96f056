"""What the throttle policy warns of: conditions that are the case now.

A condition that has begun to hold ends only when it is clear by a margin, as the gate does: a saw-tooth around a limit
is one alert, not one a poll. Nor does silence end it: a volume that is no longer read stays below its limit.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from policies.alerts import Condition
from policies.decisions import Severity
from policies.throttle.fleet import Broker, Fleet, KnownVolume, Standing, broker_standing
from policies.throttle.limits import Hit, Limit
from policies.throttle.settings import ThrottleSettings
from policies.units import format_duration, human_bytes, human_seconds, millis_of, to_millis

BELOW_SOFT = "volume-below-soft-limit"
BELOW_HARD = "volume-below-hard-limit"
FILLS_SOON = "volume-fills-soon"
UNREAD = "log-dirs-unread"
LIMITS_CROSS = "limits-cross"
FORGOTTEN = "departed-volume-forgotten"

_STILL_SOON = 1.25
"""A volume that fills soon stops doing so when it has a quarter more time than the setting."""


@dataclass(frozen=True, slots=True)
class View:
    """What the conditions are read from."""

    cluster: str
    fleet: Fleet
    known: Sequence[KnownVolume]
    forgotten: Sequence[tuple[int, str]]
    firing: Set[tuple[str, str]]
    """The alerts (name, subject) whose condition held at the last step: it takes less to keep one than to begin it."""
    settings: ThrottleSettings
    now: datetime
    no_data: bool = False
    """Whether the factor rests on nothing but the fallback."""


def conditions(view: View) -> Iterator[Condition]:
    """Everything that is the case now."""
    for known in view.known:
        yield from _of_volume(view, known)
    yield from _unread(view)
    for broker, log_dir in view.forgotten:
        yield _condition(
            view, FORGOTTEN, Severity.WARNING, "departed_volume", (broker, log_dir),
            f"broker {broker} {log_dir} left {view.cluster} while it limited the cluster, and no longer counts",
        )  # fmt: skip


def volume_subject(cluster: str, broker: int, log_dir: str) -> str:
    """``<cluster>/<broker>/<log dir>``."""
    return f"{cluster}/{broker}/{log_dir.lstrip('/')}"


def _of_volume(view: View, known: KnownVolume) -> Iterator[Condition]:
    settings, (broker, log_dir) = view.settings, known.key
    free = f"broker {broker} {log_dir} of {view.cluster} has {human_bytes(known.volume.usable_bytes)} free"
    if settings.hard and _holds(view, BELOW_HARD, known, settings.hard):
        limit = human_bytes(settings.hard.in_bytes(known.volume.total_bytes))
        yield _condition(
            view, BELOW_HARD, Severity.CRITICAL, "hard_limit", known.key, f"{free}, hard limit {limit}", known
        )
    if settings.soft and _holds(view, BELOW_SOFT, known, settings.soft):
        limit = human_bytes(settings.soft.in_bytes(known.volume.total_bytes))
        yield _condition(
            view, BELOW_SOFT, Severity.WARNING, "soft_limit", known.key, f"{free}, soft limit {limit}", known
        )
    if _fills_soon(view, known):
        left = human_seconds(known.seconds_to_full or 0.0)
        yield _condition(
            view,
            FILLS_SOON,
            Severity.WARNING,
            "trend",
            known.key,
            f"{free} and is full in {left} at its present rate",
            known,
        )
    if _cross(known, settings) and (
        _fires(view, LIMITS_CROSS, known) or (known.standing is Standing.FRESH and known.assessment.hit is not Hit.NONE)
    ):
        yield _condition(
            view, LIMITS_CROSS, Severity.WARNING, "limits_cross", known.key,
            f"the soft limit is not above the hard limit on broker {broker} {log_dir} of {view.cluster}: "
            "producers are stopped there without being slowed first", known,
        )  # fmt: skip


def _cross(known: KnownVolume, settings: ThrottleSettings) -> bool:
    total = known.volume.total_bytes
    return bool(settings.soft and settings.hard and settings.soft.in_bytes(total) <= settings.hard.in_bytes(total))


def _holds(view: View, alert: str, known: KnownVolume, limit: Limit) -> bool:
    usable, total = known.volume.usable_bytes, known.volume.total_bytes
    if not limit.reached(usable, total, margin=view.settings.recovery_margin):
        return False
    begins = known.standing is Standing.FRESH and limit.reached(usable, total)
    return begins or _fires(view, alert, known)


def _fires(view: View, alert: str, known: KnownVolume) -> bool:
    return (alert, volume_subject(view.cluster, *known.key)) in view.firing


def _fills_soon(view: View, known: KnownVolume) -> bool:
    if known.seconds_to_full is None:
        return False
    margin = _STILL_SOON if _fires(view, FILLS_SOON, known) else 1.0
    soon_seconds = view.settings.time_to_full_alert.total_seconds() * margin
    return known.seconds_to_full < soon_seconds


def _unread(view: View) -> Iterator[Condition]:
    """A member broker that is unread for `validity`; critical for the cluster when nothing valid is known."""
    now_ms, validity_ms = to_millis(view.now), millis_of(view.settings.validity)
    unread = [
        b
        for b in view.fleet.brokers
        if broker_standing(b, view.settings, now_ms) is Standing.STALE
        and now_ms - max(b.read_ms, b.seen_ms) >= validity_ms
    ]
    for broker in unread:
        yield Condition(
            alert=UNREAD,
            subject=f"{view.cluster}/{broker.broker}",
            severity=Severity.WARNING,
            reason=_why_unread(broker),
            summary=f"log dirs of broker {broker.broker} of {view.cluster} are unread for "
            f"{format_duration(view.settings.validity)} ({_why_unread(broker)})",
            labels={"cluster": view.cluster, "broker": str(broker.broker)},
            evidence=(broker.tried_id,) if broker.tried_id else (),
        )
    for known in view.known:
        if known.standing is Standing.STALE and broker_standing(known.broker, view.settings, now_ms) is Standing.FRESH:
            number, log_dir = known.key
            yield _condition(
                view, UNREAD, Severity.WARNING, "unreadable", known.key,
                f"broker {number} of {view.cluster} answers, but cannot read {log_dir} "
                f"for {format_duration(view.settings.validity)}", known,
            )  # fmt: skip
    if view.no_data or (unread and not any(k.standing is Standing.FRESH for k in view.known)):
        yield Condition(
            alert=UNREAD,
            subject=view.cluster,
            severity=Severity.CRITICAL,
            reason="no_data",
            summary=f"nothing is known of the log dirs of {view.cluster}: no valid reading of any of its brokers",
            labels={"cluster": view.cluster},
            evidence=tuple(b.tried_id for b in unread if b.tried_id)[:10],
        )


def _why_unread(broker: Broker) -> str:
    return broker.outcome if broker.outcome not in ("", "ok") else "silence"


def _condition(
    view: View, alert: str, severity: Severity, reason: str, key: tuple[int, str], summary: str,
    known: KnownVolume | None = None,
) -> Condition:  # fmt: skip
    broker, log_dir = key
    return Condition(
        alert=alert,
        subject=volume_subject(view.cluster, broker, log_dir),
        severity=severity,
        reason=reason,
        summary=summary,
        labels={"cluster": view.cluster, "broker": str(broker), "log_dir": log_dir},
        evidence=(known.broker.read_id,) if known and known.broker.read_id else (),
    )
