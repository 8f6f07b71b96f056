"""How much memory this process may still use, from the machine and its cgroup limits."""

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")
_OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_NEW = ("memory.max", "memory.current")


def memory_room_bytes(root: Path = _ROOT) -> float:
    """What may be taken before somebody is ended for it: where a limit counts for several, all of them may be.

    Args:
        root: of the file system.

    Returns:
        Bytes; infinite where nothing is known of memory, as on other systems than Linux.
    """
    return min((*_of_machine(root), *_of_limits(root)), default=math.inf)


def _of_machine(root: Path) -> Iterator[float]:
    with suppress(OSError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024


def _of_limits(root: Path) -> Iterator[float]:
    for folder, (limit, used) in ((root / "sys/fs/cgroup/memory", _OLD), *((each, _NEW) for each in _groups(root))):
        with suppress(OSError, ValueError):  # `max` is no limit
            yield int((folder / limit).read_text()) - int((folder / used).read_text())


def _groups(root: Path) -> Iterator[Path]:
    """The control group of this process and those it is within, up to that of the machine or container."""
    top, own = root / "sys/fs/cgroup", "/"
    with suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    group = top / own.lstrip("/")
    yield group
    yield from (each for each in group.parents if each.is_relative_to(top))
