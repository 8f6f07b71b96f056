"""Makes confluent-kafka's clients, explains their errors, and limits librdkafka's messages in our log."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException

from policies.errors import UserError

REPEAT_SECONDS = 60.0

_log = structlog.get_logger(__name__)

Client = TypeVar("Client")

_VARYING = re.compile(r"\d+")


class RepeatFilter(logging.Filter):
    """Passes a message once in `REPEAT_SECONDS`; messages that differ only in numbers count as one.

    librdkafka reports each failed connection: with a wrong certificate that is 20 messages a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message passes."""
        kind, now = _VARYING.sub("#", record.getMessage()), self._clock()
        if now - self._passed_at.get(kind, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._passed_at = {known: at for known, at in self._passed_at.items() if now - at < REPEAT_SECONDS}
        self._passed_at[kind] = now
        return True


LOGGER = logging.getLogger("headgate.librdkafka")
"""The `logger` argument of confluent-kafka's clients."""

LOGGER.addFilter(RepeatFilter())


_NO_ANSWER = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})


def build_client(kind: Callable[..., Client], options: Mapping[str, Any]) -> Client:
    """Make a confluent-kafka client that logs to our log.

    Raises:
        UserError: the options, or the files that they name, cannot be used.
    """
    try:
        return kind(options, logger=LOGGER)
    except KafkaException as error:
        raise UserError(f"kafka: {error.args[0].str()}.") from None


def rebuild(build: Callable[[], Client]) -> Client | None:
    """Build a client from changed files; None, with a warning, if they cannot be used.

    The files may be half written. So the caller keeps its old client, and tries again at its next check.
    """
    try:
        return build()
    except UserError as error:
        _log.warning("connection files changed but cannot be used", detail=str(error))
        return None


def root_error(error: KafkaError, last: KafkaError | None) -> KafkaError:
    """Return the error that names the cause of a failed request.

    A request that nobody answers fails without a cause; the client's `error_cb` received it before (`last`).
    """
    return last if error.code() in _NO_ANSWER and last is not None else error


def no_answer(servers: Sequence[str], why: KafkaError) -> str:
    """Return a clause about a Kafka that does not answer."""
    return f"Kafka at {','.join(servers)} does not answer as it should: {why.name()}: {why.str()}"
