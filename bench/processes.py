"""What a process and all that it started take of the processor and of memory."""

import os
from collections.abc import Iterator
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its descendants so far, those that have ended among them."""
    return sum(_ticks(each) for each in _tree(pid)) / _TICKS_A_SECOND


def own_cpu_seconds(pid: int) -> float:
    """The same of a process alone, and of those it started that have ended."""
    return _ticks(pid) / _TICKS_A_SECOND


def resident_bytes(pid: int) -> int:
    """Memory of a process and its descendants now; what several share counts for each."""
    return sum(map(_resident, _tree(pid))) * os.sysconf("SC_PAGE_SIZE")


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[11:15]))  # its own, and that of children it has waited for


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield from _tree(child)
