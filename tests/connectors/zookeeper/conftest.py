"""Certificates for servers in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import self_sign


@pytest.fixture
def issue(tmp_path: Path) -> Callable[[], bytes]:
    """Makes certificates of 127.0.0.1, each with its key."""

    def issue() -> bytes:
        return self_sign("-", "-", "-addext", "subjectAltName=IP:127.0.0.1", name="zk")

    return issue


@pytest.fixture
def certificate(tmp_path: Path, issue: Callable[[], bytes]) -> Path:
    """A certificate of 127.0.0.1, and its key, in one file."""
    file = tmp_path / "both.pem"
    file.write_bytes(issue())
    return file
