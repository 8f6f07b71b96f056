"""The HTTP server: what it answers, how it refuses, and that it ends cleanly."""

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import PlainTextResponse, Response

from connectors.http.access import HttpAccess
from connectors.http.server import MetricsServer
from tests.cases import for_each
from tests.certificates import write_both

LOOPBACK = "127.0.0.1"


class Checks:
    """Checks whose outcome a test sets."""

    def __init__(self) -> None:
        self.kafka: str | None = None
        self.query: str | None = None
        self.broken = False

    def ask_kafka(self) -> str | None:
        return self.kafka

    def ask_query(self) -> str | None:
        if self.broken:
            raise RuntimeError("secret")
        return self.query


@pytest.fixture
def checks() -> Checks:
    return Checks()


@pytest.fixture
def server(checks: Checks) -> Iterator[MetricsServer]:
    registry = CollectorRegistry()
    Gauge("headgate_throttle_factor", "…", ["cluster"], registry=registry).labels("payments").set(0.75)
    with MetricsServer(
        registry,
        host=LOOPBACK,
        port=0,
        healthy={"query": checks.ask_query},
        ready={"kafka": checks.ask_kafka, "query": checks.ask_query},
    ) as server:
        yield server


def get(server: MetricsServer, path: str, *, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(LOOPBACK, server.port, timeout=10)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def test_metrics_are_plain_text_by_default(server: MetricsServer) -> None:
    response, body = get(server, "/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    (family,) = text_string_to_metric_families(body.decode())
    assert [(s.labels, s.value) for s in family.samples] == [({"cluster": "payments"}, 0.75)]


def test_metrics_are_in_the_format_and_of_the_names_that_were_asked_for(server: MetricsServer) -> None:
    response, body = get(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    response, body = get(server, "/metrics", Accept_Encoding="gzip")
    assert response.headers["Content-Encoding"] == "gzip"
    assert b"headgate_throttle_factor" in gzip.decompress(body)
    assert b"headgate" not in get(server, "/metrics?name[]=other")[1]


def test_what_is_wrong_is_said_line_by_line(server: MetricsServer, checks: Checks) -> None:
    for path in ("/-/healthy", "/-/ready"):
        response, body = get(server, path)
        assert (response.status, body) == (200, b"ok\n")
    checks.kafka = "Kafka does not answer"
    assert get(server, "/-/healthy")[0].status == 200
    checks.query = "no batch for 61 s"
    response, body = get(server, "/-/ready")
    assert (response.status, body) == (503, b"kafka: Kafka does not answer\nquery: no batch for 61 s\n")
    assert get(server, "/-/healthy")[1] == b"query: no batch for 61 s\n"


def test_a_check_that_fails_is_a_bad_sign_and_tells_no_secret(server: MetricsServer, checks: Checks) -> None:
    checks.broken = True
    response, body = get(server, "/-/healthy")
    assert (response.status, body) == (503, b"query: the check failed: RuntimeError\n")


def test_the_index_links_to_all_there_is_and_anything_else_is_not_found(server: MetricsServer) -> None:
    response, body = get(server, "/?x=1")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert all(f'href="{path}"'.encode() in body for path in ("/metrics", "/-/healthy", "/-/ready"))
    assert get(server, "/secrets")[0].status == 404
    response, body = get(server, "/api/v1/status?x=1")
    assert (response.status, response.headers["Content-Type"]) == (404, "application/json")
    assert json.loads(body)["status"] == 404


def test_pages_that_take_long_are_made_two_at_a_time_and_health_waits_for_none_of_them() -> None:
    may_end, begun = threading.Event(), threading.Semaphore(0)

    def make_slowly(_: str) -> Response:
        begun.release()
        assert may_end.wait(60)
        return PlainTextResponse("made")

    with (
        MetricsServer(CollectorRegistry(), host=LOOPBACK, port=0, healthy={}, ready={}, site=make_slowly) as server,
        ThreadPoolExecutor(20) as clients,
    ):
        answers = [clients.submit(get, server, "/page") for _ in range(20)]
        try:
            assert all(begun.acquire(timeout=60) for _ in range(2))
            assert get(server, "/-/healthy")[0].status == 200
            assert not begun.acquire(blocking=False)
        finally:
            may_end.set()
        assert {answer.result()[1] for answer in answers} == {b"made"}


def test_a_client_that_does_not_read_keeps_no_other_one_waiting() -> None:
    page = PlainTextResponse(b"x" * 20_000_000)
    with (
        MetricsServer(CollectorRegistry(), host=LOOPBACK, port=0, healthy={}, ready={}, site=lambda _: page) as server,
        ExitStack() as stack,
    ):
        for _ in range(4):
            client = stack.enter_context(socket.create_connection((LOOPBACK, server.port)))
            client.sendall(b"GET /page HTTP/1.0\r\n\r\n")
            assert client.recv(1)  # its answer is made
        assert get(server, "/page")[1] == page.body


@for_each("method", ["POST", "DELETE", "OPTIONS", "TRACE", "WHATEVER"])
@for_each("path", ["/", "/metrics", "/api/v1/status", "/-/ready"])
def test_anything_but_reading_is_refused_and_what_may_be_done_is_said(
    server: MetricsServer, method: str, path: str
) -> None:
    response, body = get(server, path, method=method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert json.loads(body)["status"] == 405


@for_each(
    "head",
    [
        *(f"Content-Length: {length}" for length in ("9" * 5000, "-1", "five", "5\r\nContent-Length: 6")),
        "Transfer-Encoding: gzip",
        "Host: localhost",
        "no colon",
    ],
)
def test_odd_framing_is_refused_and_its_connection_closed(server: MetricsServer, head: str) -> None:
    with socket.create_connection((LOOPBACK, server.port), 10) as client:
        client.sendall(f"GET /metrics HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode())
        answer = client.makefile("rb").read()
    assert answer.split(b" ", 2)[1] in (b"400", b"501")
    assert answer.count(b"HTTP/1.1") == 1


@for_each("path", ["//[", "/%", "/\\", "/?", "http://elsewhere/", "*"])
def test_an_odd_path_is_answered_all_the_same(server: MetricsServer, path: str) -> None:
    assert get(server, path)[0].status in (200, 404)


@for_each(
    "path",
    ["/static/../site.py", "/static/%2e%2e/site.py", "/static//etc/passwd", "/static/", "/static/..%2fsite.py"],
)
def test_no_other_file_is_served(server: MetricsServer, path: str) -> None:
    assert get(server, path)[0].status == 404
    assert get(server, "/static/page.css")[0].status == 200


def test_no_answer_lets_anything_be_taken_from_elsewhere(server: MetricsServer) -> None:
    for path in ("/", "/metrics", "/nothing"):
        headers = get(server, path)[0].headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Python" not in (headers["Server"] or "")


def test_who_has_it_already_is_sent_nothing(server: MetricsServer) -> None:
    etag = get(server, "/")[0].headers["ETag"]
    for known in (etag, f'"x", W/{etag}', "*"):
        response, body = get(server, "/", If_None_Match=known)
        assert (response.status, response.headers["ETag"], body) == (304, etag, b"")
    assert get(server, "/", If_None_Match='"x"')[0].status == 200


def test_a_fault_of_the_site_is_an_answer_and_tells_no_secret() -> None:
    def fails(path: str) -> None:
        raise RuntimeError("secret")

    with MetricsServer(CollectorRegistry(), host=LOOPBACK, port=0, healthy={}, ready={}, site=fails) as server:
        response, body = get(server, "/")
        assert response.status == 500
        assert b"secret" not in body
        assert get(server, "/-/healthy")[0].status == 200


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tls"))


def test_without_the_token_only_health_is_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first-token\n")
    access = HttpAccess(token_file=token)
    with MetricsServer(CollectorRegistry(), host=LOOPBACK, port=0, healthy={}, ready={}, access=access) as server:
        for path in ("/", "/metrics", "/api/v1/status", "/static/page.js"):
            response, body = get(server, path)
            assert response.status == 401
            assert 'Basic realm="headgate"' in response.headers["WWW-Authenticate"]
            assert json.loads(body)["status"] == 401
            assert get(server, path, Authorization="Bearer another")[0].status == 401
        assert get(server, "/-/healthy")[0].status == get(server, "/-/ready")[0].status == 200
        assert get(server, "/metrics", Authorization="Bearer first-token")[0].status == 200
        token.write_text("second-token")
        assert get(server, "/metrics", Authorization="Bearer first-token")[0].status == 401
        assert get(server, "/metrics", Authorization="Bearer second-token")[0].status == 200
        token.unlink()
        assert get(server, "/metrics", Authorization="Bearer second-token")[0].status == 401


def test_a_foreign_host_is_refused_on_every_path(server: MetricsServer) -> None:
    for path in ("/", "/metrics", "/-/healthy"):
        response, body = get(server, path, Host="evil.example")
        assert response.status == 421
        assert b"http.host_names" in body


def test_with_a_certificate_it_is_encrypted(certificate: Path) -> None:
    access = HttpAccess(cert_file=certificate, key_file=certificate)
    with MetricsServer(CollectorRegistry(), host=LOOPBACK, port=0, healthy={}, ready={}, access=access) as server:
        trusting = ssl.create_default_context(cafile=certificate)
        connection = HTTPSConnection(LOOPBACK, server.port, timeout=10, context=trusting)
        connection.request("GET", "/-/ready")
        assert connection.getresponse().read() == b"ok\n"
        connection.close()
        with pytest.raises((OSError, HTTPException)):
            get(server, "/-/ready")
