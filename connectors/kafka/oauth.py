"""OAuth 2 tokens for kafka-python, by the client credentials grant; the other clients fetch their own."""

import base64
import threading
import time
import urllib.parse
from collections.abc import Callable

import httpx
from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider
from msgspec import Struct

from connectors.foreign_json import read_json
from connectors.http.client import bounded_client
from connectors.http.tls import Tls

TOKEN_TIMEOUT_SECONDS = 5.0
_MAX_ANSWER_BYTES = 1024 * 1024
_RENEW_AT_SHARE = 0.8
_DEFAULT_LIFE_SECONDS = 300.0
_LONGEST_LIFE_SECONDS = 86_400.0


class _Answer(Struct):
    access_token: str = ""
    expires_in: float | str | None = None


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Fetches a token, and a new one after four fifths of its lifetime.

    kafka-python requests the token on its only input-output thread, where a slow endpoint would delay all connections.
    So call `renew_if_due` from another thread before connections are made.
    """

    def __init__(
        self,
        endpoint: str,
        client_id: str,
        client_secret: str,
        scope: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._scope = scope
        # RFC 6749, 2.3.1: both are form-encoded before they are joined.
        pair = f"{urllib.parse.quote_plus(client_id)}:{urllib.parse.quote_plus(client_secret)}"
        self._authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = -1.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(endpoint={self._endpoint!r})"

    def token(self) -> str:
        """Return a valid token.

        Raises:
            SaslAuthenticationFailedError: the endpoint refuses, does not answer, or its answer has no token.
        """
        self.renew_if_due()
        return self._token

    def renew_if_due(self) -> None:
        """Fetch a token if there is none, or if it expires soon. Raises as `token` does."""
        with self._lock:
            if self._clock() < self._renew_at:
                return
            answer = self._fetch()
            life_seconds = _life_seconds(answer)
            self._token = answer.access_token
            self._renew_at = self._clock() + life_seconds * _RENEW_AT_SHARE

    def _fetch(self) -> _Answer:
        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        try:
            # A new client each time: tokens are few, and certificates change.
            with bounded_client(
                Tls().ssl_context(), TOKEN_TIMEOUT_SECONDS, max_answer_bytes=_MAX_ANSWER_BYTES
            ) as client:
                response = client.post(self._endpoint, data=form, headers=headers)
            if not response.is_success:  # a redirect is refused, too: the secret is for this endpoint only
                raise _failed(f"the token endpoint answers {response.status_code}")
            answer = read_json(response.content, _Answer)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise _failed(f"no token from the endpoint ({type(error).__name__})") from None
        if not answer.access_token:
            raise _failed("the token endpoint answers no access_token")
        return answer


def _life_seconds(answer: _Answer) -> float:
    try:
        life_seconds = float(answer.expires_in or _DEFAULT_LIFE_SECONDS)
    except ValueError:
        raise _failed("the token endpoint answers an expires_in that is no number") from None
    return min(max(0.0, life_seconds), _LONGEST_LIFE_SECONDS)


def _failed(why: str) -> SaslAuthenticationFailedError:
    return SaslAuthenticationFailedError(f"OAUTHBEARER: {why}")
