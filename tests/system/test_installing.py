"""Each command of docs/installing.md, run as written from a built `dist/`; only /opt is a temporary folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(1800)]

BLOCKS = [block for block in blocks() if block.is_shell and str(block).startswith("docs/installing.md")]
SETTINGS = """
kafka: {bootstrap_servers: "loop-1:9092"}
clusters: {payments: {kafka: {bootstrap_servers: "kafka-1:9092"}}}
policies: {throttle: {hard: {available_ratio_below: 0.05}}}
"""


def block_with(text: str) -> Block:
    (found,) = (block for block in BLOCKS if text in block.text)
    return found


def run(line: str, folder: Path) -> str:
    """Run one line as a newcomer, who has no environment of this project."""
    environment = {
        "PATH": f"{folder / 'bin'}:{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PIPX_BIN_DIR": str(folder / "bin"),
        **{name: os.environ[name] for name in ("JAVA_HOME", "PIP_INDEX_URL", "PIP_CACHE_DIR") if name in os.environ},
    }
    command = line.replace("/opt/", '"$HOME"/opt/').replace("/etc/", '"$HOME"/etc/')
    ran = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `dist/`, the unit and a settings file, as the reader has them."""
    folder = tmp_path_factory.mktemp("an Übung")
    made = ["make", "-s", "dist", f"VENV={sys.prefix}"]
    assert "make dist" in block_with("make dist").text
    subprocess.run(made, cwd=ROOT, check=True, capture_output=True)
    shutil.copytree(ROOT / "dist", folder / "dist")
    shutil.copytree(ROOT / "docker", folder / "docker")
    (folder / "headgate.yaml").write_text(SETTINGS)
    return folder


def test_the_venv_and_the_service_are_installed_as_written(clone: Path) -> None:
    *lines, version = block_with("python3 -m venv").commands()
    for line in lines:
        run(line, clone)
    assert run(version, clone) == "headgate 0.1.0\n"
    user, *lines, enable = block_with("systemctl enable").commands()
    assert user.endswith(" headgate")
    checked = [run(line, clone) for line in lines]
    assert "is good" in checked[-1]
    assert enable == "systemctl enable --now headgate"
    assert "hard" in run("/opt/headgate/bin/headgate docs settings", clone)
    unit = (clone / "etc/systemd/system/headgate.service").read_text()
    assert "ExecStart=/opt/headgate/bin/headgate run --settings /etc/headgate/headgate.yaml" in unit
    assert f"User={user.split()[-1]}\n" in unit


def test_pipx_installs_it_as_written(clone: Path) -> None:
    if shutil.which("pipx") is None:
        pytest.skip("pipx is not on this machine")
    install, version = block_with("pipx install").commands()
    run(install, clone)
    assert run(version, clone) == "headgate 0.1.0\n"
