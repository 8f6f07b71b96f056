"""The demo's own settings, readings and end."""

import json
import os
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.console.terminal import sentence_console
from deploy.demo import run
from deploy.demo.run import DemoFailedError, Director, _counting_space, free_bytes
from deploy.demo.story import (
    FIRST_SETTINGS,
    HARD_BYTES,
    LOAD_BYTES_PER_SECOND,
    SOFT_BYTES,
    TOTAL_BYTES,
    DemoSample,
    Screen,
)
from deploy.settings.file import load_settings
from policies.decisions import Mode

MEBIBYTE = 1024 * 1024


def test_there_is_room_below_the_hard_limit_for_what_a_stop_in_steps_lets_through() -> None:
    assert HARD_BYTES > 6 * LOAD_BYTES_PER_SECOND
    assert TOTAL_BYTES > SOFT_BYTES > HARD_BYTES


@pytest.mark.parametrize(("pids", "free"), [({1: 4711}, 0), ({}, 1)])
def test_a_full_disk_or_a_dead_broker_ends_it(tmp_path: Path, pids: dict[int, int], free: int) -> None:
    watched: Any = SimpleNamespace(pids=pids)
    director = Director(watched, tmp_path, Screen(sentence_console()), Event())
    with pytest.raises(DemoFailedError, match=r"The disk was full .* or its broker has ended"):
        director._advance(DemoSample(1.0, free, 1.0, None, 0.0))


def test_the_settings_it_ends_with_are_good_and_set_nothing_yet(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(FIRST_SETTINGS)
    settings = load_settings(file)
    assert settings.policies.throttle.for_cluster("payments").mode is Mode.SHADOW
    assert settings.clusters["payments"].quotas is None


def test_of_a_folder_the_size_and_space_that_are_counted_are_told_and_all_else_as_it_was_read(tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    publish = _counting_space(tmp_path, lambda _topic, _key, value: told.append(json.loads(value)))
    disk = {"log_dir": "/tmp/demo/disk", "total_bytes": 10**12, "usable_bytes": 10**11}
    members = {"type": "members", "data": {"cluster": "demo"}}
    for event in ({"type": "log-dirs", "data": {"broker": 1, "volumes": [disk]}}, members):
        publish("topic", "demo", json.dumps(event).encode())
    counted = {**disk, "total_bytes": TOTAL_BYTES, "usable_bytes": TOTAL_BYTES}
    assert told == [{"type": "log-dirs", "data": {"broker": 1, "volumes": [counted]}}, members]


def test_a_folder_is_as_full_as_its_files_and_of_a_sparse_one_only_what_is_written_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "index").open("wb") as index:
        index.truncate(64 * MEBIBYTE)
    assert free_bytes(tmp_path) == TOTAL_BYTES
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "file").write_bytes(os.urandom(MEBIBYTE // 4))
    assert free_bytes(tmp_path) == TOTAL_BYTES - MEBIBYTE // 4
    monkeypatch.setattr(run, "TOTAL_BYTES", MEBIBYTE // 8)
    assert free_bytes(tmp_path) == 0
