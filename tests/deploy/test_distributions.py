"""What `make dist` makes, of one version, and the pages that the wheel carries."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from deploy.commands.root import app
from tests.deploy.test_chart import EXAMPLES, helm

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
