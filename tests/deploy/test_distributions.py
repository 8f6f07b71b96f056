"""What is shipped: the wheel, what `make dist` makes of one version, pinned and free, and the unit of systemd."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from deploy.commands.root import app
from tests.deploy.test_chart import EXAMPLES, helm
from tests.deploy.whatif.test_replaying import EVENING, LIMITS, recorded
from tests.wheels import install
from tools.generate import REFERENCE

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "dist", "__pycache__", ".*_cache", ".hypothesis")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dist/` of a copy of the repository, made with the environment of the tests."""
    clone = tmp_path_factory.mktemp("dist") / "clone"
    shutil.copytree(ROOT, clone, ignore=NOT_COPIED)
    (clone / ".venv").mkdir()  # not VENV=…: make splits its targets at the blanks of a path
    for each in Path(sys.prefix).iterdir():
        (clone / ".venv" / each.name).symlink_to(each)
    make = ["make", "-s", "-o", ".venv/.runtime", f"PYTHON={shlex.quote(sys.executable)}", "dist"]
    made = subprocess.run(make, cwd=clone, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return clone / "dist"


def test_dist_has_wheel_sources_chart_and_what_they_are_made_of_of_one_version(dist: Path) -> None:
    assert {each.name for each in dist.iterdir()} == {
        f"headgate-{VERSION}-py3-none-any.whl",
        f"headgate-{VERSION}.tar.gz",
        f"headgate-{VERSION}.tgz",
        "SHA256SUMS",
        "jars.sha256",
        "requirements.txt",
        "sbom.cdx.json",
    }
    sums = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=dist, check=True, capture_output=True, text=True)
    assert len(sums.stdout.splitlines()) == 6


def test_the_sbom_has_each_pinned_package(dist: Path) -> None:
    bom = json.loads((dist / "sbom.cdx.json").read_text())
    about = bom["metadata"]["component"]
    assert (bom["bomFormat"], about["name"], about["version"]) == ("CycloneDX", "headgate", VERSION)
    pinned = set(re.findall(r"^([\w.-]+)==([\w.!]+)", (dist / "requirements.txt").read_text(), re.MULTILINE))
    assert len(pinned) > 20
    assert {(each["name"], each["version"]) for each in bom["components"]} == pinned


def test_the_chart_of_dist_is_the_chart_of_the_clone(dist: Path) -> None:
    folder = dist / "unpacked"
    with tarfile.open(dist / f"headgate-{VERSION}.tgz") as archive:
        archive.extractall(folder, filter="data")
    about = yaml.safe_load((folder / "headgate/Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (VERSION, VERSION)
    shutil.rmtree(folder)
    values = ("--values", EXAMPLES / "files.yaml")
    packed, own = helm(*values, chart=dist / f"headgate-{VERSION}.tgz"), helm(*values)
    assert packed.stdout == own.stdout
    assert packed.stdout


def test_the_source_archive_has_what_the_image_copies_and_docker_is_given_it(dist: Path) -> None:
    steps = (ROOT / "docker/Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY \S+ (.*) \S+$", steps, re.MULTILINE) for word in line.split()]
    assert len(copied) > 5
    with tarfile.open(dist / f"headgate-{VERSION}.tar.gz") as archive:
        held = {each.removeprefix(f"headgate-{VERSION}/") for each in archive.getnames()}
    ignored = (ROOT / ".dockerignore").read_text().split()
    for source in copied:
        assert any(each == source or each.startswith(f"{source}/") for each in held), source
        covers = [line for line in ignored if f"{source}/".startswith(f"{line.lstrip('!')}/")]
        assert not covers or covers[-1].startswith("!"), f"{source} is in .dockerignore"
    assert {"docker/Dockerfile", ".dockerignore"} <= held


def test_the_workflow_of_a_tag_publishes_what_make_dist_makes() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["publish"]["steps"]
    runs = [line for step in steps for line in step.get("run", "").splitlines()]
    assert runs.index(".ci/run") < runs.index("make dist")
    after = "\n".join(runs[runs.index("make dist") :])
    assert "gh release create" in after
    assert set(re.findall(r"dist/\S+", after)) == {"dist/*", "dist/headgate-*.tgz"}


@pytest.mark.parametrize("page", ["settings", "alerts", "metrics", "events"])
def test_an_installation_carries_its_reference_pages(page: str) -> None:
    assert CliRunner().invoke(app, ["docs", page]).output.startswith("# ")


PACKAGES = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / "requirements.txt").read_text().strip())

FREE = re.compile(
    r"apache|\bmit\b|\bbsd|\bpsf|python software|\bisc\b|mpl|mozilla|hpnd|unlicense|0bsd|zlib", re.IGNORECASE
)
"""Licences that ask for no more than to be named."""


def test_every_package_and_jar_is_pinned_by_a_sum() -> None:
    assert PACKAGES
    assert all(re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", each, re.DOTALL) for each in PACKAGES)
    jars = (ROOT / "deploy/java/jars.sha256").read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w.-]+/\S+/\S+\.jar", each) for each in jars)


def test_each_package_has_a_licence_that_allows_to_ship_it() -> None:
    for name in (each.partition("==")[0] for each in PACKAGES):
        with suppress(PackageNotFoundError):  # of another platform
            about: Any = metadata(name)
            classified = [each for each in about.get_all("Classifier") or () if each.startswith("License ::")]
            told = " ".join([about.get("License-Expression") or "", (about.get("License") or "")[:200], *classified])
            assert FREE.search(told), f"{name}: {told!r}"


def test_in_the_image_only_the_first_step_is_roots_and_who_runs_it_owns_none_of_it() -> None:
    steps = (ROOT / "docker/Dockerfile").read_text().replace("\\\n", " ").splitlines()
    kinds = [line.split(maxsplit=1) for line in steps if line and not line.startswith("#")]
    users = [rest for kind, rest in kinds if kind == "USER"]
    assert users == ["builder", "10001"]
    before = kinds[: kinds.index(["USER", "builder"])]
    assert [kind for kind, _ in before if kind in ("RUN", "COPY")] == ["RUN"]
    assert not [rest for kind, rest in kinds if kind == "COPY" and "--chown=builder" not in rest]


def test_the_base_of_the_image_is_pinned_by_its_digest() -> None:
    steps = (ROOT / "docker/Dockerfile").read_text()
    assert re.findall(r"^FROM (.*)", steps, re.MULTILINE) == ["${BASE}"]
    assert re.search(r"^ARG BASE=python:3\.11\S*-slim-bookworm@sha256:[0-9a-f]{64}$", steps, re.MULTILINE)


# The wheel is complete: unpacked in an empty folder, outside the repository, it works as it should.


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


# The unit of systemd: what a stop, a start and a reload do, and what systemd itself says of the file.

UNIT = Path(__file__).parents[2] / "docker/systemd/headgate.service"
ANALYZE = shutil.which("systemd-analyze")
PROGRAM = "/opt/headgate/bin/headgate"
MOST_EXPOSURE = "15"
"""In tenths, of 100; 13 with systemd 252. A service without any protection has 96."""

needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")


def test_a_stop_drains_and_a_start_is_tried_until_it_succeeds() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    assert service["ExecStart"] == f'"{PROGRAM}" run --settings /etc/headgate/headgate.yaml'
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
    file.write_text(UNIT.read_text().replace(PROGRAM, str(program)))
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
