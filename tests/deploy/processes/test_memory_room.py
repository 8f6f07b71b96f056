"""What memory is left, by files as Linux writes them."""

import math
from pathlib import Path

import pytest

from deploy.processes.memory_room import memory_room_bytes

GIB = 2**30
MACHINE = {"proc/meminfo": f"MemTotal: {8 * GIB // 1024} kB\nMemAvailable: {6 * GIB // 1024} kB\n"}
UNIT = "sys/fs/cgroup/system.slice/headgate.service"
IN_UNIT = {"proc/self/cgroup": "0::/system.slice/headgate.service\n"}


def limited(folder: str, limit: object, used_gib: float) -> dict[str, str]:
    return {f"{folder}/memory.max": f"{limit}\n", f"{folder}/memory.current": f"{int(used_gib * GIB)}\n"}


@pytest.mark.parametrize(
    ("files", "expected_gib"),
    [
        ({}, math.inf),
        (MACHINE, 6),
        (MACHINE | {"proc/self/cgroup": "0::/\n"} | limited("sys/fs/cgroup", 2 * GIB, 1.5), 0.5),
        (MACHINE | limited("sys/fs/cgroup", "max", 1.5), 6),
        (MACHINE | IN_UNIT | limited(UNIT, 3 * GIB, 1), 2),
        (MACHINE | IN_UNIT | limited(UNIT, "max", 1) | limited("sys/fs/cgroup/system.slice", 4 * GIB, 3), 1),
        (MACHINE | IN_UNIT | limited("sys/fs/cgroup/user.slice", GIB, 1), 6),
        (
            MACHINE
            | {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}",
            },
            3,
        ),
    ],
    ids=["unknown", "machine", "container", "no limit", "unit", "slice", "another's", "older kernel"],
)
def test_the_least_of_all_that_is_left_counts(tmp_path: Path, files: dict[str, str], expected_gib: float) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_room_bytes(tmp_path) == expected_gib * GIB
