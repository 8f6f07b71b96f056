"""The whole loop with other versions of PySpark: what it decides live is replayed byte for byte.

Only `make compatibility` runs the versions other than the installed one, which pip fetches.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.older import older_cache
from tests.system.test_older_versions import noting

ROOT = Path(__file__).parents[2]
VERSIONS = ("4.1.4", "4.2.1")


def ensure_pyspark(version: str) -> Path:
    """Return a folder with this PySpark alone; its dependencies are those that are installed."""
    folder = older_cache() / f"pyspark-{version}"
    if not (folder / "pyspark" / "version.py").exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-deps"]
        done = subprocess.run([*pip, "--target", str(folder), f"pyspark=={version}"], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(done.stderr)
    return folder


@pytest.mark.compatibility
@pytest.mark.parametrize("version", VERSIONS)
def test_another_pyspark_decides_the_same(version: str) -> None:
    path = os.pathsep.join((str(ensure_pyspark(version)), str(ROOT)))
    loop = "tests/system/test_spark_internals.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", loop],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    noting("PySpark", version)("the whole loop, live and replayed")
