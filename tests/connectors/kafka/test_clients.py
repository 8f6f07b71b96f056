"""Tokens by the client credentials grant, from a real HTTP endpoint; what librdkafka says in the log."""

import base64
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest
from confluent_kafka.admin import AdminClient
from kafka.errors import SaslAuthenticationFailedError

from connectors.kafka.clients import REPEAT_SECONDS, RepeatFilter, TokenSource, build_client, fetch_by_credentials
from connectors.kafka.connection import KafkaConnection
from policies.units import UserError
from tests.cases import for_each

SECRET = "s3cret/+:"


class Endpoint(ThreadingHTTPServer):
    """Gives tokens `token-1`, `token-2` … valid for 100 s."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.answer: dict[str, Any] | bytes | None = None
        self.requests: list[tuple[str, dict[str, list[str]]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Endpoint

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.requests.append((self.headers["Authorization"], form))
        count = len(self.server.requests)
        answer = self.server.answer or {"access_token": f"token-{count}", "expires_in": 100}
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay silent."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_token_is_kept_until_four_fifths_of_its_life_are_over(endpoint: Endpoint) -> None:
    now = 0.0
    tokens = TokenSource(lambda: fetch_by_credentials(endpoint.url, "me", SECRET, "kafka"), clock=lambda: now)
    assert [tokens.token(), tokens("")[0]] == ["token-1", "token-1"]
    now = 79.9
    assert tokens.token() == "token-1"
    now = 80.0
    assert tokens.token() == "token-2"
    authorization, form = endpoint.requests[0]
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me:s3cret%2F%2B%3A"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert SECRET not in repr(tokens)


@for_each(
    ("status", "answer", "message"),
    [
        (401, {"error": "invalid_client"}, "answers 401"),
        (307, {}, "answers 307"),
        (200, {"token": "x"}, "answers no access_token"),
        (200, {"access_token": "x", "expires_in": ["soon"]}, "no token from the endpoint"),
        (200, {"access_token": "x", "expires_in": "soon"}, "an expires_in that is no number"),
        (200, b'{"access_token":"x","more":' + b"[" * 100_000, "no token from the endpoint"),
        (200, b'{"access_token":"x","expires_in":' + b"9" * 5000 + b"}", "no token from the endpoint"),
        (200, {"access_token": "x" * 2_000_000}, "no token from the endpoint"),
    ],
)
def test_a_refusal_is_a_failed_login(
    endpoint: Endpoint, status: int, answer: dict[str, Any] | bytes, message: str
) -> None:
    endpoint.status, endpoint.answer = status, answer
    with pytest.raises(SaslAuthenticationFailedError, match=message) as raised:
        fetch_by_credentials(endpoint.url, "me", SECRET, None)
    assert SECRET not in str(raised.value)
    with pytest.raises(SaslAuthenticationFailedError, match="no token from the endpoint"):
        fetch_by_credentials("http://127.0.0.1:1/token", "me", SECRET, None)


def test_a_token_that_never_ends_is_renewed_within_a_day(endpoint: Endpoint) -> None:
    endpoint.answer = {"access_token": "x", "expires_in": "inf"}
    times = iter([0.0, 0.0, 86_400.0, 86_400.0])
    tokens = TokenSource(lambda: fetch_by_credentials(endpoint.url, "me", SECRET, None), lambda: next(times))
    assert [tokens.token(), tokens.token()] == ["x", "x"]
    assert len(endpoint.requests) == 2


def refuse(_config: str) -> tuple[str, float]:
    """Fail as a user's function does that finds no credentials."""
    raise RuntimeError(SECRET)


def test_a_client_without_a_token_says_why_at_once() -> None:
    tokens = {"mechanism": "OAUTHBEARER", "token_provider": f"{__name__}:refuse"}
    options = KafkaConnection.model_validate({"bootstrap_servers": "k:1", "sasl": tokens}).for_confluent()
    with pytest.raises(UserError, match=r"^kafka.sasl: OAUTHBEARER: no token from \S+:refuse \(RuntimeError\).$"):
        build_client(AdminClient, options)


# What librdkafka says reaches the log, but not twenty times a second.


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "", 0, "%s", (message,), None)


def test_a_message_is_repeated_only_after_a_minute_whatever_its_numbers() -> None:
    now = 0.0
    repeat_filter = RepeatFilter(lambda: now)
    assert repeat_filter.filter(record("FAIL after 3ms"))
    assert not repeat_filter.filter(record("FAIL after 12ms"))
    assert repeat_filter.filter(record("another"))
    now = REPEAT_SECONDS
    assert repeat_filter.filter(record("FAIL after 4ms"))


def test_of_all_clients_the_first_tells_that_a_broker_cannot_be_reached() -> None:
    repeat_filter = RepeatFilter(lambda: 0.0)
    why = "127.0.0.1:9092/2: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT%s)"
    first, *others = (
        record(f"FAIL [headgate-{client}] [thrd:127.0.0.1:9092/{number}]: {why % more}")
        for number, client in enumerate(("exporter#consumer-36", "ticker#consumer-38"))
        for more in ("", ", 1 identical error(s) suppressed")
    )
    assert repeat_filter.filter(first)
    assert first.getMessage() == f"FAIL {why % ''}"
    assert not any(map(repeat_filter.filter, others))
