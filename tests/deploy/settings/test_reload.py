"""SIGHUP reads the settings again, good or bad."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from deploy.settings.reload import SettingsReload, reload_gauge
from policies.units import UserError

DEADLINE_SECONDS = 300.0


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Whatever a test does with the signal, the next one finds it as it was."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


class EndsAfter(threading.Event):
    """The part's stop event: not set until it was looked at so often, and never waited for."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left = looks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


class World:
    """The part that reads settings again, and settings that are good or bad."""

    def __init__(self) -> None:
        self.loads: list[Callable[[], Settings]] = []
        self.registry = CollectorRegistry()
        self.end_run = threading.Event()
        self.reload = SettingsReload(lambda: self.loads.pop(0)(), lambda _: None)
        self._run = self.reload.watch(self.registry, self.end_run)

    def asked(self, load: Callable[[], Settings]) -> None:
        """SIGHUP comes while the settings are these, and the part runs until it has looked at them."""
        self.loads.append(load)
        signal.raise_signal(signal.SIGHUP)
        assert self.reload._asked.wait(DEADLINE_SECONDS)
        self._run(EndsAfter(1))

    def successful(self) -> float | None:
        return self.registry.get_sample_value("headgate_settings_last_reload_successful")


def bad() -> Settings:
    raise UserError("http.port: must be a number")


def good() -> Settings:
    return Settings.model_validate({"http": {"port": 7777}})


def test_without_a_signal_nothing_is_read_again() -> None:
    world = World()
    world._run(EndsAfter(1))
    assert (world.end_run.is_set(), world.successful(), world.reload._pop_fresh()) == (False, 1, None)


def test_good_settings_end_the_run_and_are_what_the_next_one_begins_with() -> None:
    world = World()
    world.asked(good)
    assert world.end_run.is_set()
    taken = world.reload._pop_fresh()
    assert taken is not None
    assert taken.http.port == 7777
    assert world.reload._pop_fresh() is None, "once"


def test_bad_settings_change_nothing_and_a_metric_says_so() -> None:
    world = World()
    world.asked(bad)
    assert (world.end_run.is_set(), world.successful(), world.reload._pop_fresh()) == (False, 0, None)


def nested(tmp_path: Path) -> Callable[[], Settings]:
    file = tmp_path / "nested.yaml"
    file.write_text("a: " + "[" * 1000 + "]" * 1000)
    return lambda: load_settings(file)


def failing() -> Settings:
    raise RecursionError


@pytest.mark.parametrize("load", [nested, lambda _: failing], ids=["nested a thousand deep", "a fault of ours"])
def test_settings_that_cannot_be_read_at_all_end_nothing(
    tmp_path: Path, load: Callable[[Path], Callable[[], Settings]]
) -> None:
    world = World()
    world.asked(load(tmp_path))
    assert (world.end_run.is_set(), world.successful(), world.reload._pop_fresh()) == (False, 0, None)


def test_good_ones_after_bad_ones_count() -> None:
    world = World()
    world.asked(bad)
    world.asked(good)
    assert world.end_run.is_set()
    assert world.reload._pop_fresh() is not None


class Runs:
    """Runs that become ready or not, and end well, by new settings, or by a refusal."""

    def __init__(self, *ends: Callable[[SettingsReload], None]) -> None:
        self.reload = SettingsReload(good, self.restore)
        self.gauges: list[float | None] = []
        self.ports: list[int] = []
        self.clusters: list[list[str]] = []
        self.restored: list[list[str]] = []
        self.is_restorable = True
        self._ends = list(ends)

    def restore(self, settings: Settings) -> None:
        self.restored.append(sorted(settings.clusters))
        if not self.is_restorable:
            raise UserError("Not put back on b: user=alice: no answer")

    def run(self, settings: Settings) -> None:
        registry = CollectorRegistry()
        self.reload.watch(registry, threading.Event())
        self.gauges.append(registry.get_sample_value("headgate_settings_last_reload_successful"))
        self.ports.append(settings.http.port)
        self.clusters.append(sorted(settings.clusters))
        end = self._ends.pop(0)
        if end is not refused:
            self.reload.prove(settings)
        end(self.reload)


def at_port(port: int) -> Settings:
    return Settings.model_validate({"http": {"port": port}})


def reloaded_to(port: int) -> Callable[[SettingsReload], None]:
    def end(reload: SettingsReload) -> None:
        reload._load = lambda: at_port(port)
        reload._read_again(reload_gauge(CollectorRegistry()))

    return end


def stopped(_reload: SettingsReload) -> None:
    """SIGTERM."""


def refused(_reload: SettingsReload) -> None:
    raise UserError("clusters.payments.quotas: user alice has no quota of its own")


def failed_later(_reload: SettingsReload) -> None:
    raise UserError("The query failed 6 times in a row")


def test_settings_that_are_refused_at_the_start_of_their_run_give_way_to_the_last_ones_that_ran() -> None:
    runs = Runs(reloaded_to(2), refused, reloaded_to(3), stopped)
    runs.reload.run_each(at_port(1), runs.run)
    assert (runs.ports, runs.gauges) == ([1, 2, 1, 3], [1, 1, 0, 1])


@pytest.mark.parametrize(
    ("ends", "ran"),
    [
        ((refused,), [1]),
        ((failed_later,), [1]),
        ((reloaded_to(2), failed_later), [1, 2]),
        ((reloaded_to(2), refused, refused), [1, 2, 1]),
    ],
    ids=["at the first start", "after it ran", "new ones after they ran", "those that ran, too"],
)
def test_a_refusal_without_other_settings_that_ran_ends_the_loop(
    ends: tuple[Callable[[SettingsReload], None], ...], ran: list[int]
) -> None:
    runs = Runs(*ends)
    with pytest.raises(UserError):
        runs.reload.run_each(at_port(1), runs.run)
    assert runs.ports == ran


def watching(*clusters: str) -> Settings:
    kafka = {"bootstrap_servers": "127.0.0.1:1"}
    return Settings.model_validate({"clusters": {name: {"kafka": kafka} for name in clusters}})


def reloaded_with(*clusters: str) -> Callable[[SettingsReload], None]:
    def end(reload: SettingsReload) -> None:
        reload._load = lambda: watching(*clusters)
        reload._read_again(reload_gauge(CollectorRegistry()))

    return end


@pytest.mark.parametrize(
    ("is_restorable", "ran", "gauge"),
    [(True, [["a", "b"], ["a", "c"]], 1), (False, [["a", "b"], ["a", "b"]], 0)],
    ids=["restored", "it cannot be restored"],
)
def test_what_was_set_on_a_cluster_that_a_reload_drops_is_restored_first_or_the_reload_is_refused(
    is_restorable: bool, ran: list[list[str]], gauge: int, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(reloaded_with("a", "c"), stopped)
    runs.is_restorable = is_restorable
    runs.reload.run_each(watching("a", "b"), runs.run)
    assert runs.restored == [["b"]]
    assert (runs.clusters, runs.gauges[-1]) == (ran, gauge)
    assert "dropped=['b']" in capsys.readouterr().out, "it is named"


def test_a_reload_that_drops_no_cluster_restores_nothing() -> None:
    runs = Runs(reloaded_with("a", "b", "c"), stopped)
    runs.reload.run_each(watching("a", "b"), runs.run)
    assert (runs.restored, runs.clusters) == ([], [["a", "b"], ["a", "b", "c"]])
