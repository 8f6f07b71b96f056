"""Faults by a fixed seed on a loop of its own; `make faults COUNT=500` runs all kinds for hours."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from bench.faults.__main__ import run
from tests.progress import tell

ONCE = (
    "kill -9 collector", "kill -9 actuator", "kill -9 query's process group", "SIGSTOP query's process", "network cut",
    "checkpoint deleted while running", "newest commit of length 0",
)  # fmt: skip
"""Of each part that decides, of the network and of the checkpoint; `make faults` has each kind."""


@pytest.mark.timeout(1200)  # as many tests in one
@pytest.mark.parametrize(
    ("count", "only"),
    [(len(ONCE), ",".join(ONCE)), pytest.param(20, "", marks=pytest.mark.long)],
    ids=["each once", "some again"],
)
def test_the_loop_recovers_from_each_fault_and_nothing_is_lost_or_wrong(
    kafka_jars: object, tmp_path: Path, count: int, only: str
) -> None:
    result = run(tmp_path, count, 39, 2.0, tell, only)
    Console(file=sys.stdout, width=100).print(result.table)
    assert result.complaints == []
    assert sum(fault.seconds is not None for fault in result.faults) == count
