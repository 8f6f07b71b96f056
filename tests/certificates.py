"""Certificates that tests make themselves, with openssl as people do."""

import subprocess
from pathlib import Path


def self_sign(key: Path | str, certificate: Path | str, *options: str, name: str = "x") -> bytes:
    """Write a new key and its self-signed certificate; the file `-` is the output, which is returned."""
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    return subprocess.run([*openssl, "-subj", f"/CN={name}", *options, *files], check=True, capture_output=True).stdout


def write_both(folder: Path) -> Path:
    """Write a new key and its certificate for the loopback into one file."""
    file = folder / "both.pem"
    file.write_bytes(self_sign("-", "-", "-addext", "subjectAltName=IP:127.0.0.1", name="localhost"))
    return file
