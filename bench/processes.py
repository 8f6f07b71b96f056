"""Processor time, memory and other resources of a process and all its descendants."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.system.processes import command_line, descendants

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Held(NamedTuple):
    """The present resources of some processes."""

    resident_bytes: int = 0
    threads: int = 0
    files: int = 0
    """Open files without sockets."""
    sockets: int = 0

    def combine(self, other: "Held") -> "Held":
        """Files and sockets."""
        return Held(*(a + b for a, b in zip(self, other, strict=True)))


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its descendants so far, including ended ones."""
    return sum(_ticks(each) for each in tree(pid)) / _TICKS_A_SECOND


def own_cpu_seconds(pid: int) -> float:
    """Return the processor time of one process and its ended children."""
    return _ticks(pid) / _TICKS_A_SECOND


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants; shared memory counts for each."""
    return sum(map(_resident_bytes, tree(pid)))


def held(pid: int) -> Held:
    """Return the memory of one process; 0 if it has ended."""
    links = list(_open(pid))
    sockets = sum(link.startswith("socket:") for link in links)
    threads = sum(1 for _ in _listed(f"/proc/{pid}/task"))
    return Held(_resident_bytes(pid), threads, len(links) - sockets, sockets)


def command_name(pid: int) -> str:
    """Return the words of its command line; empty if it has ended."""
    return command_line(pid).replace(b"\0", b" ").decode(errors="replace")


def tree(pid: int) -> Iterator[int]:
    """Return a process and its descendants."""
    yield pid
    yield from descendants(pid)


def _open(pid: int) -> Iterator[str]:
    """Return the targets of its descriptors, without those that are closed meanwhile."""
    for descriptor in _listed(f"/proc/{pid}/fd"):
        with suppress(OSError):
            yield str(descriptor.readlink())


def _listed(folder: str) -> Iterator[Path]:
    with suppress(OSError):
        yield from Path(folder).iterdir()


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[11:15]))  # its own, and that of ended children
