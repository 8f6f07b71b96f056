"""Settings read again on SIGHUP: good ones take effect with all state kept, wrong ones change nothing."""

import re
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from streaming.letter_box import LETTERS_A_WINDOW
from tests.system.loop import Headgate, Topic, await_ready, http_get, produce, write_settings
from tests.system.test_loop_recovery import reading
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


def test_a_paused_policy_only_watches_and_what_is_outstanding_is_said_once_when_it_is_resumed(
    settings: dict[str, Any], tmp_path: Path, loop_kafka: str
) -> None:
    settings["policies"]["throttle"] = {"hard": {"available_ratio_below": 1.0}}
    file, port, prefix = tmp_path / "headgate.yaml", settings["http"]["port"], settings["topics"]["prefix"]
    write_settings(file, **settings)
    with (
        Headgate(["run", "-s", str(file)], tmp_path / "run.log") as headgate,
        Topic(loop_kafka, f"{prefix}.decided.throttle") as decided,
        Topic(loop_kafka, f"{prefix}.decided.alerts") as alerts,
    ):
        await_ready(headgate, port)
        eventually("a stop", lambda: _modes(decided)[-1:] == [(0.0, "active")] or None)
        fired = len(eventually("an alert", lambda: alerts.data() or None))

        said = _headgate(tmp_path, "pause", "throttle", "--for", "2h", "--reason", "disks are swapped", "-s", str(file))
        assert said.startswith("Policy throttle only watches payments until ")
        assert "disks are swapped" in said
        assert _modes(decided)[-1] == (0.0, "shadow")
        assert "Policy throttle only watches payments until" in _headgate(tmp_path, "status", "-s", str(file))

        said = _headgate(tmp_path, "resume", "throttle", "payments", "-s", str(file))
        assert said == "Policy throttle watches payments: what it decided last stands\n"
        assert _modes(decided)[-1] == (0.0, "active")
        assert len(alerts.data()) == fired
        assert headgate.stop() == 0


def _modes(decided: Topic) -> list[tuple[float, str]]:
    return [(d["factor"], d["mode"]) for d in decided.data()]


def _headgate(folder: Path, *arguments: str) -> str:
    """What a command says, in one line each."""
    with Headgate(arguments, folder / f"{arguments[0]}.log", {"COLUMNS": "400"}) as command:
        assert command.wait() == 0, command.output()
        return command.output()


def test_a_cluster_that_leaves_the_settings_ends_and_its_readings_are_dead_letters(
    settings: dict[str, Any], tmp_path: Path, loop_kafka: str
) -> None:
    settings["clusters"]["orders"] = settings["clusters"]["payments"]
    settings["policies"]["throttle"] = {"hard": {"available_ratio_below": 1.0}}
    file, port = write_settings(tmp_path / "headgate.yaml", **settings), settings["http"]["port"]
    prefix = settings["topics"]["prefix"]
    with (
        Headgate(["run", "-s", str(file)], tmp_path / "run.log") as headgate,
        Topic(loop_kafka, f"{prefix}.decided.throttle") as decided,
        Topic(loop_kafka, f"{prefix}.decided.alerts") as alerts,
        Topic(loop_kafka, f"{prefix}.dead-letters") as dead,
    ):
        await_ready(headgate, port)
        fires = [eventually("an alert of orders", lambda: _alert_of(alerts, "orders", "firing"))]
        eventually("the exporter shows orders", lambda: 'cluster="orders"' in _metrics(port) or None)

        del settings["clusters"]["orders"]
        write_settings(file, **settings)
        headgate.process.send_signal(signal.SIGHUP)
        eventually(
            "tombstones", lambda: ("orders" in decided.deleted() and len(alerts.deleted()) == len(fires[0])) or None
        )
        eventually("the exporter is up again", lambda: 'cluster="payments"' in _metrics(port) or None)
        assert 'cluster="orders"' not in _metrics(port)
        resolved = _alert_of(alerts, "orders", "resolved") or []
        assert [a["alert_id"] for a in resolved] == [a["alert_id"] for a in fires[0]]

        produce(loop_kafka, f"{prefix}.observed.log-dirs", *[("orders", reading("orders", 1))] * 20)
        produce(loop_kafka, f"{prefix}.observed.log-dirs", ("payments", b"garbage"))
        eventually("garbage is a dead letter", lambda: [d for d in dead.data() if d["reason"] == "malformed"] or None)
        unknown = [d for d in dead.data() if d["reason"] == "unknown-cluster"]
        assert len(unknown) == LETTERS_A_WINDOW
        assert headgate.stop() == 0
        assert "Traceback" not in headgate.output()


def _alert_of(alerts: Topic, cluster: str, status: str) -> list[dict[str, Any]] | None:
    return [a for a in alerts.data() if (a["cluster"], a["status"]) == (cluster, status)] or None


def _metrics(port: int) -> str:
    return (http_get(port, "/metrics") or (0, ""))[1]


def _stopped(decided: Topic) -> list[dict[str, Any]] | None:
    return [d for d in decided.data() if d["factor"] == 0.0] or None


def _reloaded(port: int) -> float | None:
    answer = http_get(port, "/metrics")
    found = re.search(r"^headgate_settings_last_reload_successful (\S+)$", answer[1], re.MULTILINE) if answer else None
    return float(found[1]) if found else None
