"""How the parts of a process run together: begun at once, watched, and stopped in order when one fails."""

import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from connectors.component import Check, Component
from deploy.processes.running import new_registry, run_components, serving, stop_on_signals
from deploy.settings.application import Settings
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
from deploy.processes.running import set_in_handler
for number in range(100):
    event = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: set_in_handler(event))
    signal.setitimer(signal.ITIMER_REAL, (500 + number) / 1e6)
    while not event.wait(0):
        pass
"""
"""As good as always between taking and releasing the event's lock."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever a test does with signals, the next one finds them as they were."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
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
