"""What tests judge time by: seconds that an idle machine would have counted."""

import time

import pytest

from tests.cases import case
from tests.system.machine import Look, Watch, counted_seconds

BUSY = [Look(10.0 + n / 10, 1.0 if n <= 10 else 4.0) for n in range(21)]
"""A second with room for everybody, then one in which each processor is wanted four times."""
STILL = [Look(10.0, 1.0), Look(15.0, 1.0), Look(15.1, 1.0)]
"""Nobody looked for five seconds."""


def test_a_second_of_a_busy_machine_is_a_part_of_one_and_one_of_a_machine_that_stands_still_is_none() -> None:
    cases = {
        "nothing is known": ([], 10.0, 12.0, 2.0),
        "idle": (BUSY, 10.2, 10.8, 0.6),
        "busy": (BUSY, 11.2, 11.8, 0.15),
        "both": (BUSY, 10.0, 12.0, 1.25),
        "before the first look": (BUSY, 8.0, 10.5, 2.5),
        "after the last look": (BUSY, 11.6, 12.1, 0.125),
        "within one look": (BUSY, 10.32, 10.37, 0.05),
        "it stood still": (STILL, 10.0, 15.1, 0.3),
        "it stands still": (STILL, 15.0, 20.0, 0.3),
        "ended before it began": (BUSY, 11.0, 10.0, 0.0),
    }
    for name, (looks, since, until, counted) in cases.items():
        with case(name):
            assert counted_seconds(looks, since, until) == pytest.approx(counted)


def test_a_watch_notes_how_busy_the_machine_is() -> None:
    watch = Watch()
    watch.start()
    began = time.monotonic()
    while len(watch.looks()) < 3 and time.monotonic() < began + 60:
        time.sleep(0.05)
    looks = watch.looks()
    assert len(looks) >= 3
    assert all(look.wait >= 1.0 for look in looks)
    assert sorted(looks) == looks
