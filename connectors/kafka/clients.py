"""Makes confluent-kafka's clients: tokens for a login, errors explained, and librdkafka's messages in our log."""

import base64
import logging
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx
from confluent_kafka import KafkaException
from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider
from msgspec import Struct

from connectors.component import load_named
from connectors.foreign_json import read_json
from connectors.http.client import bounded_client
from connectors.http.tls import Tls
from connectors.redaction import remember_secret
from policies.units import UserError

# OAuth 2 tokens for both Python clients: by the client credentials grant, or by a user's own function.

TOKEN_TIMEOUT_SECONDS = 5.0
_MAX_ANSWER_BYTES = 1024 * 1024
_RENEW_AT_SHARE = 0.8
_DEFAULT_LIFE_SECONDS = 300.0
_LONGEST_LIFE_SECONDS = 86_400.0

Fetch = Callable[[], tuple[str, float]]
"""Returns a token and when it expires, in seconds since 1970; raises SaslAuthenticationFailedError without a token."""


class TokenSource(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Keeps a token, and fetches a new one after four fifths of its lifetime.

    kafka-python requests the token on its only input-output thread, where a slow source would delay all connections.
    So call `renew_if_due` from another thread before connections are made. All methods raise as `Fetch` does.
    """

    def __init__(self, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._token, self._expires_at, self._renew_at = "", 0.0, -1.0

    def token(self) -> str:
        """Return a valid token, as kafka-python asks for it."""
        return self("")[0]

    def __call__(self, _config: str) -> tuple[str, float]:
        """Return a valid token and when it expires, as confluent-kafka asks for them."""
        self.renew_if_due()
        return self._token, self._expires_at

    def renew_if_due(self) -> None:
        """Fetch a token if there is none, or if it expires soon."""
        with self._lock:
            if self._clock() >= self._renew_at:
                self._token, expires_at = self._fetch()
                remember_secret(self._token)
                life_seconds = min(max(0.0, expires_at - time.time()), _LONGEST_LIFE_SECONDS)
                self._expires_at = time.time() + life_seconds
                self._renew_at = self._clock() + life_seconds * _RENEW_AT_SHARE


class _Answer(Struct):
    access_token: str = ""
    expires_in: float | str | None = None


def fetch_by_credentials(endpoint: str, client_id: str, client_secret: str, scope: str | None) -> tuple[str, float]:
    """Fetch a token from an endpoint, by the client credentials grant, as `Fetch`."""
    # RFC 6749, 2.3.1: both are form-encoded before they are joined.
    pair = f"{urllib.parse.quote_plus(client_id)}:{urllib.parse.quote_plus(client_secret)}"
    headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}", "Accept": "application/json"}
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    try:
        # A new client each time: tokens are few.
        with bounded_client(Tls().ssl_context(), TOKEN_TIMEOUT_SECONDS, max_answer_bytes=_MAX_ANSWER_BYTES) as client:
            response = client.post(endpoint, data=form, headers=headers)
        if not response.is_success:  # a redirect is refused, too: the secret is for this endpoint only
            raise _no_token(f"the token endpoint answers {response.status_code}")
        answer = read_json(response.content, _Answer)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise _no_token(f"no token from the endpoint ({type(error).__name__})") from None
    if not answer.access_token:
        raise _no_token("the token endpoint answers no access_token")
    try:
        return answer.access_token, time.time() + float(answer.expires_in or _DEFAULT_LIFE_SECONDS)
    except ValueError:
        raise _no_token("the token endpoint answers an expires_in that is no number") from None


def fetch_from_provider(place: str, config: str) -> tuple[str, float]:
    """Call a user's function, which has the shape of confluent-kafka's `oauth_cb`, as `Fetch`.

    The function gets the text of `sasl.oauthbearer.config`; further items than token and end are ignored.
    """
    try:
        token, expires_at = load_named(place, "token_provider")(config)[:2]
        return token, float(expires_at)
    except Exception as error:  # the function is the user's
        raise _no_token(f"no token from {place} ({type(error).__name__})") from None


def _no_token(why: str) -> SaslAuthenticationFailedError:
    return SaslAuthenticationFailedError(f"OAUTHBEARER: {why}")


# Clients, and librdkafka's messages in our log.

REPEAT_SECONDS = 60.0

Client = TypeVar("Client")

_CLIENT = re.compile(r"\[[^\]]*\] \[thrd:[^\]]*\]: ")
_VARYING = re.compile(r", \d+ identical error\(s\) suppressed|\d+")


class RepeatFilter(logging.Filter):
    """Passes a message once in `REPEAT_SECONDS`; messages that differ only in numbers and clients count as one.

    librdkafka reports each failed connection of each client: with a wrong certificate that is 20 messages a second, and
    of a broker that died a process with five clients logged ten, between which its end was hard to find.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message passes."""
        record.msg, record.args = _CLIENT.sub("", record.getMessage()), ()
        kind, now = _VARYING.sub("", record.msg), self._clock()
        if now - self._passed_at.get(kind, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._passed_at = {known: at for known, at in self._passed_at.items() if now - at < REPEAT_SECONDS}
        self._passed_at[kind] = now
        return True


LOGGER = logging.getLogger("headgate.librdkafka")
"""The `logger` argument of confluent-kafka's clients."""

LOGGER.addFilter(RepeatFilter())


def build_client(kind: Callable[..., Client], options: Mapping[str, Any]) -> Client:
    """Make a confluent-kafka client that logs to our log.

    Raises UserError if the options, or the files that they name, cannot be used, or there is no token.
    """
    tokens = options.get("oauth_cb")
    try:
        if isinstance(tokens, TokenSource):
            tokens.renew_if_due()  # its failure names the cause; the client would only wait ten seconds for a token
        return kind(options, logger=LOGGER)
    except SaslAuthenticationFailedError as error:
        raise UserError(f"kafka.sasl: {error.args[0]}.") from None
    except KafkaException as error:
        raise UserError(f"kafka: {error.args[0].str()}.") from None
