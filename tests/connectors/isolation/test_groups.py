"""Groups of bookies: the edit of `/bookies`, and what each answer of ZooKeeper and of the admin REST means."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError

from connectors.actuation.order_worker import ActionError, UnknownOutcomeError
from connectors.isolation import groups
from connectors.isolation.collector import PulsarBookies
from connectors.isolation.groups import (
    ConflictError,
    RackStore,
    ZooKeeperRacks,
    add_member,
    find_group,
    parse_host,
    parse_racks,
)
from connectors.isolation.registration import WatchedPulsarBookies
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from connectors.zookeeper.session import NotConnectedError, ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.bookie_readings import BookieRegistration
from policies.isolation.decisions import QUARANTINE_GROUP, QUARANTINE_RACK
from policies.units import UserError, from_millis
from tests.cases import for_each
from tests.connectors.isolation.orders import BOOKIE, registered
from tests.fakes.zookeeper import Server

ENTRY = {"rack": "/headgate-quarantine", "hostname": "bk11"}
OURS = '"headgate-quarantine":{"bk11:3181":{"rack":"/headgate-quarantine","hostname":"bk11"}}'


def added(content: str | bytes, bookie: str = "bk11:3181") -> str:
    raw = content if isinstance(content, bytes) else content.encode()
    return add_member(parse_racks(raw), bookie, QUARANTINE_GROUP, QUARANTINE_RACK).decode()


@for_each(
    ("before", "after"),
    [
        pytest.param("", "{" + OURS + "}", id="zero bytes"),
        pytest.param(" \n", "{" + OURS + "}", id="white space"),
        pytest.param("{}", "{" + OURS + "}", id="no groups"),
        pytest.param(
            '{"z":{"b":{"rack":"/r"}},"a":{}}', '{"z":{"b":{"rack":"/r"}},"a":{},' + OURS + "}", id="order, empty group"
        ),
        pytest.param(
            '{"headgate-quarantine":{"bk9:1":{"rack":"/x","since":1.10}},"a":{"b":null}}',
            '{"headgate-quarantine":{"bk9:1":{"rack":"/x","since":1.10},"bk11:3181":'
            '{"rack":"/headgate-quarantine","hostname":"bk11"}},"a":{"b":null}}',
            id="the group is there: it keeps its place and members",
        ),
        pytest.param(
            '{"a":{"b":{"zone":[1.10,1E+2,-0.0,123456789012345678901234567890,{"x":null}],"rack":"/\\u00e9 é \\/"}}}',
            '{"a":{"b":{"zone":[1.10,1E+2,-0.0,123456789012345678901234567890,{"x":null}],"rack":"/\\u00e9 é \\/"}},'
            + OURS
            + "}",
            id="unknown fields, numbers and escapes stay the bytes they are",
        ),
        pytest.param(
            '{"a":{"b":{"big":' + "9" * 5000 + "}}}",
            '{"a":{"b":{"big":' + "9" * 5000 + "}}," + OURS + "}",
            id="a number too long for Python",
        ),
    ],
)  # fmt: skip
def test_one_entry_is_added_and_the_rest_is_as_it_was(before: str, after: str) -> None:
    assert added(before) == after


@for_each(
    ("bookie", "host"),
    [
        ("bk11:3181", "bk11"),
        ("10.0.0.7:3181", "10.0.0.7"),
        ("[::1]:3181", "[::1]"),
        ("bookie-7f3a", None),
        ("rack:a", None),
        (":3181", None),
    ],
)
def test_the_host_is_named_where_the_id_holds_one(bookie: str, host: str | None) -> None:
    assert parse_host(bookie) == host
    entry = json.loads(added("{}", bookie))[QUARANTINE_GROUP][bookie]
    assert entry == {"rack": QUARANTINE_RACK, **({"hostname": host} if host else {})}


@for_each(
    "content",
    [
        pytest.param(b"{", id="cut short"),
        pytest.param(b"{}x", id="something after it"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"a":null}', id="a group that is null"),
        pytest.param(b'{"a":["bk1:3181"]}', id="a group that is a list"),
        pytest.param(b'{"version":3}', id="a number among the groups"),
        pytest.param(b'{"a":{"b":"swordfish"}}', id="a bookie that is a text"),
        pytest.param(b'{"a":{"b":{"x":NaN}}}', id="not a number"),
        pytest.param(b'{"a":{"b":{"x":01}}}', id="a number that is none"),
        pytest.param(b'{"a":{"b":{}},"a":{"c":{}}}', id="a group twice"),
        pytest.param(b'{"a":{"b":{},"b":{}}}', id="a bookie twice"),
        pytest.param(b'{"a":{"b":{"x":{"y":1,"y":2}}}}', id="an unknown field twice"),
        pytest.param(b'{"a":{"b":{"x":"\xff"}}}', id="not UTF-8"),
        pytest.param(b'{"a":{"b":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}}", id="nested too deeply"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
    ],
)
def test_what_is_not_understood_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^((?!swordfish).)+$"):  # it quotes nothing of the content
        parse_racks(content)


@for_each("info", ['{"rack":"/r"}', "{}", "null"])
def test_a_bookie_in_a_group_is_never_added(info: str) -> None:
    racks = parse_racks(b'{"a":{"BK11:3181":{}},"b":{"bk11:3181":' + info.encode() + b"}}")
    assert find_group(racks, "bk11:3181") == "b", "ids are compared as registered"
    with pytest.raises(ValueError, match="in a group already"):
        add_member(racks, "bk11:3181", QUARANTINE_GROUP, QUARANTINE_RACK)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from([QUARANTINE_GROUP, "bk11:3181"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
GROUPS = st.dictionaries(
    NAMES, st.dictionaries(NAMES, st.none() | st.dictionaries(NAMES, VALUES, max_size=3), max_size=4), max_size=4
)


@given(GROUPS, st.booleans(), st.sampled_from([None, 2]))
def test_the_edit_changes_nothing_but_the_one_added_entry(groups: Any, escaped: bool, indent: int | None) -> None:
    content = json.dumps(groups, ensure_ascii=escaped, indent=indent).encode()
    racks = parse_racks(content)
    if find_group(racks, "bk11:3181") is not None:
        return
    after = json.loads(add_member(racks, "bk11:3181", QUARANTINE_GROUP, QUARANTINE_RACK))
    assert after[QUARANTINE_GROUP].popitem() == ("bk11:3181", ENTRY)
    if QUARANTINE_GROUP not in groups:
        assert list(after)[-1] == QUARANTINE_GROUP
        assert after.pop(QUARANTINE_GROUP) == {}
    # As text, so that order and the kind of each number count.
    assert json.dumps(after) == json.dumps(groups)


@pytest.fixture
def server() -> Server:
    """bk1 is in a group, and bk11 is not."""
    server = Server()
    server.write("/bookies", b'{"default":{"bk1:3181":{"rack":"/r1"}}}')
    for name, session in (("readonly", 0), ("bk1:3181", 1), (BOOKIE, -1)):
        server.write("/bk/ledgers/available", b"")
        server.apply([("create", f"/bk/ledgers/available/{name}", b"", -1, session)])
    return server


@pytest.fixture
def opened(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[ZooKeeperSession]:
    """The sessions that were opened."""
    sessions: list[ZooKeeperSession] = []

    def open_session(cluster: str, connection: ZooKeeperConnection) -> ZooKeeperSession:
        sessions.append(server.session())
        return sessions[-1]

    monkeypatch.setattr(groups, "ZooKeeperSession", open_session)
    return sessions


@pytest.fixture
def racks(opened: list[ZooKeeperSession]) -> ZooKeeperRacks:
    connection = ZooKeeperConnection.model_validate({"servers": "zk:2181/pulsar"})
    return ZooKeeperRacks("messaging", connection, ledgers_root="/bk/ledgers")


def test_the_groups_are_written_if_they_are_as_they_were_read_with_the_registration(
    racks: ZooKeeperRacks, server: Server
) -> None:
    snapshot = racks.read_groups(BOOKIE)
    (_, groups_stat), (_, stat) = server.tree["/bookies"], server.tree[f"/bk/ledgers/available/{BOOKIE}"]
    assert snapshot.writable == {"bk1:3181", BOOKIE}
    registration = snapshot.registration
    assert registration is not None
    assert (registration.session, registration.czxid) == ("0xffffffffffffffff", stat.czxid)
    assert registration.registered_at == from_millis(stat.ctime)
    assert snapshot.changed_at == from_millis(groups_stat.mtime)
    assert snapshot.write("g", "/g") == from_millis(server.zxid)
    assert json.loads(server.tree["/bookies"][0])["g"] == {BOOKIE: {"rack": "/g", "hostname": "bk11"}}
    with pytest.raises(ConflictError):
        snapshot.write("g", "/g")


@for_each("name", ["bk12:3181", "readonly"], ids=["absent", "no owner"])
def test_what_no_session_owns_is_no_registration(racks: ZooKeeperRacks, name: str) -> None:
    assert racks.read_groups(name).registration is None


@pytest.mark.parametrize(
    ("error", "kind", "is_closed"),
    [
        (exceptions.NoNodeError(), ConflictError, False),
        (exceptions.ConnectionLoss(), UnknownOutcomeError, True),
        (KazooTimeoutError(), UnknownOutcomeError, True),
        (exceptions.NoAuthError(), ActionError, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_an_answer_of_zookeeper_to_a_write_means(
    racks: ZooKeeperRacks, server: Server, opened: list[Any], error: Exception, kind: type[Exception], is_closed: bool
) -> None:
    snapshot = racks.read_groups(BOOKIE)
    server.away = error
    with pytest.raises(ActionError) as raised:
        snapshot.write("g", "/g")
    assert type(raised.value) is kind
    server.away = None
    # A request that still waits to be sent must not be sent later.
    racks.read_groups(BOOKIE)
    assert len(opened) == 1 + is_closed


@pytest.mark.parametrize(
    ("harm", "why", "is_closed"),
    [
        (lambda server: server.delete("/bookies"), "there is no znode /bookies: give", False),
        (lambda server: server.write("/bookies", b"[]"), "is not as Pulsar writes it", False),
        (exceptions.ConnectionLoss(), "the connection was lost", True),
        (KazooTimeoutError(), "no answer in time", True),
        (NotConnectedError({"zk:2181": OSError(111, "refused")}), "refused", True),
        (UserError("password_file: /x is empty."), "/x is empty", True),
    ],
    ids=["absent", "malformed", "lost", "silent", "not connected", "a file"],
)
def test_a_look_that_fails_names_the_reason(
    racks: ZooKeeperRacks, server: Server, opened: list[Any], harm: Any, why: str, is_closed: bool
) -> None:
    if isinstance(harm, Exception):
        server.away = harm
    else:
        harm(server)
    for _ in range(2):
        with pytest.raises(ActionError, match=why):
            racks.read_groups(BOOKIE)
    assert len(opened) == 1 + is_closed


NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SETTINGS = PulsarAdmin.model_validate({"admin_url": "http://pulsar:8080"})


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


def store(broker: Broker) -> RackStore:
    transport, watched = httpx.MockTransport(broker), WatchedPulsarBookies(bookie_url="http://bk1:8000")
    return PulsarBookies("c1", watched, AdminApi(SETTINGS, transport), transport, lambda: NOW).open_store()


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
def test_what_an_answer_of_the_admin_rest_to_a_write_means(
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
