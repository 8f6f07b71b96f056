"""Logging: one line an event, on standard error; for people on a terminal, as JSON elsewhere."""

import logging
import sys

import structlog

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
    "py4j": logging.ERROR,
    "pyspark": logging.ERROR,
}


def set_up_logging(*, verbose: bool = False) -> None:
    """Send structlog's events and the standard library's records the same way."""
    people = sys.stderr.isatty()
    rendering: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer()
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *([] if people else [structlog.processors.format_exc_info]),
            rendering,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else logging.INFO, force=True)
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
