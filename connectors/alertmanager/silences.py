"""Silences of paused policies in Alertmanager: one for each paused policy and cluster, from the heartbeats.

A silence is Headgate's own if `createdBy` begins with `headgate`. Only silences about policies and clusters with a
heartbeat are ended, so several loops may share an Alertmanager.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from policies.decisions import Standing
from policies.units import format_instant

AUTHOR = "headgate"
_ACTIVE = ("active", "pending")

Watched = tuple[str, str]
"""A policy and a cluster."""


class Matcher(Struct, frozen=True):
    """The value that a label of a silenced alert has."""

    name: str = ""
    value: str = ""


class SilenceStatus(Struct, frozen=True):
    """Whether a silence is in force."""

    state: str = ""


class Silence(Struct, frozen=True, rename="camel"):
    """A silence of Alertmanager, as far as it is compared."""

    id: str
    matchers: tuple[Matcher, ...] = ()
    created_by: str = ""
    starts_at: str = ""
    ends_at: str = ""
    status: SilenceStatus = SilenceStatus()


def silence_of(heartbeat: Standing, now: datetime) -> dict[str, Any] | None:
    """Return the silence of a paused policy in the form of Alertmanager's API; None if its alerts are not silenced."""
    if heartbeat.quiet_until is None or heartbeat.quiet_until <= now:
        return None
    names = {"policy": heartbeat.policy, "cluster": heartbeat.cluster}
    return {
        "matchers": [{"name": n, "value": v, "isRegex": False, "isEqual": True} for n, v in names.items()],
        "startsAt": format_instant(now),
        "endsAt": format_instant(heartbeat.quiet_until),
        "createdBy": f"{AUTHOR}: {heartbeat.paused_by}" if heartbeat.paused_by else AUTHOR,
        "comment": heartbeat.explanation,
    }


def plan_silences(
    heartbeats: Mapping[Watched, Standing], present: list[Silence], now: datetime
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare the paused policies with the silences of one Alertmanager.

    Args:
        heartbeats: the latest of each policy and cluster.

    Returns:
        The silences to post (one with an ``id`` replaces the present one), and the ids of those to end.
    """
    own: dict[Watched, Silence] = {}
    surplus: list[str] = []
    for about, silence in _own_silences(present):
        if about in own:
            surplus.append(silence.id)
        else:
            own[about] = silence
    posts = []
    for about, heartbeat in sorted(heartbeats.items()):
        wanted, found = silence_of(heartbeat, now), own.get(about)
        if wanted is None:
            surplus += [] if found is None else [found.id]
        elif found is None or _instant(found) != heartbeat.quiet_until:
            posts.append(wanted if found is None else {**wanted, "id": found.id, "startsAt": found.starts_at})
    return posts, surplus


def _own_silences(present: list[Silence]) -> Iterator[tuple[Watched, Silence]]:
    for silence in present:
        values = {each.name: each.value for each in silence.matchers}
        is_own = silence.created_by.startswith(AUTHOR) and values.keys() == {"policy", "cluster"}
        if is_own and silence.status.state in _ACTIVE:
            yield (values["policy"], values["cluster"]), silence


def _instant(silence: Silence) -> datetime | None:
    try:
        return datetime.fromisoformat(silence.ends_at)
    except ValueError:
        return None
