"""The admin REST's answers to a look and a write, each as what it means to the actuator."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from connectors.actuation.order_worker import ActionError, UnknownOutcomeError
from connectors.isolation.groups import AdminRacks, ConflictError
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.referrers import BookieHttp
from connectors.pulsar.settings import PulsarAdmin
from policies.bookie_readings import BookieRegistration
from tests.connectors.isolation.quarantine.orders import registered

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SETTINGS = PulsarAdmin.model_validate({"admin_url": "http://pulsar:8080"})
BOOKIE = "bk11:3181"


class Broker:
    """Keeps groups as a broker does; `post` may be replaced by what goes wrong."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Any]] = {"default": {"bk1:3181": {"rack": "/r1"}}}
        self.writable = {BOOKIE: None}
        self.post: Callable[[httpx.Request], httpx.Response] = self.move
        self.requests: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        if request.url.path == "/api/v1/bookie/list_bookies":
            return httpx.Response(200, json=self.writable)
        return self.post(request) if request.method == "POST" else httpx.Response(200, json=self.groups)

    def move(self, request: httpx.Request) -> httpx.Response:
        bookie = request.url.path.rpartition("/")[2]
        for members in self.groups.values():
            members.pop(bookie, None)
        self.groups.setdefault(request.url.params["group"], {})[bookie] = json.loads(request.content)
        return httpx.Response(204)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def store(broker: Broker) -> AdminRacks:
    transport = httpx.MockTransport(broker)
    bookies = BookieHttp("http://bk1:8000", SETTINGS, transport)
    return AdminRacks(AdminApi(SETTINGS, transport), bookies, clock=lambda: NOW)


def test_groups_are_read_before_and_after(broker: Broker) -> None:
    snapshot = store(broker).read_groups(BOOKIE)
    assert snapshot.groups.keys() == {"default"}
    assert snapshot.write("quarantine", "/quarantine") == NOW
    assert broker.groups["quarantine"] == {BOOKIE: {"rack": "/quarantine", "hostname": "bk11"}}
    racks = "/admin/v2/bookies/racks-info"
    of_racks = [request for request in broker.requests if racks in request]
    assert of_racks == [f"GET {racks}", f"POST {racks}/{BOOKIE}", f"GET {racks}"]


@pytest.mark.parametrize(("bookie", "registration"), [(BOOKIE, registered()), ("bk12:3181", None)])
def test_who_is_registered_is_asked_of_a_bookie(
    broker: Broker, bookie: str, registration: BookieRegistration | None
) -> None:
    assert store(broker).read_groups(bookie).registration == registration


def fails(error: type[httpx.RequestError]) -> Callable[[httpx.Request], httpx.Response]:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("it broke", request=request)

    return fail


@pytest.mark.parametrize(
    ("post", "kind"),
    [
        pytest.param(fails(httpx.ConnectError), ActionError, id="nobody listens"),
        pytest.param(fails(httpx.ConnectTimeout), ActionError, id="no connection in time"),
        pytest.param(fails(httpx.ReadTimeout), UnknownOutcomeError, id="no answer in time"),
        pytest.param(fails(httpx.RemoteProtocolError), UnknownOutcomeError, id="hung up"),
        pytest.param(lambda _: httpx.Response(403, json={"reason": "no"}), ActionError, id="forbidden"),
        pytest.param(lambda _: httpx.Response(409, json={"reason": "version"}), ActionError, id="its own conflict"),
        pytest.param(lambda _: httpx.Response(504), UnknownOutcomeError, id="a proxy gave up"),
        pytest.param(lambda _: httpx.Response(204), ConflictError, id="and yet it is in no group"),
    ],
)
def test_what_an_answer_to_a_write_means(
    broker: Broker, post: Callable[[httpx.Request], httpx.Response], kind: type[Exception]
) -> None:
    broker.post = post
    snapshot = store(broker).read_groups(BOOKIE)
    with pytest.raises(ActionError) as raised:
        snapshot.write("quarantine", "/quarantine")
    assert type(raised.value) is kind


def test_an_operator_right_after_the_write_is_seen(broker: Broker) -> None:
    def moved_on(request: httpx.Request) -> httpx.Response:
        broker.groups["shared"] = {BOOKIE: {}}
        return httpx.Response(204)

    broker.post = moved_on
    racks = store(broker)
    with pytest.raises(ConflictError):
        racks.read_groups(BOOKIE).write("quarantine", "/quarantine")
    assert BOOKIE in racks.read_groups(BOOKIE).groups["shared"]
