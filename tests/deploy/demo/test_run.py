"""The demo's own settings and readings."""

from pathlib import Path

import pytest

from deploy.demo.run import CLUSTER, SIZES, DemoSettings, _with_counted_space
from deploy.demo.servers import DemoVolume
from deploy.demo.story import FIRST_SETTINGS
from deploy.settings.file import load_settings
from policies.decisions import Mode
from policies.observations import Outcome, Reading
from policies.throttle.readings import KafkaCluster, LogDirs, VolumeReading


def test_what_the_environment_sets_for_other_clusters_is_not_the_demos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP_SERVERS", "production:9092")
    monkeypatch.setenv("HEADGATE_CLUSTERS", '{"payments": {"kafka": {"bootstrap_servers": "production:9092"}}}')
    settings = DemoSettings(data_dir=tmp_path)
    assert (settings.kafka, settings.clusters) == (None, {})


def test_there_is_room_below_the_hard_limit_for_what_a_stop_in_steps_lets_through() -> None:
    assert SIZES.hard > 6 * SIZES.load
    assert SIZES.total > SIZES.soft > SIZES.hard


def test_the_settings_it_ends_with_are_good_and_set_nothing_yet(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(FIRST_SETTINGS)
    settings = load_settings(file)
    assert settings.policies.throttle.for_cluster("payments").mode is Mode.SHADOW
    assert settings.clusters["payments"].quotas is None


def test_of_a_folder_the_size_and_space_that_are_counted_are_told_and_all_else_as_it_was_read(tmp_path: Path) -> None:
    told: list[Reading] = []
    publish = _with_counted_space(told.append, DemoVolume(tmp_path, 280_000_000, is_disk=False))
    disk = VolumeReading(log_dir="/tmp/demo/disk", total_bytes=10**12, usable_bytes=10**11)
    read = LogDirs(cluster=CLUSTER, broker=1, outcome=Outcome.OK, volumes=(disk,))
    members = KafkaCluster(cluster=CLUSTER, outcome=Outcome.OK)
    for reading in (read, members):
        publish(reading)
    counted = disk.model_copy(update={"total_bytes": 280_000_000, "usable_bytes": 280_000_000})
    assert told == [read.model_copy(update={"volumes": (counted,)}), members]
