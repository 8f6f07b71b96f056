"""What answers and errors of the admin REST become: how it ended, why, and whether another try follows."""

import ssl
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.http.rest import describe_rest_error, outcome_of
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from policies.observations import Outcome
from policies.units import UserError
from tests.cases import for_each

TOKEN = "never-shown-token"
URL = "https://pulsar:8443"

Answer = httpx.Response | Exception


def api(*answers: Answer, asked: list[httpx.Request] | None = None, url: str = URL) -> AdminApi:
    """A client whose server gives these answers one after the other."""
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(request)
        one = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    return AdminApi(PulsarAdmin(admin_url=url, token=TOKEN), httpx.MockTransport(answer))


def failure(ask: Callable[[], object]) -> tuple[str, str]:
    """How it ended, and the detail."""
    with pytest.raises((Exception,)) as caught:
        ask()
    return outcome_of(caught.value).value, describe_rest_error(caught.value)


PAGE = {"html": "<h1>Not here</h1>"}
SAID: dict[str, Any] = {"json": {"reason": "Namespace not found"}}

STATUSES: dict[str, tuple[int, dict[str, Any], str, str]] = {
    "a bad request": (400, PAGE, "error", "status 400"),
    "not logged in": (401, PAGE, "unauthorized", "status 401"),
    "not allowed": (403, {"json": {"reason": "no admin"}}, "unauthorized", "status 403: no admin"),
    "no such API": (404, PAGE, "unsupported", "status 404: there is no such API at this address"),
    "no such API, in JSON": (404, {"json": []}, "unsupported", "status 404: there is no such API at this address"),
    "not found": (404, SAID, "error", "status 404: Namespace not found"),
    "not for this method": (405, PAGE, "unsupported", "status 405"),
    "a conflict": (409, PAGE, "error", "status 409"),
    "precondition": (412, {"json": {"reason": "no group"}}, "error", "status 412: no group"),
    "broken": (500, {"json": {"reason": "KeeperException"}}, "error", "status 500: KeeperException"),
    "broken, a page": (500, PAGE, "error", "status 500"),
    "not implemented": (501, PAGE, "unsupported", "status 501"),
    "gateway's time is up": (504, PAGE, "error", "status 504"),
    "no status there is": (599, {"json": {"reason": 7}}, "error", "status 599"),
    "redirected to nowhere": (307, {}, "error", "status 307"),
    "echoes the token": (403, {"json": {"reason": f"{TOKEN}!"}}, "unauthorized", "status 403: ***!"),
}


@for_each(("status", "body", "outcome", "detail"), STATUSES.values(), ids=STATUSES.keys())
def test_a_status_is_an_outcome_with_the_servers_reason(
    status: int, body: dict[str, Any], outcome: str, detail: str
) -> None:
    asked: list[httpx.Request] = []
    admin = api(httpx.Response(status, **body), asked=asked)
    assert failure(admin.tenants) == (outcome, f"GET /admin/v2/tenants: {detail}")
    assert len(asked) == 1, "it will not pass"


ERRORS: dict[str, tuple[Exception, str, str]] = {
    "refused": (httpx.ConnectError("[Errno 111] Connection refused"), "unreachable", "[Errno 111] Connection refused"),
    "no such name": (httpx.ConnectError("[Errno -2] Name or service"), "unreachable", "[Errno -2] Name or service"),
    "connecting takes long": (httpx.ConnectTimeout("timed out"), "timeout", "no connection in time"),
    "answering takes long": (httpx.ReadTimeout("timed out"), "timeout", "no answer in time"),
    "not even a redirect": (httpx.UnsupportedProtocol("no protocol"), "error", "no protocol"),
    "undecodable": (httpx.DecodingError("bad gzip"), "error", "bad gzip"),
}


@for_each(("error", "outcome", "detail"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_of_the_connection_is_an_outcome_at_once(error: Exception, outcome: str, detail: str) -> None:
    asked: list[httpx.Request] = []
    assert failure(api(error, asked=asked).tenants) == (outcome, f"GET /admin/v2/tenants: {detail}")
    assert len(asked) == 1


def test_a_refused_certificate_is_an_error_and_not_unreachable() -> None:
    error = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]")
    error.__cause__ = ssl.SSLCertVerificationError("x")
    assert outcome_of(error) is Outcome.ERROR


def test_a_users_error_is_told_as_it_is() -> None:
    error = UserError("token_file: /t is empty.")
    assert (outcome_of(error), describe_rest_error(error)) == (Outcome.ERROR, "token_file: /t is empty.")


def test_a_detail_is_one_short_line() -> None:
    reason = "a\nb " + "x" * 500
    _, detail = failure(api(httpx.Response(500, json={"reason": reason})).tenants)
    assert detail.startswith("GET /admin/v2/tenants: status 500: a b xxx")
    assert len(detail) == 200


SHAPES: dict[str, tuple[Callable[[AdminApi], object], bytes, str]] = {
    "a page": (lambda a: a.tenants(), b"<html>", "GET /admin/v2/tenants: Invalid JSON"),
    "cut short": (lambda a: a.tenants(), b'["a"', "GET /admin/v2/tenants: Invalid JSON"),
    "empty where there must be something": (lambda a: a.tenants(), b"", "GET /admin/v2/tenants: Input"),
    "another shape": (lambda a: a.tenants(), b'{"a":1}', "GET /admin/v2/tenants: Input should be"),
    "another element": (lambda a: a.brokers("c"), b"[1]", "GET /admin/v2/brokers/c: 0: Input should be a valid string"),
    "no bookies": (lambda a: a.known_bookies(), b"{}", "GET /admin/v2/bookies/all: bookies: Field required"),
    "no groups": (
        lambda a: a.racks(),
        b'{"g":{"b":{"rack":1}}}',
        "GET /admin/v2/bookies/racks-info: g.b.rack: Input should be a valid string",
    ),
    "affinity that is none": (
        lambda a: a.affinity("t/n"),
        b'{"bookkeeperAffinityGroupPrimary":5}',
        "GET /admin/v2/namespaces/t/n/persistence/bookieAffinity: bookkeeperAffinityGroupPrimary: Input should be",
    ),
    "persistence that is none": (
        lambda a: a.persistence("t/n"),
        b'{"bookkeeperEnsemble":"x"}',
        "GET /admin/v2/namespaces/t/n/persistence: bookkeeperEnsemble: Input should be",
    ),
}


@for_each(("ask", "body", "detail"), SHAPES.values(), ids=SHAPES.keys())
def test_an_answer_of_another_shape_is_an_error_that_names_its_path(
    ask: Callable[[AdminApi], object], body: bytes, detail: str
) -> None:
    outcome, said = failure(lambda: ask(api(httpx.Response(200, content=body))))
    assert (outcome, said.startswith(detail)) == ("error", True), said


PASSING: dict[str, Answer] = {
    "connection dropped": httpx.RemoteProtocolError("Server disconnected without sending a response."),
    "connection reset": httpx.ReadError("[Errno 104] Connection reset by peer"),
    "too many requests": httpx.Response(429),
    "bad gateway": httpx.Response(502),
    "unavailable": httpx.Response(503),
}


@pytest.mark.parametrize("passing", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again(passing: Answer) -> None:
    asked: list[httpx.Request] = []
    assert api(passing, httpx.Response(200, json=["a"]), asked=asked).tenants() == ("a",)
    assert len(asked) == 2


def test_three_tries_are_all() -> None:
    asked: list[httpx.Request] = []
    admin = api(*[httpx.ReadError("reset") for _ in range(9)], asked=asked)
    assert failure(admin.tenants)[0] == "unreachable"
    assert len(asked) == 3


@pytest.mark.parametrize(
    "act", [lambda a: a.set_rack("b", "g", "/r"), lambda a: a.unload("t/n", "0x0_0x1")], ids=["set a rack", "unload"]
)
def test_a_change_is_tried_once(act: Callable[[AdminApi], object]) -> None:
    asked: list[httpx.Request] = []
    failure(lambda: act(api(httpx.Response(503), httpx.Response(204), asked=asked)))
    assert len(asked) == 1


def test_a_redirect_to_another_broker_is_followed_with_the_token() -> None:
    asked: list[httpx.Request] = []
    elsewhere = httpx.Response(307, headers={"Location": "https://other:8443/admin/v2/there"})
    listed = httpx.Response(200, json=["pulsar:8080", "other:8080"])
    api(elsewhere, listed, httpx.Response(204), asked=asked).unload("t/n", "0x0_0x1")
    assert [(r.method, str(r.url), r.headers["Authorization"]) for r in asked] == [
        ("PUT", f"{URL}/admin/v2/namespaces/t/n/0x0_0x1/unload", f"Bearer {TOKEN}"),
        ("GET", f"{URL}/admin/v2/brokers/local", f"Bearer {TOKEN}"),
        ("PUT", "https://other:8443/admin/v2/there", f"Bearer {TOKEN}"),
    ]


@for_each(
    "target",
    [
        pytest.param("http://other:8080/there", id="a listed one, not encrypted"),
        pytest.param("https://evil:8443/there", id="a host that is not listed"),
        pytest.param("https://other.evil:8443/there", id="a name that begins like a listed one"),
        pytest.param("https://other:8443@evil:443/there", id="a listed one as a user"),
        pytest.param("https://me:pw@other:8443/there", id="a listed one, with a user of its own"),
        pytest.param("//evil/there", id="without a scheme"),
        pytest.param("https://0.0.0.0:8443/there", id="a listed one without an address of its own"),
        pytest.param("https://localhost:8443/there", id="a listed one at this machine"),
    ],
)
def test_a_redirect_elsewhere_is_not_followed_so_that_nobody_else_is_sent_the_token(target: str) -> None:
    asked: list[httpx.Request] = []
    elsewhere = httpx.Response(307, headers={"Location": target})
    listed = httpx.Response(
        200, json=["pulsar:8080", "other:8080", "evil/x:80", "@evil:80", "0.0.0.0:80", "localhost:80"]
    )
    outcome, detail = failure(lambda: api(elsewhere, listed, asked=asked).unload("t/n", "0x0_0x1"))
    why = "redirected to plain http" if target.startswith("http:") else "neither the one asked nor a listed broker"
    assert (outcome, why in detail) == ("error", True)
    assert {request.url.host for request in asked} == {"pulsar"}


def test_the_list_of_brokers_is_not_taken_from_elsewhere() -> None:
    asked: list[httpx.Request] = []
    elsewhere = [httpx.Response(307, headers={"Location": "https://evil/admin/v2/brokers/x"}) for _ in range(9)]
    assert failure(lambda: api(*elsewhere, asked=asked).brokers("c"))[0] == "error"
    assert [str(request.url) for request in asked] == [f"{URL}/admin/v2/brokers/c"]


def test_redirects_in_a_circle_end() -> None:
    circle = [httpx.Response(307, headers={"Location": f"{URL}/round"}) for _ in range(50)]
    outcome, detail = failure(lambda: api(*circle).unload("t/n", "0x0_0x1"))
    assert (outcome, detail.endswith("status 307")) == ("error", True)
