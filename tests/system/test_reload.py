"""Settings read again on SIGHUP: good ones take effect with all state kept, wrong ones change nothing."""

import re
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.system.loop import Headgate, Topic, await_ready, http_get, write_settings
from tests.system.waiting import eventually


@pytest.fixture
def settings(loop_kafka: str, tmp_path: Path, free_port: int) -> dict[str, Any]:
    watched = {"bootstrap_servers": loop_kafka, "poll_interval": "500ms"}
    return {
        "kafka": {"bootstrap_servers": loop_kafka},
        "topics": {"prefix": f"t{uuid.uuid4().hex[:8]}"},
        "data_dir": str(tmp_path / "data"),
        "http": {"port": free_port},
        "clusters": {"payments": {"kafka": watched}},
        "policies": {"throttle": {"hard": {"available_bytes_below": 1}}},
    }


def test_wrong_settings_change_nothing_and_good_ones_take_effect_with_all_state_kept(
    settings: dict[str, Any], tmp_path: Path, loop_kafka: str
) -> None:
    file, port = write_settings(tmp_path / "headgate.yaml", **settings), settings["http"]["port"]
    with (
        Headgate(["run", "-s", str(file)], tmp_path / "run.log") as headgate,
        Topic(loop_kafka, f"{settings['topics']['prefix']}.decided.throttle") as decided,
    ):
        await_ready(headgate, port)
        first = eventually("a decision", lambda: decided.data()[-1:] or None)[0]
        assert _reloaded(port) == 1.0

        file.write_text(file.read_text().replace("available_bytes_below: 1", "available_bytes_below: lots"))
        headgate.process.send_signal(signal.SIGHUP)
        eventually("the metric says it failed", lambda: _reloaded(port) == 0.0)
        assert "policies.throttle.hard.available_bytes_below" in headgate.output()

        settings["policies"]["throttle"]["hard"] = {"available_ratio_below": 1.0}
        write_settings(file, **settings)
        headgate.process.send_signal(signal.SIGHUP)
        stopped = eventually("stopped by the new limit", lambda: _stopped(decided))
        assert stopped[0]["settings_hash"] != first["settings_hash"]
        sequences = [d["sequence"] for d in decided.data()]
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
        eventually("the metric says it worked", lambda: _reloaded(port) == 1.0)
        assert headgate.stop() == 0


def _stopped(decided: Topic) -> list[dict[str, Any]] | None:
    return [d for d in decided.data() if d["factor"] == 0.0] or None


def _reloaded(port: int) -> float | None:
    answer = http_get(port, "/metrics")
    found = re.search(r"^headgate_settings_last_reload_successful (\S+)$", answer[1], re.MULTILINE) if answer else None
    return float(found[1]) if found else None
