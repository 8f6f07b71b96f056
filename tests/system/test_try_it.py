"""Each "Try it" of the docs, on real servers, as it stands: with the names, ports, commands and words of the page.

The names are real in a network that only the reader's processes see; `tests/system/reader.py` is that reader.
"""

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.system.private_net import why_not_private
from tests.system.reader import PLAYS

pytestmark = [pytest.mark.usefixtures("kafka_jars", "bookkeeper_jars")]

SHORT = frozenset({"docs/switching-precheck.md"})
"""Those that need no loop of their own run with the other system tests."""


@pytest.mark.parametrize(
    "page", [page if page in SHORT else pytest.param(page, marks=pytest.mark.long) for page in sorted(PLAYS)]
)
def test_what_a_page_says_to_try_works_as_it_stands(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if (why := why_not_private()) is not None:
        pytest.skip(why)
    if page == "docs/alertmanager.md" and shutil.which("prometheus-alertmanager") is None:
        pytest.skip("Debian's prometheus-alertmanager is not installed")
    if page == "docs/sessions.md":
        request.getfixturevalue("pulsar_jars")
    command = [sys.executable, "-m", "tests.system.reader", page, str(tmp_path / "reader")]
    reader = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    with suppress(OSError):
        Path("/tmp/try").rmdir()  # where docs/throttle.md mounts its disk, which nobody else has seen
    assert reader.returncode == 0, f"{reader.stdout}\n{reader.stderr}"
