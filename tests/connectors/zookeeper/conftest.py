"""Certificates for servers in this process."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def issue(tmp_path: Path) -> Callable[[], bytes]:
    """Makes certificates of 127.0.0.1, each with its key."""

    def issue() -> bytes:
        openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        subject = ["-subj", "/CN=zk", "-addext", "subjectAltName=IP:127.0.0.1"]
        return subprocess.run([*openssl, *subject, "-keyout", "-", "-out", "-"], check=True, capture_output=True).stdout

    return issue


@pytest.fixture
def certificate(tmp_path: Path, issue: Callable[[], bytes]) -> Path:
    """A certificate of 127.0.0.1, and its key, in one file."""
    file = tmp_path / "both.pem"
    file.write_bytes(issue())
    return file
