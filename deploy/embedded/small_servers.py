"""The address of servers on loopback, and their properties files."""

from collections.abc import Mapping
from pathlib import Path

LOOPBACK = "127.0.0.1"


def write_properties(file: Path, properties: Mapping[str, str | int | Path]) -> Path:
    """Write a Java properties file; return its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}={_escape_property(str(value))}\n" for name, value in properties.items()]
    file.write_text("".join(lines), encoding="ascii")
    return file


def _escape_property(value: str) -> str:
    """Escape a value for Java, which reads properties as Latin-1: a path may have backslashes and any letters."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[n : n + 2], "big") for n in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
