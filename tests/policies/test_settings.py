"""Settings: pinned defaults, overrides by name or glob, every mistake at its own path."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.decisions import Mode
from policies.throttle.settings import Preset, ThrottleSettings
from tests.cases import for_each

GB = 10**9
BYTES, RATIO = "available_bytes_below", "available_ratio_below"
CROSSING = "soft.{0} ({1}) must lie above hard.{0} ({2})"


def read(block: dict[str, Any]) -> ThrottleSettings:
    return ThrottleSettings.model_validate(block)


def mistakes(block: dict[str, Any]) -> dict[str, str]:
    """From each path with an error to its message."""
    with pytest.raises(ValidationError) as caught:
        read(block)
    return {".".join(map(str, e["loc"])): e["msg"] for e in caught.value.errors()}


def test_the_defaults() -> None:
    assert read({}).model_dump(mode="json") == {
        "mode": "active",
        "alert_grace": "0s",
        "alert_repeat": "4h",
        "alert_refresh": "1m",
        "clusters": {},
        "preset": None,
        "anticipate": True,
        "stop_time": None,
        "hard": None,
        "soft": None,
        "fallback_factor": 1.0,
        "validity": "5m",
        "recovery_margin": 0.1,
        "min_hold": "30s",
        "min_change": 0.05,
        "departed_hold": "1h",
        "heartbeat": "1m",
        "expired_action": "hold",
        "time_to_full_alert": "30m",
        "has_actuator": None,
    }


def test_settings_are_written_as_they_are_read() -> None:
    block = {"hard": {"available_bytes_below": "1GB"}, "soft": {"available_ratio_below": 0.05}, "validity": "90s"}
    assert read(read(block).model_dump(exclude_none=True)).fingerprint() == read(block).fingerprint()


@for_each(
    ("cluster", "validity"),
    [("payments", "1m"), ("dev-orders", "2m"), ("dev-payments", "2m"), ("dev-", "2m"), ("Dev-x", "4m"), ("x", "4m")],
)
def test_the_first_override_that_matches_wins(cluster: str, validity: str) -> None:
    patterns = ("payments", "dev-*", "dev-payments", "*")
    settings = read({"clusters": {each: {"validity": f"{number}m"} for number, each in enumerate(patterns, 1)}})
    assert settings.for_cluster(cluster).model_dump(mode="json")["validity"] == validity


def test_an_override_changes_what_it_names_and_keeps_the_rest() -> None:
    block = {"hard": {"available_bytes_below": "1GB"}, "soft": {"available_bytes_below": "5GB"}, "min_hold": "1m"}
    settings = read({**block, "clusters": {"dev-*": {"fallback_factor": 0.5, "mode": "shadow"}}})
    dev = settings.for_cluster("dev-1")
    assert (dev.fallback_factor, dev.mode) == (0.5, Mode.SHADOW)
    assert (dev.hard, dev.soft, dev.min_hold) == (settings.hard, settings.soft, settings.min_hold)


def test_an_override_replaces_a_limit_whole_even_by_one_of_the_other_kind() -> None:
    settings = read({"hard": {BYTES: 5}, "clusters": {"dev": {"hard": {RATIO: 0.1}}}})
    limit = settings.for_cluster("dev").hard
    assert limit is not None
    assert (limit.kind, limit.value) == ("available_ratio_below", 0.1)


@for_each(
    ("override", "place", "message"),
    [
        ({"validity": "soon"}, "validity", "is not a duration"),
        ({"validity": 30}, "validity", "write it with its unit"),
        ({"validity": "0s"}, "validity", "longer than 0s"),
        ({"validity": "9999999d"}, "validity", "too long"),
        ({"heartbeat": "0s"}, "heartbeat", "longer than 0s"),
        ({"alert_repeat": "0s"}, "alert_repeat", "longer than 0s"),
        ({"min_hold": None}, "min_hold", "is not a duration"),
        ({"fallback_factor": 1.5}, "fallback_factor", "less than or equal to 1"),
        ({"fallback_factor": -0.1}, "fallback_factor", "greater than or equal to 0"),
        ({"fallback_factor": float("nan")}, "fallback_factor", "finite"),
        ({"min_change": float("nan")}, "min_change", "finite"),
        ({"recovery_margin": -0.1}, "recovery_margin", "greater than or equal to 0"),
        ({"recovery_margin": float("inf")}, "recovery_margin", "finite"),
        ({"recovery_margin": float("nan")}, "recovery_margin", "finite"),
        ({"mode": "dry"}, "mode", "'active' or 'shadow'"),
        ({"preset": "confluent"}, "preset", "'strimzi'"),
        ({"preset": ["strimzi"]}, "preset", "'strimzi'"),
        ({"hrad": {}}, "hrad", "not permitted"),
        ({"hard": {}}, "hard", "exactly one of available_bytes_below and available_ratio_below, has neither"),
        ({"soft": {BYTES: 5, RATIO: 0.1}}, "soft", "has available_bytes_below and available_ratio_below"),
        ({"hard": {"available_bytes": 5}}, "hard.available_bytes", "not permitted"),
        ({"hard": {"available_bytes_below": -1}}, "hard.available_bytes_below", ""),
        ({"hard": {"available_bytes_below": "5 apples"}}, "hard.available_bytes_below", "5GB"),
        ({"hard": {"available_bytes_below": float("nan")}}, "hard.available_bytes_below", ""),
        ({"hard": {"available_ratio_below": 1.01}}, "hard.available_ratio_below", "less than or equal to 1"),
        ({"hard": {"available_ratio_below": -0.01}}, "hard.available_ratio_below", "greater than or equal to 0"),
        ({"hard": {"available_ratio_below": float("nan")}}, "hard.available_ratio_below", ""),
        ({"hard": 5}, "hard", ""),
        ({"soft": {BYTES: "1GB"}, "hard": {BYTES: "5GB"}}, "", CROSSING.format(BYTES, 1_000_000_000, 5_000_000_000)),
        ({"soft": {BYTES: 10**12}, "hard": {BYTES: 10**12 + 1}}, "", CROSSING.format(BYTES, 10**12, 10**12 + 1)),
        ({"soft": {RATIO: 0.1}, "hard": {RATIO: 0.1}}, "", CROSSING.format(RATIO, 0.1, 0.1)),
    ],
)
def test_a_mistake_is_named_at_its_path_in_the_defaults_and_in_an_override(
    override: dict[str, Any], place: str, message: str
) -> None:
    for block, prefix in ((override, ""), ({"clusters": {"dev-*": override}}, "clusters.dev-*")):
        found = mistakes(block)
        path = ".".join(part for part in (prefix, place) if part)
        assert set(found) == {path}
        assert message in found[path]


def test_an_override_must_fit_the_defaults_it_is_laid_over() -> None:
    found = mistakes({"soft": {BYTES: 5}, "clusters": {"dev": {"hard": {BYTES: 6}}}})
    assert set(found) == {"clusters.dev"}
    assert "(5) must lie above" in found["clusters.dev"]


LIMITS = ("validity", "fallback_factor", "hard.available_ratio_below")
A, B = {"validity": "x", "hard": {"available_bytes_below": "5XB"}}, {"hrad": 1}


@for_each(
    ("block", "places"),
    [
        ({"clusters": {"dev": {"clusters": {}}}}, ("clusters.dev.clusters",)),
        *(({"clusters": {"dev": no_block}}, ("clusters.dev",)) for no_block in (None, 5, "x", [1])),
        ({"validity": "x", "fallback_factor": 2, "hard": {"available_ratio_below": 2}}, LIMITS),
        (
            {"clusters": {"a": A, "b": B, "c": {"mode": "shadow"}}},
            ("clusters.a.validity", "clusters.a.hard.available_bytes_below", "clusters.b.hrad"),
        ),
        (
            {"fallback_factor": 2, "clusters": {"dev-*": {"validity": "x"}}},
            ("fallback_factor", "clusters.dev-*.validity"),
        ),
    ],
)
def test_all_mistakes_of_defaults_and_overrides_are_reported_at_once(
    block: dict[str, Any], places: tuple[str, ...]
) -> None:
    assert set(mistakes(block)) == set(places)


def test_the_strimzi_preset_stands_for_its_settings_and_what_is_set_beside_it_wins() -> None:
    for own, min_hold in ({}, "0s"), ({"min_hold": "10s"}, "10s"):
        settings = read({**own, "preset": "strimzi"}).model_dump(mode="json")
        preset: Any = {"recovery_margin": 0.0, "min_hold": min_hold, "min_change": 0.0, "departed_hold": "0s"}
        preset |= {"preset": "strimzi", "expired_action": "fallback", "anticipate": False}
        assert settings == {**read({}).model_dump(mode="json"), **preset}


@for_each("pattern", ["old", "*"])
@for_each("own", [{}, {"min_hold": "10s"}, {"min_hold": "0s"}])
def test_an_override_without_a_preset_has_nothing_of_that_of_the_block(own: dict[str, Any], pattern: str) -> None:
    overridden = read({"preset": "strimzi", **own, "clusters": {pattern: {"preset": None, "min_change": 0.2}}})
    plain = read({**own, "min_change": 0.2})
    assert overridden.for_cluster("old") == plain
    assert overridden.for_cluster("old").fingerprint() == plain.fingerprint()


def test_an_override_that_names_no_preset_keeps_that_of_the_block() -> None:
    old = read({"preset": "strimzi", "clusters": {"old": {"min_change": 0.2}}}).for_cluster("old")
    assert (old.preset, old.min_hold.total_seconds(), old.min_change) == (Preset.STRIMZI, 0.0, 0.2)


@pytest.mark.parametrize(
    ("block", "start", "fallback"),
    [
        ({"hard": {"available_bytes_below": 1}, "fallback_factor": 0.25}, 0.25, 0.25),
        ({"hard": {"available_bytes_below": 1}, "fallback_factor": 0.25, "preset": "strimzi"}, 1.0, 0.25),
        ({"fallback_factor": 0.25}, 1.0, 1.0),
    ],
    ids=["limited", "strimzi", "observed, never throttled"],
)
def test_where_a_cluster_starts_and_falls_back_to(block: dict[str, Any], start: float, fallback: float) -> None:
    settings = read(block)
    assert (settings.start_factor, settings.fallback) == (start, fallback)


CHANGES: dict[str, Any] = {
    "mode": "shadow",
    "alert_grace": "1s",
    "alert_repeat": "1h",
    "preset": "strimzi",
    "hard": {"available_bytes_below": 1},
    "soft": {"available_ratio_below": 0.5},
    "fallback_factor": 0.5,
    "validity": "1m",
    "recovery_margin": 0.2,
    "min_hold": "1m",
    "min_change": 0.1,
    "departed_hold": "2h",
    "heartbeat": "30s",
    "expired_action": "fallback",
    "time_to_full_alert": "1h",
    "has_actuator": True,
    "anticipate": False,
    "stop_time": "20s",
}


def test_every_setting_changes_the_fingerprint() -> None:
    assert set(CHANGES) == set(ThrottleSettings.model_fields) - {"clusters", "alert_refresh"}
    prints = {read({}).fingerprint(), *(read({name: value}).fingerprint() for name, value in CHANGES.items())}
    assert len(prints) == len(CHANGES) + 1


@given(st.sampled_from(sorted(CHANGES)))
def test_overrides_of_other_clusters_do_not_change_the_fingerprint(name: str) -> None:
    plain, other = read({"validity": "3m"}), read({"validity": "3m", "clusters": {"dev-*": {name: CHANGES[name]}}})
    assert other.for_cluster("payments").fingerprint() == plain.for_cluster("payments").fingerprint()
    assert other.for_cluster("dev-1").fingerprint() != plain.fingerprint()


def test_the_same_settings_written_otherwise_have_the_same_fingerprint() -> None:
    one, other = {"validity": "60s", "hard": {"available_bytes_below": "1GB"}}, {"hard": {"available_bytes_below": GB}}
    assert read(one).fingerprint() == read({**other, "validity": "1m"}).fingerprint()
