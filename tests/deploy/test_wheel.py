"""The wheel is complete: unpacked in an empty folder, outside the repository, it works as it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.commands.root import app
from tests.deploy.whatif.test_replaying import EVENING, LIMITS, recorded
from tests.wheels import install
from tools.generate import REFERENCE, ROOT


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, as an installation has them."""
    return install(ROOT, tmp_path_factory.mktemp("wheel"))


EACH = """
import sys
sys.path.insert(0, {site!r})
from deploy import cli
assert cli.__file__.startswith({site!r})
for arguments in {commands!r}:
    sys.argv = ["headgate", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
    print({end!r}, flush=True)
    print({end!r}, file=sys.stderr)
"""
END = "-- that was one command --"


def headgate(site: Path, folder: Path, *commands: tuple[str, ...]) -> list[tuple[str, str]]:
    """What commands of the unpacked wheel say on standard output and error, in one process.

    Nothing of the repository is in its way.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HEADGATE"))}
    run = subprocess.run(
        [sys.executable, "-P", "-c", EACH.format(site=str(site), commands=commands, end=END)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return list(zip(run.stdout.split(f"{END}\n")[:-1], run.stderr.split(f"{END}\n")[:-1], strict=True))


def test_it_checks_replays_and_has_its_help(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headgate.yaml").write_text(LIMITS)
    recorded(tmp_path, *EVENING)
    replay = ("replay", "-s", "headgate.yaml", "evening.jsonl")
    helped, checked, replayed, paused = headgate(
        unpacked, tmp_path, ("--help",), ("check", "headgate.yaml"), replay, ("pause", "--help")
    )
    assert "demo" in helped[0]
    assert "is good" in checked[0]
    assert "--for" in paused[0]
    monkeypatch.chdir(tmp_path)
    assert replayed == (CliRunner().invoke(app, replay).stdout, ""), "as a process it says the same"
    assert "throttle-factor" in replayed[0]


def test_it_holds_what_a_consumer_and_an_editor_want(unpacked: Path) -> None:
    published = unpacked / "deploy/published"
    for name in ("asyncapi.yaml", "settings.yaml", "alertmanager.yaml", "alerts.md", "metrics.md", "events.md"):
        assert (published / name).read_bytes() == (ROOT / REFERENCE / name).read_bytes()
    schemas = {file.name for file in (ROOT / REFERENCE / "schemas").iterdir()}
    assert {file.name for file in (published / "schemas").iterdir()} == schemas
    for part in ("grafana/headgate-fleet.json", "prometheus/headgate.rules.yaml"):
        assert (unpacked / "deploy/monitoring" / part).exists()
    assert (unpacked / "deploy/java/jars.sha256").exists()
    assert not (unpacked / "tests").exists()
