"""SIGHUP: good settings start the process anew with all state kept, wrong ones change nothing."""

import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streaming.dead_letters import LETTERS_A_WINDOW
from tests.system.loop import UNHURRIED, Headgate, Topic, await_ready, http_get, produce, series, write_settings
from tests.system.test_loop_recovery import reading
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port


@dataclass
class Running:
    """A loop that watches two clusters, and its settings."""

    file: Path
    headgate: Headgate
    servers: str
    settings: dict[str, Any]

    @property
    def port(self) -> int:
        return int(self.settings["http"]["port"])

    def topic(self, name: str) -> Topic:
        return Topic(self.servers, f"{self.settings['topics']['prefix']}.{name}")

    def reload(self) -> None:
        """Write the settings and, where they are others, have them read."""
        before = self.file.read_text()
        if write_settings(self.file, **self.settings).read_text() != before:
            self.headgate.process.send_signal(signal.SIGHUP)

    def limit(self, **hard: Any) -> None:
        """Give the policy another hard limit."""
        self.settings["policies"]["throttle"]["hard"] = hard
        self.reload()


@pytest.fixture(scope="module")
def loop(loop_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One loop for all tests here, in their order: none needs what those before it have done."""
    folder = tmp_path_factory.mktemp("reload")
    watched = {"kafka": {"bootstrap_servers": loop_kafka, "poll_interval": "500ms"}}
    settings: dict[str, Any] = {
        "kafka": {"bootstrap_servers": loop_kafka},
        "topics": {"prefix": f"t{uuid.uuid4().hex[:8]}"},
        "data_dir": str(folder / "data"),
        "http": {"port": free_port()},
        "clusters": {"payments": watched, "orders": {**watched}},
        "policies": {"throttle": {"hard": {"available_bytes_below": 1}}},
        "stream": UNHURRIED,
    }
    file = write_settings(folder / "headgate.yaml", **settings)
    with Headgate(["run", "-s", str(file)], folder / "run.log") as headgate:
        await_ready(headgate, settings["http"]["port"])
        yield Running(file, headgate, loop_kafka, settings)
        assert headgate.stop() == 0
        assert "Traceback" not in headgate.output()


def test_wrong_settings_change_nothing_and_good_ones_take_effect_with_all_state_kept(loop: Running) -> None:
    with loop.topic("decided.throttle") as decided:
        first = eventually("a decision", lambda: _of_payments(decided)[-1:] or None)[0]
        assert _reloaded(loop.port) == 1.0

        loop.limit(available_bytes_below="lots")
        eventually("the metric says it failed", lambda: _reloaded(loop.port) == 0.0)
        assert "policies.throttle.hard.available_bytes_below" in loop.headgate.output()

        loop.limit(available_ratio_below=1.0)
        stopped = eventually("stopped by the new limit", lambda: _stopped(decided))
        assert stopped[0]["settings_hash"] != first["settings_hash"]
        sequences = [d["sequence"] for d in _of_payments(decided)]
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
        eventually("the metric says it worked", lambda: _reloaded(loop.port) == 1.0)


def test_settings_that_the_watched_cluster_refuses_change_nothing(loop: Running) -> None:
    watched = loop.settings["clusters"]["payments"]
    watched["quotas"] = {"entities": [{"user": "nobody"}]}  # neither a base nor a quota in Kafka
    loop.reload()
    eventually("the refusal is logged", lambda: "new settings or certificates are refused" in loop.headgate.output())
    eventually("the metric says it failed", lambda: _reloaded(loop.port) == 0.0)
    await_ready(loop.headgate, loop.port)
    assert "clusters.payments.quotas" in loop.headgate.output()

    del watched["quotas"]
    loop.reload()
    eventually("the metric says it worked", lambda: _reloaded(loop.port) == 1.0)


def test_a_cluster_that_leaves_the_settings_ends_and_its_readings_are_dead_letters(loop: Running) -> None:
    loop.limit(available_ratio_below=1.0)
    with (
        loop.topic("decided.throttle") as decided,
        loop.topic("decided.alerts") as alerts,
        loop.topic("dead-letters") as dead,
    ):
        eventually("an alert of orders", lambda: _ids(alerts, "orders", "firing"))
        eventually("the exporter shows orders", lambda: 'cluster="orders"' in _metrics(loop.port) or None)

        del loop.settings["clusters"]["orders"]
        loop.reload()
        eventually(
            "tombstones",
            lambda: "orders" in decided.deleted() and len(alerts.deleted()) == len(_ids(alerts, "orders", "firing")),
        )
        eventually("the exporter is up again", lambda: 'cluster="payments"' in _metrics(loop.port) or None)
        assert 'cluster="orders"' not in _metrics(loop.port)
        resolved = [a["alert_id"] for a in alerts.data() if (a["cluster"], a["status"]) == ("orders", "resolved")]
        assert sorted(resolved) == sorted(_ids(alerts, "orders", "firing")), "each once"

        observed = f"{loop.settings['topics']['prefix']}.observed.log-dirs"
        produce(loop.servers, observed, *[("orders", reading("orders", 1))] * 20)
        produce(loop.servers, observed, ("payments", b"garbage"))
        eventually("garbage is a dead letter", lambda: [d for d in dead.data() if d["reason"] == "malformed"] or None)
        unknown = [d for d in dead.data() if d["reason"] == "unknown-cluster"]
        assert LETTERS_A_WINDOW <= len(unknown) < 20, "a window may end between two records"


def test_a_paused_policy_only_watches_and_what_is_outstanding_is_said_once_when_it_is_resumed(loop: Running) -> None:
    loop.settings["clusters"].pop("orders", None)
    loop.limit(available_ratio_below=1.0)
    folder, file = loop.file.parent, str(loop.file)
    eventually(
        "orders is gone", lambda: 'cluster="payments"' in (shown := _metrics(loop.port)) and "orders" not in shown
    )
    with loop.topic("decided.throttle") as decided, loop.topic("decided.alerts") as alerts:
        eventually("a stop", lambda: _modes(decided)[-1:] == [(0.0, "active")] or None)
        eventually("an alert", lambda: alerts.data() or None)
        fired = _lives(alerts)

        said = _headgate(folder, "pause", "throttle", "--for", "2h", "--reason", "disks are swapped", "-s", file)
        assert said.startswith("Policy throttle only watches payments until ")
        assert "disks are swapped" in said
        assert _modes(decided)[-1] == (0.0, "shadow")
        status = " ".join(_headgate(folder, "status", "-s", file).split())
        assert "PAUSED until " in status
        assert "(disks are swapped)" in status

        said = _headgate(folder, "resume", "throttle", "payments", "-s", file)
        assert said == "Policy throttle watches payments: what it decided last stands\n"
        assert _modes(decided)[-1] == (0.0, "active")
        assert _lives(alerts) == fired


def _lives(alerts: Topic) -> set[tuple[str, str]]:
    """The alerts that fired, and those that were resolved; an alert whose summary follows the readings counts once."""
    return {(a["alert_id"], a["status"]) for a in alerts.data()}


def _of_payments(decided: Topic) -> list[dict[str, Any]]:
    return [d for d in decided.data() if d["cluster"] == "payments"]


def _modes(decided: Topic) -> list[tuple[float, str]]:
    return [(d["factor"], d["mode"]) for d in _of_payments(decided)]


def _headgate(folder: Path, *arguments: str) -> str:
    """What a command says, in one line each."""
    with Headgate(arguments, folder / f"{arguments[0]}.log", {"COLUMNS": "400"}) as command:
        assert command.wait() == 0, command.output()
        return command.output()


def _ids(alerts: Topic, cluster: str, status: str) -> set[str]:
    return {a["alert_id"] for a in alerts.data() if (a["cluster"], a["status"]) == (cluster, status)}


def _metrics(port: int) -> str:
    return (http_get(port, "/metrics") or (0, ""))[1]


def _stopped(decided: Topic) -> list[dict[str, Any]] | None:
    return [d for d in _of_payments(decided) if d["factor"] == 0.0] or None


def _reloaded(port: int) -> float | None:
    answer = http_get(port, "/metrics")
    found = series(answer[1] if answer else "", "headgate_settings_last_reload_successful")
    return found[0][1] if found else None
