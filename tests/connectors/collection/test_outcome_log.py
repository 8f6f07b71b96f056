"""The log of readings, as an operator reads it: which cluster, what, how it ended before and now, and why."""

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from connectors.collection import OutcomeLog
from policies.bookie_readings import BookieRacks
from policies.observations import Outcome

OK, TIMEOUT = Outcome.OK, Outcome.TIMEOUT


def logged(*readings: tuple[Outcome, str | None]) -> list[EventDict]:
    log = OutcomeLog()
    with capture_logs() as lines:
        for outcome, detail in readings:
            log.note("racks", BookieRacks(cluster="c1", outcome=outcome, detail=detail), what="racks")
    return lines


@pytest.mark.parametrize(
    ("readings", "levels"),
    [
        pytest.param([(OK, None), (OK, None)], ["debug"], id="good from the start"),
        pytest.param([(TIMEOUT, "a"), (TIMEOUT, "b")], ["warning"], id="why it fails may be worded otherwise"),
        pytest.param([(OK, None), (TIMEOUT, "a"), (OK, None)], ["debug", "warning", "info"], id="fails and recovers"),
        pytest.param([(OK, None), (OK, "1 node"), (OK, "2 nodes")], ["debug", "warning", "warning"], id="good in part"),
        pytest.param([(TIMEOUT, "a"), (Outcome.UNREACHABLE, "a")], ["warning", "warning"], id="fails in another way"),
    ],
)
def test_a_reading_is_logged_when_it_ends_otherwise(
    readings: list[tuple[Outcome, str | None]], levels: list[str]
) -> None:
    assert [line["log_level"] for line in logged(*readings)] == levels


def test_a_line_names_the_cluster_and_the_thing_and_says_why() -> None:
    assert logged((OK, None), (TIMEOUT, "no answer"))[-1] == {
        "event": "reading changed",
        "log_level": "warning",
        "cluster": "c1",
        "what": "racks",
        "outcome": "timeout",
        "before": "ok",
        "detail": "no answer",
    }


def test_what_was_forgotten_is_new() -> None:
    log = OutcomeLog()
    with capture_logs() as lines:
        for _ in range(2):
            log.note("racks", BookieRacks(cluster="c1", outcome=OK))
            log.keep_only(["bookies"])
    assert [line["log_level"] for line in lines] == ["debug", "debug"]
