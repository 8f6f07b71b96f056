"""The settings of the application: its folders, and which Kafka a command talks to: theirs, or that of `up`."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deploy.settings.application import (
    EMBEDDED_CLUSTER,
    Settings,
    embedded_servers,
    user_folder,
    with_embedded,
    with_running_up,
)
from policies.throttle import ThrottleSettings
from policies.units import UserError
from tests.cases import for_each


def embedded(folder: Path, pid: int, content: str = '{"broker_ports": {"1": 20001, "2": 20002}}') -> Path:
    folder.mkdir(parents=True)
    (folder / "lock").write_text(f"{pid}\n")
    (folder / "cluster.json").write_text(content)
    return folder


def test_a_running_up_is_found_by_its_data_folder(tmp_path: Path) -> None:
    embedded(tmp_path / "kafka", os.getpid())
    settings = with_running_up(Settings(data_dir=tmp_path))
    assert settings.loop_kafka().servers() == ["127.0.0.1:20001", "127.0.0.1:20002"]
    assert list(settings.clusters) == ["embedded"]


def test_the_cluster_of_up_may_have_quotas_because_its_kafka_is_known_once_it_runs(tmp_path: Path) -> None:
    quotas = {"entities": [{"client_id": "default", "base": "10MB"}]}
    given = {"data_dir": tmp_path, "clusters": {"embedded": {"quotas": quotas}}}
    settings = with_embedded(Settings.model_validate(given), "127.0.0.1:20001")
    assert settings.policy_settings()["throttle"].for_cluster("embedded").model_dump()["has_actuator"]
    assert settings.clusters["embedded"].kafka.servers() == ["127.0.0.1:20001"]
    of_run = {**given, "kafka": {"bootstrap_servers": "k:9092"}}
    elsewhere = {"data_dir": tmp_path, "clusters": {"payments": {"quotas": quotas}}}
    for wrong in (of_run, elsewhere):
        with pytest.raises(ValidationError, match=r"quotas\n *needs kafka.bootstrap_servers, too"):
            Settings.model_validate(wrong)


def test_the_settings_win_over_a_running_up(tmp_path: Path) -> None:
    embedded(tmp_path / "kafka", os.getpid())
    settings = Settings.model_validate({"data_dir": tmp_path, "kafka": {"bootstrap_servers": "k:9092"}})
    assert with_running_up(settings).loop_kafka().servers() == ["k:9092"]


def test_an_up_that_has_ended_or_never_was_is_not_found(tmp_path: Path) -> None:
    ended = os.fork()
    if not ended:
        os._exit(0)
    os.waitpid(ended, 0)
    assert embedded_servers(embedded(tmp_path / "ended", ended)) is None
    assert embedded_servers(tmp_path / "never") is None
    assert embedded_servers(embedded(tmp_path / "half", os.getpid(), "{")) is None
    with pytest.raises(UserError, match=f"Other commands find that one by its data_dir .*{tmp_path}"):
        with_running_up(Settings(data_dir=tmp_path)).loop_kafka()


# The embedded cluster is the loop's own and a watched one, with limits of its own.


SERVERS = "127.0.0.1:19092"
HARD_RATIO, SOFT_RATIO = 0.05, 0.15


def completed(settings: dict[str, Any]) -> Settings:
    return with_embedded(Settings.model_validate(settings), SERVERS)


def in_force(throttle: dict[str, Any], cluster: str = EMBEDDED_CLUSTER) -> ThrottleSettings:
    block: ThrottleSettings = completed({"policies": {"throttle": throttle}}).policies.throttle
    return block.for_cluster(cluster)


def limits(throttle: dict[str, Any], cluster: str = EMBEDDED_CLUSTER) -> tuple[float | None, float | None]:
    """(hard, soft) in force for a cluster, as ratios."""
    own = in_force(throttle, cluster)
    hard, soft = (None if limit is None else limit.available_ratio_below for limit in (own.hard, own.soft))
    return hard, soft


def test_what_is_said_of_watching_it_stays_but_for_its_address() -> None:
    kafka = {"bootstrap_servers": "elsewhere:9092", "poll_interval": "7s"}
    given = {"kafka": kafka, "zookeeper": {"servers": "zk-1:2181"}, "bookies": {}}
    cluster = completed({"clusters": {EMBEDDED_CLUSTER: given}}).clusters[EMBEDDED_CLUSTER]
    assert (cluster.kafka.servers(), cluster.kafka.poll_interval.total_seconds()) == ([SERVERS], 7)
    assert None not in (cluster.zookeeper, cluster.bookies)


def test_other_watched_clusters_stay() -> None:
    others = {"payments": {"kafka": {"bootstrap_servers": "payments:9092"}}}
    assert list(completed({"clusters": others}).clusters) == ["payments", EMBEDDED_CLUSTER]


BUILT_IN = (HARD_RATIO, SOFT_RATIO)
HALF = {"hard": {"available_ratio_below": 0.5}}
CASES: dict[str, tuple[dict[str, Any], tuple[float | None, float | None]]] = {
    "no settings": ({}, BUILT_IN),
    "an override that sets no limit": ({"clusters": {EMBEDDED_CLUSTER: {"fallback_factor": 0.5}}}, BUILT_IN),
    "a glob that sets no limit": ({"clusters": {"*": {"fallback_factor": 0.5}}}, BUILT_IN),
    "an override of another cluster": ({"clusters": {"payments": HALF}}, BUILT_IN),
    "its own limit": ({"clusters": {EMBEDDED_CLUSTER: HALF}}, (0.5, None)),
    "a limit for all by a glob": ({"clusters": {"*": HALF}}, (0.5, None)),
    "a limit for all": (HALF, (0.5, None)),
    "one limit taken away": ({"clusters": {EMBEDDED_CLUSTER: {"hard": None}}}, (None, SOFT_RATIO)),
    "both taken away": ({"clusters": {EMBEDDED_CLUSTER: {"hard": None, "soft": None}}}, (None, None)),
}


@for_each(("throttle", "expected"), CASES.values(), ids=CASES)
def test_the_built_in_limits_are_its_defaults_where_the_user_sets_none(
    throttle: dict[str, Any], expected: tuple[float | None, float | None]
) -> None:
    assert limits(throttle) == expected


@for_each("pattern", [EMBEDDED_CLUSTER, "*", "emb*"])
def test_overrides_are_merged_field_by_field_with_the_built_in_limits(pattern: str) -> None:
    throttle = {"fallback_factor": 0.9, "clusters": {pattern: {"fallback_factor": 0.5}}}
    assert (limits(throttle), in_force(throttle).fallback_factor) == (BUILT_IN, 0.5)


def test_an_override_without_a_preset_has_none_for_the_embedded_cluster_either() -> None:
    own = in_force({"preset": "strimzi", "clusters": {EMBEDDED_CLUSTER: {"preset": None}}})
    assert (own.preset, own.min_hold.total_seconds(), own.limited) == (None, 30.0, True)


def test_other_clusters_get_no_built_in_limits() -> None:
    assert limits({"clusters": {"*": {"fallback_factor": 0.5}}}, "payments") == (None, None)


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: the user has no name, and HOME is not set."""
    monkeypatch.delenv("HOME", raising=False)

    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)


def test_a_variable_of_xdg_needs_no_home(monkeypatch: pytest.MonkeyPatch, no_home: None) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/var/lib")
    assert user_folder("XDG_DATA_HOME", ".local/share") == Path("/var/lib/headgate")


def test_without_home_and_variable_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch, no_home: None) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with pytest.raises(UserError, match="this user has no home folder: set HOME, XDG_DATA_HOME, or data_dir and jars"):
        user_folder("XDG_DATA_HOME", ".local/share")
