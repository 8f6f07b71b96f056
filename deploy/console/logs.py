"""Logging: one line an event, as text on a terminal and as JSON elsewhere.

A command that runs until it is stopped writes everything to standard output if that is no terminal, so that a container
has one stream in one format. All other commands log to standard error, beside their answer.
"""

import logging
import sys
from datetime import datetime
from typing import Any, TextIO

import structlog

from deploy.console.shell import local_clock, show_local
from deploy.console.terminal import journal_priority, shown_error
from policies.units import printable_line

_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]

_QUIET = {
    # kafka-python logs each attempt of a retry, and at DEBUG the bytes of requests, including passwords. The collectors
    # log the results. So it stays quiet at every log level.
    "kafka": logging.CRITICAL,
    "headgate.librdkafka": logging.ERROR,
    "connectors.kafka.tail": logging.NOTSET,
    "py4j": logging.ERROR,
    "pyspark": logging.ERROR,
}

_TOLD_AT_THE_END = {"headgate.librdkafka": logging.CRITICAL, "connectors.kafka.tail": logging.ERROR}
"""For commands with an answer, only errors are logged: the command prints its own problem at its end."""


def _clean_value(name: str, value: Any) -> Any:
    match value:
        case str():
            return shown_error(value) if name == "exception" else printable_line(shown_error(value))
        case list() | tuple():
            return [_clean_value("", each) for each in value]
        case dict():
            return {printable_line(shown_error(str(key))): _clean_value("", each) for key, each in value.items()}
        case bool() | int() | float() | None:
            return value
    return printable_line(shown_error(str(value)))


def _localize(event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Return an event for a terminal, with its time and the instants in its values in this machine's zone."""
    shown = {name: show_local(value) if isinstance(value, str) else value for name, value in event.items()}
    return {**shown, "timestamp": local_clock(datetime.fromisoformat(event["timestamp"]))}


def set_up_logging(
    *,
    verbose: bool = False,
    to: TextIO | None = None,
    answers: bool = False,
    runs: bool = False,
    level: str = "info",
    form: str = "auto",
) -> None:
    """Send structlog's events and the standard library's records the same way.

    Args:
        level: the least severe level of the lines, if not `verbose`.
        form: a `LogFormat`.
        verbose: log at DEBUG.
        to: a file instead of a standard stream.
        answers: the command prints an answer and ends, so only errors are logged.
        runs: the command runs until it is stopped.
    """
    stream = to or (sys.stdout if runs and not sys.stdout.isatty() else sys.stderr)
    people = stream.isatty() and form != "json"
    text = structlog.dev.ConsoleRenderer(
        colors=people, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
    )
    render: structlog.typing.Processor = text if people or form == "text" else structlog.processors.JSONRenderer()

    def render_line(logger: Any, method: str, event: structlog.typing.EventDict) -> str:
        # Escape control characters, and mask secrets that libraries quote; each event is one line, but tracebacks.
        clean = {name: _clean_value(name, value) for name, value in event.items()}
        priority = journal_priority(stream, event["level"])
        return f"{priority}{render(logger, method, _localize(clean) if people else clean)!s}"

    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            render_line,
        ],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else level.upper(), force=True)
    for name, least in {**_QUIET, **(_TOLD_AT_THE_END if answers else {})}.items():
        logging.getLogger(name).setLevel(least)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
