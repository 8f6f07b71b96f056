"""What errors mean: an outcome, and a line that helps."""

import socket
import ssl

from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError

from connectors.zookeeper.session import NotConnectedError, UnreadError, describe_zookeeper_error, outcome_of
from policies.observations import Outcome
from policies.units import UserError
from tests.cases import for_each

REFUSED = ConnectionRefusedError(111, "Connection refused")
MISTRUSTED = ssl.SSLCertVerificationError(1, "certificate verify failed")

ERRORS: dict[str, tuple[BaseException, Outcome, str]] = {
    "an ACL": (exceptions.NoAuthError(), Outcome.UNAUTHORIZED, "its ACL does not let us read it"),
    "a login": (exceptions.AuthFailedError(), Outcome.UNAUTHORIZED, "the server refuses our credentials"),
    "an unknown request": (exceptions.UnimplementedError(), Outcome.UNSUPPORTED, "the server does not know"),
    "a lost connection": (exceptions.ConnectionLoss(), Outcome.UNREACHABLE, "the connection was lost"),
    "a lost session": (exceptions.SessionExpiredError(), Outcome.UNREACHABLE, "our session has ended"),
    "a closed client": (exceptions.ConnectionClosedError("x"), Outcome.UNREACHABLE, "our session has ended"),
    "no answer": (KazooTimeoutError(), Outcome.TIMEOUT, "no answer in time"),
    "no answer, in our words": (TimeoutError("no answer within 5 s"), Outcome.TIMEOUT, "no answer within 5 s"),
    "no connection in time": (TimeoutError(110, "Connection timed out"), Outcome.TIMEOUT, "Connection timed out"),
    "nobody there": (REFUSED, Outcome.UNREACHABLE, "Connection refused"),
    "no such name": (socket.gaierror(-2, "Name or service not known"), Outcome.UNREACHABLE, "Name or service"),
    "a certificate": (MISTRUSTED, Outcome.ERROR, "certificate verify failed"),
    "a user's mistake": (UserError("tls.ca_file: x."), Outcome.ERROR, "tls.ca_file: x."),
    "anything else": (exceptions.MarshallingError(), Outcome.ERROR, "Marshalling"),
    "a node": (UnreadError("/c/bookies", exceptions.NoAuthError()), Outcome.UNAUTHORIZED, "/c/bookies: its ACL"),
    "no names": (NotConnectedError({}), Outcome.UNREACHABLE, "no server's name resolves to an address"),
    "one server": (NotConnectedError({"zk:1": REFUSED}), Outcome.UNREACHABLE, "zk:1: Connection refused"),
    "the most telling server first": (
        NotConnectedError({"zk1:1": REFUSED, "zk2:1": MISTRUSTED}),
        Outcome.ERROR,
        "zk2:1: certificate verify failed; zk1:1: Connection refused",
    ),
}


@for_each(("error", "outcome", "detail"), ERRORS.values(), ids=ERRORS)
def test_an_error_has_an_outcome_and_a_detail(error: BaseException, outcome: Outcome, detail: str) -> None:
    assert outcome_of(error) is outcome
    assert describe_zookeeper_error(error).startswith(detail)


def test_a_detail_is_one_short_line() -> None:
    detail = describe_zookeeper_error(UserError("a\nb " * 200))
    assert "\n" not in detail
    assert len(detail) <= 200
