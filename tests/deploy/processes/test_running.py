"""How the parts of a process run together, are watched and stopped, and when the process starts anew."""

import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry, Counter

from connectors.component import Check, Component
from connectors.http.tls import find_files
from deploy.processes import running as module
from deploy.processes.running import Renewal, new_registry, run_components, serving, start_anew, stop_on_signals
from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from policies.units import UserError

SECONDS = 30.0
"""Nothing here takes so long; a mistake must not hang the suite."""


class Log:
    """What happened, in its order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, line: str) -> None:
        with self._lock:
            self.lines.append(line)


def part(name: str, log: Log, *, ready: Check | None = None, fails: BaseException | None = None) -> Component:
    """It says when it begins and ends, and runs until it is stopped unless it fails."""

    def run(stop: threading.Event) -> None:
        log(f"{name} begins")
        if fails is not None:
            raise fails
        assert stop.wait(SECONDS)
        log(f"{name} ends")

    return Component(name, run, ready=ready)


def test_parts_end_in_order_each_before_the_next() -> None:
    log, stop = Log(), threading.Event()
    parts = [part(name, log) for name in ("collector", "query", "exporter")]
    run_components(parts, stop, on_ready=stop.set, on_stop=lambda: log("stopping"))
    assert sorted(log.lines[:3]) == ["collector begins", "exporter begins", "query begins"]
    assert log.lines[3:] == ["stopping", "collector ends", "query ends", "exporter ends"]


def test_a_part_that_fails_ends_all_and_its_error_is_raised() -> None:
    log = Log()
    failing = part("query", log, fails=UserError("no checkpoint"))
    with pytest.raises(UserError, match="no checkpoint"):
        run_components([part("collector", log), failing, part("exporter", log)], threading.Event())
    assert log.lines[-2:] == ["collector ends", "exporter ends"]


def test_a_part_that_ends_by_itself_has_failed() -> None:
    with pytest.raises(UserError, match="The exporter ended by itself"):
        run_components([Component("exporter", lambda _: None)], threading.Event())


def test_of_several_failures_the_first_is_raised() -> None:
    log, first_failed = Log(), threading.Event()

    def second(stop: threading.Event) -> None:
        assert first_failed.wait(SECONDS)
        assert stop.wait(SECONDS)
        raise UserError("second")

    def first(_: threading.Event) -> None:
        first_failed.set()
        raise UserError("first")

    with pytest.raises(UserError, match="first"):
        run_components([part("collector", log), Component("one", first), Component("other", second)], threading.Event())


def test_it_is_ready_once_when_all_parts_that_can_say_so_are() -> None:
    log, stop = Log(), threading.Event()
    reasons: list[str | None] = ["starting", "starting", None]

    def ready() -> str | None:
        return reasons.pop(0) if len(reasons) > 1 else reasons[0]

    def on_ready() -> None:
        log("ready")
        stop.set()

    run_components([part("query", log, ready=ready), part("collector", log)], stop, on_ready=on_ready)
    assert log.lines.count("ready") == 1
    assert reasons == [None]


def test_a_process_that_is_stopped_before_it_is_ready_never_says_so() -> None:
    log, stop = Log(), threading.Event()
    stop.set()
    run_components([part("query", log, ready=lambda: None)], stop, on_ready=lambda: log("ready"))
    assert "ready" not in log.lines


def test_a_process_whose_query_gives_up_while_the_others_are_asked_never_says_that_it_is_ready() -> None:
    log, gives_up, stop = Log(), threading.Event(), threading.Event()

    def query(_: threading.Event) -> None:
        assert gives_up.wait(SECONDS)
        raise UserError("the query failed 6 times in a row")

    def exporter_is_ready() -> None:
        gives_up.set()
        assert stop.wait(SECONDS)

    parts = [Component("query", query, ready=lambda: None), part("exporter", log, ready=exporter_is_ready)]
    with pytest.raises(UserError, match="6 times"):
        run_components(parts, stop, on_ready=lambda: log("ready"))
    assert "ready" not in log.lines


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_readiness_are_those_of_the_parts_that_have_any() -> None:
    settings = Settings.model_validate({"http": {"host": "127.0.0.1", "port": 0}})
    idle: Callable[[threading.Event], None] = lambda _: None  # noqa: E731
    parts = [
        Component("collector", idle),
        Component("query", idle, healthy=lambda: None, ready=lambda: "no micro-batch yet"),
        Component("exporter", idle, healthy=lambda: "it stalls"),
    ]
    with serving(settings, CollectorRegistry(), parts) as server:
        assert answer(server.port, "/-/healthy") == (503, "exporter: it stalls\n")
        assert answer(server.port, "/-/ready") == (503, "query: no micro-batch yet\n")


def test_a_registry_shows_the_process_and_counters_without_their_time_of_creation() -> None:
    registry = new_registry()
    Counter("apples", "Apples.", registry=registry).inc()
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert {"process_resident_memory_bytes", "python_info", "apples_total"} <= names
    assert "apples_created" not in names


# --- What signals do: the first asks to stop, the second ends.

BUSY_WITH_AN_EVENT = """
import signal, threading
from deploy.processes.running import _set_in_handler
for number in range(100):
    event = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: _set_in_handler(event))
    signal.setitimer(signal.ITIMER_REAL, (500 + number) / 1e6)
    while not event.wait(0):
        pass
"""
"""As good as always between taking and releasing the event's lock."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does with signals, the next one finds them as they were; no look waits."""
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.0)
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_to_stop_and_the_second_interrupts_or_ends_the_process(number: signal.Signals) -> None:
    stop = stop_on_signals()
    assert not stop.is_set()
    signal.raise_signal(number)
    assert stop.wait(300)
    if number is signal.SIGTERM:
        assert signal.getsignal(number) is signal.SIG_DFL
    else:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_a_signal_that_interrupts_whoever_waits_for_its_event_is_heard() -> None:
    child = subprocess.run([sys.executable, "-c", BUSY_WITH_AN_EVENT], timeout=300)
    assert child.returncode == 0


# SIGHUP, or a changed file of a connection, starts the process anew if what it would read is good.

KAFKA = {"bootstrap_servers": "127.0.0.1:1"}


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
