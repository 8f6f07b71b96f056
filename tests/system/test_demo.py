"""`headgate demo`, as the README has it: a real fill, throttle, stop and recovery, and nothing of it stays."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.loop import Headgate
from tests.system.processes import is_running
from tests.system.waiting import eventually

pytestmark = pytest.mark.usefixtures("kafka_jars")

PHASES = ["fill", "throttle", "stop", "recovery", "done"]


@pytest.fixture
def temporary(tmp_path: Path) -> dict[str, str]:
    """The environment of a demo whose folder is ours to look at; jars stay where they are."""
    return {"TMPDIR": str(tmp_path), "HEADGATE_KAFKA__BOOTSTRAP_SERVERS": "of-another-loop:9092"}


@pytest.mark.lean
def test_a_disk_fills_producers_are_slowed_stopped_and_let_go_and_nothing_stays(
    tmp_path: Path, temporary: dict[str, str]
) -> None:
    with Headgate(["demo"], tmp_path / "demo.log", temporary) as demo:
        _await(demo, "the fill has begun", lambda: "fill" in _phases(demo))
        pids = demo.children()
        assert demo.wait() == 0, demo.output()
    assert _phases(demo) == PHASES
    factors = [
        float(factor) for factor in re.findall(r"set by the quota actuator .* for factor (\d\.\d\d)", demo.output())
    ]
    assert any(0 < factor < 1 for factor in factors), demo.output()
    assert (factors[-1], min(factors)) == (1.0, 0.0), demo.output()
    assert "Producers of demo should be stopped: broker 1" in demo.output()
    assert "to no quota (before: " in demo.output()
    assert "Next:" in demo.output()
    assert "Traceback" not in demo.output()
    _nothing_stays(tmp_path, pids)


@pytest.mark.long
def test_bookies_fill_publishing_is_slowed_and_let_go_and_nothing_stays(
    tmp_path: Path, temporary: dict[str, str], pulsar_jars: tuple[Path, ...]
) -> None:
    with Headgate([], tmp_path / "demo.log", temporary, "tests.system.pulsar_demo") as demo:
        _await(demo, "the fill has begun", lambda: "fill: " in demo.output())
        pids = demo.children()
        assert demo.wait() == 0, demo.output()
    parts = ["fill: a producer", "fill: on `tuesday`", "slowed: ", "recovery: ", "done: "]
    assert [part for part in parts if part in demo.output()] == parts, demo.output()
    assert "Publishing to group default of demo should be slowed to 0." in demo.output()
    assert "was set by the publish actuator at " in demo.output()
    assert "Traceback" not in demo.output()
    _nothing_stays(tmp_path, pids)


@pytest.mark.long
def test_ended_in_the_middle_it_leaves_nothing_and_says_so_by_its_status(
    tmp_path: Path, temporary: dict[str, str]
) -> None:
    with Headgate(["demo"], tmp_path / "demo.log", temporary) as demo:
        _await(demo, "the fill has begun", lambda: "fill" in _phases(demo))
        pids = demo.children()
        demo.process.send_signal(signal.SIGINT)
        assert demo.wait() == 128 + signal.SIGINT, demo.output()
    assert "Traceback" not in demo.output()
    _nothing_stays(tmp_path, pids)


def _await(demo: Headgate, what: str, find: Callable[[], bool]) -> None:
    def look() -> bool:
        assert demo.process.poll() is None, demo.output()
        return find()

    eventually(what, look)


def _phases(demo: Headgate) -> list[str]:
    return [line.split()[0] for line in demo.output().splitlines() if re.match(rf"({'|'.join(PHASES)}) +\w", line)]


def _nothing_stays(folder: Path, pids: list[int]) -> None:
    assert [pid for pid in pids if is_running(pid)] == []
    assert [path.name for path in folder.iterdir() if path.name.startswith("headgate-demo-")] == []
    assert str(folder) not in Path("/proc/self/mounts").read_text()
