"""The unit of systemd: what a stop, a start and a reload do, and what systemd itself says of the file."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "docker/systemd/headgate.service"
ANALYZE = shutil.which("systemd-analyze")
HEADGATE = "/opt/headgate/bin/headgate"
MOST_EXPOSURE = "15"
"""In tenths, of 100; 13 with systemd 252. A service without any protection has 96."""

needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")


def test_a_stop_drains_and_a_start_is_tried_until_it_succeeds() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    assert service["ExecStart"] == f'"{HEADGATE}" run --settings /etc/headgate/headgate.yaml'
    stopping = (service["KillSignal"], service["KillMode"])
    assert stopping == ("SIGTERM", "mixed"), "Spark's processes must outlive the drain"
    assert service["Restart"] == "on-failure"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert "RestartPreventExitStatus" not in service, "Kafka that is away at a start is status 2, too"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists here, in a folder with a blank."""
    program = tmp_path / "a folder" / "headgate"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text().replace(HEADGATE, str(program)))
    return file


@needs_systemd
def test_systemd_finds_no_mistake(unit: Path) -> None:
    verified = subprocess.run([str(ANALYZE), "verify", unit], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")


@needs_systemd
def test_systemd_sees_little_exposure(unit: Path) -> None:
    command = [str(ANALYZE), "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", "--no-pager", str(unit)]
    rated = subprocess.run(command, capture_output=True, text=True, check=False)
    assert rated.returncode == 0, rated.stdout
