"""The HTTP server: what it answers, how it refuses, and that it ends cleanly."""

import gzip
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from connectors.prometheus import MetricsServer
from policies.errors import UserError

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


def get(server: MetricsServer, path: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(LOOPBACK, server.port, timeout=10)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
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


def test_metrics_are_openmetrics_where_asked_for(server: MetricsServer) -> None:
    response, body = get(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


def test_metrics_are_compressed_where_that_is_accepted(server: MetricsServer) -> None:
    response, body = get(server, "/metrics", Accept_Encoding="gzip")
    assert response.headers["Content-Encoding"] == "gzip"
    assert b"headgate_throttle_factor" in gzip.decompress(body)


def test_metrics_can_be_filtered_by_name(server: MetricsServer) -> None:
    assert b"headgate" not in get(server, "/metrics?name[]=other")[1]


@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
def test_all_is_well(server: MetricsServer, path: str) -> None:
    response, body = get(server, path)
    assert (response.status, body) == (200, b"ok\n")


def test_what_is_wrong_is_said_line_by_line(server: MetricsServer, checks: Checks) -> None:
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


def test_the_index_links_to_all_there_is(server: MetricsServer) -> None:
    response, body = get(server, "/?x=1")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert all(f'href="{path}"'.encode() in body for path in ("/metrics", "/-/healthy", "/-/ready"))


def test_anything_else_is_not_found(server: MetricsServer) -> None:
    assert get(server, "/secrets")[0].status == 404


def test_a_scraper_that_hangs_up_or_is_silent_disturbs_nobody(server: MetricsServer) -> None:
    with socket.create_connection((LOOPBACK, server.port)) as silent:
        silent.sendall(b"GET /metr")
        with socket.create_connection((LOOPBACK, server.port)) as rude:
            rude.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert get(server, "/-/healthy")[0].status == 200


def test_a_port_in_use_is_refused_with_the_setting_to_change(server: MetricsServer) -> None:
    with pytest.raises(UserError, match=rf"exporter\.port: port {server.port} of 127\.0\.0\.1 is in use: .* another"):
        MetricsServer(
            CollectorRegistry(), host=LOOPBACK, port=server.port, healthy={}, ready={}, setting="exporter.port"
        )


@pytest.mark.parametrize(
    ("host", "port"),
    [
        pytest.param("no-such-host.invalid", 0, id="unknown host"),
        pytest.param("192.0.2.1", 0, id="an address of another machine"),
        pytest.param(LOOPBACK, 70_000, id="no such port"),
    ],
)
def test_where_it_cannot_listen_is_refused(host: str, port: int) -> None:
    with pytest.raises(UserError, match=rf"^metrics\.port: cannot listen on port {port} of {host}: .+\.$"):
        MetricsServer(CollectorRegistry(), host=host, port=port, healthy={}, ready={})


def test_closing_frees_the_port_and_leaves_no_thread() -> None:
    before = threading.active_count()
    server = MetricsServer(CollectorRegistry(), host=LOOPBACK, port=0, healthy={}, ready={})
    port = server.port
    assert get(server, "/metrics")[0].status == 200
    server.close()
    server.close()
    assert threading.active_count() <= before
    with MetricsServer(CollectorRegistry(), host=LOOPBACK, port=port, healthy={}, ready={}) as again:
        assert get(again, "/metrics")[0].status == 200


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 on this machine")
def test_it_listens_on_ipv6() -> None:
    try:
        server = MetricsServer(CollectorRegistry(), host="::1", port=0, healthy={}, ready={})
    except UserError as error:
        pytest.skip(str(error))
    with server, socket.create_connection(("::1", server.port)) as client:
        client.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
        assert client.makefile("rb").readline().startswith(b"HTTP/1.0 200")
