"""Silences of paused policies in Alertmanager: one for each paused policy and cluster, from the heartbeats.

A silence is Headgate's own if `createdBy` begins with `headgate`. Only silences about policies and clusters with a
heartbeat are ended, so several loops may share an Alertmanager.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from policies.decisions import Standing
from policies.units import format_instant

AUTHOR = "headgate"
_ACTIVE = ("active", "pending")

Watched = tuple[str, str]
"""A policy and a cluster."""


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
    heartbeats: Mapping[Watched, Standing], present: list[dict[str, Any]], now: datetime
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare the paused policies with the silences of one Alertmanager.

    Args:
        heartbeats: the latest of each policy and cluster.

    Returns:
        The silences to post (one with an ``id`` replaces the present one), and the ids of those to end.
    """
    own: dict[Watched, dict[str, Any]] = {}
    surplus: list[str] = []
    for about, silence in _own_silences(present):
        if about in own:
            surplus.append(silence["id"])
        else:
            own[about] = silence
    posts = []
    for about, heartbeat in sorted(heartbeats.items()):
        wanted, found = silence_of(heartbeat, now), own.get(about)
        if wanted is None:
            surplus += [] if found is None else [found["id"]]
        elif found is None or _instant(found) != heartbeat.quiet_until:
            posts.append(wanted if found is None else {**wanted, "id": found["id"], "startsAt": found["startsAt"]})
    return posts, surplus


def _own_silences(present: list[dict[str, Any]]) -> Iterator[tuple[Watched, dict[str, Any]]]:
    for silence in present:
        values = {each.get("name"): each.get("value") for each in silence.get("matchers", ())}
        is_own = str(silence.get("createdBy", "")).startswith(AUTHOR) and values.keys() == {"policy", "cluster"}
        if is_own and silence.get("status", {}).get("state") in _ACTIVE and "id" in silence:
            yield (str(values["policy"]), str(values["cluster"])), silence


def _instant(silence: dict[str, Any]) -> datetime | None:
    try:
        return datetime.fromisoformat(silence["endsAt"])
    except (KeyError, TypeError, ValueError):
        return None
