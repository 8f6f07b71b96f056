"""What a process and all that it started take of the processor."""

import os
from collections.abc import Iterator
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its descendants so far, those that have ended among them."""
    return sum(_ticks(each) for each in _tree(pid)) / _TICKS_A_SECOND


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
