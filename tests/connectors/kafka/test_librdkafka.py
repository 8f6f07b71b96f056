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


def test_of_all_clients_the_first_tells_that_a_broker_cannot_be_reached() -> None:
    repeat_filter = RepeatFilter(lambda: 0.0)
    why = "127.0.0.1:9092/2: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT%s)"
    first, *others = (
        record(f"FAIL [headgate-{client}] [thrd:127.0.0.1:9092/{number}]: {why % more}")
        for number, client in enumerate(("exporter#consumer-36", "ticker#consumer-38"))
        for more in ("", ", 1 identical error(s) suppressed")
    )
    assert repeat_filter.filter(first)
    assert first.getMessage() == f"FAIL {why % ''}"
    assert not any(map(repeat_filter.filter, others))
