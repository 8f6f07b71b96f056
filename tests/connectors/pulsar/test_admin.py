"""What the client asks for, and what it makes of the answers of a Pulsar 4.2.4."""

import json
import ssl
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.http.rest import AdminError, describe_rest_error, outcome_of
from connectors.pulsar.admin import AdminApi
from connectors.zookeeper.bookies import AffinityDocument, PersistenceDocument
from policies.bookie_readings import RackInfo
from policies.observations import Outcome
from policies.units import UserError
from tests.cases import for_each
from tests.connectors.pulsar.rest import Server

GONE, EMPTY = httpx.Response(404, json={"reason": "Namespace not found"}), httpx.Response(200)
NEVER_SET = httpx.Response(404, json={"reason": "Namespace local-policies does not exist"})
RACKS, PERSISTENCE = "/admin/v2/bookies/racks-info", "/admin/v2/namespaces/a/x/persistence"
PRIMARY, SECONDARY = "bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary"
LOOKED_UP = {"brokerUrl": "pulsar://b:6650", "httpUrl": "http://b:8080", "nativeUrl": "pulsar://b:6650"}

READS: dict[str, tuple[Callable[[AdminApi], Any], Any, str, Any]] = {
    "known bookies": (
        lambda a: a.known_bookies(), {"bookies": [{"bookieId": "b2"}, {"bookieId": "b1", "new": 1}]},
        "/admin/v2/bookies/all", ("b1", "b2"),
    ),
    "racks": (
        lambda a: a.racks(), {"g1": {"b1": {"rack": "/r1", "hostname": "h"}, "b2": None}, "g2": None},
        RACKS, {"g1": {"b1": RackInfo(rack="/r1", hostname="h"), "b2": RackInfo()}, "g2": {}},
    ),
    "no racks": (lambda a: a.racks(), {}, RACKS, {}),
    "tenants": (lambda a: a.tenants(), ["a", "b"], "/admin/v2/tenants", ("a", "b")),
    "namespaces": (lambda a: a.namespaces("a"), ["a/x"], "/admin/v2/namespaces/a", ("a/x",)),
    "a tenant that is gone": (lambda a: a.namespaces("a"), GONE, "/admin/v2/namespaces/a", ()),
    "affinity": (
        lambda a: a.affinity("a/x"), {PRIMARY: "g1,g2", SECONDARY: "g3"}, f"{PERSISTENCE}/bookieAffinity",
        AffinityDocument.model_validate({PRIMARY: ("g1", "g2"), SECONDARY: ("g3",)}),
    ),
    "affinity taken away": (lambda a: a.affinity("a/x"), EMPTY, f"{PERSISTENCE}/bookieAffinity", None),
    "affinity of nothing": (lambda a: a.affinity("a/x"), {PRIMARY: ""}, f"{PERSISTENCE}/bookieAffinity", None),
    "affinity never set": (lambda a: a.affinity("a/x"), NEVER_SET, f"{PERSISTENCE}/bookieAffinity", None),
    "persistence": (
        lambda a: a.persistence("a/x"), {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 0},
        PERSISTENCE, PersistenceDocument(bookkeeperEnsemble=3, bookkeeperWriteQuorum=2),
    ),
    "persistence never set": (lambda a: a.persistence("a/x"), EMPTY, PERSISTENCE, None),
    "persistence of nobody": (lambda a: a.persistence("a/x"), GONE, PERSISTENCE, None),
    "brokers": (lambda a: a.brokers("c 1"), ["b:8080"], "/admin/v2/brokers/c%201", ("b:8080",)),
    "owned bundles": (
        lambda a: a.owned_bundles("c", "b:8080"), {"t/ns/1_2": {"is_active": True}, "t/ns/0_1": {"is_active": False}},
        "/admin/v2/brokers/c/b:8080/ownedNamespaces", {"t/ns/1_2": True, "t/ns/0_1": False},
    ),
    "topics": (
        lambda a: a.topics("a/x", "0x0_0x1"), ["persistent://a/x/t"],
        "/admin/v2/persistent/a/x?bundle=0x0_0x1", ("persistent://a/x/t",),
    ),
    "configuration": (
        lambda a: a.runtime_configuration(), {"clusterName": "c", "brokerServicePort": None},
        "/admin/v2/brokers/configuration/runtime", {"clusterName": "c", "brokerServicePort": None},
    ),
    "health": (lambda a: a.check_health(), "ok", "/admin/v2/brokers/health", None),
    "lookup": (
        lambda a: a.lookup("a/x/topic/with?slash"), LOOKED_UP, "/lookup/v2/topic/persistent/a/x/topic%2Fwith%3Fslash",
        None,
    ),
}  # fmt: skip


@for_each(("ask", "answer", "path", "result"), READS.values(), ids=READS.keys())
def test_what_is_read_comes_in_its_shape(ask: Callable[[AdminApi], Any], answer: Any, path: str, result: Any) -> None:
    server = Server(answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer))
    assert ask(server.api()) == result
    assert [(each.method, each.url.raw_path.decode()) for each in server.requests] == [("GET", path)]


@pytest.mark.parametrize(
    ("bookie", "hostname", "target", "body"),
    [
        ("bk1:3181", None, "/bk1:3181?group=g+1", {"rack": "/r"}),
        ("custom/id 1", "h1", "/custom%2Fid%201?group=g+1", {"rack": "/r", "hostname": "h1"}),
    ],
)
def test_a_rack_is_set_for_exactly_this_bookie(bookie: str, hostname: str | None, target: str, body: Any) -> None:
    server = Server(httpx.Response(204))
    server.api().set_rack(bookie, "g 1", "/r", hostname)
    (request,) = server.requests
    assert (request.method, request.url.raw_path.decode()) == ("POST", f"{RACKS}{target}")
    assert json.loads(request.content) == body


@pytest.mark.parametrize(
    "ask",
    [lambda a: a.namespaces("a"), lambda a: a.affinity("a/x"), lambda a: a.persistence("a/x")],
    ids=["namespaces", "affinity", "persistence"],
)
def test_a_page_that_says_not_found_is_no_answer_about_a_namespace(ask: Callable[[AdminApi], Any]) -> None:
    with pytest.raises(AdminError) as caught:
        ask(Server(httpx.Response(404, json="a proxy's page")).api())
    assert caught.value.outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize("bookie", ["..", ".", ""])
def test_a_bookie_whose_name_would_change_the_path_is_an_error_and_nothing_is_asked(bookie: str) -> None:
    server = Server(httpx.Response(204))
    with pytest.raises(AdminError, match="no request can name"):
        server.api().set_rack(bookie, "g", "/r")
    assert server.requests == []


# What answers and errors become: how a request ended, why, and whether another try follows.


TOKEN = "never-shown-token"
URL = "https://pulsar:8443"


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
    server = Server(httpx.Response(status, **body))
    assert failure(server.api(token=TOKEN).tenants) == (outcome, f"GET /admin/v2/tenants: {detail}")
    assert len(server.requests) == 1, "it will not pass"


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
    server = Server(error)
    assert failure(server.api().tenants) == (outcome, f"GET /admin/v2/tenants: {detail}")
    assert len(server.requests) == 1


def test_a_refused_certificate_is_an_error_and_not_unreachable() -> None:
    error = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]")
    error.__cause__ = ssl.SSLCertVerificationError("x")
    assert outcome_of(error) is Outcome.ERROR


def test_a_users_error_is_told_as_it_is() -> None:
    error = UserError("token_file: /t is empty.")
    assert (outcome_of(error), describe_rest_error(error)) == (Outcome.ERROR, "token_file: /t is empty.")


def test_a_detail_is_one_short_line() -> None:
    reason = "a\nb " + "x" * 500
    _, detail = failure(Server(httpx.Response(500, json={"reason": reason})).api().tenants)
    assert detail.startswith("GET /admin/v2/tenants: status 500: a b xxx")
    assert len(detail) == 200


AFFINITY = "namespaces/t/n/persistence/bookieAffinity: bookkeeperAffinityGroupPrimary: Input should be"
SHAPES: dict[str, tuple[Callable[[AdminApi], object], bytes, str]] = {
    "a page": (lambda a: a.tenants(), b"<html>", "tenants: Invalid JSON"),
    "cut short": (lambda a: a.tenants(), b'["a"', "tenants: Invalid JSON"),
    "empty where there must be something": (lambda a: a.tenants(), b"", "tenants: Input"),
    "another shape": (lambda a: a.tenants(), b'{"a":1}', "tenants: Input should be"),
    "another element": (lambda a: a.brokers("c"), b"[1]", "brokers/c: 0: Input should be a valid string"),
    "no bookies": (lambda a: a.known_bookies(), b"{}", "bookies/all: bookies: Field required"),
    "no groups": (lambda a: a.racks(), b'{"g":{"b":{"rack":1}}}', "bookies/racks-info: g.b.rack: Input should be"),
    "affinity that is none": (lambda a: a.affinity("t/n"), b'{"bookkeeperAffinityGroupPrimary":5}', AFFINITY),
    "persistence that is none": (
        lambda a: a.persistence("t/n"), b'{"bookkeeperEnsemble":"x"}',
        "namespaces/t/n/persistence: bookkeeperEnsemble: Input should be",
    ),
}  # fmt: skip


@for_each(("ask", "body", "detail"), SHAPES.values(), ids=SHAPES.keys())
def test_an_answer_of_another_shape_is_an_error_that_names_its_path(
    ask: Callable[[AdminApi], object], body: bytes, detail: str
) -> None:
    outcome, said = failure(lambda: ask(Server(httpx.Response(200, content=body)).api()))
    assert (outcome, said.startswith(f"GET /admin/v2/{detail}")) == ("error", True), said


PASSING: dict[str, httpx.Response | Exception] = {
    "connection dropped": httpx.RemoteProtocolError("Server disconnected without sending a response."),
    "connection reset": httpx.ReadError("[Errno 104] Connection reset by peer"),
    "too many requests": httpx.Response(429),
    "bad gateway": httpx.Response(502),
    "unavailable": httpx.Response(503),
}


@pytest.mark.parametrize("passing", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again(passing: httpx.Response | Exception) -> None:
    server = Server(passing, httpx.Response(200, json=["a"]))
    assert server.api().tenants() == ("a",)
    assert len(server.requests) == 2


def test_three_tries_are_all() -> None:
    server = Server(httpx.ReadError("reset"))
    assert failure(server.api().tenants)[0] == "unreachable"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "act", [lambda a: a.set_rack("b", "g", "/r"), lambda a: a.unload("t/n", "0x0_0x1")], ids=["set a rack", "unload"]
)
def test_a_change_is_tried_once(act: Callable[[AdminApi], object]) -> None:
    server = Server(httpx.Response(503), httpx.Response(204))
    failure(lambda: act(server.api()))
    assert len(server.requests) == 1


def elsewhere(url: str) -> httpx.Response:
    return httpx.Response(307, headers={"Location": url})


def test_a_redirect_to_another_broker_is_followed_with_the_token() -> None:
    listed = httpx.Response(200, json=["pulsar:8080", "other:8080"])
    server = Server(elsewhere("https://other:8443/admin/v2/there"), listed, httpx.Response(204))
    server.api(token=TOKEN).unload("t/n", "0x0_0x1")
    assert [(r.method, str(r.url), r.headers["Authorization"]) for r in server.requests] == [
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
    listed = ["pulsar:8080", "other:8080", "evil/x:80", "@evil:80", "0.0.0.0:80", "localhost:80"]
    server = Server(elsewhere(target), httpx.Response(200, json=listed))
    outcome, detail = failure(lambda: server.api(token=TOKEN).unload("t/n", "0x0_0x1"))
    why = "redirected to plain http" if target.startswith("http:") else "neither the one asked nor a listed broker"
    assert (outcome, why in detail) == ("error", True)
    assert {request.url.host for request in server.requests} == {"pulsar"}


def test_the_list_of_brokers_is_not_taken_from_elsewhere() -> None:
    server = Server(elsewhere("https://evil/admin/v2/brokers/x"))
    assert failure(lambda: server.api().brokers("c"))[0] == "error"
    assert [str(request.url) for request in server.requests] == [f"{URL}/admin/v2/brokers/c"]


def test_redirects_in_a_circle_end() -> None:
    outcome, detail = failure(lambda: Server(elsewhere(f"{URL}/round")).api().unload("t/n", "0x0_0x1"))
    assert (outcome, detail.endswith("status 307")) == ("error", True)
