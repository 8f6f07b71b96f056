"""Maps errors of kafka-python to the outcome of a reading and a short reason."""

import os
import re
from typing import Any

from kafka import errors

from connectors.collection.read_errors import one_line, rank
from policies.errors import UserError
from policies.observations import Outcome

# The first match counts, so a subclass stands before its base.
_OUTCOMES: tuple[tuple[type[BaseException], Outcome], ...] = (
    (errors.AuthorizationError, Outcome.UNAUTHORIZED),
    (errors.SaslAuthenticationFailedError, Outcome.UNAUTHORIZED),
    (errors.UnsupportedSaslMechanismError, Outcome.UNAUTHORIZED),
    (errors.IllegalSaslStateError, Outcome.UNAUTHORIZED),
    (errors.UnsupportedVersionError, Outcome.UNSUPPORTED),
    (errors.KafkaTimeoutError, Outcome.TIMEOUT),
    (errors.RequestTimedOutError, Outcome.TIMEOUT),
    (errors.KafkaConnectionError, Outcome.UNREACHABLE),
    (errors.NodeNotReadyError, Outcome.UNREACHABLE),
    (errors.UnknownBrokerIdError, Outcome.UNREACHABLE),
    (errors.BrokerNotAvailableError, Outcome.UNREACHABLE),
    (errors.Cancelled, Outcome.UNREACHABLE),
)


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome for an error of kafka-python."""
    text = str(error)
    if isinstance(error, errors.KafkaConnectionError):
        # kafka-python distinguishes these only in the message.
        if "timed out" in text:
            return Outcome.TIMEOUT
        if "Handshake failed" in text or "SSL" in text:
            return Outcome.ERROR
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), Outcome.ERROR)


def detail_of(error: BaseException) -> str:
    """Return the error in one short line; kafka-python's errors hold no credentials."""
    if isinstance(error, UserError):
        return one_line(str(error))
    name = type(error).__name__
    # kafka-python prefixes its messages with this.
    text = re.sub(rf"^(?:\[Error -?\d+\] )?{name}(?:: |$)", "", str(error))
    text = re.sub(r"\b(\d+) E[A-Z]{3,}\b", lambda found: os.strerror(int(found[1])), text)  # such as 111 ECONNREFUSED
    return one_line(text or name.removesuffix("Error"))


def most_telling(failures: list[BaseException]) -> BaseException:
    """Return the failure that is most useful to find the fault."""
    return min(failures, key=lambda error: rank(outcome_of(error)))


def error_in(response: Any) -> Exception | None:
    """Return the error of a whole answer: the answer itself if it is an exception, else the one of its error code."""
    if isinstance(response, BaseException):
        failure: Any = response
        return failure  # type: ignore[no-any-return]
    code = getattr(response, "error_code", errors.NoError.errno)
    if code == errors.NoError.errno:
        return None
    message = getattr(response, "error_message", None)
    error: Exception = errors.for_code(code)(*([message] if message else []))
    return error


def error_name(error_code: int) -> str | None:
    """Return Kafka's name of an error code, such as ``KAFKA_STORAGE_ERROR``; None for no error."""
    if error_code == errors.NoError.errno:
        return None
    name: str = errors.for_code(error_code).message
    return name
