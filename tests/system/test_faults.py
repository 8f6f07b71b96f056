"""Twenty faults by a fixed seed on a loop of its own; `make faults COUNT=500` runs all kinds for hours."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.faults.__main__ import Wanted, run
from tests.progress import tell

COUNT = 20
SEED = 39
"""Mostly faults that are over in seconds; `make faults` has each kind."""


@pytest.mark.timeout(1200)  # twenty tests in one
def test_the_loop_recovers_from_each_fault_and_nothing_is_lost_or_wrong(kafka_jars: object, tmp_path: Path) -> None:
    result = run(tmp_path, Wanted(COUNT, SEED, seconds=2.0), tell)
    Console(file=sys.stdout, width=100).print(result.table)
    assert result.complaints == []
    assert sum(len(row.recovered) for row in result.rows.values()) == COUNT
