"""The demo's own settings, readings and end."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.demo.run import _counting_space
from deploy.demo.story import FIRST_SETTINGS, HARD_BYTES, LOAD_BYTES_PER_SECOND, SOFT_BYTES, TOTAL_BYTES
from deploy.demo.volume import DemoVolume
from deploy.settings.file import load_settings
from policies.decisions import Mode

DEMO = """
import sys
from deploy.demo.run import Shutdown
shutdown = Shutdown()
shutdown.in_order = sys.argv[1] == "in order"
print("runs", flush=True)
while not shutdown.stop.wait(0.1):
    pass  # handlers run while this thread is awake
print("in order", flush=True)
sys.exit(shutdown.status)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_its_own_status(number: signal.Signals) -> None:
    how = "at once" if number is signal.SIGHUP else "in order"
    with subprocess.Popen([sys.executable, "-c", DEMO, how], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "runs\n"
        demo.send_signal(number)
        assert demo.stdout.read() == ("in order\n" if how == "in order" else "")
    assert demo.returncode == 128 + number


def test_there_is_room_below_the_hard_limit_for_what_a_stop_in_steps_lets_through() -> None:
    assert HARD_BYTES > 6 * LOAD_BYTES_PER_SECOND
    assert TOTAL_BYTES > SOFT_BYTES > HARD_BYTES


def test_the_settings_it_ends_with_are_good_and_set_nothing_yet(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(FIRST_SETTINGS)
    settings = load_settings(file)
    assert settings.policies.throttle.for_cluster("payments").mode is Mode.SHADOW
    assert settings.clusters["payments"].quotas is None


def test_of_a_folder_the_size_and_space_that_are_counted_are_told_and_all_else_as_it_was_read(tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    volume = DemoVolume(tmp_path, 280_000_000, is_disk=False)
    publish = _counting_space(volume, lambda _topic, _key, value: told.append(json.loads(value)))
    disk = {"log_dir": "/tmp/demo/disk", "total_bytes": 10**12, "usable_bytes": 10**11}
    members = {"type": "members", "data": {"cluster": "demo"}}
    for event in ({"type": "log-dirs", "data": {"broker": 1, "volumes": [disk]}}, members):
        publish("topic", "demo", json.dumps(event).encode())
    counted = {**disk, "total_bytes": 280_000_000, "usable_bytes": 280_000_000}
    assert told == [{"type": "log-dirs", "data": {"broker": 1, "volumes": [counted]}}, members]
