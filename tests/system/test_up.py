"""`headgate up`, as the README has it: one command, a real broker, real disks, nothing left behind."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.system.loop import Headgate, await_ready, http_get, is_running
from tests.system.waiting import eventually, on_this_machine


@pytest.mark.usefixtures("kafka_jars")
def test_up_watches_its_own_disks_and_leaves_nothing_behind_and_a_second_up_resumes(
    tmp_path: Path, free_port: int
) -> None:
    arguments = ["up", "--data-dir", str(tmp_path / "data"), "--port", str(free_port)]
    for start in (1, 2):
        with Headgate(arguments, tmp_path / f"up-{start}.log") as headgate:
            await_ready(headgate, free_port)
            text = eventually("the factor in the metrics", lambda: _metrics(free_port, "headgate_throttle_factor{"))
            stat = os.statvfs(tmp_path)
            total = next(line for line in text.splitlines() if line.startswith("headgate_volume_total_bytes{"))
            assert float(total.split()[-1]) == stat.f_blocks * stat.f_frsize
            pids = headgate.children()
            eventually("a decision on the terminal", lambda: "Producers of embedded" in headgate.output())
            assert headgate.stop() == 0, headgate.output()
            assert not [pid for pid in pids if is_running(pid)]
            output = headgate.output()
            assert f"http://127.0.0.1:{free_port}/metrics" in output
            assert output.strip().endswith("stopped")
            assert "Traceback" not in output
    assert "topics found, 0 created" in output


@pytest.mark.usefixtures("kafka_jars")
def test_a_second_up_on_the_same_folder_is_refused_with_the_pid_of_the_first(tmp_path: Path, free_port: int) -> None:
    arguments = ["up", "--data-dir", str(tmp_path / "data"), "--port", str(free_port)]
    with Headgate(arguments, tmp_path / "first.log") as first:
        await_ready(first, free_port)
        with Headgate(arguments, tmp_path / "second.log") as second:
            assert second.wait() == 2
            assert str(first.process.pid) in second.output()
            assert "Traceback" not in second.output()
        assert first.stop() == 0


@pytest.mark.usefixtures("kafka_jars")
def test_a_second_interrupt_ends_it_at_once_and_leaves_nothing_behind(tmp_path: Path, free_port: int) -> None:
    arguments = ["up", "--data-dir", str(tmp_path / "data"), "--port", str(free_port)]
    with Headgate(arguments, tmp_path / "up.log") as headgate:
        await_ready(headgate, free_port)
        pids = headgate.children()
        headgate.process.send_signal(signal.SIGINT)
        eventually("it stops", lambda: "stopping" in headgate.output())
        headgate.process.send_signal(signal.SIGINT)
        assert headgate.wait() != 0
        eventually("nothing is left", lambda: not [pid for pid in pids if is_running(pid)])


def test_without_java_one_clear_line_says_what_to_install(tmp_path: Path) -> None:
    started = time.monotonic()
    environment = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    with Headgate(["up", "--data-dir", str(tmp_path / "data")], tmp_path / "up.log", environment) as headgate:
        assert headgate.wait() == 2
    lines = [line for line in headgate.output().splitlines() if line and "headgate 0" not in line]
    assert len(lines) == 1
    assert "Java 17" in lines[0]
    assert time.monotonic() - started < on_this_machine(60)


def _metrics(port: int, wanted: str) -> str | None:
    answer = http_get(port, "/metrics")
    return answer[1] if answer and wanted in answer[1] else None
