"""SIGHUP, or a changed file of a connection, starts the process anew if what it would read is good."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry

from connectors.http.tls import find_files
from deploy.processes import running as module
from deploy.processes.running import Renewal, start_anew
from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from policies.units import UserError

KAFKA = {"bootstrap_servers": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does with the signal, the next one finds it as it was; no look waits."""
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.0)
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


class EndsAfter(threading.Event):
    """The component's stop event: not set until it was looked at so often, and never waited for."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left = looks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


def watching(*clusters: str, **more: Any) -> Settings:
    return Settings.model_validate({"clusters": {name: {"kafka": KAFKA} for name in clusters}, **more})


class Process:
    """A process with two clusters, and what it would read next."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.now = 0.0
        self.mistakes: list[str] = []
        self.restored: list[list[str]] = []
        self.is_restorable = True
        self.fresh = self.settings = settings or watching("a", "b")
        self.renewal = Renewal(self.load, self.settings, self.validate, self.restore, lambda: self.now)
        self.registry = CollectorRegistry()
        self.ended = threading.Event()
        self.component = self.renewal.component(self.registry, self.ended)

    def load(self) -> Settings:
        return self.fresh

    def validate(self, _settings: Settings) -> None:
        if self.mistakes:
            raise UserError("\n".join(self.mistakes))

    def restore(self, settings: Settings) -> None:
        self.restored.append(sorted(settings.clusters))
        if not self.is_restorable:
            raise UserError("Not put back on b: user=alice: no answer")

    def look(self, after_seconds: float = 0.0) -> bool:
        """Whether the process ends to start anew after one more look."""
        self.now += after_seconds
        self.component.run(EndsAfter(1))
        return self.ended.is_set()

    def hang_up(self) -> bool:
        signal.raise_signal(signal.SIGHUP)
        assert self.renewal._asked.wait(300)
        return self.look()

    def successful(self) -> float | None:
        return self.registry.get_sample_value("headgate_settings_last_reload_successful")


def test_without_a_signal_and_a_change_nothing_is_read_again() -> None:
    process = Process()
    assert (process.look(), process.look(100), process.successful()) == (False, False, 1)


def test_good_settings_end_the_process_and_name_clusters_that_come_and_go(capsys: pytest.CaptureFixture[str]) -> None:
    process = Process()
    process.fresh = watching("a", "c")
    assert process.hang_up()
    said = capsys.readouterr().out
    assert "clusters_added=['c'] clusters_dropped=['b']" in said
    assert len(said.splitlines()) == 1


def test_settings_that_cannot_be_read_end_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nested = tmp_path / "nested.yaml"
    nested.write_text("a: " + "[" * 1000 + "]" * 1000)
    for load in (lambda: load_settings(nested), MagicMock(side_effect=RecursionError)):
        process = Process()
        monkeypatch.setattr(process.renewal, "_load", load)
        assert (process.hang_up(), process.successful()) == (False, 0)


def test_settings_with_which_it_could_not_start_end_nothing_until_mended(capsys: pytest.CaptureFixture[str]) -> None:
    process = Process()
    process.mistakes = ["http.port: port 80 of 0.0.0.0 is in use"]
    assert (process.hang_up(), process.successful()) == (False, 0)
    assert process.mistakes[0] in capsys.readouterr().out
    process.mistakes = []
    assert process.hang_up()


# --- Files of connections


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    for name in ("ca.pem", "token", "password"):
        (tmp_path / name).write_text("x")
    return tmp_path / "ca.pem"


def over_tls(certificate: Path) -> Settings:
    return watching("a", kafka={**KAFKA, "tls": {"ca_file": str(certificate)}})


def test_a_changed_certificate_starts_anew_once_nobody_writes_it_any_more(certificate: Path) -> None:
    process = Process(over_tls(certificate))
    assert not process.look()
    certificate.write_text("renewed")
    assert not process.look(4)
    certificate.write_text("renewed further")
    assert not process.look(4)
    assert process.look(4)


def test_a_certificate_that_cannot_be_used_changes_nothing_and_is_tried_again_after_a_minute(certificate: Path) -> None:
    process = Process(over_tls(certificate))
    certificate.write_text("cut")
    process.mistakes = ["tls.ca_file: it holds no certificates in PEM form"]
    looks = [process.look(4) for _ in range(3)]
    assert (looks, process.successful()) == ([False] * 3, 0)
    process.mistakes = []
    assert not process.look(10)
    assert process.look(60)


def test_files_that_are_read_at_each_use_start_nothing_anew(tmp_path: Path, certificate: Path) -> None:
    file = {name: str(tmp_path / name) for name in ("token", "password")}
    ca = {"ca_file": str(certificate)}
    settings = watching(
        kafka={**KAFKA, "sasl": {"mechanism": "PLAIN", "username": "u", "password_file": file["password"]}, "tls": ca},
        http={"access": {"token_file": file["token"], "cert_file": str(certificate), "key_file": str(certificate)}},
        clusters={
            "p": {
                "zookeeper": {"servers": "zk:2181", "user": "u", "password_file": file["password"], "tls": ca},
                "pulsar": {"admin_url": "https://p:8443", "token_file": file["token"], "tls": ca},
            }
        },
    )
    assert {place for place, _ in find_files(settings, module._READ_ONCE)} == {
        "kafka.sasl.password_file", "kafka.tls.ca_file", "http.access.cert_file", "http.access.key_file",
        "clusters.p.zookeeper.tls.ca_file", "clusters.p.pulsar.tls.ca_file",
    }  # fmt: skip


# --- Clusters that the new settings drop


@pytest.mark.parametrize(("is_restorable", "runs", "gauge"), [(True, 1, 1), (False, 2, 0)])
def test_what_was_set_on_a_dropped_cluster_is_restored_first_or_the_settings_from_before_stay(
    is_restorable: bool, runs: int, gauge: int
) -> None:
    process, gauges = Process(), []
    process.is_restorable, process.fresh = is_restorable, watching("a", "c")

    def run(renewal: Renewal) -> None:
        registry = CollectorRegistry()
        component = renewal.component(registry, threading.Event())
        gauges.append(registry.get_sample_value("headgate_settings_last_reload_successful"))
        if len(gauges) == 1:
            signal.raise_signal(signal.SIGHUP)
            assert renewal._asked.wait(300)
            component.run(EndsAfter(1))

    assert process.renewal.run(run) is is_restorable
    assert (process.restored, len(gauges), gauges[-1]) == ([["b"]], runs, gauge)


def test_a_process_that_is_stopped_does_not_start_anew() -> None:
    assert not Process().renewal.run(lambda _: None)


# --- The start


def test_the_same_command_is_executed_and_one_more_signal_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[Any] = []
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)

    def execute(*command: Any) -> None:
        executed.append(command)
        raise SystemExit

    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-m", "deploy.cli", "run"])
    with pytest.raises(SystemExit):
        start_anew()
    assert executed == [(sys.executable, [sys.executable, "-m", "deploy.cli", "run"])]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_spark_submit_must_start_its_process_anew_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(UserError, match="start spark-submit again"):
        start_anew()
