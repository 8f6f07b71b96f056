"""What librdkafka says reaches the log, but not twenty times a second."""

import logging

from connectors.kafka.librdkafka import REPEAT_SECONDS, Seldom


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "", 0, "%s", (message,), None)


def test_a_message_is_repeated_only_after_a_minute_whatever_its_numbers() -> None:
    now = 0.0
    seldom = Seldom(lambda: now)
    assert seldom.filter(record("FAIL after 3ms"))
    assert not seldom.filter(record("FAIL after 12ms"))
    assert seldom.filter(record("another"))
    now = REPEAT_SECONDS
    assert seldom.filter(record("FAIL after 4ms"))
