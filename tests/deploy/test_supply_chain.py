"""What Headgate is made of: pinned by sums, under licences that may be shipped with it."""

import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
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
