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
    # kafka-python reports each attempt of a retry, and at DEBUG the bytes of requests, passwords among them; what comes
    # of it, the collectors say. It stays quiet whatever is asked for.
    "kafka": logging.CRITICAL,
    "headgate.librdkafka": logging.ERROR,
    "connectors.kafka.tail": logging.NOTSET,
    "py4j": logging.ERROR,
    "pyspark": logging.ERROR,
}

_TOLD_AT_THE_END = {"headgate.librdkafka": logging.CRITICAL, "connectors.kafka.tail": logging.ERROR}
"""What keeps a command from its answer is its last line: not said before, over and over."""


def _shown(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Nothing that a terminal obeys, and no secret that a library quotes; a line for each event, but for tracebacks."""
    return {name: _shown_value(name, value) for name, value in event.items()}


def _shown_value(name: str, value: Any) -> Any:
    match value:
        case str():
            return shown_error(value) if name == "exception" else printable_line(shown_error(value))
        case list() | tuple():
            return [_shown_value("", each) for each in value]
        case dict():
            return {str(key): _shown_value("", each) for key, each in value.items()}
        case bool() | int() | float() | None:
            return value
    return printable_line(shown_error(str(value)))


class _WrappingHandler(logging.StreamHandler[TextIO]):
    """Writes to a person's terminal, whose lines end between words."""

    terminator = ""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or the several lines of a traceback, as the terminal is wide now."""
        console = Console(file=self.stream, force_terminal=True, highlight=False)
        with console.capture() as capture:
            console.print(Text.from_ansi(super().format(record)))
        return capture.get()


def set_up_logging(*, verbose: bool = False, to: TextIO | None = None, answers: bool = False) -> None:
    """Send structlog's events and the standard library's records the same way: to standard error, or a file.

    Args:
        verbose: all there is to say.
        to: where to, other than standard error.
        answers: of a command that gives an answer and ends, or says at its end what keeps it from that.
    """
    stream = to or sys.stderr
    people = stream.isatty()
    # Not with the values of variables, as structlog would: passwords are among them.
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
            _shown,
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
