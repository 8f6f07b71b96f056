"""Maps ZooKeeper's errors to the outcome of a reading and a short reason."""

import ssl
from collections.abc import Mapping

from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError

from connectors.collection.read_errors import ReadErrors, most_telling, one_line, rank
from policies.errors import UserError
from policies.observations import Outcome


class UnreadError(Exception):
    """A node could not be read.

    `path` includes the chroot; `cause` is the client's error.
    """

    def __init__(self, path: str, cause: BaseException) -> None:
        super().__init__(path)
        self.path = path
        self.cause = cause


class NotConnectedError(Exception):
    """No server gives us a session.

    `obstacles` has the error of the last attempt at each server, by `host:port`.
    """

    def __init__(self, obstacles: Mapping[str, BaseException]) -> None:
        super().__init__("not connected")
        self.obstacles = dict(obstacles)


# The first match counts, so a subclass stands before its base. None: the error's own text is better.
_MEANINGS: tuple[tuple[type[BaseException], Outcome, str | None], ...] = (
    (exceptions.NoAuthError, Outcome.UNAUTHORIZED, "its ACL does not let us read it"),
    (exceptions.AuthFailedError, Outcome.UNAUTHORIZED, "the server refuses our credentials"),
    (exceptions.SessionClosedRequireSaslError, Outcome.UNAUTHORIZED, "the server requires another kind of login"),
    (exceptions.UnimplementedError, Outcome.UNSUPPORTED, "the server does not know this request"),
    (exceptions.ConnectionLoss, Outcome.UNREACHABLE, "the connection was lost"),
    (exceptions.SessionExpiredError, Outcome.UNREACHABLE, "our session has ended"),
    (exceptions.OperationTimeoutError, Outcome.TIMEOUT, "the server gave up"),
    (exceptions.RequestTimeoutError, Outcome.TIMEOUT, "the server gave up"),
    (KazooTimeoutError, Outcome.TIMEOUT, "no answer in time"),
    (TimeoutError, Outcome.TIMEOUT, None),
    (ssl.SSLError, Outcome.ERROR, None),
    (OSError, Outcome.UNREACHABLE, None),
)


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome for an error."""
    match error:
        case UnreadError():
            return outcome_of(error.cause)
        case NotConnectedError():
            return most_telling([outcome_of(obstacle) for obstacle in error.obstacles.values()])
    return next((outcome for kind, outcome, _ in _MEANINGS if isinstance(error, kind)), Outcome.ERROR)


def detail_of(error: BaseException) -> str:
    """Return the error in one short line; none of these errors holds a credential."""
    return one_line(_text(error))


def _text(error: BaseException) -> str:
    match error:
        case UnreadError():
            return f"{error.path}: {_text(error.cause)}"
        case NotConnectedError():
            obstacles = sorted(error.obstacles.items(), key=lambda item: rank(outcome_of(item[1])))
            each = (f"{server}: {_text(obstacle)}" for server, obstacle in obstacles)
            return "; ".join(each) or "no server's name resolves to an address"
        case UserError():
            return str(error)
    meaning = next((words for kind, _, words in _MEANINGS if isinstance(error, kind)), None)
    name = type(error).__name__.removesuffix("Error")
    return meaning or getattr(error, "strerror", None) or str(error) or name


READ_ERRORS = ReadErrors((UnreadError, NotConnectedError, UserError), outcome_of, detail_of)
"""The errors of reading a tree."""
