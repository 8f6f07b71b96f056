"""Logging: one line an event, on standard error; for people on a terminal, as JSON elsewhere."""

import logging
import sys
from typing import Any, TextIO

import structlog
from rich.console import Console
from rich.text import Text

from deploy.commands.console import shown_error
from policies.printable import printable_line

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


def _clean_event(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape control characters, and mask secrets that libraries quote; each event is one line, except tracebacks."""
    return {name: _clean_value(name, value) for name, value in event.items()}


def _clean_value(name: str, value: Any) -> Any:
    match value:
        case str():
            return shown_error(value) if name == "exception" else printable_line(shown_error(value))
        case list() | tuple():
            return [_clean_value("", each) for each in value]
        case dict():
            return {str(key): _clean_value("", each) for key, each in value.items()}
        case bool() | int() | float() | None:
            return value
    return printable_line(shown_error(str(value)))


class _WrappingHandler(logging.StreamHandler[TextIO]):
    """Writes to a terminal and wraps lines between words."""

    terminator = ""

    def format(self, record: logging.LogRecord) -> str:
        """Format a line, or the lines of a traceback, for the terminal's present width."""
        console = Console(file=self.stream, force_terminal=True, highlight=False)
        with console.capture() as capture:
            console.print(Text.from_ansi(super().format(record)))
        return capture.get()


def set_up_logging(*, verbose: bool = False, to: TextIO | None = None, answers: bool = False) -> None:
    """Send structlog's events and the standard library's records the same way: to standard error, or to a file.

    Args:
        verbose: log at DEBUG.
        to: a file instead of standard error.
        answers: the command prints an answer and ends, so only errors are logged.
    """
    stream = to or sys.stderr
    people = stream.isatty()
    # Without the values of variables, which structlog would add: passwords are among them.
    rendering: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if people
        else structlog.processors.JSONRenderer()
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _clean_event,
            rendering,
        ],
    )
    handler = _WrappingHandler(stream) if people else logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else logging.INFO, force=True)
    for name, level in {**_QUIET, **(_TOLD_AT_THE_END if answers else {})}.items():
        logging.getLogger(name).setLevel(level)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
