"""Which Kafka a command talks to: that of the settings, or that of a running `headgate up`."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from deploy.settings.application import Settings
from deploy.settings.embedded import embedded_servers, with_embedded, with_running_up
from policies.units import UserError


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
