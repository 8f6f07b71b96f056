"""Processor time and memory of a process and all its descendants."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.system.processes import descendants

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its descendants so far, including ended ones."""
    return sum(map(own_cpu_seconds, tree(pid)))


def own_cpu_seconds(pid: int) -> float:
    """Return the processor time of one process and its ended children."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_A_SECOND


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants; shared memory counts for each."""
    return sum(int((_read(each, "statm").split() or ("0", "0"))[1]) * _PAGE_BYTES for each in tree(pid))


def tree(pid: int) -> Iterator[int]:
    """Return a process and its descendants."""
    yield pid
    yield from descendants(pid)


def kill_tree(pid: int) -> None:
    """SIGKILL a process and its descendants."""
    for each in [*tree(pid)]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def _read(pid: int, file: str) -> str:
    """Return a file of a process; empty if the process has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/{file}").read_text()
    return ""
