"""Redirects librdkafka's messages from stderr to our log, and suppresses repeats."""

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import structlog
from confluent_kafka import KafkaError

from policies.errors import UserError

REPEAT_SECONDS = 60.0

_log = structlog.get_logger(__name__)

Client = TypeVar("Client")

_VARYING = re.compile(r"\d+")


class RepeatFilter(logging.Filter):
    """Lets a message pass once in `REPEAT_SECONDS`; numbers in it do not make it another one.

    librdkafka reports each failed connection, which with a wrong certificate are twenty a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it was not said lately."""
        kind, now = _VARYING.sub("#", record.getMessage()), self._clock()
        if now - self._said_at.get(kind, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._said_at = {said: at for said, at in self._said_at.items() if now - at < REPEAT_SECONDS}
        self._said_at[kind] = now
        return True


LOGGER = logging.getLogger("headgate.librdkafka")
"""For the `logger` argument of confluent-kafka's clients."""

LOGGER.addFilter(RepeatFilter())


_NO_ANSWER = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})


def telling(error: KafkaError, last: KafkaError | None) -> KafkaError:
    """Of a request's error, and what the client's `error_cb` was told last, the one that says why.

    A request that nobody answers fails without a reason.
    """
    return last if error.code() in _NO_ANSWER and last is not None else error


def unanswered(servers: Sequence[str], why: KafkaError) -> str:
    """A clause about a Kafka that cannot be asked."""
    return f"Kafka at {','.join(servers)} does not answer as it should: {why.name()}: {why.str()}"


def renewed(build: Callable[[], Client]) -> Client | None:
    """What is built from the connection's files now that they have changed; None, and a warning, where it cannot be.

    Half of the files may have been written so far: the old client is kept, and the next look tries again.
    """
    try:
        return build()
    except UserError as error:
        _log.warning("connection files changed but cannot be used", detail=str(error))
        return None
