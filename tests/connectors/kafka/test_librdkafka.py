"""What librdkafka says reaches the log, but not twenty times a second."""

import logging

from connectors.kafka.connection import REPEAT_SECONDS, RepeatFilter


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "", 0, "%s", (message,), None)


def test_a_message_is_repeated_only_after_a_minute_whatever_its_numbers() -> None:
    now = 0.0
    repeat_filter = RepeatFilter(lambda: now)
    assert repeat_filter.filter(record("FAIL after 3ms"))
    assert not repeat_filter.filter(record("FAIL after 12ms"))
    assert repeat_filter.filter(record("another"))
    now = REPEAT_SECONDS
    assert repeat_filter.filter(record("FAIL after 4ms"))
