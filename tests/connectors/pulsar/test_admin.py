"""What the client asks for, and what it makes of the answers of a Pulsar 4.2.4."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.http.rest import AdminError
from connectors.pulsar.admin import AdminApi
from connectors.zookeeper.bookies import AffinityDocument, PersistenceDocument
from policies.bookie_readings import RackInfo
from policies.observations import Outcome
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
