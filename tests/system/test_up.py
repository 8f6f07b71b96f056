"""`headgate up`, as the README has it: one command, a real broker, real disks, nothing left behind."""

import json
import os
import signal
from pathlib import Path

import pytest

from deploy.settings.application import EMBEDDED_CLUSTER
from tests.deploy.several import Command, run_several
from tests.system.loop import Headgate, await_ready, http_get
from tests.system.processes import is_running
from tests.system.waiting import eventually


@pytest.mark.lean
@pytest.mark.usefixtures("kafka_jars")
def test_up_watches_its_own_disks_answers_questions_resumes_after_kill_9_and_leaves_nothing_behind(
    tmp_path: Path, free_port: int
) -> None:
    arguments = ["up", "--data-dir", str(tmp_path / "data"), "--port", str(free_port)]
    with Headgate(arguments, tmp_path / "first.log") as first:
        pids = _watches(first, free_port, tmp_path)
        _answers_questions(tmp_path, second=arguments, first=first.process.pid)
        _is_alive(free_port)
        assert f"http://127.0.0.1:{free_port}/metrics" in first.output()
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
    with Headgate(arguments, tmp_path / "again.log") as again:
        left, pids = pids, _watches(again, free_port, tmp_path)
        eventually("nothing is left of the first", lambda: not [pid for pid in left if is_running(pid)])
        assert "topics found, 0 created" in again.output()
        assert again.stop() == 0, again.output()
        assert not [pid for pid in pids if is_running(pid)]
        assert json.loads(again.output().strip().splitlines()[-1])["event"] == "stopped"
    for log in (first, again):
        assert "Traceback" not in log.output()


def _watches(headgate: Headgate, port: int, folder: Path) -> list[int]:
    """It shows the disks it lies on, and decides; gives the processes it has started."""
    await_ready(headgate, port)
    text = eventually("the factor in the metrics", lambda: _metrics(port, "headgate_throttle_factor{"))
    stat = os.statvfs(folder)
    total = next(line for line in text.splitlines() if line.startswith("headgate_volume_total_bytes{"))
    assert float(total.split()[-1]) == stat.f_blocks * stat.f_frsize
    eventually("a decision on the terminal", lambda: "Producers of embedded" in headgate.output())
    return headgate.children()


def _answers_questions(folder: Path, *, second: list[str], first: int) -> None:
    """What is in force, what fires and why, from the topics of the running loop, beside which there is no second."""
    questions = (
        ["status"], ["decisions", "emb", "--json"], ["alerts", "--json"], ["explain", "embedded", "--json"],
        ["explain", "embeded"], second,
    )  # fmt: skip
    asked = run_several([*map(Command, questions)], {"HEADGATE_DATA_DIR": str(folder / "data")})
    status, decisions, alerts, explain, mistaken, refused = asked
    assert (status.status, "Producers of embedded" in status.out) == (0, True), status
    assert (decisions.status, [d["subject"] for d in json.loads(decisions.out)]) == (0, ["embedded"]), decisions
    assert alerts.status == 0, alerts
    explained = json.loads(explain.out)
    assert explained["decision"]["explanation"].startswith("Producers of embedded")
    assert [o["id"] for o in explained["observations"]] == explained["decision"]["evidence"]
    assert (mistaken.status, "did you mean embedded?" in mistaken.out + mistaken.err) == (2, True), mistaken
    assert (refused.status, str(first) in refused.out + refused.err) == (2, True), refused
    assert not [each for each in asked if "Traceback" in each.out + each.err]


def _is_alive(port: int) -> None:
    """Page, metric and health agree."""
    assert _metrics(port, "headgate_loop_alive 1.0")
    answer = http_get(port, "/api/v1/status")
    assert answer is not None
    status = json.loads(answer[1])
    assert ([each["cluster"] for each in status["clusters"]], status["silence"]) == ([EMBEDDED_CLUSTER], None)


def _metrics(port: int, wanted: str) -> str | None:
    answer = http_get(port, "/metrics")
    return answer[1] if answer and wanted in answer[1] else None
