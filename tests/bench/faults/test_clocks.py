"""A clock that leaps does so in the process that is asked, while it runs, and no wait becomes longer by it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.faults.clocks import Clocks, why_no_leaps

DAY = 86_400
pytestmark = pytest.mark.skipif(why_no_leaps() is not None, reason=str(why_no_leaps()))

WAITS = """
import sys, threading, time
from confluent_kafka import KafkaException, Producer
print(time.time(), flush=True)
sys.stdin.readline()
began = time.monotonic()
threading.Event().wait(0.1)
try:
    Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}).list_topics(timeout=0.2)
except KafkaException:
    pass
print(time.time(), time.monotonic() - began, flush=True)
"""


@pytest.mark.parametrize("leap", [DAY, -DAY])
def test_a_clock_leaps_while_its_process_runs_and_its_waits_are_as_long_as_ever(tmp_path: Path, leap: int) -> None:
    clocks = Clocks(tmp_path / "clocks")
    with running(clocks.environment("one")) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = float(process.stdout.readline())
        clocks.jump("one", leap)
        process.stdin.write("go\n")
        process.stdin.flush()
        after, waited = map(float, process.stdout.readline().split())
    assert after - before == pytest.approx(leap, abs=60)
    assert 0.3 <= waited < 60


def test_it_does_not_leap_with_another(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path / "clocks")
    environment = clocks.environment("one")
    clocks.jump("two", DAY)
    with running(environment) as process:
        before, _ = process.communicate("go\n")[0].splitlines()
    assert float(before) == pytest.approx((tmp_path / "clocks" / "one").stat().st_mtime, abs=60)


def running(environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WAITS],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
