"""Logging: one line an event, as a sentence on a terminal and as JSON elsewhere.

A command that runs until it is stopped writes everything to standard output if that is no terminal, so that a container
has one stream in one format. All other commands log to standard error, beside their answer.
"""

import logging
import sys
from datetime import datetime
from typing import Any, TextIO

import structlog
from rich.console import Console
from rich.text import Text

from deploy.console.shell import local_clock, show_local
from deploy.console.terminal import indent_body, journal_priority, shown_error
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


_LEVEL_COLOURS = {"warning": 33, "error": 31, "critical": 31}
"""ANSI colours of the levels that a terminal names."""


def _render_sentence(_logger: Any, _method: str, event: structlog.typing.EventDict) -> str:
    """Return an event as a sentence: local time, level (from warning), the event, its values in parentheses."""
    at, level = str(event.pop("timestamp")), str(event.pop("level"))
    text, exception = str(event.pop("event")), event.pop("exception", None)
    values = ", ".join(
        f"{name.replace('_', ' ')}: {_show_value(value)}"
        for name, value in event.items()
        if value not in (None, [], (), {})
    )
    colour = _LEVEL_COLOURS.get(level)
    named = f"\x1b[{colour}m{level}:\x1b[0m " if colour is not None else ""
    sentence = show_local(f"{text} ({values})" if values else text)
    lines = f"\x1b[2m{local_clock(datetime.fromisoformat(at))}\x1b[0m  {named}{sentence}"
    return lines if exception is None else f"{lines}\n{exception}"


def _show_value(value: Any) -> str:
    match value:
        case list() | tuple():
            return ", ".join(map(_show_value, value)) or "none"
        case dict():
            return ", ".join(f"{name} {_show_value(each)}" for name, each in value.items()) or "none"
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
    return str(value)


class _WrappingHandler(logging.StreamHandler[TextIO]):
    """Writes to a terminal: wraps a sentence between words, and indents what follows to its first word."""

    terminator = ""

    def format(self, record: logging.LogRecord) -> str:
        """Format a line, or the lines of a traceback, for the terminal's present width."""
        console = Console(file=self.stream, force_terminal=True, highlight=False)
        line, *traceback = super().format(record).split("\n", 1)
        clock, gap, sentence = line.partition("  ")
        with console.capture() as capture:
            console.print(indent_body(console, Text.from_ansi(f"{clock}{gap}"), Text.from_ansi(sentence)))
            console.print(*map(Text.from_ansi, traceback), end="")
        return capture.get()


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
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    render: structlog.typing.Processor = plain if form == "text" else structlog.processors.JSONRenderer()

    def render_line(logger: Any, method: str, event: structlog.typing.EventDict) -> str:
        priority = journal_priority(stream, event["level"])
        return f"{priority}{render(logger, method, event)!s}"

    rendering: structlog.typing.Processor = _render_sentence if people else render_line
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            # Escape control characters, and mask secrets that libraries quote; each event is one line, but tracebacks.
            lambda _logger, _method, event: {name: _clean_value(name, value) for name, value in event.items()},
            rendering,
        ],
    )
    handler = _WrappingHandler(stream) if people else logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else level.upper(), force=True)
    for name, least in {**_QUIET, **(_TOLD_AT_THE_END if answers else {})}.items():
        logging.getLogger(name).setLevel(least)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
