"""Where the admin REST is and who we are to it; and no token in any message."""

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from connectors.pulsar.admin import AdminApi, BookieHttp
from connectors.pulsar.settings import PulsarAdmin, address_problem, is_member
from policies.units import UserError
from tests.cases import for_each
from tests.connectors.pulsar.rest import Server

TOKEN = "eyJhbGciOi.never-shown.x_Y-z"


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://pulsar:8080", "http://pulsar:8080/admin/v2/tenants"),
        ("https://pulsar.example.org:8443/", "https://pulsar.example.org:8443/admin/v2/tenants"),
        ("https://example.org/pulsar", "https://example.org/pulsar/admin/v2/tenants"),
        ("http://[::1]:8080", "http://[::1]:8080/admin/v2/tenants"),
    ],
)
def test_paths_follow_the_address(url: str, asked: str) -> None:
    server = Server()
    assert server.api(admin_url=url).tenants() == ()
    assert [str(request.url) for request in server.requests] == [asked]


MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no scheme": ({"admin_url": "pulsar:8080"}, "admin_url", "is not http(s)://"),
    "another protocol": ({"admin_url": "pulsar://pulsar:6650"}, "admin_url", "is not http(s)://"),
    "no host": ({"admin_url": "http://:8080"}, "admin_url", "is not http(s)://"),
    "a port that is none": ({"admin_url": "http://pulsar:99999"}, "admin_url", "is not http(s)://"),
    "a port of letters": ({"admin_url": "http://pulsar:web"}, "admin_url", "is not http(s)://"),
    "port 0": ({"admin_url": "http://pulsar:0"}, "admin_url", "is not http(s)://"),
    "a user": ({"admin_url": f"http://me:{TOKEN}@pulsar:8080"}, "admin_url", "is not http(s)://"),
    "a query": ({"admin_url": f"http://pulsar:8080/?token={TOKEN}"}, "admin_url", "is not http(s)://"),
    "the API's own path": ({"admin_url": "http://pulsar:8080/admin/v2"}, "admin_url", "must end before /admin/v2"),
    "tls without https": ({"admin_url": "http://pulsar:8080", "tls": {}}, "tls", "has no meaning with an http://"),
    "two tokens": ({"token": TOKEN, "token_file": __file__}, "token", "give either token or token_file"),
    "a token of two words": ({"token": f"Bearer {TOKEN}"}, "token", "is not one word"),
    "a token of two lines": ({"token": f"{TOKEN}\n{TOKEN}"}, "token", "is not one word"),
    "a token that is no text": ({"token": {TOKEN: 1}}, "token", "valid string"),
    "an empty token": ({"token": ""}, "token", "at least 1"),
    "no such file": ({"token_file": "/none/token"}, "token_file", "/none/token cannot be read"),
    "a time-out of nothing": ({"timeout": "0s"}, "timeout", "must be longer"),
    "an unknown key": ({"tocken": TOKEN}, "tocken", "Extra inputs"),
}


@for_each(("given", "place", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_with_its_place_and_quotes_no_token(given: dict[str, Any], place: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        PulsarAdmin(**{"admin_url": "https://pulsar:8443", **given})
    (error,) = caught.value.errors()
    assert (error["loc"], message in error["msg"]) == ((place,), True), error
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(caught.value.errors())


def test_the_token_is_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = PulsarAdmin(admin_url="https://pulsar:8443", token=TOKEN)
    server = Server()
    AdminApi(settings, server.transport).tenants()
    assert server.authorizations() == [f"Bearer {TOKEN}"]
    assert TOKEN not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert caplog.records == [], "httpx reports each request"


def test_a_changed_token_file_counts_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    server = Server()
    admin = server.api(token_file=file)
    admin.tenants()
    file.write_text("second-token")  # no plain word, because this process hides every secret in all texts
    admin.tenants()
    assert server.authorizations() == ["Bearer first", "Bearer second-token"]


@pytest.mark.parametrize("content", ["", f"{TOKEN}\n{TOKEN}\n", f"{TOKEN} x", "tokén"])
def test_a_token_file_that_holds_none_is_a_users_error_and_nothing_is_asked(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    server = Server()
    admin = server.api(token_file=file)
    with pytest.raises(UserError, match=r"token_file: .*token") as caught:
        admin.tenants()
    assert TOKEN not in str(caught.value)
    assert server.requests == []


def test_without_a_token_none_is_sent_not_even_one_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    server = Server()
    server.api().tenants()
    assert server.authorizations() == [None]


def test_the_bookies_are_never_sent_the_token() -> None:
    server = Server(httpx.Response(200, json={"bk1:3181": None}))
    settings = PulsarAdmin(admin_url="https://pulsar:8443", token=TOKEN)
    assert BookieHttp("http://bookies:8000", settings, server.transport).listed("rw") == {"bk1:3181": None}
    assert [str(request.url) for request in server.requests] == [
        "http://bookies:8000/api/v1/bookie/list_bookies?type=rw"
    ]
    assert server.authorizations() == [None]


LOOPBACK = [
    "127.0.0.1", "127.255.1.9", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.1.", "localhost",
    "LocalHost", "localhost.", "a.localhost", "localhost.localdomain", "ip6-localhost", "[::1]", "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
]  # fmt: skip
NOBODYS = [
    "0.0.0.0", "0", "0x0", "00.0", "[::]", "[0:0:0:0:0:0:0:0]", "[::ffff:0.0.0.0]", "169.254.169.254", "2852039166",
    "[fe80::1]", "[FEBF::9]", "[::ffff:169.254.1.1]",
]  # fmt: skip
BROKERS = ["broker-1", "broker-0.broker.pulsar.svc", "10.0.0.1", "192.168.0.1", "[2001:db8::1]", "[::ffff:10.0.0.1]",
           "localhost.example.org", "mylocalhost", "1270.0.0.1", "b127"]  # fmt: skip


@pytest.mark.parametrize("admin_url", ["http://pulsar:8080", "https://10.0.0.1:8443", "http://[2001:db8::1]:8080"])
def test_an_address_at_which_each_machine_finds_itself_is_no_brokers(admin_url: str) -> None:
    assert all(is_member(f"{host}:8080") for host in (*LOOPBACK, *NOBODYS, *BROKERS)), "the check before this one"
    problems = {host: address_problem(f"{host}:8080", admin_url) for host in (*LOOPBACK, *NOBODYS, *BROKERS)}
    assert [host for host, problem in problems.items() if problem is None] == BROKERS
    assert problems["localhost"] == (
        "localhost:8080 is a loopback address, at which each machine finds itself: set the broker's advertisedAddress"
    )


@pytest.mark.parametrize(
    "admin_url", ["http://127.0.0.2:8080", "http://localhost:8080", "http://[::1]:8080", "http://0.0.0.0:8080"]
)
def test_a_loopback_address_is_a_brokers_where_the_whole_cluster_is_on_this_machine(admin_url: str) -> None:
    allowed = [h for h in (*LOOPBACK, *NOBODYS) if address_problem(f"{h}:8080", admin_url) is None]
    assert allowed == LOOPBACK
