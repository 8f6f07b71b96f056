"""Logging: structlog's events and the standard library's records come out alike, one line each, and no secret."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from deploy.logs import set_up_logging


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Logging is the whole process's: other tests find it as it was."""
    root, loggers = logging.getLogger(), ("kafka", "headgate.librdkafka", "py4j", "pyspark")
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in ("root", *loggers)}
    root_level, config = root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(root_level)
    for name in loggers:
        logging.getLogger(name).setLevel(levels[name])
    structlog.configure(**config)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What came out on standard error, each line as JSON; nothing on standard output."""
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_events_and_records_are_json_lines_with_level_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    structlog.get_logger("ours").warning("topic is not as planned", topic="headgate.audit")
    logging.getLogger("theirs").warning("it takes %s s", 3)
    ours, theirs = lines(capsys)
    assert (ours["event"], ours["level"], ours["topic"]) == ("topic is not as planned", "warning", "headgate.audit")
    assert (theirs["event"], theirs["level"]) == ("it takes 3 s", "warning")
    assert ours["timestamp"].endswith("Z")
    assert theirs["timestamp"].endswith("Z")


def test_an_exception_is_part_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    try:
        int("no number")
    except ValueError:
        structlog.get_logger("ours").exception("it failed")
    (line,) = lines(capsys)
    assert "ValueError: invalid literal" in line["exception"]


@pytest.mark.parametrize(("verbose", "shown"), [(False, ["info"]), (True, ["debug", "info"])], ids=["usual", "verbose"])
def test_debug_shows_only_when_asked_for(capsys: pytest.CaptureFixture[str], verbose: bool, shown: list[str]) -> None:
    set_up_logging(verbose=verbose)
    logger = structlog.get_logger("ours")
    logger.debug("a")
    logger.info("b")
    assert [line["level"] for line in lines(capsys)] == shown


def test_the_kafka_client_is_quiet_even_when_verbose_as_it_logs_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(verbose=True)
    logging.getLogger("kafka.conn").error("SASL PLAIN secret")
    logging.getLogger("headgate.librdkafka").warning("a broker is down")
    assert lines(capsys) == []
