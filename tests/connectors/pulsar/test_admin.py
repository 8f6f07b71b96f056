"""What the client asks for, and what it makes of the answers of a Pulsar 4.2.4."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.http.rest import AdminError
from connectors.pulsar.admin import AdminApi, Lookup
from connectors.pulsar.settings import PulsarAdmin
from connectors.zookeeper.affinity import AffinityDocument, PersistenceDocument
from policies.bookie_readings import RackInfo
from policies.observations import Outcome
from tests.cases import for_each

GONE = (404, {"reason": "Namespace not found"})
EMPTY = (200, None)


class Server:
    """Gives one answer, and keeps the request."""

    def __init__(self, status: int, body: Any) -> None:
        self._answer = (status, b"" if body is None else json.dumps(body).encode())
        self.request = httpx.Request("GET", "http://none")

    def api(self) -> AdminApi:
        return AdminApi(PulsarAdmin(admin_url="http://pulsar:8080"), httpx.MockTransport(self._take))

    def _take(self, request: httpx.Request) -> httpx.Response:
        self.request = request
        return httpx.Response(self._answer[0], content=self._answer[1])


LOOKED_UP = {"brokerUrl": "pulsar://b:6650", "httpUrl": "http://b:8080", "nativeUrl": "pulsar://b:6650"}

READS: dict[str, tuple[Callable[[AdminApi], Any], tuple[int, Any], str, Any]] = {
    "known bookies": (
        lambda a: a.known_bookies(),
        (200, {"bookies": [{"bookieId": "b2"}, {"bookieId": "b1", "new": 1}]}),
        "/admin/v2/bookies/all",
        ("b1", "b2"),
    ),
    "racks": (
        lambda a: a.racks(),
        (200, {"g1": {"b1": {"rack": "/r1", "hostname": "h"}, "b2": None}, "g2": None}),
        "/admin/v2/bookies/racks-info",
        {"g1": {"b1": RackInfo(rack="/r1", hostname="h"), "b2": RackInfo()}, "g2": {}},
    ),
    "no racks": (lambda a: a.racks(), (200, {}), "/admin/v2/bookies/racks-info", {}),
    "tenants": (lambda a: a.tenants(), (200, ["a", "b"]), "/admin/v2/tenants", ("a", "b")),
    "namespaces": (lambda a: a.namespaces("a"), (200, ["a/x"]), "/admin/v2/namespaces/a", ("a/x",)),
    "a tenant that is gone": (lambda a: a.namespaces("a"), GONE, "/admin/v2/namespaces/a", ()),
    "affinity": (
        lambda a: a.affinity("a/x"),
        (200, {"bookkeeperAffinityGroupPrimary": "g1,g2", "bookkeeperAffinityGroupSecondary": "g3"}),
        "/admin/v2/namespaces/a/x/persistence/bookieAffinity",
        AffinityDocument.model_validate(
            {"bookkeeperAffinityGroupPrimary": ("g1", "g2"), "bookkeeperAffinityGroupSecondary": ("g3",)}
        ),
    ),
    "affinity taken away": (
        lambda a: a.affinity("a/x"),
        EMPTY,
        "/admin/v2/namespaces/a/x/persistence/bookieAffinity",
        None,
    ),
    "affinity of nothing": (
        lambda a: a.affinity("a/x"),
        (200, {"bookkeeperAffinityGroupPrimary": ""}),
        "/admin/v2/namespaces/a/x/persistence/bookieAffinity",
        None,
    ),
    "affinity never set": (
        lambda a: a.affinity("a/x"),
        (404, {"reason": "Namespace local-policies does not exist"}),
        "/admin/v2/namespaces/a/x/persistence/bookieAffinity",
        None,
    ),
    "persistence": (
        lambda a: a.persistence("a/x"),
        (200, {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 0}),
        "/admin/v2/namespaces/a/x/persistence",
        PersistenceDocument(bookkeeperEnsemble=3, bookkeeperWriteQuorum=2),
    ),
    "persistence never set": (lambda a: a.persistence("a/x"), EMPTY, "/admin/v2/namespaces/a/x/persistence", None),
    "persistence of nobody": (lambda a: a.persistence("a/x"), GONE, "/admin/v2/namespaces/a/x/persistence", None),
    "brokers": (lambda a: a.brokers("c 1"), (200, ["b:8080"]), "/admin/v2/brokers/c%201", ("b:8080",)),
    "owned bundles": (
        lambda a: a.owned_bundles("c", "b:8080"),
        (200, {"t/ns/0x1_0x2": {"is_active": True}, "t/ns/0x0_0x1": {"is_active": False}}),
        "/admin/v2/brokers/c/b:8080/ownedNamespaces",
        {"t/ns/0x1_0x2": True, "t/ns/0x0_0x1": False},
    ),
    "topics": (
        lambda a: a.topics("a/x", "0x0_0x1"),
        (200, ["persistent://a/x/t"]),
        "/admin/v2/persistent/a/x?bundle=0x0_0x1",
        ("persistent://a/x/t",),
    ),
    "configuration": (
        lambda a: a.runtime_configuration(),
        (200, {"clusterName": "c", "brokerServicePort": None}),
        "/admin/v2/brokers/configuration/runtime",
        {"clusterName": "c", "brokerServicePort": None},
    ),
    "health": (lambda a: a.check_health(), (200, "ok"), "/admin/v2/brokers/health", None),
    "lookup": (
        lambda a: a.lookup("a/x/topic/with?slash"),
        (200, LOOKED_UP),
        "/lookup/v2/topic/persistent/a/x/topic%2Fwith%3Fslash",
        Lookup(brokerUrl="pulsar://b:6650", httpUrl="http://b:8080"),
    ),
}


@for_each(("ask", "answer", "path", "result"), READS.values(), ids=READS.keys())
def test_what_is_read_comes_in_its_shape(
    ask: Callable[[AdminApi], Any], answer: tuple[int, Any], path: str, result: Any
) -> None:
    server = Server(*answer)
    assert ask(server.api()) == result
    assert (server.request.method, server.request.url.raw_path.decode()) == ("GET", path)


@pytest.mark.parametrize(
    ("bookie", "hostname", "target", "body"),
    [
        ("bk1:3181", None, "/bk1:3181?group=g+1", {"rack": "/r"}),
        ("custom/id 1", "h1", "/custom%2Fid%201?group=g+1", {"rack": "/r", "hostname": "h1"}),
    ],
)
def test_a_rack_is_set_for_exactly_this_bookie(bookie: str, hostname: str | None, target: str, body: Any) -> None:
    server = Server(204, None)
    server.api().set_rack(bookie, "g 1", "/r", hostname)
    assert server.request.method == "POST"
    assert server.request.url.raw_path.decode() == f"/admin/v2/bookies/racks-info{target}"
    assert json.loads(server.request.content) == body


@pytest.mark.parametrize(
    "ask",
    [lambda a: a.namespaces("a"), lambda a: a.affinity("a/x"), lambda a: a.persistence("a/x")],
    ids=["namespaces", "affinity", "persistence"],
)
def test_a_page_that_says_not_found_is_no_answer_about_a_namespace(ask: Callable[[AdminApi], Any]) -> None:
    with pytest.raises(AdminError) as caught:
        ask(Server(404, "a proxy's page").api())
    assert caught.value.outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize("bookie", ["..", ".", ""])
def test_a_bookie_whose_name_would_change_the_path_is_an_error_and_nothing_is_asked(bookie: str) -> None:
    server = Server(204, None)
    with pytest.raises(AdminError, match="no request can name"):
        server.api().set_rack(bookie, "g", "/r")
    assert server.request.url.host == "none"
