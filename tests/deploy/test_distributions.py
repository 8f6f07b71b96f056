"""What `make dist` makes, of one version; and what Headgate is made of: pinned by sums, under free licences."""

import json
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
